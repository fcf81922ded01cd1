"""Content in 1.0: ProtoJSON, in which the name of the wrapping member is the kind.

Like every ProtoJSON reader, this one accepts snake_case names, numbers for enums, and absent members for empty ones.
The content that is read shares `metadata` and `data` with the document, which does not change. Unknown members are left out.
"""

from __future__ import annotations

from typing import Any

from rolecall.model.a2a import EventKind, JsonObject, TaskState
from rolecall.model.content import Artifact, ArtifactUpdate, Content, Message, Part, PartKind, Role, Status, StatusUpdate, Task
from rolecall.protocol.text import members
from rolecall.protocol.text.members import drop_empty
from rolecall.protocol.untranslatable import Untranslatable

# Quicker to go through than the enum.
_PART_KINDS = tuple(PartKind)
_NAMES = {state: f"TASK_STATE_{'UNSPECIFIED' if state is TaskState.UNKNOWN else state.name}" for state in TaskState}
STATES = {name: state for state, name in _NAMES.items()} | {
    **{state.value: state for state in TaskState},
    "TASK_STATE_CANCELLED": TaskState.CANCELED,
}
"""The specified names, and other spellings in use."""
_NUMBERED_STATES = (
    TaskState.UNKNOWN,
    TaskState.SUBMITTED,
    TaskState.WORKING,
    TaskState.COMPLETED,
    TaskState.FAILED,
    TaskState.CANCELED,
    TaskState.INPUT_REQUIRED,
    TaskState.REJECTED,
    TaskState.AUTH_REQUIRED,
)
_ROLES: dict[Any, Role] = {"ROLE_USER": Role.USER, "ROLE_AGENT": Role.AGENT, 1: Role.USER, 2: Role.AGENT} | {
    role.value: role for role in Role
}
_CAMEL = {
    "message_id": "messageId",
    "task_id": "taskId",
    "context_id": "contextId",
    "reference_task_ids": "referenceTaskIds",
    "artifact_id": "artifactId",
    "last_chunk": "lastChunk",
    "media_type": "mediaType",
}


def state_name(state: TaskState) -> str:
    return _NAMES[state]


def role_name(role: Role) -> str:
    return f"ROLE_{role.name}"


def read_state(value: Any, where: str = "state") -> TaskState:
    """UNKNOWN for None and for an unknown name or number."""
    if value is None:
        return TaskState.UNKNOWN
    if isinstance(value, int) and not isinstance(value, bool):
        return _NUMBERED_STATES[value] if 0 <= value < len(_NUMBERED_STATES) else TaskState.UNKNOWN
    if not isinstance(value, str):
        raise Untranslatable(f'"{where}" must be a name or a number.')
    return STATES.get(value, TaskState.UNKNOWN)


# --- reading


def read(kind: EventKind, document: Any) -> Content:
    if kind is EventKind.MESSAGE:
        return read_message(document)
    if kind is EventKind.TASK:
        return _read_task(_holder(document, "task"))
    where = "statusUpdate" if kind is EventKind.STATUS else "artifactUpdate"
    holder = _holder(document, where)
    ids = _text(holder, "taskId", where), _text(holder, "contextId", where)
    metadata = members.metadata(holder, where)
    if kind is EventKind.STATUS:
        return StatusUpdate(*ids, _read_status(holder.get("status"), "status"), metadata)
    artifact = _read_artifact(holder.get("artifact"), "artifact")
    append, last = (members.flag(holder, name, where) for name in ("append", "lastChunk"))
    return ArtifactUpdate(*ids, artifact, append, last, metadata)


def read_role(value: Any) -> Role | None:
    """None if it is not a role."""
    return _ROLES.get(value) if isinstance(value, str | int) and not isinstance(value, bool) else None


def read_message(document: Any, where: str = "message") -> Message:
    message = _holder(document, where)
    role = read_role(message.get("role"))
    if role is None:
        raise Untranslatable(f'"{where}.role" must be ROLE_USER or ROLE_AGENT.')
    return Message(
        message_id=_text(message, "messageId", where),
        role=role,
        parts=_read_parts(message, where),
        task_id=members.optional_text(message, "taskId", where),
        context_id=members.optional_text(message, "contextId", where),
        references=members.texts(message, "referenceTaskIds", where),
        extensions=members.texts(message, "extensions", where),
        metadata=members.metadata(message, where),
    )


def contents_of(part: JsonObject) -> list[PartKind]:
    """The contents of a part: valid is exactly one. Null is content for data only; elsewhere the member is absent."""
    return [kind for kind in _PART_KINDS if kind in part and (kind is PartKind.DATA or part[kind] is not None)]


def file_url(part: JsonObject) -> str | None:
    """The url of a part that has one, and no other content."""
    url = part.get("url")
    return url if isinstance(url, str) and contents_of(part) == [PartKind.URL] else None


def with_bytes(part: JsonObject, content: str) -> JsonObject:
    """A part, with its bytes in place of its url."""
    return {("raw" if name == "url" else name): value for name, value in part.items()} | {"raw": content}


def read_part(value: Any, where: str = "part") -> Part:
    part = _holder(value, where)
    contents = contents_of(part)
    if len(contents) != 1:
        raise Untranslatable(f'"{where}" must have exactly one of text, raw, url and data.')
    (kind,) = contents
    content = part[kind] if kind is PartKind.DATA else members.text(part, kind, where)
    return Part(
        kind,
        members.base64(content, f"{where}.raw") if kind is PartKind.RAW else content,
        members.optional_text(part, "filename", where),
        members.optional_text(part, "mediaType", where),
        members.metadata(part, where),
    )


def _read_task(task: JsonObject) -> Task:
    history, artifacts = (members.items(task, name, "task") for name in ("history", "artifacts"))
    return Task(
        id=_text(task, "id", "task"),
        context_id=_text(task, "contextId", "task"),
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
    artifact = _holder(value, where)
    return Artifact(
        artifact_id=_text(artifact, "artifactId", where),
        parts=_read_parts(artifact, where),
        name=members.optional_text(artifact, "name", where),
        description=members.optional_text(artifact, "description", where),
        extensions=members.texts(artifact, "extensions", where),
        metadata=members.metadata(artifact, where),
    )


def _read_parts(holder: JsonObject, where: str) -> tuple[Part, ...]:
    parts = members.items(holder, "parts", where)
    return tuple(read_part(part, f"{where}.parts[{at}]") for at, part in enumerate(parts))


def _text(holder: JsonObject, name: str, where: str) -> str:
    return members.optional_text(holder, name, where) or ""


def _holder(value: Any, where: str) -> JsonObject:
    """The object, with its members in camelCase."""
    holder = members.mapping(value, where)
    snake = _CAMEL.keys() & holder.keys()
    if not snake:
        return holder
    camel = {name: item for name, item in holder.items() if name not in snake}
    for name in snake:
        if holder[name] is None:
            continue
        if camel.get(_CAMEL[name]) is not None:
            raise Untranslatable(f'"{where}" has {_CAMEL[name]} twice, in two spellings.')
        camel[_CAMEL[name]] = holder[name]
    return camel


# --- writing


def write(content: Content) -> JsonObject:
    if isinstance(content, Message):
        return _write_message(content)
    if isinstance(content, Task):
        return drop_empty(
            id=content.id,
            contextId=content.context_id or None,
            status=_write_status(content.status),
            history=[_write_message(message) for message in content.history],
            artifacts=[_write_artifact(artifact) for artifact in content.artifacts],
            metadata=content.metadata,
        )
    ids = drop_empty(taskId=content.task_id, contextId=content.context_id or None)
    if isinstance(content, StatusUpdate):
        return ids | drop_empty(status=_write_status(content.status), metadata=content.metadata)
    return ids | drop_empty(
        artifact=_write_artifact(content.artifact),
        append=content.append or None,
        lastChunk=content.last_chunk or None,
        metadata=content.metadata,
    )


def write_part(part: Part) -> JsonObject:
    # Not through `drop_empty`: null and an empty list are data.
    return {part.kind.value: part.value} | drop_empty(filename=part.filename, mediaType=part.media_type, metadata=part.metadata)


def _write_message(message: Message) -> JsonObject:
    document = {
        "messageId": message.message_id,
        "role": role_name(message.role),
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
