"""Makes the model's words of an enrolment, a heartbeat and a worker's name. Errors name the member and the reason."""

from __future__ import annotations

import secrets
from datetime import timedelta

from msgspec import UnsetType

from hub.inbound.api.requests import (
    INSTANCE_REASON,
    ROLE_REASON,
    Enrolment,
    FlatEnrolment,
    Heartbeat,
    Proof,
)
from rolecall.errors import LeaseUnknown, OfferInvalid
from rolecall.model.a2a import JsonObject
from rolecall.model.ids import WorkerId, is_instance, is_role, split_name
from rolecall.model.worker import Beat, LeaseProof, Offer
from rolecall.protocol.workers.offers import apply_card


def read_offer(enrolment: Enrolment, worker: WorkerId, *, max_card: int) -> Offer:
    """`max_card`: bytes of the card's JSON. Without a card there is one of the flat members; without these either, the URL is
    all that is known.
    """
    offer = Offer(
        worker=worker,
        url=enrolment.url,
        description=enrolment.description or "",
        card_by_url=enrolment.card is None and not enrolment.capabilities,
        capacity=enrolment.capacity,
        labels=enrolment.labels or {},
        models=tuple(enrolment.models_supported or ()),
        idempotent=bool(enrolment.idempotent),
    )
    card: JsonObject = {"name": str(worker)} if enrolment.card is None else enrolment.card
    card["capabilities"] = {**(card.get("capabilities") or {}), **(enrolment.capabilities or {})}
    return apply_card(offer, card, max_card=max_card)


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
    return Beat(_whole(heartbeat.in_flight), _whole(heartbeat.capacity), heartbeat.draining, heartbeat.was_away is True)


def _whole(number: float | UnsetType | None) -> int | None:
    return int(number) if isinstance(number, float) else None
