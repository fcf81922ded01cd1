"""Bodies of enrolments and heartbeats, and the routes that take them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from hub.core.registry.directory import Directory
from hub.inbound.api.leases import Leases
from hub.inbound.middleware.request import Request
from hub.ports.identity import Vault
from hub.server.asgi import Message, Scope
from rolecall.model.a2a import JsonObject

BODY = b'{"status": "busy"}'
HEARTBEAT: Scope = {"path": "/registry/agents/echo:a/heartbeat", "method": "POST"}


async def refuse_to_send(message: Message) -> None:
    raise AssertionError(message)


@pytest.mark.parametrize(("version", "read"), [("1.1", {}), ("2", {"status": "busy"})])
async def test_a_body_without_a_content_length_is_read_in_http_2_only(version: str, read: JsonObject) -> None:
    unused: Any = None
    leases = Leases(cast(Directory, unused), cast(Vault, unused), max_body=1000, max_depth=10, max_card=1000)
    scope: Scope = {**HEARTBEAT, "http_version": version, "headers": [(b"content-type", b"application/json")]}

    async def receive() -> Message:
        return {"type": "http.request", "body": BODY, "more_body": False}

    assert await leases._read(Request(scope, receive, refuse_to_send), required=False) == read


async def test_a_request_without_a_body_in_http_2_has_an_empty_document() -> None:
    unused: Any = None
    leases = Leases(cast(Directory, unused), cast(Vault, unused), max_body=1000, max_depth=10, max_card=1000)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    assert (
        await leases._read(Request({**HEARTBEAT, "http_version": "2", "headers": []}, receive, refuse_to_send), required=False)
        == {}
    )


@pytest.mark.parametrize(
    ("method", "path", "parameters"),
    [
        ("PUT", "/registry/agents/echo/a", ("echo", "a")),
        ("PUT", "/registry/agents/echo/a/", ("echo", "a")),
        ("POST", "/registry/agents", ()),
        ("POST", "/registry/agents/", ()),
        ("POST", "/registry/agents/echo:a/heartbeat", ("echo:a",)),
        ("PUT", "/registry/agents/echo/heartbeat", ("echo", "heartbeat")),
        ("POST", "/registry/agents/echo:a/drain", None),
        ("POST", "/registry/agents//heartbeat", None),
        ("PUT", "/registry/agents/echo", None),
        ("PUT", "/registry/other/echo/a", None),
        ("GET", "/registry/agents", None),
    ],
)
def test_a_route_matches_its_method_and_path(method: str, path: str, parameters: tuple[str, ...] | None) -> None:
    unused: Any = None
    leases = Leases(cast(Directory, unused), cast(Vault, unused), max_body=1000, max_depth=10, max_card=1000)
    found = leases.match(path, method)
    assert (found.parameters if found is not None else None) == parameters
