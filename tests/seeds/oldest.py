"""Calls under the oldest method names."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

from tests.seeds.door import Frame, RawClient, message_v01, wait

ROOT_PATH = "/"
SET, GET = "tasks/pushNotification/set", "tasks/pushNotification/get"
UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def fresh() -> str:
    return f"task-{uuid4()}"


def finished(client: RawClient, text: str, role: str = "counter", **members: Any) -> dict[str, Any]:
    """A task, once it has ended."""
    params = message_v01(text, fresh(), role, **members)
    client.call("tasks/send", params, ROOT_PATH)
    wait(lambda: client.call("tasks/get", {"id": params["id"]}, ROOT_PATH)["status"]["state"] in ("completed", "failed"))
    task: dict[str, Any] = client.call("tasks/get", {"id": params["id"]}, ROOT_PATH)
    return task


def subscribe_frames(client: RawClient, params: dict[str, Any]) -> list[Frame]:
    body = {"jsonrpc": "2.0", "id": 5, "method": "tasks/sendSubscribe", "params": params}
    with client.opened_at("/subscribe", body) as stream:
        assert stream.status == 200
        return list(stream)
