"""The registry over HTTP: withdraw, drain, probe, find, watch. docs/reference/http.md describes it."""

from __future__ import annotations

from datetime import timedelta

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict
from quart import Quart, Response

from hub.core.registry.directory import Directory
from hub.inbound.api.answers import (
    Agent,
    AgentAndCard,
    AgentCapabilities,
    Agents,
    AgentSkill,
    CardRead,
    Change,
    Load,
    ProbeResult,
    Withdrawn,
)
from hub.inbound.api.application import problem
from hub.inbound.api.leases import LEASE_ERRORS, seconds
from hub.inbound.api.offers import read_proof, read_worker
from hub.inbound.api.operation import EVENTS, operation
from hub.inbound.api.requests import AgentFilter, DrainRequest, FeedQuery, Proof, ProofInQuery, WorkerInPath
from hub.inbound.feeds.stream import Feeds
from hub.inbound.middleware.audit import recorded
from hub.inbound.middleware.authentication import caller, enroller, own_scope
from rolecall.errors import DrainsItself, LeaseError, LeaseSuperseded, LeaseUnknown, OfferInvalid, Overloaded
from rolecall.model.a2a import JsonObject
from rolecall.model.command import AgentQuery
from rolecall.model.principal import Right
from rolecall.model.worker import LeaseProof, Registration, RegistryChange
from rolecall.protocol.sse import write_frame
from rolecall.protocol.text.jsontext import dump
from rolecall.protocol.text.timestamp import timestamp

ROUTING_NOTE = (
    "Use 'role' with send_to_agent for routing; 'name' pins one instance. "
    "Over HTTP, call /agents/{role}/ of this hub: 'url' is the worker's own address."
)


def add_registry(app: Quart, directory: Directory, feeds: Feeds, *, keep_alive: timedelta) -> None:
    @app.delete("/registry/agents/<name>")
    @operation("Withdraw a worker.", *LEASE_ERRORS, right=Right.ENROL)
    async def withdraw(name: WorkerInPath, body: Proof, query: ProofInQuery) -> Withdrawn | Response:
        proof = read_proof(body)
        proof = LeaseProof(
            query.epoch if body.epoch is UNSET else proof.epoch,
            query.lease or None if body.lease is UNSET else proof.secret,
        )
        try:
            with recorded(own_scope(), "withdraw", name):
                await directory.withdraw(enroller(), read_worker(name), proof)
        except (LeaseUnknown, LeaseSuperseded) as error:
            return _unregistered(error)
        return Withdrawn(name=name, registered=False)

    @app.post("/registry/agents/<name>/drain")
    @operation("Give a worker no new tasks.", OfferInvalid, LeaseUnknown, right=Right.OPERATE)
    async def drain(name: WorkerInPath, body: DrainRequest) -> Agent:
        reason = str(body.reason or "drained by an operator")[:200]
        with recorded(own_scope(), "drain", name):
            drained = await directory.drain(caller(), read_worker(name), reason)
        return _item(directory, drained)

    @app.post("/registry/agents/<name>/undrain")
    @operation("Give a drained worker tasks again.", OfferInvalid, LeaseUnknown, DrainsItself, right=Right.OPERATE)
    async def undrain(name: WorkerInPath) -> Agent:
        with recorded(own_scope(), "undrain", name):
            drained = await directory.undrain(caller(), read_worker(name))
        return _item(directory, drained)

    @app.post("/registry/agents/<name>/probe")
    @operation(
        "Have the hub connect to a worker's address, and read its card again.", OfferInvalid, LeaseUnknown, right=Right.OPERATE
    )
    async def probe(name: WorkerInPath) -> ProbeResult:
        with recorded(own_scope(), "probe", name):
            probed, reached = await directory.probe(caller(), read_worker(name))
        return ProbeResult(name=str(probed.worker), url=probed.offer.url, reachable=reached)

    @app.get("/registry/agents")
    @app.get("/agents")
    @operation("Find live workers.")
    async def find(query: AgentFilter) -> Agents:
        found, cursor = directory.find(caller(), _wanted(query))
        items = [_item(directory, registration) for registration in found]
        return Agents(agents=items, count=len(items), next_cursor=cursor, routing_note=ROUTING_NOTE)

    @app.get("/registry/agents/<name>")
    @operation("One live worker, with its card.", OfferInvalid, LeaseUnknown)
    async def show(name: WorkerInPath) -> AgentAndCard:
        registration = directory.get(caller(), read_worker(name))
        item = asdict(_item(directory, registration))
        return AgentAndCard(**item, card=registration.offer.card, card_read=_card_read(registration))

    @app.get("/registry/events")
    @operation("What changes in the registry, as server-sent events.", Overloaded, answers={200: {EVENTS: Change}})
    async def feed(query: FeedQuery) -> Response:
        return feeds.answer(lambda: directory.changes(caller(), after=query.resume_after, idle=keep_alive), _change_frame)


async def _change_frame(change: RegistryChange) -> bytes:
    event = Change(
        revision=change.revision,
        event=change.kind,
        name=str(change.worker),
        role=change.worker.role,
        instance_id=change.worker.instance,
        epoch=change.epoch,
        state=change.health,
        reason=change.reason,
        at=timestamp(change.at),
    )
    return write_frame(dump(event), cursor=change.revision, event=change.kind.value)


def _item(directory: Directory, registration: Registration) -> Agent:
    offer = registration.offer
    capabilities = offer.card.get("capabilities") or {}
    return Agent(
        name=str(offer.worker),
        role=offer.worker.role,
        instance_id=offer.worker.instance,
        description=offer.about,
        url=offer.url,
        capabilities=AgentCapabilities(
            streaming=capabilities.get("streaming") is True,
            push_notifications=capabilities.get("pushNotifications") is True,
        ),
        last_seen=timestamp(registration.last_seen),
        state=registration.health,
        load=Load(in_flight=registration.load, capacity=offer.capacity),
        expires_in=seconds(directory.expires_in(registration)),
        skills=[_skill(skill) for skill in offer.skills],
        labels=offer.labels,
        models_supported=list(offer.models),
        idempotent=offer.idempotent,
        epoch=registration.epoch,
        reason=registration.reason,
    )


def _card_read(registration: Registration) -> CardRead | UnsetType:
    if not registration.offer.card_by_url:
        return UNSET
    state = registration.card_state
    if state is None:
        return CardRead(url="", at=None, note="it is being read")
    return CardRead(url=state.url, at=timestamp(state.read_at) if state.read_at else None, note=state.note)


def _skill(skill: JsonObject) -> AgentSkill:
    get = skill.get
    return AgentSkill(id=get("id"), name=get("name"), description=get("description"), tags=get("tags"))


def _wanted(query: AgentFilter) -> AgentQuery:
    return AgentQuery(
        role=query.role,
        skill=query.skill,
        tag=query.tag,
        capability={"push_notifications": "pushNotifications"}.get(query.capability or "", query.capability) or None,
        labels=dict(label.partition("=")[::2] for label in query.label),
        text=query.q,
        state=query.state,
        limit=query.limit,
        after=query.cursor,
    )


def _unregistered(error: LeaseError) -> Response:
    return problem(error, registered=False)
