"""Content in 0.3 over JSON-RPC: `kind` everywhere, `final` on every status update, nested file parts.

The content that is read shares `metadata` and `data` with the document, which does not change. Unknown members are left out.
"""

from __future__ import annotations

from typing import Any

from rolecall.model.a2a import PAUSED, TERMINAL, EventKind, JsonObject, TaskState
from rolecall.model.content import Artifact, ArtifactUpdate, Content, Message, Role, Status, StatusUpdate, Task
from rolecall.protocol.text import members
from rolecall.protocol.text.members import drop_empty
from rolecall.protocol.untranslatable import Untranslatable
from rolecall.protocol.v0_3.parts import file_url, read_parts, with_bytes, write_part

__all__ = [
    "ROLES",
    "STATES",
    "file_url",
    "is_final",
    "read",
    "read_message",
    "read_state",
    "state_name",
    "with_bytes",
    "write",
]

_NAMES = {state: state.value for state in TaskState}
STATES = {name: state for state, name in _NAMES.items()} | {
    "cancelled": TaskState.CANCELED,
    "pending": TaskState.SUBMITTED,
    "running": TaskState.WORKING,
}
"""The specified names, and other spellings in use."""
ROLES = {role.value: role for role in Role}
_OPTIONAL = frozenset({"taskId", "contextId", "referenceTaskIds", "extensions", "metadata"})


def state_name(state: TaskState) -> str:
    return _NAMES[state]


def read_state(value: Any, where: str = "state") -> TaskState:
    """UNKNOWN for an unknown name."""
    if not isinstance(value, str):
        raise Untranslatable(f'"{where}" must be a string.')
    return STATES.get(value, TaskState.UNKNOWN)


# --- reading


def read(kind: EventKind, document: Any) -> Content:
    if kind is EventKind.MESSAGE:
        return read_message(document)
    if kind is EventKind.TASK:
        return _read_task(members.mapping(document, "task"))
    holder = members.mapping(document, kind.value)
    ids = members.text(holder, "taskId", kind.value), members.optional_text(holder, "contextId", kind.value) or ""
    metadata = members.metadata(holder, kind.value)
    if kind is EventKind.STATUS:
        return StatusUpdate(*ids, _read_status(holder.get("status"), "status"), metadata)
    artifact = _read_artifact(holder.get("artifact"), "artifact")
    append, last = (members.flag(holder, name, kind.value) for name in ("append", "lastChunk"))
    return ArtifactUpdate(*ids, artifact, append, last, metadata)


def read_message(document: Any, where: str = "message") -> Message:
    message = members.mapping(document, where)
    name = message.get("role")
    role = ROLES.get(name) if isinstance(name, str) else None
    if role is None:
        raise Untranslatable(f'"{where}.role" must be "user" or "agent".')
    message_id, parts = members.text(message, "messageId", where), read_parts(message, where)
    if _OPTIONAL.isdisjoint(message):
        return Message(message_id, role, parts)
    return Message(
        message_id,
        role,
        parts,
        task_id=members.optional_text(message, "taskId", where),
        context_id=members.optional_text(message, "contextId", where),
        references=members.texts(message, "referenceTaskIds", where),
        extensions=members.texts(message, "extensions", where),
        metadata=members.metadata(message, where),
    )


def _read_task(task: JsonObject) -> Task:
    history, artifacts = (members.items(task, name, "task") for name in ("history", "artifacts"))
    return Task(
        id=members.text(task, "id", "task"),
        context_id=members.optional_text(task, "contextId", "task") or "",
        status=_read_status(task.get("status"), "task.status"),
        history=tuple(read_message(item, f"task.history[{at}]") for at, item in enumerate(history)),
        artifacts=tuple(_read_artifact(item, f"task.artifacts[{at}]") for at, item in enumerate(artifacts)),
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


def _read_artifact(value: Any, where: str) -> Artifact:
    artifact = members.mapping(value, where)
    return Artifact(
        artifact_id=members.text(artifact, "artifactId", where),
        parts=read_parts(artifact, where),
        name=members.optional_text(artifact, "name", where),
        description=members.optional_text(artifact, "description", where),
        extensions=members.texts(artifact, "extensions", where),
        metadata=members.metadata(artifact, where),
    )


# --- writing


def write(content: Content) -> JsonObject:
    if isinstance(content, Message):
        return _write_message(content)
    if isinstance(content, Task):
        return drop_empty(
            kind="task",
            id=content.id,
            contextId=content.context_id,
            status=_write_status(content.status),
            history=[_write_message(message) for message in content.history],
            artifacts=[_write_artifact(artifact) for artifact in content.artifacts],
            metadata=content.metadata,
        )
    ids = {"taskId": content.task_id, "contextId": content.context_id}
    if isinstance(content, StatusUpdate):
        status = _write_status(content.status)
        return drop_empty(kind="status-update", **ids, status=status, final=is_final(content.status), metadata=content.metadata)
    return drop_empty(
        kind="artifact-update",
        **ids,
        artifact=_write_artifact(content.artifact),
        append=content.append,
        lastChunk=content.last_chunk,
        metadata=content.metadata,
    )


def is_final(status: Status) -> bool:
    """No event follows on this stream: the task has ended, or waits for its caller."""
    return status.state in TERMINAL or status.state in PAUSED


def _write_message(message: Message) -> JsonObject:
    document = {
        "kind": "message",
        "messageId": message.message_id,
        "role": message.role.value,
        "parts": [write_part(part) for part in message.parts],
    }
    return document | drop_empty(
        taskId=message.task_id,
        contextId=message.context_id,
        referenceTaskIds=list(message.references),
        extensions=list(message.extensions),
        metadata=message.metadata,
    )


def _write_status(status: Status) -> JsonObject:
    message = None if status.message is None else _write_message(status.message)
    return drop_empty(state=state_name(status.state), message=message, timestamp=status.timestamp)


def _write_artifact(artifact: Artifact) -> JsonObject:
    document = {"artifactId": artifact.artifact_id, "parts": [write_part(part) for part in artifact.parts]}
    return document | drop_empty(
        name=artifact.name,
        description=artifact.description,
        extensions=list(artifact.extensions),
        metadata=artifact.metadata,
    )
