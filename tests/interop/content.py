"""The answers of all SDKs in one form, in which the tests read tasks, messages and events.

Reading is strict, because some SDKs are not: they read another version's answer as an empty one. A task without an id, an
unknown state or a part without content fails the test that reads it.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

STATES = {
    name: "TASK_STATE_" + name.upper().replace("-", "_")
    for name in (
        "submitted",
        "working",
        "input-required",
        "auth-required",
        "completed",
        "failed",
        "canceled",
        "rejected",
    )
}
_STATES_1_0 = {new: old for old, new in STATES.items()}
_ROLES_1_0 = {"ROLE_USER": "user", "ROLE_AGENT": "agent"}


@dataclass(frozen=True)
class Part:
    """`kind` is text, raw, url or data. The value of a raw one is its bytes."""

    kind: str
    value: Any
    name: str | None = None
    media_type: str | None = None
    metadata: Json | None = None


@dataclass(frozen=True)
class Message:
    id: str
    role: str
    parts: tuple[Part, ...]
    task: str | None = None
    context: str | None = None
    metadata: Json | None = None

    @property
    def text(self) -> str:
        return text_of(self.parts)


@dataclass(frozen=True)
class Artifact:
    id: str
    name: str | None
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        return text_of(self.parts)


@dataclass(frozen=True)
class Task:
    id: str
    context: str
    state: str
    message: Message | None
    history: tuple[Message, ...]
    artifacts: tuple[Artifact, ...]
    metadata: Json | None = None

    @property
    def status_text(self) -> str:
        """The text of the message with its state."""
        return self.message.text if self.message else ""

    @property
    def text(self) -> str:
        """Of all its artifacts, however it was cut into parts."""
        return "".join(artifact.text for artifact in self.artifacts)


@dataclass(frozen=True)
class StatusUpdate:
    """`final`: None if the version has no such member."""

    task: str
    context: str
    state: str
    message: Message | None
    final: bool | None
    metadata: Json | None = None

    @property
    def status_text(self) -> str:
        return self.message.text if self.message else ""


@dataclass(frozen=True)
class ArtifactUpdate:
    task: str
    context: str
    artifact: Artifact
    append: bool
    last: bool


Answer = Task | Message
Event = Task | Message | StatusUpdate | ArtifactUpdate


@dataclass(frozen=True)
class Push:
    """A push config, as the hub returns it."""

    task: str
    id: str
    url: str
    scheme: str | None = None


@dataclass(frozen=True)
class TaskList:
    tasks: tuple[Task, ...]
    total: int
    size: int
    next: str


def text_of(parts: tuple[Part, ...]) -> str:
    return "".join(part.value for part in parts if part.kind == "text")


# --- 0.3


def event_0_3(document: Json) -> Event:
    kind = document["kind"]
    if kind == "task":
        return task_0_3(document)
    if kind == "message":
        return message_0_3(document)
    ids = _filled(document["taskId"]), _filled(document["contextId"])
    if kind == "status-update":
        status = document["status"]
        final = document["final"]
        assert isinstance(final, bool)
        return StatusUpdate(*ids, _state_0_3(status), _status_message_0_3(status), final, document.get("metadata"))
    assert kind == "artifact-update", kind
    artifact = _artifact_0_3(document["artifact"])
    return ArtifactUpdate(*ids, artifact, bool(document.get("append")), bool(document.get("lastChunk")))


def task_0_3(document: Json) -> Task:
    assert document["kind"] == "task"
    status = document["status"]
    return Task(
        _filled(document["id"]),
        _filled(document["contextId"]),
        _state_0_3(status),
        _status_message_0_3(status),
        tuple(message_0_3(message) for message in document.get("history") or ()),
        tuple(_artifact_0_3(artifact) for artifact in document.get("artifacts") or ()),
        document.get("metadata"),
    )


def message_0_3(document: Json) -> Message:
    assert document["kind"] == "message"
    assert document["role"] in ("user", "agent")
    parts = tuple(_part_0_3(part) for part in document["parts"])
    ids = document.get("taskId"), document.get("contextId")
    return Message(_filled(document["messageId"]), document["role"], parts, *ids, document.get("metadata"))


def push_0_3(document: Json) -> Push:
    config = document["pushNotificationConfig"]
    schemes = (config.get("authentication") or {}).get("schemes") or [None]
    return Push(_filled(document["taskId"]), _filled(config["id"]), _filled(config["url"]), schemes[0])


def _state_0_3(status: Json) -> str:
    state: str = status["state"]
    assert state in STATES, state
    return state


def _status_message_0_3(status: Json) -> Message | None:
    return message_0_3(status["message"]) if status.get("message") else None


def _artifact_0_3(document: Json) -> Artifact:
    return Artifact(_filled(document["artifactId"]), document.get("name"), tuple(map(_part_0_3, document["parts"])))


def _part_0_3(part: Json) -> Part:
    kind, metadata = part["kind"], part.get("metadata")
    if kind != "file":
        assert kind in ("text", "data"), kind
        return Part(kind, part[kind], metadata=metadata)
    file = part["file"]
    about = file.get("name"), file.get("mimeType"), metadata
    return Part("raw", base64.b64decode(file["bytes"]), *about) if "bytes" in file else Part("url", file["uri"], *about)


# --- 1.0: what is empty is left out, so an absent member is an empty one


def event_1_0(document: Json) -> Event:
    (name, value), *others = document.items()
    assert not others, document
    if name == "task":
        return task_1_0(value)
    if name == "message":
        return message_1_0(value)
    ids = _filled(value["taskId"]), _filled(value["contextId"])
    if name == "statusUpdate":
        status = value["status"]
        return StatusUpdate(*ids, _state_1_0(status), _status_message_1_0(status), None, value.get("metadata"))
    assert name == "artifactUpdate", name
    last = value.get("lastChunk", False)
    # The update that only marks the end has no content.
    artifact = {"parts": [], **value["artifact"]} if last else value["artifact"]
    return ArtifactUpdate(*ids, _artifact_1_0(artifact), value.get("append", False), last)


def task_1_0(document: Json) -> Task:
    status = document["status"]
    return Task(
        _filled(document["id"]),
        _filled(document["contextId"]),
        _state_1_0(status),
        _status_message_1_0(status),
        tuple(message_1_0(message) for message in document.get("history", ())),
        tuple(_artifact_1_0(artifact) for artifact in document.get("artifacts", ())),
        document.get("metadata"),
    )


def message_1_0(document: Json) -> Message:
    parts = tuple(_part_1_0(part) for part in document["parts"])
    ids = document.get("taskId"), document.get("contextId")
    return Message(_filled(document["messageId"]), _ROLES_1_0[document["role"]], parts, *ids, document.get("metadata"))


def push_1_0(document: Json) -> Push:
    scheme = document.get("authentication", {}).get("scheme")
    return Push(_filled(document["taskId"]), _filled(document["id"]), _filled(document["url"]), scheme)


def list_1_0(document: Json) -> TaskList:
    """SDKs leave out an empty page token, as they do with all that is empty."""
    tasks = tuple(task_1_0(task) for task in document.get("tasks", ()))
    return TaskList(tasks, document["totalSize"], document["pageSize"], document.get("nextPageToken", ""))


def _state_1_0(status: Json) -> str:
    return _STATES_1_0[status["state"]]


def _status_message_1_0(status: Json) -> Message | None:
    return message_1_0(status["message"]) if "message" in status else None


def _artifact_1_0(document: Json) -> Artifact:
    return Artifact(_filled(document["artifactId"]), document.get("name"), tuple(map(_part_1_0, document["parts"])))


def _part_1_0(part: Json) -> Part:
    assert "kind" not in part
    (kind,) = part.keys() & {"text", "raw", "url", "data"}
    value = base64.b64decode(part["raw"]) if kind == "raw" else part[kind]
    return Part(kind, value, part.get("filename"), part.get("mediaType"), part.get("metadata"))


def _filled(text: Any) -> str:
    assert isinstance(text, str) and text
    return text
