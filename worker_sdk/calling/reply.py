"""What comes back from a call: replies, the events of a stream, and the agents of a hub."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rolecall.model.a2a import PAUSED, TERMINAL, EventKind, JsonObject, TaskState, WorkerEvent
from rolecall.protocol.untranslatable import Untranslatable
from rolecall.protocol.v0_3.events import read_result
from rolecall.protocol.v0_3.parts import read_part
from rolecall.protocol.workers.events import Malformed
from worker_sdk.errors import InputRequired, RolecallError, TaskFailed, TaskRejected
from worker_sdk.words import Artifact, Message, text_of


@dataclass(frozen=True, slots=True)
class Reply:
    """A task as it stands, or a bare message. `raw` is its A2A document."""

    raw: JsonObject

    @property
    def text(self) -> str:
        """The text of the artifacts; where there is none, what the agent last said."""
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
        return [artifact_of(document) for document in self.raw.get("artifacts") or ()]

    @property
    def state(self) -> TaskState:
        """A bare message is a whole answer."""
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
        """What the agent said along with the state, or the bare message."""
        if "parts" in self.raw:
            return Message(self.raw)
        said = (self.raw.get("status") or {}).get("message")
        return Message(said) if said else None

    def raise_for_state(self) -> Reply:
        """TaskFailed (also for a canceled one), TaskRejected or InputRequired; else the reply itself."""
        said = (self.message.text if self.message else "") or f"The task is {self.state}."
        facts = {"taskId": self.task_id or "", "contextId": self.context_id or ""}
        if self.state in (TaskState.FAILED, TaskState.CANCELED):
            reason = _reason_of(self.raw)
            raise TaskFailed(said, reason=reason, facts=facts)
        if self.state is TaskState.REJECTED:
            raise TaskRejected(said, facts=facts)
        if self.state in PAUSED:
            raise InputRequired(said, facts=facts)
        return self


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event of a stream. `kind` is task, status, text, artifact, input_required, done or message.

    `text` is what the event adds: a chunk, a status line, a question. `cursor` is the place in the log to come back to.
    """

    kind: str
    text: str
    state: TaskState | None
    raw: JsonObject
    cursor: str | None

    @property
    def ends(self) -> bool:
        """Nothing follows in this stream. A Task that waits for input may be the one that was just answered: it goes on."""
        return self.kind in ("done", "input_required", "message") or (self.kind == "task" and self.state in TERMINAL)

    @property
    def artifact(self) -> Artifact | None:
        return artifact_of(self.raw["artifact"]) if "artifact" in self.raw else None


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """One live worker, as the hub lists it."""

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
        """The full card: `agent(name)` gives it, lists leave it out."""
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


def reply_of(result: Any) -> Reply:
    return Reply(_read_event(result).document)


def event_of(result: Any, cursor: str | None) -> StreamEvent:
    heard = _read_event(result)
    kind, text = _kind_and_text(heard)
    return StreamEvent(kind, text, heard.state, heard.document, cursor)


def artifact_of(document: JsonObject) -> Artifact:
    """An artifact of several parts is told by its text if it has any, else by its first part."""
    parts: Sequence[JsonObject] = document.get("parts") or ()
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
    return Artifact(name, url=str(file.get("uri") or ""), media_type=media, description=description)


def _media_type(part: JsonObject) -> str | None:
    try:
        return read_part(part).media_type
    except Untranslatable:
        return None


def _read_event(result: Any) -> WorkerEvent:
    try:
        return read_result(result)
    except Malformed as error:
        raise RolecallError(f"The answer is not A2A: {error}.", reason="INVALID_AGENT_RESPONSE") from error


def _kind_and_text(heard: WorkerEvent) -> tuple[str, str]:
    document = heard.document
    if heard.kind is EventKind.TASK:
        return "task", Reply(document).text
    if heard.kind is EventKind.MESSAGE:
        return "message", Message(document).text
    if heard.kind is EventKind.ARTIFACT:
        parts = document["artifact"]["parts"]
        plain = all(part.get("kind") == "text" for part in parts)
        return ("text" if plain else "artifact"), text_of(parts)
    said = document["status"].get("message")
    text = Message(said).text if said else ""
    if heard.state in TERMINAL:
        return "done", text
    return ("input_required" if heard.state in PAUSED else "status"), text


def _reason_of(task: JsonObject) -> str | None:
    """Where the hub itself failed the task it says why."""
    own = ((task.get("status") or {}).get("message") or {}).get("metadata") or task.get("metadata") or {}
    said = own.get("rolecall") if isinstance(own, dict) else None
    return str(said["reason"]) if isinstance(said, dict) and said.get("reason") else None
