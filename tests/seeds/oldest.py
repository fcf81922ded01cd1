"""Calls under the oldest names, as their callers make them."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

from tests.seeds.door import Door, Frame, told, wait

DOOR = "/"
SET, GET = "tasks/pushNotification/set", "tasks/pushNotification/get"
UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def fresh() -> str:
    return f"task-{uuid4()}"


def finished(door: Door, text: str, role: str = "counter", **members: Any) -> dict[str, Any]:
    """A task, once it has ended."""
    params = told(text, fresh(), role, **members)
    door.call("tasks/send", params, DOOR)
    wait(lambda: door.call("tasks/get", {"id": params["id"]}, DOOR)["status"]["state"] in ("completed", "failed"))
    task: dict[str, Any] = door.call("tasks/get", {"id": params["id"]}, DOOR)
    return task


def subscribed(door: Door, params: dict[str, Any]) -> list[Frame]:
    body = {"jsonrpc": "2.0", "id": 5, "method": "tasks/sendSubscribe", "params": params}
    with door.opened_at("/subscribe", body) as stream:
        assert stream.status == 200
        return list(stream)
