"""A2A content, independent of the version's spelling. Translation between dialects goes through these types.

They are built for translation only; a reader in the dialect of a log gets the log's bytes.
An optional text that is absent is None, never empty; empty `metadata` stays empty.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

from rolecall.model.a2a import JsonObject, TaskState
from rolecall.model.ids import FileId
from rolecall.model.value import Value


class Role(StrEnum):
    """Who wrote a message, as A2A calls it. It has nothing to do with the roles that workers serve."""

    USER = "user"
    AGENT = "agent"


class PartKind(StrEnum):
    TEXT = "text"
    RAW = "raw"
    URL = "url"
    DATA = "data"


class Part(Value, frozen=True):
    """`value` is a text, base64 (standard alphabet, padded), a URL, or any JSON value."""

    kind: PartKind
    value: Any
    filename: str | None = None
    media_type: str | None = None
    metadata: JsonObject | None = None


class Message(Value, frozen=True):
    message_id: str
    role: Role
    parts: tuple[Part, ...]
    task_id: str | None = None
    context_id: str | None = None
    references: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    metadata: JsonObject | None = None


class Artifact(Value, frozen=True):
    artifact_id: str
    parts: tuple[Part, ...]
    name: str | None = None
    description: str | None = None
    extensions: tuple[str, ...] = ()
    metadata: JsonObject | None = None


class Status(Value, frozen=True):
    """`timestamp` is UTC with Z, or absent."""

    state: TaskState
    message: Message | None = None
    timestamp: str | None = None


class Task(Value, frozen=True):
    id: str
    context_id: str
    status: Status
    history: tuple[Message, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    metadata: JsonObject | None = None


class StatusUpdate(Value, frozen=True):
    task_id: str
    context_id: str
    status: Status
    metadata: JsonObject | None = None


class ArtifactUpdate(Value, frozen=True):
    task_id: str
    context_id: str
    artifact: Artifact
    append: bool = False
    last_chunk: bool = False
    metadata: JsonObject | None = None


Content = Message | Task | StatusUpdate | ArtifactUpdate


class NamedFile(NamedTuple):
    """A file of the hub, and the part that names it, as `message.parts[0]`."""

    path: str
    id: FileId


class Download(Value, frozen=True):
    """An artifact as a file. Its name and media type are its worker's. `file`: that of the hub to which it is a link."""

    name: str
    media_type: str
    content: bytes
    file: FileId | None = None
