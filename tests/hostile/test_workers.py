"""Inputs 41 to 46: workers that redirect, flood or ignore the hub, or send events for other workers' tasks."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from rolecall.protocol.text.jsontext import dump, parse
from tests.helpers.client import text_message
from tests.helpers.processes import HubProcess
from tests.helpers.raw_server import LAST_CHUNK, Peer, RawServer, Script, always, answer, chunk, chunked_head, frame, stream
from tests.hostile.latency import memory_of

pytestmark = pytest.mark.usefixtures("hub_healthy")

FINAL = {"completed", "failed", "canceled", "rejected"}


@pytest.fixture(scope="module")
def large_body() -> bytes:
    """200 KiB that are 200 MiB when they are unpacked."""
    return gzip.compress(bytes(200 * 1024 * 1024))


@asynccontextmanager
async def serving(http: httpx.AsyncClient, script: Script | bytes, *, role: str = "bad") -> AsyncIterator[RawServer]:
    """A worker with that script, enrolled for the block."""
    async with RawServer(script if callable(script) else always(script)) as server:
        document = {"url": server.url, "capabilities": {"streaming": True}}
        assert (await http.put(f"/registry/agents/{role}/w", json=document)).status_code == 201
        yield server
        await http.delete(f"/registry/agents/{role}:w")


async def ask(http: httpx.AsyncClient, role: str = "bad", method: str = "message/send") -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": text_message("hi")}
    response = await http.post(f"/agents/{role}/", json=body)
    assert response.status_code == 200
    document: dict[str, Any] = response.json()
    return document


async def frames(http: httpx.AsyncClient, role: str = "bad") -> list[dict[str, Any]]:
    """All events that a streaming caller receives."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": text_message("hi")}
    async with http.stream("POST", f"/agents/{role}/", json=body) as response:
        lines = [line async for line in response.aiter_lines()]
    return [parse(line.removeprefix("data: ").encode()) for line in lines if line.startswith("data: ")]


def task(state: str = "working", *, id: str = "mine", **members: Any) -> bytes:
    return rpc_frame({"kind": "task", "id": id, "contextId": "c", "status": {"state": state}, **members})


def status(state: str, *, id: str = "mine", final: bool = False) -> bytes:
    return rpc_frame({"kind": "status-update", "taskId": id, "contextId": "c", "status": {"state": state}, "final": final})


def artifact(text: str, *, id: str = "mine") -> bytes:
    parts = [{"kind": "text", "text": text}]
    return rpc_frame(
        {"kind": "artifact-update", "taskId": id, "contextId": "c", "artifact": {"artifactId": "a", "parts": parts}}
    )


def rpc_frame(result: dict[str, Any]) -> bytes:
    return frame(dump({"jsonrpc": "2.0", "id": "1", "result": result}))


@pytest.mark.parametrize(
    "code", ["301 Moved", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"]
)
async def test_41_a_redirect_is_not_followed(http: httpx.AsyncClient, code: str) -> None:
    async with RawServer(always(answer(b"{}"))) as target:
        async with serving(http, answer(b"", status=code, more=f"Location: {target.url}\r\n")):
            assert (await ask(http))["error"]["code"] == -32006
        assert target.peers == []


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "identity, gzip"])
async def test_42_a_compressed_answer_is_refused(
    http: httpx.AsyncClient, hub: HubProcess, large_body: bytes, coding: str, kind: str
) -> None:
    before = memory_of(hub.pid)
    async with serving(http, answer(large_body, kind=kind, more=f"Content-Encoding: {coding}\r\n")) as server:
        assert (await ask(http))["error"]["code"] == -32006
        assert server.requests[0].headers["accept-encoding"] == "identity"
    assert memory_of(hub.pid) - before < 10


def endless(piece: bytes, kind: str = "text/event-stream") -> Script:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(chunked_head(kind))
        for _ in range(2000):
            await peer.write(chunk(piece))

    return script


@pytest.mark.parametrize(
    ("piece", "kind"),
    [
        (b"x" * 100_000, "text/event-stream"),
        (b"data: " + b"x" * 100_000, "text/event-stream"),
        (b"data: x\n" * 10_000, "text/event-stream"),
        (b"id: " + b"1" * 100_000, "text/event-stream"),
        (b" " * 100_000, "application/json"),
        (b"[" * 100_000, "application/json"),
    ],
    ids=["a line", "data", "many lines of data", "an id", "blanks", "brackets"],
)
async def test_43_an_endless_answer_is_cut_off(http: httpx.AsyncClient, hub: HubProcess, piece: bytes, kind: str) -> None:
    before = memory_of(hub.pid)
    async with serving(http, endless(piece, kind)):
        assert (await ask(http))["error"]["code"] == -32006
    assert memory_of(hub.pid) - before < 60


@pytest.mark.parametrize("piece", [b"\n" * 50_000, b": \n\n" * 20_000, b"data:\n\n" * 10_000, status("working") * 300])
async def test_43_a_flood_of_small_events_does_not_stall_the_hub(
    http: httpx.AsyncClient, hub: HubProcess, piece: bytes
) -> None:
    """The latency of the hub is checked meanwhile."""
    started = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(chunked_head() + chunk(task()))
        started.set()
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            await peer.write(chunk(piece))
        await peer.write(chunk(status("completed", final=True)) + LAST_CHUNK)

    before = memory_of(hub.pid)
    async with serving(http, script):
        answer_ = await ask(http)
    assert answer_["result"]["status"]["state"] == "completed"
    assert memory_of(hub.pid) - before < 80


async def test_44_events_after_the_end_are_dropped(http: httpx.AsyncClient) -> None:
    late = [
        status("failed", final=True),
        artifact("late"),
        status("working"),
        task("completed"),
        status("completed", final=True),
    ]
    async with serving(http, stream(task(), artifact("good"), status("completed", final=True), *late)):
        seen = await frames(http)
    states = [event["result"].get("status", {}).get("state") for event in seen]
    assert [state for state in states if state in FINAL] == ["completed"]
    assert "late" not in str(seen)
    assert seen[-1]["result"]["final"] is True


async def test_44_a_worker_can_change_only_its_own_task(http: httpx.AsyncClient) -> None:
    """It sends another worker's task id; that task does not change, and its own continues or fails."""
    hold = asyncio.Event()

    async def waiting(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(chunked_head() + chunk(task(id="theirs")))
        await hold.wait()
        await peer.write(chunk(status("completed", id="theirs", final=True)) + LAST_CHUNK)

    async with serving(http, waiting, role="good"):
        body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": text_message("hi")}
        body["params"]["configuration"] = {"blocking": False}  # type: ignore[index]
        other_task = (await http.post("/agents/good/", json=body)).json()["result"]["id"]
        for foreign in (other_task, "theirs"):
            events = [status("failed", id=foreign, final=True), artifact("forged", id=foreign), task("failed", id=foreign)]
            async with serving(http, stream(task(), *events, status("completed", final=True))):
                seen = await frames(http)
            assert {event["result"].get("taskId", event["result"].get("id")) for event in seen if "result" in event} != {
                other_task
            }
            assert all(other_task not in str(event) for event in seen)
            get = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": other_task}}
            found = (await http.post("/", json=get)).json()["result"]
            assert found["status"]["state"] == "working"
            assert "forged" not in str(found)
        hold.set()


async def test_45_silence_fails_the_task_in_time(http: httpx.AsyncClient) -> None:
    async def silent(peer: Peer) -> None:
        await peer.read_request()
        await peer.gone()

    async with serving(http, silent):
        asked = time.monotonic()
        failed = (await ask(http))["result"]
    assert failed["metadata"]["rolecall"]["reason"] == "WORKER_SILENT"
    assert time.monotonic() - asked < 2 + 2


def envelope(**members: Any) -> bytes:
    return answer(dump({"jsonrpc": "2.0", "id": "1", **members}))


MALFORMED: list[Callable[[], bytes]] = [
    lambda: answer(b""),
    lambda: answer(b"null"),
    lambda: answer(b"[" * 100_000),
    lambda: answer(b'{"jsonrpc":"2.0","id":"1","result":' + b"[" * 150 + b"]" * 150 + b"}"),
    lambda: answer(b'{"jsonrpc":"2.0","id":"1","result":{"kind":"task","id":"x","x":1e999}}'),
    lambda: answer(b'{"jsonrpc":"2.0","id":"1","result":{"kind":"task","id":"\\ud800"}}'),
    lambda: answer(b"<html>", kind="text/html"),
    lambda: answer(b"ok", kind="text/plain"),
    lambda: envelope(),
    lambda: envelope(result=None),
    lambda: envelope(result=5),
    lambda: envelope(result=[]),
    lambda: envelope(result={}),
    lambda: envelope(result={"kind": "task"}),
    lambda: envelope(result={"kind": "task", "id": {}, "status": {"state": "completed"}}),
    lambda: envelope(result={"kind": "task", "id": "x", "contextId": 5, "status": {"state": "completed"}}),
    lambda: envelope(result={"kind": "task", "id": "x", "contextId": "c", "status": "completed"}),
    lambda: envelope(result={"kind": "message", "parts": "none"}),
    lambda: b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    lambda: b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    lambda: b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
    lambda: b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 100_000 + b"\r\n",
    lambda: b"HTTP/2 200\r\n\r\n",
    lambda: b"\0" * 100_000,
]


@pytest.mark.parametrize("number", range(len(MALFORMED)))
async def test_46_a_malformed_answer_is_an_invalid_one(http: httpx.AsyncClient, number: int) -> None:
    async with serving(http, MALFORMED[number]()):
        error = (await ask(http))["error"]
    assert error["code"] == -32006
    assert "Traceback" not in error["message"]


@pytest.mark.parametrize(
    "error", [5, "x", [], {}, {"code": "x"}, {"code": 10**30, "message": {}}, {"code": -32001, "data": [[[]]]}]
)
async def test_46_a_malformed_error_is_not_passed_on(http: httpx.AsyncClient, error: Any) -> None:
    async with serving(http, envelope(error=error)):
        assert (await ask(http))["error"]["code"] in (-32006, -32603, -32001)
