"""Answers in 1.0: the name of the member that wraps a document is its kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rolecall.errors import RouteError
from rolecall.model.a2a import EventKind, JsonObject
from rolecall.model.command import Send
from rolecall.model.push import PushConfig

_MEMBERS = {
    EventKind.TASK: b"task",
    EventKind.MESSAGE: b"message",
    EventKind.STATUS: b"statusUpdate",
    EventKind.ARTIFACT: b"artifactUpdate",
}


def wrapped(kind: EventKind, body: bytes) -> bytes:
    return b'{"%b":%b}' % (_MEMBERS[kind], body)


def refusal(send: Send, error: RouteError, at: str) -> bytes | None:
    return None


def notice(kind: EventKind, body: bytes) -> bytes:
    return wrapped(kind, body)


def push_config(config: PushConfig) -> JsonObject:
    flat: JsonObject = {"taskId": config.task, "id": config.id, "url": config.url}
    if config.schemes:
        flat["authentication"] = {"scheme": config.schemes[0]}
    return flat


def push_configs(configs: Sequence[JsonObject]) -> Any:
    return {"configs": configs, "nextPageToken": ""}
