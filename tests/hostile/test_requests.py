"""Inputs 1 to 17, 28, 60 and 64: faults in a call's body."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
import pytest

from rolecall.protocol.text.jsontext import dump
from tests.helpers.client import text_message
from tests.helpers.processes import HubProcess
from tests.helpers.raw_server import RawServer, always, answer
from tests.hostile.raw import exchange, post

pytestmark = pytest.mark.usefixtures("hub_healthy")

JSON = {"Content-Type": "application/json"}
TASK = {"kind": "task", "id": "t", "contextId": "c", "status": {"state": "completed"}}


@pytest.fixture
async def worker(http: httpx.AsyncClient) -> AsyncIterator[RawServer]:
    """Enrolled as `ear`; it completes at once and records its requests."""
    async with RawServer(always(answer(dump({"jsonrpc": "2.0", "id": "1", "result": TASK})))) as server:
        offer = {"url": server.url, "capabilities": {"streaming": False}}  # so that nothing but calls comes
        assert (await http.put("/registry/agents/ear/a", json=offer)).status_code == 201
        yield server
        await http.delete("/registry/agents/ear:a")


async def ask(http: httpx.AsyncClient, body: bytes, path: str = "/agents/ear/", **headers: str) -> Any:
    response = await http.post(path, content=body, headers={**JSON, **headers})
    assert response.status_code == 200, response.text[:500]
    return response.json()


async def refused(http: httpx.AsyncClient, body: bytes) -> tuple[int, Any]:
    document = await ask(http, body)
    return document["error"]["code"], document["id"]


def send_request(metadata: bytes = b"{}", text: bytes = b'"hi"', *, role: bytes = b'"user"', id: bytes = b"1") -> bytes:
    """A call of message/send, with parts of JSON that no library would write."""
    message = b'{"kind":"message","messageId":"%d","role":%b,"parts":[{"kind":"text","text":%b}],"metadata":%b}'
    return b'{"jsonrpc":"2.0","id":%b,"method":"message/send","params":{"message":%b}}' % (
        id,
        message % (time.monotonic_ns(), role, text, metadata),
    )


def nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[" * 100_000, id="1"),
        pytest.param(b'{"a":' * 50_000, id="2"),
        pytest.param(nested(50_000), id="2, closed"),
        pytest.param(send_request(b'{"x":NaN}'), id="8, NaN"),
        pytest.param(send_request(b'{"x":Infinity}'), id="8, Infinity"),
        pytest.param(send_request(b'{"x":-Infinity}'), id="8, -Infinity"),
        pytest.param(send_request(b'{"x":1e999}'), id="8, 1e999"),
        pytest.param(send_request(b'{"x":-1E+999}'), id="8, -1E+999"),
        pytest.param(send_request(b'{"x":1' + b"0" * 400 + b".0}"), id="8, without an exponent"),
        pytest.param(send_request(b'{"x":%b}' % (b"9" * 5000)), id="9"),
        pytest.param(send_request(text=rb'"\ud800"'), id="11, lone surrogate"),
        pytest.param(send_request(text=rb'"\udc00\ud800"'), id="11, surrogates the wrong way round"),
        pytest.param(send_request(text=b'"\xff"'), id="11, no UTF-8"),
        pytest.param(send_request(text=b'"\xc0\x80"'), id="11, overlong"),
        pytest.param(send_request().decode().encode("utf-16"), id="11, UTF-16"),
        pytest.param(b"\xef\xbb\xbf" + send_request(), id="11, BOM"),
        pytest.param(send_request() + b" {}", id="16"),
        pytest.param(send_request(id=b"1e400"), id="13, 1e400"),
    ],
)
async def test_invalid_json_is_a_parse_error_and_is_not_forwarded(
    http: httpx.AsyncClient, worker: RawServer, body: bytes
) -> None:
    began = time.monotonic()
    assert await refused(http, body) == (-32700, None)
    assert time.monotonic() - began < 0.5
    assert worker.requests == []


@pytest.mark.parametrize("depth", [64, 96, 97, 98, 150, 190, *range(194, 202), 1000])
async def test_3_deep_json_is_accepted_completely_or_refused(http: httpx.AsyncClient, worker: RawServer, depth: int) -> None:
    """The limit is 100 levels of the whole request, the parser's own is 200. Accepted content can be read in every dialect."""
    answer = await ask(http, send_request(nested(depth)))
    if depth > 97:
        assert worker.requests == []
        assert answer["error"]["code"] == -32600 or (answer["error"]["code"], depth > 190) == (-32700, True)
        assert "ROLECALL_MAX_DEPTH" in answer["error"]["message"] or depth > 190
        return
    assert answer["result"]["status"]["state"] == "completed"
    assert nested(depth) in worker.requests[0].body
    for method, version in (("tasks/get", "0.3"), ("GetTask", "1.0")):
        body = dump({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": answer["result"]["id"]}})
        read = await http.post("/", content=body, headers={**JSON, "A2A-Version": version})
        assert nested(depth) in read.content


@pytest.mark.parametrize("path", ["/message:send", "/v1/message:send", "/registry/agents"])
async def test_3_the_error_for_depth_names_the_setting_on_every_binding(http: httpx.AsyncClient, path: str) -> None:
    response = await http.post(path, content=nested(101), headers=JSON)
    assert response.status_code == 400
    assert "ROLECALL_MAX_DEPTH" in response.text


async def test_3_brackets_in_a_text_do_not_count_as_depth(http: httpx.AsyncClient, worker: RawServer) -> None:
    assert (await ask(http, send_request(text=b'"' + b"[{" * 1000 + b'"')))["result"]["status"]["state"] == "completed"
    assert (await ask(http, send_request(b'{"a":[%b]}' % b",".join([b"{}"] * 1000))))["result"]["status"][
        "state"
    ] == "completed"


def test_4_and_5_a_body_that_is_too_large_is_refused_in_any_framing(hub: HubProcess) -> None:
    chunks = b"".join(b"2710\r\n" + b"[" * 10_000 + b"\r\n" for _ in range(110))
    sent = []
    for path in ("/", "/agents/ear/", "/message:send", "/v1/message:send", "/registry/agents"):
        sent.append(post("Content-Length: 17000000", body=b"", path=path, length=False))
        sent.append(post("Transfer-Encoding: chunked", body=chunks, path=path, length=False))
    with ThreadPoolExecutor(len(sent)) as threads:
        answers = list(threads.map(partial(exchange, hub.port), sent))
    assert [(answer.status, answer.closed) for answer in answers] == [(413, True)] * len(sent)


async def test_6_a_megabyte_of_empty_objects_stalls_nobody(http: httpx.AsyncClient, worker: RawServer) -> None:
    many = b"[" + b",".join([b"{}"] * 340_000) + b"]"
    assert await refused(http, many) == (-32600, None)
    response = await http.post("/agents/ear/", content=send_request(b'{"x":%b}' % many), headers=JSON)
    assert response.status_code in (200, 413)


async def test_7_a_batch_of_ten_thousand_is_refused_as_a_whole(http: httpx.AsyncClient, worker: RawServer) -> None:
    assert await refused(http, b"[" + b",".join([b'{"jsonrpc":"2.0","id":1}'] * 10_000) + b"]") == (-32600, None)
    assert worker.requests == []


async def test_10_the_last_of_two_equal_members_counts(http: httpx.AsyncClient, worker: RawServer) -> None:
    task = await ask(http, send_request(b'{"x":1,"x":2}', role=b'"agent","role":"user"'))
    assert task["result"]["status"]["state"] == "completed"
    (sent,) = worker.requests
    assert sent.body.count(b'"role"') == 1
    message = json.loads(sent.body)["params"]["message"]
    assert (message["role"], message["metadata"]["x"]) == ("user", 2)
    twice = send_request().replace(b'"method":"message/send"', b'"method":"message/send","method":"tasks/get"')
    assert (await refused(http, twice))[0] == -32602


async def test_12_nul_is_kept_in_texts_and_refused_in_names(http: httpx.AsyncClient, worker: RawServer) -> None:
    assert (await ask(http, send_request(text=rb'"a\u0000b"')))["result"]["status"]["state"] == "completed"
    assert json.loads(worker.requests[0].body)["params"]["message"]["parts"][0]["text"] == "a\0b"
    named = send_request(rb'{"role":"ec\u0000ho"}')
    assert (await ask(http, named, path="/"))["error"]["code"] in (-32602, -32000)
    assert (await http.post("/registry/agents", json={"name": "a\0b", "url": "http://127.0.0.1:9/"})).status_code == 422


@pytest.mark.parametrize(
    "id", [b"{}", b"[]", b"1.5", b"true", b'"' + b"x" * 1_000_000 + b'"'], ids=lambda value: value[:9].decode()
)
async def test_13_an_invalid_id_is_not_repeated(http: httpx.AsyncClient, worker: RawServer, id: bytes) -> None:
    assert await refused(http, send_request(id=id)) == (-32600, None)
    assert worker.requests == []


async def test_13_a_large_id_is_returned_unchanged(http: httpx.AsyncClient) -> None:
    for id in (b"-9223372036854775809", b"9" * 4000, b'"' + b"x" * 1000 + b'"'):
        response = await http.post("/", content=b'{"jsonrpc":"2.0","id":%b,"method":"x"}' % id, headers=JSON)
        assert b'"id":' + id + b"," in response.content


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"jsonrpc":2.0,"id":1,"method":"tasks/get","params":{"id":"x"}}', -32600),
        (b'{"jsonrpc":"2.0","id":1}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":5}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"sing"}', -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"__class__"}', -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":[]}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":"x"}', -32602),
        (b'"2.0"', -32600),
        (b"null", -32600),
    ],
)
async def test_14_an_invalid_request_has_its_code(http: httpx.AsyncClient, body: bytes, code: int) -> None:
    assert (await refused(http, body))[0] == code


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""])
async def test_15_media_types_without_preflight_are_refused(http: httpx.AsyncClient, worker: RawServer, kind: str) -> None:
    for path in ("/", "/agents/ear/", "/agents/ear/message:send", "/registry/agents"):
        response = await http.post(path, content=send_request(), headers={"Content-Type": kind})
        assert response.status_code == 415, path
        assert b"CONTENT_TYPE_NOT_SUPPORTED" in response.content or response.json()["error"]["code"] == -32005
    assert worker.requests == []


async def test_17_a_hundred_thousand_keys_stall_nobody(http: httpx.AsyncClient, worker: RawServer, hub: HubProcess) -> None:
    many = b"{%b}" % b",".join(b'"%d":0' % n for n in range(100_000))
    assert len(many) < 1024 * 1024
    assert (await http.post("/agents/ear/", content=send_request(many), headers=JSON)).status_code in (200, 413)
    too_many = b"{%b}" % b",".join(b'"%d":0' % n for n in range(1_000_000))
    head = post(f"Content-Length: {len(too_many)}", body=b"", length=False)
    assert exchange(hub.port, head + too_many[:500_000]).status == 413


ROLES = ["../../x", "a/b", "a:b:c", "", "x" * 1024, "Ａdmin", "\u202eadmin", "a\nb", "a b", "<img src=x>", "*", "."]


@pytest.mark.parametrize("role", ROLES)
async def test_28_an_invalid_name_is_refused_everywhere(http: httpx.AsyncClient, role: str) -> None:
    offer = {"url": "http://127.0.0.1:9/"}
    flat = await http.post("/registry/agents", json={**offer, "role": role, "instance_id": "i"})
    assert (flat.status_code, flat.json()["reason"]) == (422, "OFFER_INVALID")
    named = await ask(http, dump({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params_for(role)}), path="/")
    assert named["error"]["code"] in (-32602, -32000)
    assert (await http.get("/registry/agents", params={"role": role or "."})).json()["agents"] == []


def params_for(role: str) -> dict[str, Any]:
    return {**text_message("hi"), "metadata": {"role": role}}


CURSORS = ["-1", "1e9", "1000000000", "abc", "9" * 10_000, "²", "0x1", "+1", "1.0"]


@pytest.mark.parametrize("cursor", CURSORS, ids=lambda cursor: cursor[:12])
async def test_60_an_invalid_cursor_is_refused_or_ignored(http: httpx.AsyncClient, worker: RawServer, cursor: str) -> None:
    task = (await ask(http, send_request()))["result"]["id"]
    body = dump({"jsonrpc": "2.0", "id": 1, "method": "tasks/resubscribe", "params": {"id": task}})
    headers = [(b"Content-Type", b"application/json"), (b"Last-Event-ID", cursor.encode("latin-1"))]
    response = await http.post("/", content=body, headers=headers)
    assert response.status_code in (200, 400, 431)
    assert response.content
    wrong = {"Last-Event-ID": "x" + cursor[:100]} if cursor.isascii() else {"Last-Event-ID": "x"}
    for path in ("/registry/events", "/registry/tasks/events"):
        assert (await http.get(path, headers=wrong)).status_code == 400


LOG_LINE = (
    '\n{"level":"error","event":"forged"}\r\n ERROR forged \x1b[31mred\x1b[0m Bearer rc_abcdefghijklmnopqrstuvwxyz0123456789'
)


async def test_64_no_input_forges_a_line_of_the_log(http: httpx.AsyncClient, worker: RawServer, hub: HubProcess) -> None:
    await ask(http, send_request(text=dump(LOG_LINE), metadata=dump({"role": LOG_LINE})))
    await ask(http, dump({"jsonrpc": "2.0", "id": LOG_LINE, "method": LOG_LINE, "params": {"id": LOG_LINE}}))
    await http.put("/registry/agents/forger/a", json={"url": "http://127.0.0.1:9/", "description": LOG_LINE})
    await http.post("/registry/agents/forger:a/drain", json={"reason": LOG_LINE})
    lines = [line for line in hub.output.splitlines() if not line.startswith("rolecall serves at ")]
    assert all(isinstance(json.loads(line), dict) for line in lines)
    assert "rc_abcdefghijklmnopqrstuvwxyz" not in hub.output
    assert all(json.loads(line)["event"] != "forged" for line in lines)
