"""Parses the body of an enrolment into the model's Offer. Errors name the field and the reason."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from rolecall.errors import LeaseUnknown, OfferInvalid
from rolecall.model.a2a import JsonObject
from rolecall.model.card import JSONRPC, Interface, can_replay
from rolecall.model.ids import WorkerId, is_instance, is_role, split_name
from rolecall.model.worker import Beat, LeaseProof, Offer
from rolecall.protocol.cards import interfaces
from rolecall.protocol.text.jsontext import dump

MAX_URL = 2048
MAX_DESCRIPTION = 1000
MAX_NAME = 200
MAX_BOOT = 128
MAX_SECRET = 256
MAX_AUTHORIZATION = 4096
MAX_SKILLS = 100
MAX_MODELS = 100
MAX_MODEL = 200
MAX_LABELS = 32
MAX_LABEL_KEY = 128
MAX_LABEL_VALUE = 256
MAX_NUMBER = 1_000_000_000
"""Of counts, and of a TTL in seconds."""
_MAX_INTERFACES = 8
_HTTP_SCHEMES = frozenset({"basic", "bearer", "digest"})
_CAMEL = {
    "push_notifications": "pushNotifications",
    "state_transition_history": "stateTransitionHistory",
    "extended_agent_card": "extendedAgentCard",
}


def read_offer(document: JsonObject, worker: WorkerId, *, max_card: int) -> Offer:
    """`max_card`: bytes of the card's JSON."""
    card = _card(document, worker, max_card)
    capabilities = card["capabilities"]
    url = _text(document, "url", MAX_URL, required=True)
    return Offer(
        worker=worker,
        url=url,
        description=_text(document, "description", MAX_DESCRIPTION) or str(card.get("description") or "")[:MAX_DESCRIPTION],
        card=card,
        streaming=capabilities.get("streaming") is True,
        replays=can_replay(card),
        interfaces=_interfaces(card, url),
        capacity=_count(document, "capacity", lowest=1),
        labels=_labels(document.get("labels")),
        models=_models(document.get("models_supported")),
    )


def _interfaces(card: JsonObject, url: str) -> tuple[Interface, ...]:
    """The interfaces that the hub may call. Their host and port are those of the URL that the worker enrols with, whatever the
    card names. REST in 0.3 has several spellings, and is not used.
    """
    supported = [i for i in interfaces(card, url) if i.binding == JSONRPC or i.dialect == "1.0"]
    moved = [i._replace(url=_moved(i.url, url)) for i in supported]
    rpc = [i for i in moved if i.binding == JSONRPC]
    if all(i.url.rstrip("/") != url.rstrip("/") for i in rpc):
        moved = [i._replace(url=url) if i.binding == JSONRPC else i for i in moved]
    return tuple(moved[:_MAX_INTERFACES]) or (Interface(url, JSONRPC, "0.3"),)


def _moved(card_url: str, url: str) -> str:
    own = urlsplit(url)
    return urlunsplit(urlsplit(card_url)._replace(scheme=own.scheme, netloc=own.netloc))


def read_credential(document: JsonObject) -> str:
    """The value of the Authorization header that the hub sends to this worker."""
    value = _text(document, "authorization", MAX_AUTHORIZATION)
    if not value.isascii() or not value.isprintable():
        raise OfferInvalid("authorization", "must be one line of ASCII, as an Authorization header has it")
    return value


def read_flat_name(document: JsonObject) -> WorkerId:
    """The flat form's name. `role` and `instance_id` win over `name`; a missing instance gets a random one."""
    name = _text(document, "name", MAX_NAME)
    role, instance = split_name(name) if name else ("", None)
    if instance is not None and not is_instance(instance):
        raise OfferInvalid("name", "has no valid instance behind its colon")
    role = _text(document, "role", MAX_NAME) or role
    instance = _text(document, "instance_id", MAX_NAME) or instance
    if not role:
        raise OfferInvalid("name", "is required: a role, or role:instance")
    check_name(role, instance)
    return WorkerId(role, instance or secrets.token_hex(4))


def check_name(role: str, instance: str | None) -> None:
    """For the hub's own APIs. OfferInvalid."""
    if not is_role(role):
        raise OfferInvalid(
            "role", "must be 1 to 63 of a-z, 0-9, '.', '_', '-', begin with a letter or digit, and not be a reserved word"
        )
    if instance is not None and not is_instance(instance):
        raise OfferInvalid(
            "instance_id", "must be 1 to 127 of letters, digits, '.', '_', ':', '-', and begin with a letter or digit"
        )


def read_worker(name: str) -> WorkerId:
    """One worker's name in a path. OfferInvalid, LeaseUnknown."""
    role, instance = split_name(name)
    check_name(role, instance)
    if instance is None:
        raise LeaseUnknown(f"Name a worker as role:instance; {role} is a role.")
    return WorkerId(role, instance)


def read_boot(document: JsonObject) -> str:
    return _text(document, "boot", MAX_BOOT)


def read_ttl(document: JsonObject) -> timedelta | None:
    seconds = _number(document, "ttl_seconds", 0, MAX_NUMBER)
    return None if seconds is None else timedelta(seconds=seconds)


def read_proof(document: JsonObject) -> LeaseProof:
    return LeaseProof(_count(document, "epoch", lowest=0), _text(document, "lease", MAX_SECRET) or None)


def read_beat(document: JsonObject) -> Beat:
    draining = document.get("draining")
    if draining is not None and not isinstance(draining, bool):
        raise OfferInvalid("draining", "must be true or false")
    return Beat(_count(document, "in_flight", lowest=0), _count(document, "capacity", lowest=1), draining)


def _card(document: JsonObject, worker: WorkerId, max_card: int) -> JsonObject:
    """The worker's card, or one made of the flat fields. Capabilities get the spelling of cards."""
    card = document.get("card")
    if card is None:
        card = {"name": str(worker), "skills": []}
    if not isinstance(card, dict):
        raise OfferInvalid("card", "must be an object")
    if len(dump(card)) > max_card:
        raise OfferInvalid("card", f"must be at most {max_card} bytes of JSON ({{setting}} on the hub)", setting="max_card")
    capabilities = {**_object(card, "capabilities"), **_object(document, "capabilities")}
    card["capabilities"] = {_CAMEL.get(name, name): value for name, value in capabilities.items()}
    _convert_authentication(card)
    skills = card.get("skills")
    skills = [] if skills is None else skills
    if not isinstance(skills, list) or len(skills) > MAX_SKILLS or not all(isinstance(skill, dict) for skill in skills):
        raise OfferInvalid("card.skills", f"must be a list of at most {MAX_SKILLS} objects")
    for skill in skills:
        if not isinstance(skill.get("tags"), list | None):
            raise OfferInvalid("card.skills.tags", "must be a list of strings")
    card["skills"] = skills
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


def _object(document: JsonObject, field: str) -> JsonObject:
    value = document.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise OfferInvalid(field, "must be an object")
    return value


def _text(document: JsonObject, field: str, longest: int, *, required: bool = False) -> str:
    value = document.get(field)
    if value is None and not required:
        return ""
    if not isinstance(value, str) or (required and not value):
        raise OfferInvalid(field, "is required, as a string" if required else "must be a string")
    if len(value) > longest or "\0" in value:
        raise OfferInvalid(field, f"must be at most {longest} characters, without NUL")
    return value


def _number(document: JsonObject, field: str, lowest: float, highest: float) -> float | None:
    value: Any = document.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not lowest <= value <= highest:
        raise OfferInvalid(field, f"must be a number from {lowest:g} to {highest:g}")
    return float(value)


def _count(document: JsonObject, field: str, *, lowest: int) -> int | None:
    value: Any = document.get(field)
    if value is None:
        return None
    # In JSON 4.0 equals 4, and some languages always write the former.
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not whole or not lowest <= value <= MAX_NUMBER:
        raise OfferInvalid(field, f"must be a whole number from {lowest} to {MAX_NUMBER}")
    return int(value)


def _labels(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    fits = isinstance(value, dict) and len(value) <= MAX_LABELS
    if not fits or not all(
        len(k) <= MAX_LABEL_KEY and isinstance(v, str) and len(v) <= MAX_LABEL_VALUE for k, v in value.items()
    ):
        raise OfferInvalid("labels", f"must be an object of at most {MAX_LABELS} short strings")
    return dict(value)


def _models(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if (
        not isinstance(value, list)
        or len(value) > MAX_MODELS
        or not all(isinstance(m, str) and len(m) <= MAX_MODEL for m in value)
    ):
        raise OfferInvalid("models_supported", f"must be a list of at most {MAX_MODELS} short strings")
    return tuple(value)
