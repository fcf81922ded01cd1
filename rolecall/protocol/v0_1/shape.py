"""Content in 0.1: `sessionId` for the context, parts by `type`, artifacts by their index in the task.

0.1 is lossy: messages and artifacts have no ids, there are no references and no extensions, and two states are missing.
The content that is read shares `metadata` and `data` with the document.
"""

from __future__ import annotations

from typing import Any

from rolecall.model.a2a import EventKind, JsonObject, TaskState
from rolecall.model.content import Artifact, ArtifactUpdate, Content, Message, Status, StatusUpdate, Task
from rolecall.protocol.text import members
from rolecall.protocol.text.members import drop_empty
from rolecall.protocol.untranslatable import Untranslatable
from rolecall.protocol.v0_3.parts import file_url, read_parts, with_bytes, write_part
from rolecall.protocol.v0_3.shape import ROLES, STATES, is_final, read_state

__all__ = [
    "STATES",
    "file_url",
    "read",
    "read_message",
    "read_state",
    "state_name",
    "with_bytes",
    "write",
    "write_status",
    "write_stream",
]

# 0.1 has no name for these two. A caller has to do the same about the nearest one.
_NEAREST = {TaskState.REJECTED: TaskState.FAILED, TaskState.AUTH_REQUIRED: TaskState.INPUT_REQUIRED}
_LARGEST_INDEX = 1_000_000


def state_name(state: TaskState) -> str:
    return _NEAREST.get(state, state).value


# --- reading


def read(kind: EventKind, document: Any) -> Content:
    if kind is EventKind.MESSAGE:
        return read_message(document)
    if kind is EventKind.TASK:
        return _read_task(members.mapping(document, "task"))
    holder = members.mapping(document, kind.value)
    task_id = members.text(holder, "id", kind.value)
    metadata = members.metadata(holder, kind.value)
    if kind is EventKind.STATUS:
        return StatusUpdate(task_id, "", _read_status(holder.get("status"), "status"), metadata)
    artifact = _read_artifact(holder.get("artifact"), "artifact", 0)
    append, last = (members.flag(holder["artifact"], name, "artifact") for name in ("append", "lastChunk"))
    return ArtifactUpdate(task_id, "", artifact, append, last, metadata)


def read_message(document: Any, where: str = "message") -> Message:
    """A message without an id, unless the caller sent one: the admission of the message gives it one."""
    message = members.mapping(document, where)
    name = message.get("role")
    role = ROLES.get(name) if isinstance(name, str) else None
    if role is None:
        raise Untranslatable(f'"{where}.role" must be "user" or "agent".')
    return Message(
        message_id=members.optional_text(message, "messageId", where) or "",
        role=role,
        parts=read_parts(message, where),
        metadata=members.metadata(message, where),
    )


def _read_task(task: JsonObject) -> Task:
    history, artifacts = (members.items(task, name, "task") for name in ("history", "artifacts"))
    return Task(
        id=members.text(task, "id", "task"),
        context_id=members.optional_text(task, "sessionId", "task") or "",
        status=_read_status(task.get("status"), "task.status"),
        history=tuple(read_message(item, f"task.history[{at}]") for at, item in enumerate(history)),
        artifacts=tuple(_read_artifact(item, f"task.artifacts[{at}]", at) for at, item in enumerate(artifacts)),
        metadata=members.metadata(task, "task"),
    )


def _read_status(value: Any, where: str) -> Status:
    status = members.mapping(value, where)
    message = status.get("message")
    return Status(
        state=read_state(status.get("state"), f"{where}.state"),
        message=None if message is None else read_message(message, f"{where}.message"),
        timestamp=members.moment(status.get("timestamp")),
    )


def _read_artifact(value: Any, where: str, position: int) -> Artifact:
    """The index identifies the artifact: its chunks have the same index."""
    artifact = members.mapping(value, where)
    index = position if artifact.get("index") is None else artifact["index"]
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index <= _LARGEST_INDEX:
        raise Untranslatable(f'"{where}.index" must be a whole number from 0 to {_LARGEST_INDEX}.')
    return Artifact(
        artifact_id=members.optional_text(artifact, "artifactId", where) or str(index),
        parts=read_parts(artifact, where),
        name=members.optional_text(artifact, "name", where),
        description=members.optional_text(artifact, "description", where),
        metadata=members.metadata(artifact, where),
    )


# --- writing


def write(content: Content, *, index: int = 0) -> JsonObject:
    """`index`: the position in the task of an update's artifact."""
    if isinstance(content, Message):
        return _write_message(content)
    if isinstance(content, Task):
        return drop_empty(
            id=content.id,
            sessionId=content.context_id or None,
            status=write_status(content.status),
            history=[_write_message(message) for message in content.history],
            artifacts=_write_artifacts(content),
            metadata=content.metadata,
        )
    if isinstance(content, StatusUpdate):
        return _write_update(content.task_id, content)
    chunk = {"append": content.append, "lastChunk": content.last_chunk}
    return drop_empty(id=content.task_id, artifact=_write_artifact(content.artifact, index) | chunk, metadata=content.metadata)


def write_stream(content: Content, *, index: int = 0) -> JsonObject:
    """An event of a stream. 0.1 has only updates there: a task becomes a status update with artifacts."""
    if isinstance(content, Message):
        raise Untranslatable('A stream of 0.1 cannot hold a "message" without a task.')
    if isinstance(content, Task):
        return _write_update(content.id, content) | drop_empty(artifacts=_write_artifacts(content))
    return write(content, index=index)


def _write_update(task_id: str, content: Task | StatusUpdate) -> JsonObject:
    final = is_final(content.status)
    return drop_empty(id=task_id, status=write_status(content.status), final=final, metadata=content.metadata)


def _write_message(message: Message) -> JsonObject:
    parts = [write_part(part, "type") for part in message.parts]
    return {"role": message.role.value, "parts": parts} | drop_empty(metadata=message.metadata)


def write_status(status: Status) -> JsonObject:
    message = None if status.message is None else _write_message(status.message)
    return drop_empty(state=state_name(status.state), message=message, timestamp=status.timestamp)


def _write_artifacts(task: Task) -> list[JsonObject]:
    return [_write_artifact(artifact, at) for at, artifact in enumerate(task.artifacts)]


def _write_artifact(artifact: Artifact, index: int) -> JsonObject:
    parts = [write_part(part, "type") for part in artifact.parts]
    names = drop_empty(name=artifact.name, description=artifact.description)
    return names | {"parts": parts, "index": index} | drop_empty(metadata=artifact.metadata)
