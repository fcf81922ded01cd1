"""Agent cards: parsing an agent's card, and writing our own cards in 0.3, in 1.0, and in both at once.

Cards of agents are untrusted: members of a wrong type are ignored, and nothing raises.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

from rolecall.model.a2a import JsonObject
from rolecall.model.card import HTTP_JSON, JSONRPC, Capabilities, Extension, Interface, Profile, Requirement, Skill
from rolecall.protocol import v0_3 as v03
from rolecall.protocol import v1_0 as v10
from rolecall.protocol.text.jsontext import size_of
from rolecall.protocol.text.members import drop_empty

_Item = TypeVar("_Item")

CARD_PATHS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""Where an agent serves its card, below its address: the current path, and the one of 0.2 and before."""
_BINDINGS = (JSONRPC, HTTP_JSON)
_CARD_VERSION_03 = "0.3.0"
_VERSION = re.compile(r"(\d{1,4})(?:\.(\d{1,4}))?(?:\.\w+)*", re.ASCII)
_LONGEST_URL = 2048
_PIECE = 100
_COUNTED = 10_000
"""Names that are left out are counted up to here."""
_WRAPPERS = {
    "apiKey": "apiKeySecurityScheme",
    "http": "httpAuthSecurityScheme",
    "oauth2": "oauth2SecurityScheme",
    "openIdConnect": "openIdConnectSecurityScheme",
    "mutualTLS": "mtlsSecurityScheme",
}

# --- reading


def interfaces(card: Any, fallback_url: str) -> tuple[Interface, ...]:
    """Every interface that the hub can use, the agent's preferred one first; if there is none, 0.3 at `fallback_url`."""
    found: dict[tuple[str, str, str], Interface] = {}
    for interface in (*_interfaces_10(card), *_interfaces_03(card)):
        found.setdefault(interface[:3], interface)
    return tuple(found.values()) or (Interface(fallback_url, JSONRPC, v03.VERSION),)


def capabilities(card: Any) -> Capabilities:
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
    """Members that clients require are filled in where they are missing."""
    return tuple(_read_skill(skill) for skill in _list(card, "skills") if isinstance(skill, dict))


def _interfaces_10(card: Any) -> Iterator[Interface]:
    for entry in _list(card, "supportedInterfaces"):
        # Only 1.0 has this list, so an entry without a version is of 1.0.
        dialect = _dialect(_member(entry, "protocolVersion"), v10.VERSION)
        yield from _interface(_member(entry, "url"), _member(entry, "protocolBinding"), dialect, _text(entry, "tenant"))


def _interfaces_03(card: Any) -> Iterator[Interface]:
    dialect = _dialect(_member(card, "protocolVersion"), v03.VERSION)
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
    """The dialect for an agent of this version. Minor versions of 1 are compatible; what we send in 0.3 is also valid 0.2."""
    if version is None or version == "":
        return otherwise
    found = _VERSION.fullmatch(version) if isinstance(version, str) else None
    if found is None:
        return None
    major, minor = int(found[1]), int(found[2] or 0)
    if major == 1:
        return v10.VERSION
    return v03.VERSION if (major, minor) in ((0, 2), (0, 3)) else None


def _read_extensions(entries: Iterable[Any]) -> Iterator[Extension]:
    for entry in entries:
        uri = _text(entry, "uri")
        if uri:
            params = _member(entry, "params")
            required = _member(entry, "required") is True
            yield Extension(uri, _text(entry, "description"), required, params if isinstance(params, dict) else None)


def _read_skill(skill: JsonObject) -> Skill:
    name = _id_of(skill)
    tags, examples, takes, gives = (_texts(skill, member) for member in ("tags", "examples", "inputModes", "outputModes"))
    return Skill(name, _text(skill, "name") or name, _text(skill, "description") or name, tags, examples, takes, gives)


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
        super().__init__(limit, _skill)

    def add_card(self, card: Any) -> Iterator[None]:
        """This and the other `add_card` stop after each piece."""
        for piece in _pieces(_list(card, "skills")):
            for skill in piece:
                if isinstance(skill, dict):
                    self.add(_id_of(skill), partial(_read_skill, skill))
            yield


class MergedExtensions(FirstOfEach[Extension]):
    def __init__(self, limit: int) -> None:
        super().__init__(limit, _extension)

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


def pure_03(profile: Profile) -> JsonObject:
    interfaces = _interfaces_in(profile, v03.VERSION)
    return {
        "protocolVersion": _CARD_VERSION_03,
        **_common(profile),
        "url": interfaces[0].url,
        "preferredTransport": interfaces[0].binding,
        "additionalInterfaces": [{"url": interface.url, "transport": interface.binding} for interface in interfaces],
        "capabilities": _capabilities(profile) | {"stateTransitionHistory": profile.capabilities.state_transition_history},
        "supportsAuthenticatedExtendedCard": profile.capabilities.extended_card,
        "skills": [_skill(skill) | drop_empty(security=_security_03(skill.requirements)) for skill in profile.skills],
        **drop_empty(
            securitySchemes=dict(profile.security_schemes) or None,
            security=_security_03(profile.requirements),
        ),
    }


def pure_10(profile: Profile) -> JsonObject:
    return {
        **_common(profile),
        "supportedInterfaces": [_interface_10(interface) for interface in _interfaces_in(profile, v10.VERSION)],
        "capabilities": _capabilities(profile) | {"extendedAgentCard": profile.capabilities.extended_card},
        "skills": [
            _skill(skill) | drop_empty(securityRequirements=_security_10(skill.requirements)) for skill in profile.skills
        ],
        **drop_empty(
            securitySchemes={name: _scheme_10(scheme) for name, scheme in profile.security_schemes.items()} or None,
            securityRequirements=_security_10(profile.requirements),
        ),
    }


def merged(profile: Profile) -> JsonObject:
    """One card for readers of either version: it has the members of both, also inside the security schemes."""
    old, new = pure_03(profile), pure_10(profile)
    card = {**old, **new, "supportedInterfaces": [_interface_10(interface) for interface in profile.interfaces]}
    card["capabilities"] = old["capabilities"] | new["capabilities"]
    card["skills"] = [before | now for before, now in zip(old["skills"], new["skills"], strict=True)]
    if profile.security_schemes:
        schemes = new["securitySchemes"]
        card["securitySchemes"] = {name: scheme | schemes[name] for name, scheme in old["securitySchemes"].items()}
    return card


def _interfaces_in(profile: Profile, dialect: str) -> list[Interface]:
    found = [interface for interface in profile.interfaces if interface.dialect == dialect]
    if not found:
        raise ValueError(f"a card in {dialect} needs an interface in {dialect}")
    return found


def _common(profile: Profile) -> JsonObject:
    return {
        "name": profile.name,
        "description": profile.description,
        "version": profile.version,
        "defaultInputModes": list(profile.input_modes),
        "defaultOutputModes": list(profile.output_modes),
    } | drop_empty(
        provider=profile.provider and profile.provider._asdict(),
        iconUrl=profile.icon_url,
        documentationUrl=profile.documentation_url,
    )


def _capabilities(profile: Profile) -> JsonObject:
    able = profile.capabilities
    extensions = [_extension(extension) for extension in able.extensions]
    return {"streaming": able.streaming, "pushNotifications": able.push_notifications} | drop_empty(extensions=extensions)


def _extension(extension: Extension) -> JsonObject:
    return drop_empty(
        uri=extension.uri, description=extension.description, required=extension.required, params=extension.params
    )


def _skill(skill: Skill) -> JsonObject:
    required = {"id": skill.id, "name": skill.name, "description": skill.description, "tags": list(skill.tags)}
    return required | drop_empty(
        examples=list(skill.examples),
        inputModes=list(skill.input_modes),
        outputModes=list(skill.output_modes),
    )


def _interface_10(interface: Interface) -> JsonObject:
    return drop_empty(
        url=interface.url,
        protocolBinding=interface.binding,
        protocolVersion=interface.dialect,
        tenant=interface.tenant,
    )


def _security_03(requirements: Sequence[Requirement]) -> list[JsonObject]:
    return [{name: list(scopes) for name, scopes in requirement.items()} for requirement in requirements]


def _security_10(requirements: Sequence[Requirement]) -> list[JsonObject]:
    return [{"schemes": {name: {"list": list(scopes)} for name, scopes in requirement.items()}} for requirement in requirements]


def _scheme_10(scheme: JsonObject) -> JsonObject:
    """1.0 has a member for each type instead of `type`, and `location` instead of `in`."""
    if scheme["type"] == "oauth2" and len(scheme["flows"]) != 1:
        raise ValueError("an OAuth security scheme has exactly one flow")
    named = {"location" if name == "in" else name: value for name, value in scheme.items() if name != "type"}
    return {_WRAPPERS[scheme["type"]]: named}
