"""What an A2A card says, free of any version's spelling, and what of it we act upon."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rolecall.model.a2a import JsonObject

JSONRPC = "JSONRPC"
HTTP_JSON = "HTTP+JSON"

REPLAY_EXTENSION = "https://rolecall.dev/ext/replay/v1"
"""A worker that lists it puts `id: <boot>.<seq>` on every stream frame and replays from `Last-Event-ID`, after the end too."""


def can_replay(card: JsonObject) -> bool:
    """Cards come from strangers: anything of a wrong shape means no."""
    capabilities = card.get("capabilities")
    extensions = capabilities.get("extensions") if isinstance(capabilities, dict) else None
    if not isinstance(extensions, list):
        return False
    return any(isinstance(entry, dict) and entry.get("uri") == REPLAY_EXTENSION for entry in extensions)


class Interface(NamedTuple):
    """One address of an agent: by which binding and in which dialect ("0.3" or "1.0") it is spoken to there.

    `tenant` has to be named in every 1.0 call, where it is given.
    """

    url: str
    binding: str
    dialect: str
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class Extension:
    uri: str
    description: str | None = None
    required: bool = False
    params: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class Capabilities:
    """`state_transition_history` is a word of 0.3 alone."""

    streaming: bool = False
    push_notifications: bool = False
    state_transition_history: bool = False
    extended_card: bool = False
    extensions: tuple[Extension, ...] = ()


Requirement = Mapping[str, tuple[str, ...]]
"""Security schemes by name, with the scopes of each: all of them are needed together."""


@dataclass(frozen=True, slots=True)
class Skill:
    id: str
    name: str
    description: str
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()
    requirements: tuple[Requirement, ...] = ()


class Provider(NamedTuple):
    organization: str
    url: str


@dataclass(frozen=True, slots=True)
class Profile:
    """All that a card is made of. Any one of `requirements` opens the door.

    `security_schemes` are spelled as OpenAPI 3 spells them. An OAuth scheme has one flow: 1.0 allows no more.
    """

    name: str
    description: str
    version: str
    interfaces: tuple[Interface, ...]
    capabilities: Capabilities = field(default_factory=Capabilities)
    skills: tuple[Skill, ...] = ()
    input_modes: tuple[str, ...] = ("text/plain",)
    output_modes: tuple[str, ...] = ("text/plain",)
    security_schemes: Mapping[str, JsonObject] = field(default_factory=dict)
    requirements: tuple[Requirement, ...] = ()
    provider: Provider | None = None
    icon_url: str | None = None
    documentation_url: str | None = None
