"""The values that a handler receives, yields and raises."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rolecall.model.a2a import JsonObject


@dataclass(frozen=True, slots=True)
class Status:
    """A line of progress; the task continues."""

    text: str


@dataclass(frozen=True, slots=True)
class NeedInput:
    """Ask the caller and pause. `reply = yield NeedInput("…")` returns the caller's next Message of this task.

    The pause is kept in this process's memory: it ends with the process.
    """

    text: str
    child: str = ""
    """The task that asks, if a task that this one has started does."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A named result. Pass exactly one of text, data (a dict), raw (bytes) or url."""

    name: str = ""
    text: str | None = None
    data: Mapping[str, Any] | None = None
    raw: bytes | None = None
    url: str | None = None
    media_type: str | None = None
    description: str = ""

    def __post_init__(self) -> None:
        given = [name for name in ("text", "data", "raw", "url") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"an Artifact takes one of text, data, raw or url, not {' and '.join(given) or 'none'}")

    def part(self) -> JsonObject:
        if self.raw is not None or self.url is not None:
            return {"kind": "file", "file": self._file()}
        part: JsonObject = {"kind": "text", "text": self.text} if self.text is not None else {"kind": "data", "data": self.data}
        if self.media_type:
            # Text and data parts of 0.3 have no member for it; the translation to 1.0 reads it from here.
            part["metadata"] = {"rolecall": {"mediaType": self.media_type}}
        return part

    def _file(self) -> JsonObject:
        file: JsonObject = {"bytes": b64encode(self.raw).decode()} if self.raw is not None else {"uri": self.url}
        if self.name:
            file["name"] = self.name
        if self.media_type:
            file["mimeType"] = self.media_type
        return file


def piece_mark(number: int, count: int) -> JsonObject:
    """What a part has that holds one piece of a file: A2A has parts of an artifact, and no pieces of a part."""
    return {"metadata": {"rolecall": {"piece": number, "pieces": count}}}


def joined_file(parts: Sequence[JsonObject]) -> JsonObject | None:
    """The file part that these parts are the pieces of. None: they are not, or not all of them."""
    marks = [((part.get("metadata") or {}).get("rolecall") or {}) for part in parts]
    whole = all(mark == {"piece": at, "pieces": len(parts)} for at, mark in enumerate(marks, 1))
    if len(parts) < 2 or not whole or not all("bytes" in (part.get("file") or {}) for part in parts):
        return None
    return {"kind": "file", "file": {**parts[0]["file"], "bytes": "".join([part["file"]["bytes"] for part in parts])}}


class Message:
    """A read-only message. `raw` is its A2A document."""

    __slots__ = ("raw",)

    def __init__(self, raw: JsonObject) -> None:
        self.raw = raw

    @property
    def text(self) -> str:
        """The text parts, one per line."""
        return "\n".join(part["text"] for part in self.parts if isinstance(part.get("text"), str))

    @property
    def data(self) -> JsonObject | None:
        """The first data part."""
        return next((part["data"] for part in self.parts if part.get("kind") == "data"), None)

    @property
    def parts(self) -> Sequence[JsonObject]:
        return self.raw.get("parts") or ()

    @property
    def role(self) -> str:
        return str(self.raw.get("role") or "user")

    @property
    def message_id(self) -> str:
        return str(self.raw.get("messageId") or "")

    @property
    def task_id(self) -> str | None:
        return self.raw.get("taskId")

    @property
    def context_id(self) -> str | None:
        return self.raw.get("contextId")

    @property
    def metadata(self) -> JsonObject:
        return self.raw.get("metadata") or {}

    def __repr__(self) -> str:
        return f"Message({self.message_id!r}, {len(self.parts)} parts)"


class Reject(Exception):
    """Raise it to reject a task: the caller gets the text, the task's state is rejected."""


class UserError(Exception):
    """Raise it to fail a task with a text for the caller. The text of any other exception only goes to the worker's log."""


class TooLarge(ValueError):
    """What a handler yielded or returned does not fit into one event. It is raised at the `yield`."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(
            f"{what} takes {size} bytes in one event, and an event may take {limit} (max_event of the Worker, and "
            "ROLECALL_MAX_EVENT of its hub). Send it in pieces or as a url, or raise both."
        )


def text_of(parts: Sequence[JsonObject]) -> str:
    """The text parts of one artifact are pieces of one text."""
    return "".join(part["text"] for part in parts if isinstance(part.get("text"), str))
