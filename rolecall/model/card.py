"""An A2A card, independent of the version's spelling, and the parts of it that the hub uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rolecall.model.a2a import JsonObject

JSONRPC = "JSONRPC"
HTTP_JSON = "HTTP+JSON"

REPLAY_EXTENSION = "https://rolecall.dev/ext/replay/v1"
"""A worker that lists it sends an `id` with every frame and replays from `Last-Event-ID`, also after the end. It takes a
message with the same `Idempotency-Key` once. With `{"durable": true}` in its params, tasks and positions outlive its process.
"""

SEQUENCE_EXTENSION = "https://rolecall.dev/ext/sequence/v1"
"""Between hub and callers: events and tasks carry their cursors."""

FILES_EXTENSION = "https://rolecall.dev/ext/files/v1"
"""Files by reference: a file part with the url of a file at the hub, and its `size` under this name in the part's metadata. A
caller that activates it and a worker that lists it get such parts; others get the bytes. The params of a hub's entry have the
`url` that the urls of its files begin with, and the `max_size` of one.
"""

SCHEMAS_EXTENSION = "https://rolecall.dev/ext/schemas/v1"
"""Its params have `skills`: by the id of a skill, its `inputSchema`, its `outputSchema`, or both. They are the JSON Schemas of
the data parts that the skill takes and gives. A2A allows no further members in a skill itself.
"""

PROGRESS_EXTENSION = "https://rolecall.dev/ext/progress/v1"
"""The metadata of a status message has under this name how far the task is: `done`, and `total` if that is known."""

USAGE_EXTENSION = "https://rolecall.dev/ext/usage/v1"
"""The metadata of a status update has under this name what the task has used of a model, and those of a call its budget."""


def can_replay(card: JsonObject) -> bool:
    return _entry(card, REPLAY_EXTENSION) is not None


def reads_files(card: JsonObject) -> bool:
    """It reads files of the hub by their urls. A server that stores files itself, such as another hub, does not."""
    entry = _entry(card, FILES_EXTENSION)
    params = entry.get("params") if entry is not None else None
    return entry is not None and not (isinstance(params, dict) and "url" in params)


def is_durable(card: JsonObject) -> bool:
    """What it replays is there also after a restart."""
    params = (_entry(card, REPLAY_EXTENSION) or {}).get("params")
    return isinstance(params, dict) and params.get("durable") is True


def _entry(card: JsonObject, extension: str) -> JsonObject | None:
    """Its entry of that extension. Cards are untrusted: a value of a wrong type means no."""
    capabilities = card.get("capabilities")
    extensions = capabilities.get("extensions") if isinstance(capabilities, dict) else None
    if not isinstance(extensions, list):
        return None
    return next((entry for entry in extensions if isinstance(entry, dict) and entry.get("uri") == extension), None)


class Interface(NamedTuple):
    """One address of an agent, with its binding and its dialect ("0.3" or "1.0").

    If `tenant` is given, every 1.0 call has to name it.
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
    """`state_transition_history` exists in 0.3 only."""

    streaming: bool = False
    push_notifications: bool = False
    state_transition_history: bool = False
    extended_card: bool = False
    extensions: tuple[Extension, ...] = ()


Requirement = Mapping[str, tuple[str, ...]]
"""Security schemes by name, with the scopes of each. A request has to satisfy all of them."""


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
    input_schema: JsonObject | None = None
    output_schema: JsonObject | None = None


class Provider(NamedTuple):
    organization: str
    url: str


@dataclass(frozen=True, slots=True)
class Profile:
    """The content of a card. A request has to satisfy any one of `requirements`.

    `security_schemes` are in the form of OpenAPI 3. An OAuth scheme has one flow: 1.0 allows no more.
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
