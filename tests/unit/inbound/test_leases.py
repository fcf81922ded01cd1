"""What workers do all the time, as bytes."""

from __future__ import annotations

from typing import Any, cast

import pytest

from hub.core.registry.directory import Directory
from hub.inbound.api.leases import Leases
from hub.inbound.middleware.request import Request
from hub.ports.vault import Vault
from hub.server.asgi import Message, Scope
from rolecall.model.a2a import JsonObject

BODY = b'{"status": "busy"}'
ASKED: Scope = {"path": "/registry/agents/echo:a/heartbeat", "method": "POST"}


async def unsent(message: Message) -> None:
    raise AssertionError(message)


@pytest.mark.parametrize(("version", "read"), [("1.1", {}), ("2", {"status": "busy"})])
async def test_a_body_whose_length_is_not_said_is_one_in_http_2_alone(version: str, read: JsonObject) -> None:
    nobody: Any = None
    leases = Leases(cast(Directory, nobody), cast(Vault, nobody), max_body=1000, max_depth=10, max_card=1000)
    scope: Scope = {**ASKED, "http_version": version, "headers": [(b"content-type", b"application/json")]}

    async def receive() -> Message:
        return {"type": "http.request", "body": BODY, "more_body": False}

    assert await leases._read(Request(scope, receive, unsent), needed=False) == read


async def test_no_body_in_http_2_is_no_body() -> None:
    nobody: Any = None
    leases = Leases(cast(Directory, nobody), cast(Vault, nobody), max_body=1000, max_depth=10, max_card=1000)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    assert await leases._read(Request({**ASKED, "http_version": "2", "headers": []}, receive, unsent), needed=False) == {}
