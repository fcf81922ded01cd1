"""The values that a handler receives, yields and raises."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from rolecall.model.a2a import JsonObject
from rolecall.model.card import PROGRESS_EXTENSION, USAGE_EXTENSION
from rolecall.model.usage import Amount, Usage, cost_document, nanos_of, read_currency, read_reports, read_tokens
from worker_sdk.files.file import File
from worker_sdk.files.parts import NO_FILES, files_of, read_file
from worker_sdk.handlers.models import data_of

if TYPE_CHECKING:
    from pydantic import BaseModel


class Progress(NamedTuple):
    """How far a task is. `total` is None if it is not known."""

    done: float
    total: float | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """A line of progress; the task continues. `done` of `total` tells how far it is: `Status(done=3, total=10)`. `data` is for
    programs: a dict or a model.
    """

    text: str = ""
    done: float | None = None
    total: float | None = None
    data: Mapping[str, Any] | BaseModel | None = None

    def __post_init__(self) -> None:
        if not self.text and self.done is None and self.data is None:
            raise ValueError("a Status takes a text, done or data")
        if self.total is not None and self.done is None:
            raise ValueError("a Status with a total also takes done")

    def message(self) -> JsonObject:
        """The parts, metadata and extensions of the status message. Clients without the extension read the numbers as text."""
        progress = {} if self.done is None else {"done": self.done} | ({} if self.total is None else {"total": self.total})
        text = self.text or "/".join(f"{number:g}" for number in progress.values())
        parts: list[JsonObject] = [{"kind": "text", "text": text}] if text else []
        parts += [] if self.data is None else [{"kind": "data", "data": data_of(self.data)}]
        return {"parts": parts} | (
            {"metadata": {PROGRESS_EXTENSION: progress}, "extensions": [PROGRESS_EXTENSION]} if progress else {}
        )


def progress_of(message: Message) -> Progress | None:
    found = message.metadata.get(PROGRESS_EXTENSION)
    done, total = (found.get("done"), found.get("total")) if isinstance(found, dict) else (None, None)
    return Progress(done, total if _is_number(total) else None) if _is_number(done) else None


def usage_metadata(usage: Sequence[Usage]) -> JsonObject:
    """The member of metadata that has these reports; none for none."""
    documents = [one.document() for one in usage]
    return {USAGE_EXTENSION: documents[0] if len(documents) == 1 else documents} if documents else {}


def usage_of(document: JsonObject) -> tuple[Usage, ...]:
    """What a Task, an update or a bare Message has in its metadata."""
    metadata = document.get("metadata")
    return read_reports(metadata[USAGE_EXTENSION]).usage if isinstance(metadata, dict) and USAGE_EXTENSION in metadata else ()


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Budget:
    """What a call may use of language models with all that it starts: `Budget(2)` dollars, `Budget("0.50", "EUR")`,
    `Budget(tokens=100_000)`, or both. When it is spent, the tasks start no others.
    """

    cost: Amount | None = None
    currency: str = "USD"
    tokens: int | None = None

    def __post_init__(self) -> None:
        if self.cost is None and self.tokens is None:
            raise ValueError("a Budget takes a cost, tokens or both")
        if 0 in (read_tokens(1 if self.tokens is None else self.tokens), nanos_of(1 if self.cost is None else self.cost)):
            raise ValueError("a Budget is more than nothing")
        read_currency(self.currency)

    def metadata(self) -> JsonObject:
        """What the metadata of the call has of it."""
        budget: JsonObject = {} if self.tokens is None else {"tokens": self.tokens}
        budget |= {} if self.cost is None else {"cost": cost_document(nanos_of(self.cost), self.currency)}
        return {USAGE_EXTENSION: {"budget": budget}}


@dataclass(frozen=True, slots=True)
class NeedInput:
    """Ask the caller and pause. `reply = yield NeedInput("…")` returns the caller's next Message of this task.

    The pause is kept in this process's memory: it ends with the process.
    """

    text: str


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


def joined_file(parts: Sequence[JsonObject]) -> JsonObject | None:
    """The file part that these parts are the pieces of, as older workers send a large file. None: they are not, or not all."""
    marks = [((part.get("metadata") or {}).get("rolecall") or {}) for part in parts]
    whole = all(mark == {"piece": at, "pieces": len(parts)} for at, mark in enumerate(marks, 1))
    if len(parts) < 2 or not whole or not all("bytes" in (part.get("file") or {}) for part in parts):
        return None
    return {"kind": "file", "file": {**parts[0]["file"], "bytes": "".join([part["file"]["bytes"] for part in parts])}}


class Message:
    """A read-only message. `raw` is its A2A document. `found`: the files that it names by reference, by their urls."""

    __slots__ = ("_found", "raw")

    def __init__(self, raw: JsonObject, found: Mapping[str, File] = NO_FILES) -> None:
        self.raw = raw
        self._found = found

    @property
    def text(self) -> str:
        """The text parts, one per line."""
        return "\n".join(part["text"] for part in self.parts if isinstance(part.get("text"), str))

    @property
    def data(self) -> JsonObject | None:
        """The first data part."""
        return next((part["data"] for part in self.parts if part.get("kind") == "data"), None)

    @property
    def files(self) -> Sequence[File]:
        """Those of the file parts, but for those with a url that leads elsewhere than to the hub. ValueError: not base64."""
        return files_of(self.parts, self._found)

    @property
    def by_reference(self) -> Collection[File]:
        return self._found.values()

    def with_raw(self, raw: JsonObject) -> Message:
        return Message(raw, self._found)

    def file(self, at: int) -> File:
        """That of the part at this place, which is a file part. ValueError: there is none that can be read."""
        return read_file(self.parts[at], f"message.parts[{at}]", self._found)

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
            "ROLECALL_MAX_EVENT of its hub). Send it as a File, which a hub that stores files takes in any size, or raise both."
        )


def text_of(parts: Sequence[JsonObject]) -> str:
    """The text parts of one artifact are pieces of one text."""
    return "".join(part["text"] for part in parts if isinstance(part.get("text"), str))
