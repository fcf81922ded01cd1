"""What workers do all the time: enrol and beat. Bytes in, bytes out; Quart only knows that these addresses are taken."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

from quart import Quart

from hub.core.registry.directory import Directory, GrantedLease
from hub.inbound.api.offers import (
    check_name,
    read_beat,
    read_boot,
    read_credential,
    read_flat_name,
    read_offer,
    read_proof,
    read_ttl,
    read_worker,
)
from hub.inbound.api.operation_doc import documented
from hub.inbound.api.shapes import Enrolment, FlatEnrolment, Heartbeat, Lease
from hub.inbound.middleware.audit import noted
from hub.inbound.middleware.authentication import holder_of
from hub.inbound.middleware.refusal import retry_after_of
from hub.inbound.middleware.request import Request
from hub.ports.vault import Vault
from hub.server.asgi import PROBLEM
from rolecall.errors import (
    ClientGone,
    HubError,
    InstanceConflict,
    LeaseSuperseded,
    LeaseUnknown,
    OfferInvalid,
    Overloaded,
    TooManyHeld,
)
from rolecall.model.a2a import JsonObject
from rolecall.model.ids import WorkerId
from rolecall.model.principal import Principal, Right
from rolecall.protocol.faults import fault_of
from rolecall.protocol.problem import problem_body
from rolecall.protocol.text.jsontext import dump, read_object

_REFUSED = (OfferInvalid, InstanceConflict, Overloaded, TooManyHeld)
_GONE = (OfferInvalid, LeaseUnknown, LeaseSuperseded)
_UNREAD = frozenset({408, 413, 415})

Handler = Callable[..., Awaitable[GrantedLease]]


class LeaseRoute(NamedTuple):
    """Who answers at an address, and what it names. `needed`: there has to be a body."""

    handler: Handler
    named: tuple[str, ...]
    needed: bool


class Leases:
    def __init__(self, directory: Directory, vault: Vault, *, max_body: int, max_depth: int, max_card: int) -> None:
        self._directory = directory
        self._vault = vault
        self._max_body = max_body
        self._max_depth = max_depth
        self._max_card = max_card

    def add_to(self, app: Quart) -> None:
        """To the table of addresses, which describes them and knows what each takes. `place` finds them before Quart does."""
        taken: tuple[tuple[str, str, Any], ...] = (
            ("PUT", "/registry/agents/<role>/<instance>", self.enrol),
            ("POST", "/registry/agents", self.enrol_flat),
            ("POST", "/registry/agents/<name>/heartbeat", self.beat),
        )
        for method, rule, handler in taken:
            app.add_url_rule(rule, endpoint=f"{method} {rule}", view_func=handler, methods=[method])

    def place(self, path: str, method: str) -> LeaseRoute | None:
        """None: that is another's."""
        _, *words = path.removesuffix("/").split("/")
        if words[:2] != ["registry", "agents"] or "" in words:
            return None
        if method == "PUT" and len(words) == 4:
            return LeaseRoute(self.enrol, tuple(words[2:]), True)
        if method == "POST" and len(words) == 2:
            return LeaseRoute(self.enrol_flat, (), True)
        if method == "POST" and len(words) == 4 and words[3] == "heartbeat":
            return LeaseRoute(self.beat, (words[2],), False)
        return None

    async def __call__(self, request: Request, place: LeaseRoute) -> None:
        try:
            holder = holder_of(request.who, Right.ENROL)
            document = await self._read(request, needed=place.needed)
            granted = await place.handler(holder, document, *place.named)
        except ClientGone:
            return
        except HubError as error:
            await _refuse(request, error)
            return
        await request.answer(dump(_lease_of(self._directory, granted)), status=201 if granted.is_new else 200)

    @documented("Enrol a worker. Repeating it is harmless.", {200: Lease, 201: Lease}, *_REFUSED, body=Enrolment)
    async def enrol(self, holder: Principal, document: JsonObject, role: str, instance: str) -> GrantedLease:
        check_name(role, instance)
        return await self._enrol(holder, document, WorkerId(role, instance))

    @documented("Enrol a worker, with its name in the body.", {200: Lease, 201: Lease}, *_REFUSED, body=FlatEnrolment)
    async def enrol_flat(self, holder: Principal, document: JsonObject) -> GrantedLease:
        return await self._enrol(holder, document, read_flat_name(document))

    @documented("Renew a lease.", {200: Lease}, *_GONE, body=Heartbeat, body_required=False)
    async def beat(self, holder: Principal, document: JsonObject, name: str) -> GrantedLease:
        return await self._directory.beat(holder, read_worker(name), read_proof(document), read_beat(document))

    async def _enrol(self, holder: Principal, document: JsonObject, worker: WorkerId) -> GrantedLease:
        offer = read_offer(document, worker, max_card=self._max_card)
        credential = read_credential(document)
        if credential:
            offer = replace(offer, credential=b64encode(self._vault.seal(credential.encode())).decode())
        with noted(holder.caller, "enrol", str(worker)):
            return await self._directory.enrol(holder, offer, boot=read_boot(document), ttl=read_ttl(document))

    async def _read(self, request: Request, *, needed: bool) -> JsonObject:
        """The body as an object; one that may be left out is an empty one then."""
        if not needed and _has_no_body(request):
            return {}
        body = await request.json(self._max_body)
        return read_object(body, self._max_depth) if body or needed else {}


def _has_no_body(request: Request) -> bool:
    """As far as the head tells. In HTTP/2 a body need not say its length; what it is it has to say."""
    said = request.headers
    length = said.get(b"content-length")
    if length is not None or b"transfer-encoding" in said:
        return length == b"0" and b"transfer-encoding" not in said
    return request.scope["http_version"].startswith("1") or b"content-type" not in said


def _lease_of(directory: Directory, granted: GrantedLease) -> Lease:
    registration = granted.registration
    return {
        "name": str(registration.worker),
        "role": registration.worker.role,
        "instance_id": registration.worker.instance,
        "epoch": registration.epoch,
        "lease": registration.secret,
        "ttl_seconds": registration.ttl.total_seconds(),
        "heartbeat_seconds": round(granted.heartbeat.total_seconds(), 3),
        "registered": True,
        "expires_in": seconds(directory.expires_in(registration)),
        "state": registration.health,
    }


def seconds(span: timedelta | None) -> float | None:
    return None if span is None else round(span.total_seconds(), 3)


async def _refuse(request: Request, error: HubError) -> None:
    fault = fault_of(error)
    gone = {"registered": False} if isinstance(error, LeaseUnknown | LeaseSuperseded) else {}
    body = problem_body(fault, **gone)
    if fault.status in _UNREAD:
        await request.answer_unread(body, status=fault.status, media=PROBLEM)
        return
    await request.answer(body, status=fault.status, media=PROBLEM, headers=retry_after_of(error))
