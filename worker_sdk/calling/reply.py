"""What calls return: replies, stream events, and the agents of a hub."""

from __future__ import annotations

import asyncio
import os
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rolecall.model.a2a import PAUSED, TERMINAL, EventKind, JsonObject, TaskState, WorkerEvent
from rolecall.model.usage import Usage
from rolecall.protocol.untranslatable import Untranslatable
from rolecall.protocol.v0_3.events import read_result
from rolecall.protocol.v0_3.parts import read_part
from rolecall.protocol.workers.events import Malformed
from worker_sdk.errors import InputRequired, InvalidResult, RolecallError, TaskFailed, TaskRejected
from worker_sdk.files.content import AtHub
from worker_sdk.files.file import File
from worker_sdk.files.parts import Files, fetch, files_in, files_of
from worker_sdk.handlers.models import Mismatch, read_model
from worker_sdk.words import Artifact, Message, Progress, joined_file, progress_of, text_of, usage_of

if TYPE_CHECKING:
    from worker_sdk.handlers.models import ModelT


@dataclass(frozen=True, slots=True)
class Reply:
    """A task in its current state, or a bare message. `raw` is its A2A document. `found`: the files that it names by
    reference, by their urls. `called`: the role, of a call in a task.
    """

    raw: JsonObject
    found: Mapping[str, File] = field(default_factory=dict, repr=False, compare=False)
    called: str = field(default="", repr=False, compare=False)

    @property
    def text(self) -> str:
        """The text of the artifacts, or if there is none, of the status message."""
        if "parts" in self.raw:
            return Message(self.raw).text
        texts = [text_of(artifact.get("parts") or ()) for artifact in self.raw.get("artifacts") or ()]
        return "\n".join(text for text in texts if text) or (self.message.text if self.message else "")

    @property
    def data(self) -> JsonObject | None:
        """The first data part of the artifacts, or of a bare message."""
        holders = [self.raw, *(self.raw.get("artifacts") or ())]
        return next((found for holder in holders if (found := Message(holder).data) is not None), None)

    @property
    def artifacts(self) -> Sequence[Artifact]:
        return [artifact_of(document, self.found) for document in self.raw.get("artifacts") or ()]

    async def save(self, folder: str | os.PathLike[str]) -> Sequence[Path]:
        """Save the files into a folder, which is made if there is none. A name that is taken gets a number. Returns their
        paths. RolecallError, OSError.
        """
        return await save_files(self.files, folder)

    @property
    def files(self) -> Sequence[File]:
        """Those of the artifacts, or of a bare message. Large ones are at the hub: use `chunks`, `read` or `save`."""
        return [file for parts in _results_of(self.raw) for file in files_of(parts, self.found)]

    @property
    def state(self) -> TaskState:
        """A bare message counts as completed."""
        return TaskState((self.raw.get("status") or {}).get("state", TaskState.COMPLETED))

    @property
    def task_id(self) -> str | None:
        """None for a bare message."""
        return self.raw.get("id") if self.raw.get("kind") == EventKind.TASK else None

    @property
    def context_id(self) -> str | None:
        return self.raw.get("contextId")

    @property
    def message(self) -> Message | None:
        """The status message, or the bare message."""
        if "parts" in self.raw:
            return Message(self.raw)
        message = (self.raw.get("status") or {}).get("message")
        return Message(message) if message else None

    @property
    def usage(self) -> Sequence[Usage]:
        """What the task itself has used, without those that it has started: a sum for each model and currency."""
        return usage_of(self.raw)

    def as_model(self, model: type[ModelT]) -> ModelT:
        """`data` as that model of pydantic. InvalidResult."""
        return _as_model(self.data, model, "The result", self.task_id)

    def raise_for_state(self) -> Reply:
        """Raise TaskFailed (also for canceled), TaskRejected or InputRequired; otherwise return the reply."""
        error = self._error()
        if error is not None:
            error.called = self.called
            raise error
        return self

    def _error(self) -> RolecallError | None:
        text = (self.message.text if self.message else "") or f"The task is {self.state}."
        facts = {"taskId": self.task_id or "", "contextId": self.context_id or ""}
        if self.state in (TaskState.FAILED, TaskState.CANCELED):
            own = _of_hub(self.raw)
            facts |= {"idempotent": "true"} if own.get("idempotent") is True else {}
            return TaskFailed(text, reason=str(own["reason"]) if own.get("reason") else None, facts=facts)
        if self.state is TaskState.REJECTED:
            return TaskRejected(text, facts=facts)
        if self.state in PAUSED:
            return InputRequired(text, facts=facts)
        return None


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event of a stream. `kind` is task, status, text, artifact, input_required, done or message.

    `text` is what the event adds: a chunk, a status line, a question; of a task, what the reader had not. `cursor` is its place
    in the log, for resuming after it. `known` is what the reader had of the task that the event repeats.
    """

    kind: str
    text: str
    state: TaskState | None
    raw: JsonObject
    cursor: str | None
    known: JsonObject | None = None
    found: Mapping[str, File] = field(default_factory=dict, repr=False, compare=False)
    """As in Reply."""

    @property
    def is_last(self) -> bool:
        """No event follows in this stream. A Task that waits for input is not the last: its answer may just have been sent."""
        return self.kind in ("done", "input_required", "message") or (self.kind == "task" and self.state in TERMINAL)

    @property
    def artifact(self) -> Artifact | None:
        return artifact_of(self.raw["artifact"], self.found) if "artifact" in self.raw else None

    @property
    def files(self) -> Sequence[File]:
        """Those of what the event adds: see Reply."""
        added = self.raw if self.known is None else new_in(self.raw, self.known)
        return [file for parts in _results_of(added) for file in files_of(parts, self.found)]

    @property
    def progress(self) -> Progress | None:
        """How far the task is, if the event has a status that says it."""
        message = self._status_message
        return progress_of(message) if message else None

    @property
    def usage(self) -> Sequence[Usage]:
        """What the event reports; of a Task, the sums."""
        return usage_of(self.raw)

    @property
    def data(self) -> JsonObject | None:
        """The first data part of what the event adds: of its artifact, of its status, or of the bare message."""
        found = self._status_message
        return Message(self.raw.get("artifact") or (found.raw if found else self.raw)).data

    def as_model(self, model: type[ModelT]) -> ModelT:
        """`data` as that model of pydantic. InvalidResult."""
        return _as_model(self.data, model, "The event", self.raw.get("taskId") or self.raw.get("id"))

    @property
    def _status_message(self) -> Message | None:
        document = (self.raw.get("status") or {}).get("message")
        return Message(document) if document else None


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """A live worker in the hub's registry."""

    name: str
    role: str
    instance: str
    description: str = ""
    url: str = ""
    state: str = ""
    in_flight: int = 0
    capacity: int | None = None
    skills: Sequence[JsonObject] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    expires_in: float | None = None
    last_seen: str | None = None
    raw: JsonObject = field(default_factory=dict)

    @property
    def card(self) -> JsonObject:
        """The full card. Only `agent(name)` returns it, lists omit it."""
        return self.raw.get("card") or {}


def agent_of(item: Mapping[str, Any]) -> AgentInfo:
    load = item.get("load") or {}
    return AgentInfo(
        name=str(item.get("name") or ""),
        role=str(item.get("role") or ""),
        instance=str(item.get("instance_id") or ""),
        description=str(item.get("description") or ""),
        url=str(item.get("url") or ""),
        state=str(item.get("state") or ""),
        in_flight=int(load.get("in_flight") or 0),
        capacity=load.get("capacity"),
        skills=item.get("skills") or (),
        labels=item.get("labels") or {},
        expires_in=item.get("expires_in"),
        last_seen=item.get("last_seen"),
        raw=dict(item),
    )


async def read_reply(result: Any, files: Files | None) -> Reply:
    """With its files, of which the small ones are fetched. RolecallError."""
    return await with_files(_read_event(result).document, files)


async def with_files(document: JsonObject, files: Files | None) -> Reply:
    """The reply that is this document. As `read_reply`."""
    reply = Reply(document, _files_in(document, files))
    await fetch(reply.found.values(), all_there=False)
    return reply


def reply_of(result: Any, files: Files | None = None) -> Reply:
    document = _read_event(result).document
    return Reply(document, _files_in(document, files))


def event_of(result: Any, cursor: str | None, files: Files | None = None) -> StreamEvent:
    event = _read_event(result)
    kind, text = _kind_and_text(event)
    return StreamEvent(kind, text, event.state, event.document, cursor, found=_files_in(event.document, files))


async def save_files(files: Sequence[File], folder: str | os.PathLike[str]) -> Sequence[Path]:
    """As `Reply.save`."""
    place = Path(folder)
    await asyncio.to_thread(place.mkdir, parents=True, exist_ok=True)
    return [await file.save(await asyncio.to_thread(_free_path, place / file.own_name)) for file in files]


def _free_path(path: Path) -> Path:
    numbered = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2))
    return path if not path.exists() else next(one for one in numbered if not one.exists())


def _files_in(document: JsonObject, files: Files | None) -> Mapping[str, File]:
    found: dict[str, File] = {}
    for parts in _results_of(document) if files is not None else ():
        found |= files_in(parts, files)
    return found


def _results_of(document: JsonObject) -> list[Sequence[JsonObject]]:
    """The parts of the artifacts of a task, of an artifact's update, or of a bare message."""
    holders = [document, document.get("artifact") or {}, *(document.get("artifacts") or ())]
    return [parts for holder in holders if (parts := holder.get("parts"))]


def repeats(event: StreamEvent, known: JsonObject) -> StreamEvent:
    """The event of a task, for a reader that had this much of it."""
    return replace(event, known=known, text=Reply(new_in(event.raw, known)).text)


def new_in(task: JsonObject, known: JsonObject) -> JsonObject:
    """The task with the parts of artifacts and the status message that `known` has not."""
    had = {artifact.get("artifactId"): len(artifact.get("parts") or ()) for artifact in known.get("artifacts") or ()}
    artifacts = [
        {**artifact, "parts": (artifact.get("parts") or ())[had.get(artifact.get("artifactId"), 0) :]}
        for artifact in task.get("artifacts") or ()
    ]
    status, before = task.get("status") or {}, (known.get("status") or {}).get("message")
    if before is not None and status.get("message") == before:
        status = {name: value for name, value in status.items() if name != "message"}
    return {**task, "artifacts": [artifact for artifact in artifacts if artifact["parts"]], "status": status}


def artifact_of(document: JsonObject, found: Mapping[str, File]) -> Artifact:
    """An artifact with several parts is represented by its text if it has any, else by its first part. The pieces of one file
    are joined. `found`: files by reference, by their urls.
    """
    parts: Sequence[JsonObject] = document.get("parts") or ()
    # An empty text may stand for no parts, as in a last chunk.
    parts = [part for part in parts if part.get("text") != ""] or parts[:1]
    if (joined := joined_file(parts)) is not None:
        parts = (joined,)
    name, description = str(document.get("name") or ""), str(document.get("description") or "")
    first = parts[0] if parts else {}
    kind, media = first.get("kind"), _media_type(first)
    if any(part.get("kind") == "text" for part in parts) or kind not in ("data", "file"):
        return Artifact(name, text=text_of(parts), media_type=media, description=description)
    if kind == "data":
        return Artifact(name, data=first["data"], media_type=media, description=description)
    file = first.get("file") or {}
    name = name or str(file.get("name") or "")
    if "bytes" in file:
        return Artifact(name, raw=b64decode(file["bytes"]), media_type=media, description=description)
    known = found.get(str(file.get("uri")))
    if known is not None and isinstance(known.content, AtHub) and known.content.is_fetched:
        return Artifact(name, raw=known.raw, media_type=media, description=description)
    return Artifact(name, url=str(file.get("uri") or ""), media_type=media, description=description)


def _as_model(data: JsonObject | None, model: type[ModelT], what: str, task_id: str | None) -> ModelT:
    about = {"taskId": task_id} if task_id else {}
    if data is None:
        raise InvalidResult(f"{what} has no data part, and {model.__name__} was expected.", facts=about)
    try:
        return read_model(model, data, what)
    except Mismatch as mismatch:
        raise InvalidResult(str(mismatch), facts={"paths": ",".join(mismatch.paths)} | about) from None


def _media_type(part: JsonObject) -> str | None:
    try:
        return read_part(part).media_type
    except Untranslatable:
        return None


def _read_event(result: Any) -> WorkerEvent:
    try:
        return read_result(result)
    except Malformed as error:
        raise RolecallError(f"The answer is not A2A: {error}.", reason="INVALID_AGENT_RESPONSE") from None


def _kind_and_text(event: WorkerEvent) -> tuple[str, str]:
    document = event.document
    if event.kind is EventKind.TASK:
        return "task", Reply(document).text
    if event.kind is EventKind.MESSAGE:
        return "message", Message(document).text
    if event.kind is EventKind.ARTIFACT:
        parts = document["artifact"]["parts"]
        plain = all(part.get("kind") == "text" for part in parts)
        return ("text" if plain else "artifact"), text_of(parts)
    message = document["status"].get("message")
    text = Message(message).text if message else ""
    if event.state in TERMINAL:
        return "done", text
    return ("input_required" if event.state in PAUSED else "status"), text


def _of_hub(task: JsonObject) -> JsonObject:
    """What the hub has written into the metadata, if it failed the task itself."""
    metadata = ((task.get("status") or {}).get("message") or {}).get("metadata") or task.get("metadata") or {}
    own = metadata.get("rolecall") if isinstance(metadata, dict) else None
    return own if isinstance(own, dict) else {}
