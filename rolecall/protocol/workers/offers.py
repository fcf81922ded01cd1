"""What a worker's card says of the calls to it: its interfaces, and whether it streams and replays.

Cards are untrusted. What the hub keeps of one is checked here; the rest is kept as it came.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from rolecall.errors import OfferInvalid
from rolecall.model.a2a import JsonObject
from rolecall.model.card import JSONRPC, Interface, can_replay, reads_files
from rolecall.model.worker import Offer
from rolecall.protocol.cards import interfaces
from rolecall.protocol.dialects import worker_side
from rolecall.protocol.text.jsontext import size_of

MAX_SKILLS = 100
_MAX_INTERFACES = 8
_HTTP_SCHEMES = frozenset({"basic", "bearer", "digest"})
_ANY_ADDRESS = frozenset({"0.0.0.0", "::", ""})
_CAMEL = {
    "push_notifications": "pushNotifications",
    "state_transition_history": "stateTransitionHistory",
    "extended_agent_card": "extendedAgentCard",
}


def apply_card(offer: Offer, card: JsonObject, *, max_card: int) -> Offer:
    """The offer with that card, which from here on belongs to it. `max_card`: bytes of its JSON. OfferInvalid."""
    if size_of(card) > max_card:
        raise OfferInvalid("card", f"must be at most {max_card} bytes of JSON ({{setting}} on the hub)", setting="max_card")
    _check(card)
    capabilities = card.get("capabilities") or {}
    card["capabilities"] = {_CAMEL.get(name, name): value for name, value in capabilities.items()}
    _convert_authentication(card)
    card["skills"] = card.get("skills") or []
    return replace(
        offer,
        card=card,
        streaming=card["capabilities"].get("streaming") is True,
        replays=can_replay(card),
        reads_files=reads_files(card),
        interfaces=_interfaces(card, offer.url, is_base=offer.card_by_url),
    )


def hosts_elsewhere(card: JsonObject, url: str) -> list[str]:
    """The hosts that a card names beside the URL's, which the hub does not call."""
    found = dict.fromkeys(urlsplit(interface.url).netloc.lower() for interface in interfaces(card, url))
    own = urlsplit(url).netloc.lower()
    return [host for host in found if host != own and urlsplit(f"//{host}").hostname not in _ANY_ADDRESS]


def _check(card: JsonObject) -> None:
    """The members that the hub looks into. OfferInvalid."""
    skills, capabilities = card.get("skills"), card.get("capabilities")
    if capabilities is not None and not isinstance(capabilities, dict):
        raise OfferInvalid("card.capabilities", "must be an object")
    if skills is not None and not (isinstance(skills, list) and len(skills) <= MAX_SKILLS and all(map(_is_skill, skills))):
        raise OfferInvalid("card.skills", f"must be a list of at most {MAX_SKILLS} objects, with their tags in a list")


def _is_skill(skill: Any) -> bool:
    return isinstance(skill, dict) and isinstance(skill.get("tags"), list | None)


def _interfaces(card: JsonObject, url: str, *, is_base: bool) -> tuple[Interface, ...]:
    """The interfaces that the hub may call. Their host and port are those of the URL that the worker enrols with, whatever the
    card names.

    `is_base`: the URL only tells where the agent is, so that the card's paths below it are used; any other path is that of
    an agent behind a proxy, which does not know its own. Otherwise calls over JSON-RPC go to the URL itself.
    """
    try:
        own = urlsplit(url)
    except ValueError as error:
        raise OfferInvalid("url", "not a URL") from error
    supported = [i for i in interfaces(card, url) if i.binding in worker_side(i.dialect).calls.BINDINGS]
    moved = [i._replace(url=urlunsplit(urlsplit(i.url)._replace(scheme=own.scheme, netloc=own.netloc))) for i in supported]
    rpc = [i for i in moved if i.binding == JSONRPC]
    if is_base:
        moved = [i if _is_below(i.url, url) else i._replace(url=url) for i in moved]
    elif all(i.url.rstrip("/") != url.rstrip("/") for i in rpc):
        moved = [i._replace(url=url) if i.binding == JSONRPC else i for i in moved]
    return tuple(moved[:_MAX_INTERFACES]) or interfaces(None, url)


def _is_below(url: str, base: str) -> bool:
    return f"{urlsplit(url).path.rstrip('/')}/".startswith(f"{urlsplit(base).path.rstrip('/')}/")


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
