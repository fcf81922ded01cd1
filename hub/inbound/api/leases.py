"""Enrolments and heartbeats: the frequent requests of workers. They bypass Quart, which only lists and describes the routes."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

from msgspec import UNSET
from quart import Quart

from hub.core.registry.directory import Directory, GrantedLease
from hub.inbound.api.answers import FileStore, Lease
from hub.inbound.api.offers import check_name, read_beat, read_flat_name, read_offer, read_proof, read_ttl, read_worker
from hub.inbound.api.operation import Operation, documented, operation_of
from hub.inbound.api.requests import Enrolment, FlatEnrolment, Heartbeat, InstanceInPath, RoleInPath, WorkerInPath
from hub.inbound.middleware.audit import recorded, required
from hub.inbound.middleware.refusal import BODY_UNREAD, retry_after_of
from hub.inbound.middleware.request import Request
from hub.ports.identity import Vault
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
_ENROLLED = {200: Lease, 201: Lease}

Handler = Callable[..., Awaitable[GrantedLease]]


class LeaseRoute(NamedTuple):
    """`rule` is written as Quart's are; a segment in `<>` is a parameter."""

    method: str
    rule: str
    handler: Handler
    operation: Operation

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
    def __init__(
        self,
        directory: Directory,
        vault: Vault,
        *,
        max_body: int,
        max_depth: int,
        max_card: int,
        files: FileStore | None = None,
    ) -> None:
        self._directory = directory
        self._vault = vault
        self._max_body = max_body
        self._max_depth = max_depth
        self._max_card = max_card
        self._files = files or UNSET
        self._routes = (
            _route("PUT", "/registry/agents/<role>/<instance>", self.enrol),
            _route("POST", "/registry/agents", self.enrol_flat),
            _route("POST", "/registry/agents/<name>/heartbeat", self.beat),
        )

    def add_to(self, app: Quart) -> None:
        """Lists the routes in Quart's map, for the OpenAPI description and for 405. `match` finds them before Quart."""
        for route in self._routes:
            view: Any = route.handler
            app.add_url_rule(route.rule, endpoint=f"{route.method} {route.rule}", view_func=view, methods=[route.method])

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
            principal = required(request.scope, request.principal, Right.ENROL)
            own = call.route.operation
            body = own.read_body(await self._read(request, required=own.body_required))
            granted = await call.route.handler(request, principal, *call.parameters, body)
        except ClientDisconnected:
            return
        except HubError as error:
            await _refuse(request, error)
            return
        await request.answer(dump(self._lease_of(granted)), status=201 if granted.is_new else 200)

    @documented("Enrol a worker. Repeating it is harmless.", *_ENROL_ERRORS, answers=_ENROLLED)
    async def enrol(
        self, request: Request, principal: Principal, role: RoleInPath, instance: InstanceInPath, body: Enrolment
    ) -> GrantedLease:
        check_name(role, instance)
        return await self._enrol(request, principal, body, WorkerId(role, instance))

    @documented("Enrol a worker, with its name in the body.", *_ENROL_ERRORS, answers=_ENROLLED)
    async def enrol_flat(self, request: Request, principal: Principal, body: FlatEnrolment) -> GrantedLease:
        return await self._enrol(request, principal, body, read_flat_name(body))

    @documented("Renew a lease.", *LEASE_ERRORS, answers={200: Lease})
    async def beat(self, request: Request, principal: Principal, name: WorkerInPath, body: Heartbeat) -> GrantedLease:
        return await self._directory.beat(principal, read_worker(name), read_proof(body), read_beat(body))

    async def _enrol(self, request: Request, principal: Principal, body: Enrolment, worker: WorkerId) -> GrantedLease:
        offer = read_offer(body, worker, max_card=self._max_card)
        if body.authorization:
            offer = replace(offer, credential=b64encode(self._vault.seal(body.authorization.encode())).decode())
        with recorded(request.scope, "enrol", str(worker)):
            return await self._directory.enrol(principal, offer, boot=body.boot or "", ttl=read_ttl(body))

    async def _read(self, request: Request, *, required: bool) -> JsonObject:
        """The body as an object; no body is `{}` unless one is required."""
        if not required and _has_no_body(request):
            return {}
        body = await request.json(self._max_body)
        return read_object(body, self._max_depth) if body or required else {}

    def _lease_of(self, granted: GrantedLease) -> Lease:
        registration = granted.registration
        return Lease(
            name=str(registration.worker),
            role=registration.worker.role,
            instance_id=registration.worker.instance,
            epoch=registration.epoch,
            lease=registration.secret,
            ttl_seconds=registration.ttl.total_seconds(),
            heartbeat_seconds=round(granted.heartbeat.total_seconds(), 3),
            registered=True,
            expires_in=seconds(self._directory.expires_in(registration)),
            state=registration.health,
            files=self._files,
        )


def _route(method: str, rule: str, handler: Handler) -> LeaseRoute:
    return LeaseRoute(method, rule, handler, operation_of(handler))


def _has_no_body(request: Request) -> bool:
    """Judged by the head. In HTTP/2 a body may have no Content-Length, but it must have a Content-Type."""
    headers = request.headers
    length = headers.get(b"content-length")
    if length is not None or b"transfer-encoding" in headers:
        return length == b"0" and b"transfer-encoding" not in headers
    return request.scope["http_version"].startswith("1") or b"content-type" not in headers


def _is_parameter(segment: str) -> bool:
    return segment.startswith("<")


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
