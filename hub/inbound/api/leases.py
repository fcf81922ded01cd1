"""Enrolments and heartbeats: the frequent requests of workers. They bypass Quart, which only lists and describes the routes."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
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
from hub.inbound.middleware.audit import recorded
from hub.inbound.middleware.authentication import require
from hub.inbound.middleware.refusal import BODY_UNREAD, retry_after_of
from hub.inbound.middleware.request import Request
from hub.ports.vault import Vault
from hub.server.asgi import PROBLEM
from rolecall.errors import (
    ClientDisconnected,
    HubError,
    InstanceConflict,
    LeaseSuperseded,
    LeaseUnknown,
    OfferInvalid,
    Overloaded,
    TooManyRegistrations,
)
from rolecall.model.a2a import JsonObject
from rolecall.model.ids import WorkerId
from rolecall.model.principal import Principal, Right
from rolecall.protocol.faults import fault_of
from rolecall.protocol.problem import problem_body
from rolecall.protocol.text.jsontext import dump, read_object

_ENROL_ERRORS = (OfferInvalid, InstanceConflict, Overloaded, TooManyRegistrations)
LEASE_ERRORS = (OfferInvalid, LeaseUnknown, LeaseSuperseded)

Handler = Callable[..., Awaitable[GrantedLease]]


class LeaseRoute(NamedTuple):
    """`rule` is written as Quart's are; a segment in `<>` is a parameter."""

    method: str
    rule: str
    handler: Handler
    body_required: bool

    def parameters(self, segments: Sequence[str]) -> tuple[str, ...] | None:
        """The parameters' values; None: the path does not match."""
        own = self.rule[1:].split("/")
        if len(own) != len(segments):
            return None
        pairs = list(zip(own, segments, strict=True))
        if any(not _is_parameter(name) and name != segment for name, segment in pairs):
            return None
        return tuple(segment for name, segment in pairs if _is_parameter(name))


class LeaseCall(NamedTuple):
    """A route that matches a request, and its parameters' values."""

    route: LeaseRoute
    parameters: tuple[str, ...]


class Leases:
    def __init__(self, directory: Directory, vault: Vault, *, max_body: int, max_depth: int, max_card: int) -> None:
        self._directory = directory
        self._vault = vault
        self._max_body = max_body
        self._max_depth = max_depth
        self._max_card = max_card
        self._routes = (
            LeaseRoute("PUT", "/registry/agents/<role>/<instance>", self.enrol, True),
            LeaseRoute("POST", "/registry/agents", self.enrol_flat, True),
            LeaseRoute("POST", "/registry/agents/<name>/heartbeat", self.beat, False),
        )

    def add_to(self, app: Quart) -> None:
        """Lists the routes in Quart's map, for the OpenAPI description and for 405. `match` finds them before Quart."""
        for method, rule, handler, _ in self._routes:
            view: Any = handler
            app.add_url_rule(rule, endpoint=f"{method} {rule}", view_func=view, methods=[method])

    def match(self, path: str, method: str) -> LeaseCall | None:
        """None: not a route of leases."""
        _, *segments = path.removesuffix("/").split("/")
        if segments[:2] != ["registry", "agents"] or "" in segments:
            return None
        for route in self._routes:
            parameters = route.parameters(segments) if method == route.method else None
            if parameters is not None:
                return LeaseCall(route, parameters)
        return None

    async def __call__(self, request: Request, call: LeaseCall) -> None:
        try:
            principal = require(request.principal, Right.ENROL)
            document = await self._read(request, required=call.route.body_required)
            granted = await call.route.handler(principal, document, *call.parameters)
        except ClientDisconnected:
            return
        except HubError as error:
            await _refuse(request, error)
            return
        await request.answer(dump(_lease_of(self._directory, granted)), status=201 if granted.is_new else 200)

    @documented("Enrol a worker. Repeating it is harmless.", {200: Lease, 201: Lease}, *_ENROL_ERRORS, body=Enrolment)
    async def enrol(self, principal: Principal, document: JsonObject, role: str, instance: str) -> GrantedLease:
        check_name(role, instance)
        return await self._enrol(principal, document, WorkerId(role, instance))

    @documented("Enrol a worker, with its name in the body.", {200: Lease, 201: Lease}, *_ENROL_ERRORS, body=FlatEnrolment)
    async def enrol_flat(self, principal: Principal, document: JsonObject) -> GrantedLease:
        return await self._enrol(principal, document, read_flat_name(document))

    @documented("Renew a lease.", {200: Lease}, *LEASE_ERRORS, body=Heartbeat, body_required=False)
    async def beat(self, principal: Principal, document: JsonObject, name: str) -> GrantedLease:
        return await self._directory.beat(principal, read_worker(name), read_proof(document), read_beat(document))

    async def _enrol(self, principal: Principal, document: JsonObject, worker: WorkerId) -> GrantedLease:
        offer = read_offer(document, worker, max_card=self._max_card)
        credential = read_credential(document)
        if credential:
            offer = replace(offer, credential=b64encode(self._vault.seal(credential.encode())).decode())
        with recorded(principal.caller, "enrol", str(worker)):
            return await self._directory.enrol(principal, offer, boot=read_boot(document), ttl=read_ttl(document))

    async def _read(self, request: Request, *, required: bool) -> JsonObject:
        """The body as an object; no body is `{}` unless one is required."""
        if not required and _has_no_body(request):
            return {}
        body = await request.json(self._max_body)
        return read_object(body, self._max_depth) if body or required else {}


def _has_no_body(request: Request) -> bool:
    """Judged by the head. In HTTP/2 a body may have no Content-Length, but it must have a Content-Type."""
    headers = request.headers
    length = headers.get(b"content-length")
    if length is not None or b"transfer-encoding" in headers:
        return length == b"0" and b"transfer-encoding" not in headers
    return request.scope["http_version"].startswith("1") or b"content-type" not in headers


def _is_parameter(segment: str) -> bool:
    return segment.startswith("<")


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


def seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else round(duration.total_seconds(), 3)


async def _refuse(request: Request, error: HubError) -> None:
    fault = fault_of(error)
    members = {"registered": False} if isinstance(error, LeaseUnknown | LeaseSuperseded) else {}
    body = problem_body(fault, **members)
    if fault.status in BODY_UNREAD:
        await request.answer_unread(body, status=fault.status, media=PROBLEM)
        return
    await request.answer(body, status=fault.status, media=PROBLEM, headers=retry_after_of(error))
