"""Bad input from callers and workers: a clear error with the right code, nothing lost, and a hub that still runs."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from rolecall.protocol.text.jsontext import dump, parse
from tests.helpers.client import text_message
from tests.helpers.processes import HubProcess, free_port, start_hub
from tests.helpers.raw_server import Peer, RawServer, Script, answer, chunk, chunked_head

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with start_hub(tmp_path_factory.mktemp("hub"), worker_silence=2, max_body=100_000, max_event=1024 * 1024) as hub:
        yield hub


@pytest.fixture(autouse=True)
def hub_lives_without_traceback(hub: HubProcess) -> Iterator[None]:
    yield
    assert httpx.get(f"{hub.url}/readyz", trust_env=False).status_code == 200
    assert "Traceback" not in hub.output


@pytest.fixture
async def http(hub: HubProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=hub.url, trust_env=False, timeout=20) as client:
        yield client


def request(method: str = "message/send", text: str = "hi", **members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": text_message(text, **members)}


async def error_of(http: httpx.AsyncClient, body: Any, path: str = "/agents/echo/") -> dict[str, Any]:
    content = body if isinstance(body, bytes) else dump(body)
    response = await http.post(path, content=content, headers=JSON)
    assert response.status_code == 200
    error: dict[str, Any] = response.json()["error"]
    return error


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"[" * 50_000, -32700),
        (b'{"a":NaN}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"x":1e999}}', -32700),
        (b"{} {}", -32700),
        ('{"a":1}'.encode("utf-16"), -32700),
        ([], -32600),
        (5, -32600),
        ({"jsonrpc": "1.0", "id": 1, "method": "m"}, -32600),
        ({"jsonrpc": "2.0", "method": "tasks/get"}, -32602),
        ({"jsonrpc": "2.0", "id": 1}, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": "sing"}, -32601),
        ({"jsonrpc": "2.0", "id": 1, "method": ""}, -32601),
        ({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": []}, -32602),
        ({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {}}, -32602),
        ({"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "none"}}, -32001),
        ({"jsonrpc": "2.0", "id": 1, "method": "tasks/cancel", "params": {"id": "none"}}, -32001),
        ({"jsonrpc": "2.0", "id": 1, "method": "agent/getAuthenticatedExtendedCard"}, -32007),
        ({"jsonrpc": "2.0", "id": 1, "method": "tasks/pushNotificationConfig/set", "params": {}}, -32602),
    ],
)
async def test_a_bad_request_gets_its_code(http: httpx.AsyncClient, body: Any, code: int) -> None:
    error = await error_of(http, body)
    assert error["code"] == code
    assert error["message"]


async def test_a_message_that_says_its_kind_says_its_id(http: httpx.AsyncClient) -> None:
    body = request()
    message = body["params"]["message"]
    for missing in ({}, {"messageId": None}):
        body["params"] = {"message": {name: message[name] for name in ("kind", "role", "parts")} | missing}
        for method in ("message/send", "message/stream"):
            response = await http.post("/agents/echo/", content=dump({**body, "method": method}), headers=JSON)
            error = parse(response.content.removeprefix(b"data: ").strip())["error"]
            assert (error["code"], error["message"]) == (-32602, '"message.messageId" is required.')


async def test_an_error_of_a_streaming_call_is_an_event(http: httpx.AsyncClient) -> None:
    body = {"jsonrpc": "2.0", "id": "s", "method": "tasks/resubscribe", "params": {"id": "none"}}
    response = await http.post("/", content=dump(body), headers=JSON)
    assert response.headers["content-type"].startswith("text/event-stream")
    document = parse(response.content.removeprefix(b"data: ").strip())
    assert (document["id"], document["error"]["code"]) == ("s", -32001)


@pytest.mark.parametrize("cursor", ["-1", "abc", "9" * 10_000, "1e9", "5"])
async def test_an_invalid_cursor_is_refused(http: httpx.AsyncClient, cursor: str) -> None:
    body = {"jsonrpc": "2.0", "id": "s", "method": "tasks/resubscribe", "params": {"id": "none"}}
    response = await http.post("/", content=dump(body), headers={**JSON, "Last-Event-ID": cursor})
    assert response.status_code in (200, 400, 431)
    assert b"error" in response.content or response.status_code != 200


async def test_every_entry_of_a_batch_has_its_own_answer(http: httpx.AsyncClient) -> None:
    batch = [
        {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "none"}},
        5,
        {"jsonrpc": "2.0", "id": "x", "method": "message/stream", "params": {}},
        {"jsonrpc": "2.0", "id": 3, "method": "sing"},
    ]
    answers = (await http.post("/", content=dump(batch), headers=JSON)).json()
    assert [(a["id"], a["error"]["code"]) for a in answers] == [(1, -32001), (None, -32600), ("x", -32004), (3, -32601)]
    assert (await error_of(http, batch * 20))["code"] == -32600


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"Content-Type": "text/plain"}, 415), ({}, 415), ({**JSON, "Content-Encoding": "gzip"}, 415)],
)
async def test_a_body_without_the_json_media_type_is_refused(
    http: httpx.AsyncClient, headers: dict[str, str], status: int
) -> None:
    response = await http.post("/agents/echo/", content=dump(request()), headers=headers)
    assert response.status_code == status


async def test_a_body_over_the_limit_is_refused_before_it_is_read(hub: HubProcess) -> None:
    with socket.create_connection(("127.0.0.1", hub.port), timeout=5) as line:
        head = "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 17000000\r\n\r\n"
        line.sendall(head.encode())
        assert b" 413 " in line.recv(4096)


async def test_a_chunked_body_that_passes_the_limit_is_refused(http: httpx.AsyncClient) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(30):
            yield b"[" * 10_000

    assert (await http.post("/", content=endless(), headers=JSON)).status_code == 413


@pytest.mark.parametrize("path", ["/agents/../../etc/passwd", "/agents/UPPER/", "/agents/a%2fb/", "/agents/%00/", "/x" * 500])
async def test_an_invalid_address_is_not_found(http: httpx.AsyncClient, path: str) -> None:
    assert (await http.post(path, content=dump(request()), headers=JSON)).status_code in (404, 405)


async def test_an_unknown_role_names_the_live_ones_and_the_nearest(http: httpx.AsyncClient) -> None:
    async with worker(http, answer(b"x"), role="code-reviewer"):
        error = await error_of(http, request(), "/agents/code-reviwer/")
    assert error["code"] == -32000
    assert error["data"][0]["reason"] == "ROLE_UNKNOWN"
    assert "Did you mean code-reviewer?" in error["message"]


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({}, "url"),
        ({"url": 5}, "url"),
        ({"url": "ftp://127.0.0.1/"}, "url"),
        ({"url": "http://user:pass@127.0.0.1/"}, "url"),
        ({"url": "http://169.254.169.254/latest/meta-data/"}, "url"),
        ({"url": "http://127.0.0.1:1/#x"}, "url"),
        ({"url": "http://127.0.0.1:1/", "card": []}, "card"),
        ({"url": "http://127.0.0.1:1/", "card": {"name": "x" * 70_000}}, "card"),
        ({"url": "http://127.0.0.1:1/", "capacity": 0}, "capacity"),
        ({"url": "http://127.0.0.1:1/", "capacity": "5"}, "capacity"),
        ({"url": "http://127.0.0.1:1/", "ttl_seconds": -1}, "ttl_seconds"),
        ({"url": "http://127.0.0.1:1/", "labels": {"a": 1}}, "labels"),
    ],
)
async def test_a_bad_enrolment_names_the_field(http: httpx.AsyncClient, document: dict[str, Any], field: str) -> None:
    response = await http.put("/registry/agents/bad/x", json=document)
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["detail"].startswith(field)


@pytest.mark.parametrize("role", ["UPPER", "agents", "-x", "x" * 64, "Ａdmin", "a b"])
async def test_an_invalid_name_is_not_enrolled(http: httpx.AsyncClient, role: str) -> None:
    assert (await http.put(f"/registry/agents/{role}/x", json={"url": "http://127.0.0.1:1/"})).status_code == 422


async def test_a_worker_may_not_be_the_hub_itself(http: httpx.AsyncClient, hub: HubProcess) -> None:
    assert (await http.put("/registry/agents/loop/x", json={"url": f"{hub.url}/agents/loop/"})).status_code == 422


# --- workers that misbehave


class worker:
    """A scripted server, enrolled under a role inside the block."""

    def __init__(self, http: httpx.AsyncClient, script: Script | bytes, *, role: str = "bad", streaming: bool = True) -> None:
        self._http, self._role, self._streaming = http, role, streaming
        self._server = RawServer(script if callable(script) else answering(script))

    async def __aenter__(self) -> RawServer:
        server = await self._server.__aenter__()
        document = {"url": server.url, "capabilities": {"streaming": self._streaming}}
        response = await self._http.put(f"/registry/agents/{self._role}/w", json=document)
        assert response.status_code in (200, 201), response.text
        return server

    async def __aexit__(self, *exc: Any) -> None:
        await self._http.delete(f"/registry/agents/{self._role}:w")
        await self._server.__aexit__(*exc)


def answering(whole: bytes) -> Script:
    async def script(peer: Peer) -> None:
        while await peer.read_request():
            await peer.write(whole)

    return script


async def endless_line(peer: Peer) -> None:
    await peer.read_request()
    await peer.write(chunked_head())
    try:
        for _ in range(400):
            await peer.write(chunk(b"x" * 100_000))
    except ConnectionError:
        return


async def disconnect(peer: Peer) -> None:
    await peer.read_request()


async def say_nothing(peer: Peer) -> None:
    await peer.read_request()
    await peer.gone()


def result(document: Any) -> bytes:
    return answer(dump({"jsonrpc": "2.0", "id": "1", "result": document}))


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize(
    "script",
    [
        answer(b"<html>boom</html>", kind="text/html"),
        answer(b"<html>Traceback</html>", kind="text/html", status="500 Internal Server Error"),
        answer(b"{not json"),
        answer(b""),
        answer(b"[]"),
        result({"kind": "song"}),
        result({"kind": "task", "id": 5}),
        answer(b"", status="302 Found", more="Location: http://169.254.169.254/\r\n"),
        answer(b"x", more="Content-Encoding: gzip\r\n"),
        b"SSH-2.0-OpenSSH\r\n",
        chunked_head() + chunk(b"data: {nope\n\n") + b"0\r\n\r\n",
        chunked_head() + b"0\r\n\r\n",
        endless_line,
    ],
)
async def test_an_answer_that_is_not_a2a_is_an_error(http: httpx.AsyncClient, script: Script | bytes, streaming: bool) -> None:
    async with worker(http, script, streaming=streaming):
        error = await error_of(http, request(), "/agents/bad/")
    assert error["code"] == -32006
    assert "Traceback" not in error["message"]


async def test_a_worker_that_disconnects_fails_the_task_as_lost(http: httpx.AsyncClient) -> None:
    async with worker(http, disconnect) as server:
        task = (await http.post("/agents/bad/", content=dump(request()), headers=JSON)).json()["result"]
        assert len(server.requests) == 1
    assert task["status"]["state"] == "failed"
    assert task["metadata"]["rolecall"]["reason"] == "WORKER_LOST"


async def test_a_silent_worker_fails_the_task_in_time(http: httpx.AsyncClient) -> None:
    async with worker(http, say_nothing):
        asked = time.monotonic()
        task = (await http.post("/agents/bad/", content=dump(request()), headers=JSON)).json()["result"]
    assert time.monotonic() - asked < 2 + 2
    assert task["metadata"]["rolecall"]["reason"] == "WORKER_SILENT"


async def test_an_unreachable_worker_is_named_and_suspect(http: httpx.AsyncClient) -> None:
    await http.put("/registry/agents/gone/x", json={"url": f"http://127.0.0.1:{free_port()}/"})
    error = await error_of(http, request(), "/agents/gone/")
    assert error["data"][0]["reason"] == "WORKER_UNREACHABLE"
    agents = (await http.get("/registry/agents", params={"role": "gone"})).json()["agents"]
    assert agents[0]["state"] == "suspect"


async def test_a_busy_workers_refusal_is_reported_as_such(http: httpx.AsyncClient) -> None:
    refusal = answer(b"{}", status="503 Service Unavailable", more="X-Not-Processed: 1\r\n")
    async with worker(http, refusal):
        error = await error_of(http, request(), "/agents/bad/")
    assert error["data"][0]["reason"] == "WORKER_BUSY"


async def test_a_workers_own_error_passes_without_its_internals(http: httpx.AsyncClient) -> None:
    def failing(code: int, text: str) -> bytes:
        return answer(dump({"jsonrpc": "2.0", "id": "1", "error": {"code": code, "message": text}}))

    async with worker(http, failing(-32005, "only images")):
        error = await error_of(http, request(), "/agents/bad/")
        assert (error["code"], error["message"]) == (-32005, "only images")
    async with worker(http, failing(-32603, "KeyError in /srv/secret.py")):
        error = await error_of(http, request(), "/agents/bad/")
        assert error["code"] == -32603
        assert "secret" not in error["message"]


async def test_an_endless_line_does_not_fill_the_hub(http: httpx.AsyncClient, hub: HubProcess) -> None:
    before = memory_used(hub.pid)
    async with worker(http, endless_line):
        await asyncio.gather(*(error_of(http, request(), "/agents/bad/") for _ in range(5)))
    assert memory_used(hub.pid) - before < 40


async def test_an_idle_hub_is_small(tmp_path: Path) -> None:
    started = time.monotonic()
    with start_hub(tmp_path / "small") as small:
        assert time.monotonic() - started < 3
        assert memory_used(small.pid) < 80


def memory_used(pid: int) -> float:
    """Megabytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")
