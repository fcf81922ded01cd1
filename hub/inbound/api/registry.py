"""The registry over HTTP: withdraw, drain, probe, find, watch. docs/reference/http.md describes it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

from quart import Quart, Response, request

from hub.core.admission.quota import WorkspaceQuota
from hub.core.registry.directory import Directory
from hub.inbound.api.application import json_object, problem, reply, whole_number
from hub.inbound.api.leases import LEASE_ERRORS, seconds
from hub.inbound.api.offers import read_proof, read_worker
from hub.inbound.api.operation_doc import EVENTS, documented
from hub.inbound.api.shapes import (
    Agent,
    AgentAndCard,
    AgentFilter,
    Agents,
    AgentSkill,
    Change,
    DrainRequest,
    FeedQuery,
    ProbeResult,
    Proof,
    ProofInQuery,
    Revision,
    Withdrawn,
)
from hub.inbound.middleware.audit import recorded
from hub.inbound.middleware.authentication import caller, enroller
from rolecall.errors import (
    InvalidParams,
    LeaseError,
    LeaseSuperseded,
    LeaseUnknown,
    OfferInvalid,
    Overloaded,
)
from rolecall.model.a2a import JsonObject
from rolecall.model.command import AgentQuery
from rolecall.model.ids import Caller
from rolecall.model.principal import Right
from rolecall.model.worker import Registration, RegistryChange
from rolecall.protocol.sse import KEEP_ALIVE, RESPONSE_HEADERS, write_frame
from rolecall.protocol.text.jsontext import dump
from rolecall.protocol.text.timestamp import timestamp

ROUTING_NOTE = "Use 'role' with send_to_agent for routing; 'name' pins one instance."
_STATES = ("ready", "suspect", "draining")


def add_registry(app: Quart, directory: Directory, *, keep_alive: timedelta, feeds: WorkspaceQuota) -> None:
    @app.delete("/registry/agents/<name>")
    @documented("Withdraw a worker.", {200: Withdrawn}, *LEASE_ERRORS, body=Proof, body_required=False, query=ProofInQuery)
    async def withdraw(name: str) -> Response:
        document = await json_object(required=False)
        for field in ("epoch", "lease"):
            if field in request.args:
                document.setdefault(field, _int_or_text(request.args[field]) if field == "epoch" else request.args[field])
        try:
            with recorded(enroller().caller, "withdraw", name):
                await directory.withdraw(enroller(), read_worker(name), read_proof(document))
        except (LeaseUnknown, LeaseSuperseded) as error:
            return _unregistered(error)
        withdrawn: Withdrawn = {"name": name, "registered": False}
        return reply(withdrawn)

    @app.post("/registry/agents/<name>/drain")
    @documented("Give a worker no new tasks.", {200: Agent}, OfferInvalid, LeaseUnknown, body=DrainRequest, body_required=False)
    async def drain(name: str) -> Response:
        document = await json_object(required=False)
        reason = str(document.get("reason") or "drained by an operator")[:200]
        operator = caller(Right.OPERATE)
        with recorded(operator, "drain", name):
            drained = await directory.drain(operator, read_worker(name), reason)
        return reply(_item(directory, drained))

    @app.post("/registry/agents/<name>/probe")
    @documented("Have the hub connect to a worker's address.", {200: ProbeResult}, OfferInvalid, LeaseUnknown)
    async def probe(name: str) -> Response:
        operator = caller(Right.OPERATE)
        with recorded(operator, "probe", name):
            probed, reached = await directory.probe(operator, read_worker(name))
        found: ProbeResult = {"name": str(probed.worker), "url": probed.offer.url, "reachable": reached}
        return reply(found)

    @app.get("/registry/agents")
    @app.get("/agents")
    @documented("Find live workers.", {200: Agents}, InvalidParams, query=AgentFilter)
    async def find() -> Response:
        found, cursor = directory.find(caller(), _query())
        items = [_item(directory, registration) for registration in found]
        page: Agents = {"agents": items, "count": len(items), "next_cursor": cursor, "routing_note": ROUTING_NOTE}
        return reply(page)

    @app.get("/registry/agents/<name>")
    @documented("One live worker, with its card.", {200: AgentAndCard}, OfferInvalid, LeaseUnknown)
    async def show(name: str) -> Response:
        registration = directory.get(caller(), read_worker(name))
        shown: AgentAndCard = {**_item(directory, registration), "card": registration.offer.card}
        return reply(shown)

    @app.get("/registry/events")
    @documented(
        "What changes in the registry, as server-sent events.",
        {200: {EVENTS: Change}},
        InvalidParams,
        Overloaded,
        query=FeedQuery,
        headers={"Last-Event-ID": Revision},
    )
    async def feed() -> Response:
        subscriber = caller()
        feeds.check(subscriber.workspace)
        after = _cursor(request.headers.get("Last-Event-ID") or request.args.get("after"))
        headers = {key.decode(): value.decode() for key, value in RESPONSE_HEADERS}
        # HEAD is answered at once, without a stream.
        changes = _changes(directory, subscriber, after, keep_alive, feeds) if request.method == "GET" else None
        response = Response(changes, headers=headers)
        response.timeout = None
        return response


async def _changes(
    directory: Directory, subscriber: Caller, after: int | None, idle: timedelta, feeds: WorkspaceQuota
) -> AsyncGenerator[bytes, None]:
    with directory.changes(subscriber, after=after, idle=idle) as changes:
        feeds.fill(subscriber.workspace)
        try:
            yield KEEP_ALIVE
            async for batch in changes:
                yield b"".join(map(_change_frame, batch)) if batch else KEEP_ALIVE
        finally:
            feeds.leave(subscriber.workspace)


def _change_frame(change: RegistryChange) -> bytes:
    document: Change = {
        "revision": change.revision,
        "event": change.kind,
        "name": str(change.worker),
        "role": change.worker.role,
        "instance_id": change.worker.instance,
        "epoch": change.epoch,
        "state": change.health,
        "at": timestamp(change.at),
    }
    return write_frame(dump(document), cursor=change.revision, event=change.kind.value)


def _item(directory: Directory, registration: Registration) -> Agent:
    offer = registration.offer
    capabilities = offer.card.get("capabilities") or {}
    return {
        "name": str(offer.worker),
        "role": offer.worker.role,
        "instance_id": offer.worker.instance,
        "description": offer.description,
        "url": offer.url,
        "capabilities": {
            "streaming": capabilities.get("streaming") is True,
            "push_notifications": capabilities.get("pushNotifications") is True,
        },
        "last_seen": timestamp(registration.last_seen),
        "state": registration.health,
        "load": {"in_flight": registration.load, "capacity": offer.capacity},
        "expires_in": seconds(directory.expires_in(registration)),
        "skills": [_skill(skill) for skill in offer.skills],
        "labels": offer.labels,
        "models_supported": list(offer.models),
        "epoch": registration.epoch,
        "reason": registration.reason,
    }


def _skill(skill: JsonObject) -> AgentSkill:
    get = skill.get
    return {"id": get("id"), "name": get("name"), "description": get("description"), "tags": get("tags")}


def _query() -> AgentQuery:
    args = request.args
    state = args.get("state")
    if state is not None and state not in _STATES:
        raise InvalidParams(f'"state" must be one of {", ".join(_STATES)}.')
    limit = whole_number(args.get("limit", "1000"), "limit", 1, 1000)
    labels = dict(label.partition("=")[::2] for label in args.getlist("label"))
    return AgentQuery(
        role=args.get("role"),
        skill=args.get("skill"),
        tag=args.get("tag"),
        capability=_capability(args.get("capability")),
        labels=labels,
        text=args.get("q"),
        state=state,
        limit=limit,
        after=args.get("cursor") or None,
    )


def _capability(name: str | None) -> str | None:
    return {"push_notifications": "pushNotifications"}.get(name, name) if name else None


def _unregistered(error: LeaseError) -> Response:
    return problem(error, registered=False)


def _cursor(text: str | None) -> int | None:
    if text is None or text == "":
        return None
    return whole_number(text, "Last-Event-ID", 0, 10**18)


def _int_or_text(text: str) -> Any:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 18 else text
