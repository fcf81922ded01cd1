"""Answers to callers, in their dialect, around bytes that are already serialised."""

from __future__ import annotations

from collections.abc import Sequence

from rolecall.model.a2a import EventKind, JsonObject
from rolecall.model.ids import TaskId
from rolecall.model.push import PushConfig
from rolecall.protocol.dialect import V0_1, V1_0
from rolecall.protocol.text.jsontext import dump

_MEMBERS = {
    EventKind.TASK: b"task",
    EventKind.MESSAGE: b"message",
    EventKind.STATUS: b"statusUpdate",
    EventKind.ARTIFACT: b"artifactUpdate",
}


def wrapped(kind: EventKind, body: bytes, dialect: str) -> bytes:
    """The answer to a message, or an event of a stream. In 1.0 the name of its wrapping member is its kind."""
    return b'{"%b":%b}' % (_MEMBERS[kind], body) if dialect == V1_0 else body


def task_page(tasks: Sequence[bytes], *, token: str | None, size: int, total: int) -> bytes:
    """Always with all four members."""
    joined = b",".join(tasks)
    return b'{"tasks":[%b],"nextPageToken":%b,"pageSize":%d,"totalSize":%d}' % (joined, dump(token or ""), size, total)


def push_config(config: PushConfig, dialect: str | None, alias: str = "") -> bytes:
    """A config without its secrets. `alias`: the caller's id for the task in 0.1."""
    named = config.of(TaskId(alias)) if alias and dialect == V0_1 else config
    return dump(_push_document(named, dialect))


def push_configs(configs: Sequence[PushConfig], dialect: str | None) -> bytes:
    documents = [_push_document(config, dialect) for config in configs]
    return dump({"configs": documents, "nextPageToken": ""} if dialect == V1_0 else documents)


def _push_document(config: PushConfig, dialect: str | None) -> JsonObject:
    if dialect == V1_0:
        flat: JsonObject = {"taskId": config.task, "id": config.id, "url": config.url}
        if config.schemes:
            flat["authentication"] = {"scheme": config.schemes[0]}
        return flat
    own: JsonObject = {"id": config.id, "url": config.url}
    if config.schemes:
        own["authentication"] = {"schemes": list(config.schemes)}
    name = "id" if dialect == V0_1 else "taskId"
    return {name: config.task, "pushNotificationConfig": own}
