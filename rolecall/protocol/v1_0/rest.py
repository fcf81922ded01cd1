"""REST in 1.0."""

from __future__ import annotations

from typing import Any

from rolecall.model.a2a import JsonObject

AT_ROOT = True


def matches(message: Any) -> bool:
    return isinstance(message, dict) and str(message.get("role")).startswith("ROLE_")


def check(body: JsonObject) -> None:
    """Every form is supported."""


def push_params(task: str, config: str | None, given: JsonObject, *, sets: bool) -> JsonObject:
    return {**given, "taskId": task, **({"id": config} if config is not None else {})}
