"""Agent cards: parsing an agent's card, and writing our own in one dialect or in all at once.

Cards of agents are untrusted: members of a wrong type are ignored, and nothing raises.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit, urlunsplit

from rolecall.model.a2a import JsonObject
from rolecall.model.card import HTTP_JSON, JSONRPC, SCHEMAS_EXTENSION, Capabilities, Extension, Interface, Profile, Skill
from rolecall.protocol.dialects import DEFAULT, DIALECTS, dialect_of_agent
from rolecall.protocol.text.jsontext import size_of
from rolecall.protocol.text.profile import write_extension, write_interface, write_schemas, write_skill
from rolecall.protocol.v1_0 import VERSION as V1_0

_Item = TypeVar("_Item")

CARD_PATHS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""Where an agent serves its card, below its address: the current path, and the one of 0.2 and before."""
_BINDINGS = (JSONRPC, HTTP_JSON)
_VERSION = re.compile(r"(\d{1,4})(?:\.(\d{1,4}))?(?:\.\w+)*", re.ASCII)
_LONGEST_URL = 2048
_PIECE = 100
_COUNTED = 10_000
"""Names that are left out are counted up to here."""

# --- reading


def card_urls(url: str) -> list[str]:
    """Where the card of the agent at that URL may be: below the URL, then at the root of its server."""
    parts = urlsplit(url)
    root = urlunsplit((parts.scheme, parts.netloc, "", "", ""))
    return list(dict.fromkeys(base + path for base in (root + parts.path.rstrip("/"), root) for path in CARD_PATHS))


def interfaces(card: Any, fallback_url: str) -> tuple[Interface, ...]:
    """Every interface that the hub can use, the agent's preferred one first; if there is none, 0.3 at `fallback_url`."""
    found: dict[tuple[str, str, str], Interface] = {}
    for interface in (*_interfaces_10(card), *_interfaces_03(card)):
        found.setdefault(interface[:3], interface)
    return tuple(found.values()) or (Interface(fallback_url, JSONRPC, DEFAULT),)


def capabilities(card: Any) -> Capabilities:
    """Without the extension of the schemas, which belong to the skills."""
    able = _member(card, "capabilities")
    old_flag = _member(card, "supportsAuthenticatedExtendedCard")
    return Capabilities(
        streaming=_member(able, "streaming") is True,
        push_notifications=_member(able, "pushNotifications") is True,
        state_transition_history=_member(able, "stateTransitionHistory") is True,
        extended_card=_member(able, "extendedAgentCard") is True or old_flag is True,
        extensions=tuple(_read_extensions(_list(able, "extensions"))),
    )


def skills(card: Any) -> tuple[Skill, ...]:
    """Members that clients require are filled in where they are missing. Each has its schemas, from the card's extension."""
    schemas = _schemas(card)
    return tuple(_read_skill(skill, schemas) for skill in _list(card, "skills") if isinstance(skill, dict))


def _interfaces_10(card: Any) -> Iterator[Interface]:
    for entry in _list(card, "supportedInterfaces"):
        # 1.0 brought this list, so an entry without a version is of 1.0.
        dialect = _dialect(_member(entry, "protocolVersion"), V1_0)
        yield from _interface(_member(entry, "url"), _member(entry, "protocolBinding"), dialect, _text(entry, "tenant"))


def _interfaces_03(card: Any) -> Iterator[Interface]:
    dialect = _dialect(_member(card, "protocolVersion"), DEFAULT)
    yield from _interface(_member(card, "url"), _member(card, "preferredTransport") or JSONRPC, dialect)
    for entry in _list(card, "additionalInterfaces"):
        yield from _interface(_member(entry, "url"), _member(entry, "transport"), dialect)


def _interface(url: Any, binding: Any, dialect: str | None, tenant: str | None = None) -> Iterator[Interface]:
    """One, or none if the hub cannot use it."""
    known = binding.upper() if isinstance(binding, str) else None
    if dialect is not None and known in _BINDINGS and _is_address(url):
        yield Interface(url, known, dialect, tenant)


def _is_address(url: Any) -> bool:
    if not isinstance(url, str) or len(url) > _LONGEST_URL or not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.netloc)
    except ValueError:
        return False


def _dialect(version: Any, otherwise: str) -> str | None:
    """The dialect for calls to an agent of this version."""
    if version is None or version == "":
        return otherwise
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        return None
    return dialect_of_agent(version)


def _read_extensions(entries: Iterable[Any]) -> Iterator[Extension]:
    for entry in entries:
        uri = _text(entry, "uri")
        if uri and uri != SCHEMAS_EXTENSION:
            params = _member(entry, "params")
            required = _member(entry, "required") is True
            yield Extension(uri, _text(entry, "description"), required, params if isinstance(params, dict) else None)


def _read_skill(skill: JsonObject, schemas: JsonObject) -> Skill:
    name = _id_of(skill)
    tags, examples, takes, gives = (_texts(skill, member) for member in ("tags", "examples", "inputModes", "outputModes"))
    return Skill(
        name,
        _text(skill, "name") or name,
        _text(skill, "description") or name,
        tags,
        examples,
        takes,
        gives,
        input_schema=_object(schemas.get(name), "inputSchema"),
        output_schema=_object(schemas.get(name), "outputSchema"),
    )


def _schemas(card: Any) -> JsonObject:
    """By the id of a skill."""
    entries = _list(_member(card, "capabilities"), "extensions")
    found = next((entry for entry in entries if _text(entry, "uri") == SCHEMAS_EXTENSION), None)
    return _object(_member(found, "params"), "skills") or {}


def _id_of(skill: JsonObject) -> str:
    return _text(skill, "id") or _text(skill, "name") or "skill"


def _member(holder: Any, name: str) -> Any:
    """The member of that name, or of the same name in snake_case."""
    if not isinstance(holder, dict):
        return None
    value = holder.get(name)
    return value if value is not None else holder.get(re.sub(r"(?=[A-Z])", "_", name).lower())


def _list(holder: Any, name: str) -> Sequence[Any]:
    value = _member(holder, name)
    return value if isinstance(value, list) else ()


def _object(holder: Any, name: str) -> JsonObject | None:
    """None also for an empty one."""
    value = _member(holder, name)
    return value if isinstance(value, dict) and value else None


def _text(holder: Any, name: str) -> str | None:
    value = _member(holder, name)
    return value if isinstance(value, str) and value else None


def _texts(holder: Any, name: str) -> tuple[str, ...]:
    return tuple(item for item in _list(holder, name) if isinstance(item, str))


# --- several cards as one


class FirstOfEach(Generic[_Item]):
    """Items of several cards, the first of each name, as long as they fit into `limit` bytes of JSON. Behind the first that
    does not fit, all are left out. `write`: an item's JSON.
    """

    def __init__(self, limit: int, write: Callable[[_Item], Any]) -> None:
        self.items: list[_Item] = []
        self._write = write
        self._left = limit
        self._full = False
        self._names: set[str] = set()
        self._left_out: set[str] = set()

    def add(self, name: str, read: Callable[[], _Item]) -> None:
        if name in self._names:
            return
        if not self._full:
            item = read()
            self._left -= size_of(self._write(item))
            self._full = self._left < 0
            if not self._full:
                self._names.add(name)
                self.items.append(item)
                return
        if len(self._left_out) < _COUNTED:
            self._left_out.add(name)

    def left_out(self, what: str) -> str:
        """How many names there are beside those of the items, for people; empty if there are none."""
        count = len(self._left_out)
        if not count:
            return ""
        return f"{count:,} more {what} are not listed" if count < _COUNTED else f"{_COUNTED:,} or more {what} are not listed"


class MergedSkills(FirstOfEach[Skill]):
    def __init__(self, limit: int) -> None:
        super().__init__(limit, lambda skill: write_skill(skill) | write_schemas(skill))

    def add_card(self, card: Any) -> Iterator[None]:
        """This and the other `add_card` stop after each piece. A skill has the schemas of the card that it is from."""
        schemas = _schemas(card)
        for piece in _pieces(_list(card, "skills")):
            for skill in piece:
                if isinstance(skill, dict):
                    self.add(_id_of(skill), partial(_read_skill, skill, schemas))
            yield


class MergedExtensions(FirstOfEach[Extension]):
    def __init__(self, limit: int) -> None:
        super().__init__(limit, write_extension)

    def add_card(self, card: Any) -> Iterator[None]:
        for piece in _pieces(capabilities(card).extensions):
            for extension in piece:
                self.add(extension.uri, partial(replace, extension))
            yield


class MergedModes(FirstOfEach[str]):
    def __init__(self, limit: int, member: str) -> None:
        super().__init__(limit, str)
        self._member = member

    def add_card(self, card: Any) -> Iterator[None]:
        for piece in _pieces(_texts(card, self._member)):
            for mode in piece:
                self.add(mode, partial(str, mode))
            yield


def _pieces(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (items[start : start + _PIECE] for start in range(0, len(items), _PIECE))


# --- writing our own


def write_card(profile: Profile, version: str | None) -> JsonObject:
    """In that dialect, or for readers of any: see `merged`."""
    return merged(profile) if version is None else DIALECTS[version].write_card(profile)


def merged(profile: Profile) -> JsonObject:
    """One card for readers of every dialect in which the agent has an interface: it has the members of all of them, also inside
    the security schemes.
    """
    used = {interface.dialect for interface in profile.interfaces}
    card, *later = [dialect.write_card(profile) for dialect in DIALECTS.values() if dialect.version in used]
    for new in later:
        card = _both(card, new)
    if "supportedInterfaces" in card:
        card["supportedInterfaces"] = [write_interface(interface) for interface in profile.interfaces]
    return card


def _both(old: JsonObject, new: JsonObject) -> JsonObject:
    card = {**old, **new, "capabilities": old["capabilities"] | new["capabilities"]}
    card["skills"] = [before | now for before, now in zip(old["skills"], new["skills"], strict=True)]
    if "securitySchemes" in new:
        schemes = new["securitySchemes"]
        card["securitySchemes"] = {name: scheme | schemes[name] for name, scheme in old["securitySchemes"].items()}
    return card
