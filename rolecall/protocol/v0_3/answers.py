"""Answers in 0.3: bare documents, which say their kind themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rolecall.errors import RouteError
from rolecall.model.a2a import EventKind, JsonObject
from rolecall.model.command import Send
from rolecall.model.push import PushConfig


def wrapped(kind: EventKind, body: bytes) -> bytes:
    return body


def refusal(send: Send, error: RouteError, at: str) -> bytes | None:
    return None


def notice(kind: EventKind, body: bytes) -> bytes:
    return body


def push_config(config: PushConfig) -> JsonObject:
    return {"taskId": config.task, "pushNotificationConfig": own_config(config)}


def push_configs(configs: Sequence[JsonObject]) -> Any:
    return configs


def own_config(config: PushConfig) -> JsonObject:
    own: JsonObject = {"id": config.id, "url": config.url}
    if config.schemes:
        own["authentication"] = {"schemes": list(config.schemes)}
    return own
