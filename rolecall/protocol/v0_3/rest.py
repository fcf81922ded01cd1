"""REST in 0.3: plain JSON, with the parameters of JSON-RPC."""

from __future__ import annotations

from typing import Any

from rolecall.errors import InvalidParams
from rolecall.model.a2a import JsonObject

AT_ROOT = False


def matches(message: Any) -> bool:
    return not _has_later_role(message)


def check(body: JsonObject) -> None:
    """Some SDKs send another form than JSON. A refusal is better than reading half of it."""
    message = body.get("message") if body.get("message") is not None else body.get("request")
    if not isinstance(message, dict):
        return
    if "content" in message or _has_later_role(message):
        raise InvalidParams(
            "The hub does not support the protobuf form of 0.3 REST. Use JSON-RPC, or 1.0 with A2A-Version: 1.0."
        )


def push_params(task: str, config: str | None, given: JsonObject, *, sets: bool) -> JsonObject:
    if sets:
        own = given.get("pushNotificationConfig") or given.get("config") or given
        return {"taskId": task, "pushNotificationConfig": own}
    return {"id": task, **({"pushNotificationConfigId": config} if config is not None else {})}


def _has_later_role(message: Any) -> bool:
    return isinstance(message, dict) and str(message.get("role")).startswith("ROLE_")
