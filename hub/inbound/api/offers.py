"""Makes the model's words of an enrolment, a heartbeat and a worker's name. Errors name the member and the reason."""

from __future__ import annotations

import secrets
from datetime import timedelta
from urllib.parse import urlsplit, urlunsplit

from msgspec import UnsetType

from hub.inbound.api.requests import (
    INSTANCE_REASON,
    MAX_DESCRIPTION,
    ROLE_REASON,
    Enrolment,
    FlatEnrolment,
    Heartbeat,
    Proof,
)
from rolecall.errors import LeaseUnknown, OfferInvalid
from rolecall.model.a2a import JsonObject
from rolecall.model.card import JSONRPC, Interface, can_replay
from rolecall.model.ids import WorkerId, is_instance, is_role, split_name
from rolecall.model.worker import Beat, LeaseProof, Offer
from rolecall.protocol.cards import interfaces
from rolecall.protocol.dialects import worker_side
from rolecall.protocol.text.jsontext import size_of

_MAX_INTERFACES = 8
_HTTP_SCHEMES = frozenset({"basic", "bearer", "digest"})
_CAMEL = {
    "push_notifications": "pushNotifications",
    "state_transition_history": "stateTransitionHistory",
    "extended_agent_card": "extendedAgentCard",
}


def read_offer(enrolment: Enrolment, worker: WorkerId, *, max_card: int) -> Offer:
    """`max_card`: bytes of the card's JSON."""
    card = _card(enrolment, worker, max_card)
    capabilities = card["capabilities"]
    return Offer(
        worker=worker,
        url=enrolment.url,
        description=enrolment.description or str(card.get("description") or "")[:MAX_DESCRIPTION],
        card=card,
        streaming=capabilities.get("streaming") is True,
        replays=can_replay(card),
        interfaces=_interfaces(card, enrolment.url),
        capacity=enrolment.capacity,
        labels=enrolment.labels or {},
        models=tuple(enrolment.models_supported or ()),
    )


def _interfaces(card: JsonObject, url: str) -> tuple[Interface, ...]:
    """The interfaces that the hub may call. Their host and port are those of the URL that the worker enrols with, whatever the
    card names.
    """
    try:
        own = urlsplit(url)
    except ValueError as error:
        raise OfferInvalid("url", "not a URL") from error
    supported = [i for i in interfaces(card, url) if i.binding in worker_side(i.dialect).calls.BINDINGS]
    moved = [i._replace(url=urlunsplit(urlsplit(i.url)._replace(scheme=own.scheme, netloc=own.netloc))) for i in supported]
    rpc = [i for i in moved if i.binding == JSONRPC]
    if all(i.url.rstrip("/") != url.rstrip("/") for i in rpc):
        moved = [i._replace(url=url) if i.binding == JSONRPC else i for i in moved]
    return tuple(moved[:_MAX_INTERFACES]) or interfaces(None, url)


def read_flat_name(enrolment: FlatEnrolment) -> WorkerId:
    """The flat form's name. `role` and `instance_id` win over `name`; a missing instance gets a random one."""
    role, instance = split_name(enrolment.name or "")
    role = enrolment.role or role
    instance = enrolment.instance_id or instance
    if not role:
        raise OfferInvalid("name", "is required: a role, or role:instance")
    check_name(role, instance)
    return WorkerId(role, instance or secrets.token_hex(4))


def check_name(role: str, instance: str | None) -> None:
    """For the hub's own APIs. OfferInvalid."""
    if not is_role(role):
        raise OfferInvalid("role", ROLE_REASON)
    if instance is not None and not is_instance(instance):
        raise OfferInvalid("instance_id", INSTANCE_REASON)


def read_worker(name: str) -> WorkerId:
    """One worker's name in a path. OfferInvalid, LeaseUnknown."""
    role, instance = split_name(name)
    check_name(role, instance)
    if instance is None:
        raise LeaseUnknown(f"Name a worker as role:instance; {role} is a role.")
    return WorkerId(role, instance)


def read_ttl(enrolment: Enrolment) -> timedelta | None:
    return None if enrolment.ttl_seconds is None else timedelta(seconds=enrolment.ttl_seconds)


def read_proof(proof: Proof) -> LeaseProof:
    return LeaseProof(_whole(proof.epoch), proof.lease or None)


def read_beat(heartbeat: Heartbeat) -> Beat:
    return Beat(_whole(heartbeat.in_flight), _whole(heartbeat.capacity), heartbeat.draining)


def _whole(number: float | UnsetType | None) -> int | None:
    return int(number) if isinstance(number, float) else None


def _card(enrolment: Enrolment, worker: WorkerId, max_card: int) -> JsonObject:
    """The worker's card, or one made of the flat members. Capabilities get the spelling of cards."""
    card: JsonObject = {"name": str(worker), "skills": []} if enrolment.card is None else enrolment.card
    if size_of(card) > max_card:
        raise OfferInvalid("card", f"must be at most {max_card} bytes of JSON ({{setting}} on the hub)", setting="max_card")
    capabilities = {**(card.get("capabilities") or {}), **(enrolment.capabilities or {})}
    card["capabilities"] = {_CAMEL.get(name, name): value for name, value in capabilities.items()}
    _convert_authentication(card)
    card["skills"] = card.get("skills") or []
    return card


def _convert_authentication(card: JsonObject) -> None:
    """Old cards name their security schemes in `authentication`: an object that lists them, or a list of objects with one each.
    HTTP schemes are converted; others, such as API keys, lack details and are left unchanged.
    """
    old = card.get("authentication")
    schemes = old.get("schemes") if isinstance(old, dict) else old
    names = [one.get("scheme") if isinstance(one, dict) else one for one in schemes] if isinstance(schemes, list) else []
    if names and "securitySchemes" not in card and all(str(name).lower() in _HTTP_SCHEMES for name in names):
        del card["authentication"]
        card["securitySchemes"] = {name: {"type": "http", "scheme": name} for name in names}
        card["security"] = [{name: []} for name in card["securitySchemes"]]
