"""The hub's own server as a process, on the plain event loop: unusual requests, some of which HTTP allows."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from tests.acceptance.loadclients import StreamReader, metric, open_stream
from tests.helpers.client import text_message
from tests.helpers.processes import HubProcess, start_hub, start_worker, wait_for
from tests.unit.server.served import RawClient

WORKERS = "tests.acceptance.loadworkers"
H2C = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAA\r\n"
MOST = 40


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    folder = tmp_path_factory.mktemp("hub")
    with ExitStack() as closing:
        hub = closing.enter_context(start_hub(folder, loop="asyncio", max_connections=MOST, drain=5))
        for role in ("echo", "page_writer"):
            closing.enter_context(start_worker(f"{WORKERS}:{role}", f"{role}:a", hub.url, log=folder / f"{role}.log"))
        yield hub
        assert "Traceback" not in hub.output


@pytest.fixture
def caller(hub: HubProcess) -> Iterator[RawClient]:
    with RawClient(hub.port) as caller:
        yield caller


def call_request(text: str, headers: str = "", *, role: str = "echo", method: str = "message/send") -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": text_message(text)})
    kind = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"POST /agents/{role} HTTP/1.1\r\n{kind}{headers}\r\n{body}".encode()


def get(path: str, headers: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode()


def refused(hub: HubProcess, reason: str) -> int:
    text = httpx.get(f"{hub.url}/metrics", trust_env=False).text
    found = re.findall(rf'^a2a_hub_refused_total{{reason="{reason}",workspace="\w*"}} (\S+)$', text, re.MULTILINE)
    return int(sum(map(float, found)))


def test_pipelined_calls_are_answered_in_order(caller: RawClient) -> None:
    caller.send(b"".join(call_request(f"number {n}.") for n in range(50)))
    for n in range(50):
        caller.receive(f"number {n}.".encode())


def test_a_call_with_an_offer_to_upgrade_is_a_call(caller: RawClient) -> None:
    caller.send(call_request("from Java", H2C)).receive(b"from Java")
    caller.send(get("/livez", H2C)).receive(b"HTTP/1.1 200")


def test_a_half_closed_client_is_answered(caller: RawClient) -> None:
    response = caller.send(call_request("one") + call_request("two")).half_close().receive_all()
    assert response.count(b"HTTP/1.1 200") == 2
    assert response.endswith(b"}")


def test_an_absolute_address_is_accepted_only_for_this_host(hub: HubProcess) -> None:
    for address, status in ((f"http://localhost:{hub.port}/livez", b"200"), ("http://evil.example/livez", b"421")):
        with RawClient(hub.port) as caller:
            caller.send(get(address)).receive(b"HTTP/1.1 " + status)


@pytest.mark.parametrize("request_line", ["OPTIONS *", "OPTIONS /", "HEAD /livez", "HEAD /.well-known/agent-card.json"])
def test_rare_requests_do_no_harm(caller: RawClient, request_line: str) -> None:
    head = caller.send(f"{request_line} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()).receive(b"\r\n\r\n")
    assert re.match(rb"HTTP/1.1 (200|204|404|405) ", head)
    if request_line.startswith("HEAD"):
        assert caller.send(get("/livez")).receive(b"\r\n\r\n").startswith(b"HTTP/1.1 200")


def test_a_head_request_for_the_feed_gets_a_complete_response(caller: RawClient) -> None:
    head = caller.send(get("/registry/events").replace(b"GET", b"HEAD")).receive(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert b"content-type: text/event-stream" in head
    assert b"content-length" not in head
    caller.send(get("/livez")).receive(b"HTTP/1.1 200")


def test_a_stream_ends_when_its_reader_disconnects(hub: HubProcess) -> None:
    with StreamReader(hub.port, open_stream("page_writer", "100 0.02")) as reader:
        reader.read_until(lambda it: len(it.numbers) > 3)
        assert metric(hub, "streams_active") == 1
        reader.close(reset=True)
        wait_for(lambda: metric(hub, "streams_active") == 0, 5)


@pytest.mark.parametrize(
    ("data", "status", "reason"),
    [
        (get("/livez").replace(b"localhost", b"evil"), 421, "bad_host"),
        (call_request("x").replace(b"application/json", b"text/plain"), 415, "content_type_not_supported"),
        (call_request("x").replace(b"Content-Length: ", b"Content-Length: 99999999"), 413, "body_too_large"),
        (b"GET /livez HTTP/1.1\r\n\r\n", 400, "invalid_request"),
        (get("/livez", "X: " + "a" * 70_000 + "\r\n"), 431, "head_too_large"),
        (get("/livez", "Transfer-Encoding: gzip\r\n"), 501, "coding_unknown"),
        (call_request("x").replace(b"message/send", b"message/sing"), 200, "method_not_found"),
    ],
)
def test_refusals_are_counted_by_reason(hub: HubProcess, caller: RawClient, data: bytes, status: int, reason: str) -> None:
    before = refused(hub, reason)
    assert caller.send(data).receive(b"\r\n").startswith(b"HTTP/1.1 %d" % status)
    assert refused(hub, reason) == before + 1


def test_connections_beyond_the_limit_are_refused_until_another_closes(hub: HubProcess) -> None:
    before = refused(hub, "overloaded")
    callers: list[RawClient] = []
    try:
        while not callers or callers[-1].send(get("/livez")).receive(b"\r\n\r\n").startswith(b"HTTP/1.1 200"):
            callers.append(RawClient(hub.port))
        refused_caller = callers.pop()
        assert len(callers) <= MOST
        refused_caller.connection.close()
        callers[0].send(get("/metrics"))
        text = callers[0].receive(b"a2a_hub_event_loop_lag_seconds ").decode()
        assert f"\na2a_hub_connections_active {MOST}.0\n" in text
        assert f'a2a_hub_refused_total{{reason="overloaded",workspace=""}} {before + 1}.0' in text
        callers.pop().connection.close()
        wait_for(lambda: _served(hub), 5)
    finally:
        for caller in callers:
            caller.connection.close()


def test_a_caller_that_disconnects_before_the_first_event_releases_its_stream(tmp_path: Path) -> None:
    """The worker accepts every call and never answers."""
    with (
        start_hub(tmp_path, max_streams=1, worker_silence=60, drain=1) as hub,
        socket.create_server(("127.0.0.1", 0)) as silent,
    ):
        offer = {"url": f"http://127.0.0.1:{silent.getsockname()[1]}/", "capabilities": {"streaming": True}}
        assert httpx.put(f"{hub.url}/registry/agents/echo/a", json=offer, trust_env=False).status_code == 201
        caller = StreamReader(hub.port, call_request("one", method="message/stream"))
        with silent.accept()[0]:
            assert _has_no_place(hub)
            caller.close(reset=True)
            wait_for(lambda: not _has_no_place(hub), 10)


def _has_no_place(hub: HubProcess) -> bool:
    """Whether one more stream is refused."""
    with RawClient(hub.port) as caller:
        caller.connection.settimeout(0.5)
        try:
            caller.send(call_request(uuid4().hex, method="message/stream")).receive(b"OVERLOADED")
        except TimeoutError:
            return False
    return True


def _served(hub: HubProcess) -> bool:
    with RawClient(hub.port) as caller:
        try:
            return caller.send(get("/livez")).receive(b"\r\n\r\n").startswith(b"HTTP/1.1 200")
        except ConnectionError:
            return False


def test_a_stopping_hub_completes_its_streams_and_closes_idle_connections(tmp_path: Path) -> None:
    with ExitStack() as closing:
        hub = closing.enter_context(start_hub(tmp_path, drain=5))
        worker = start_worker(f"{WORKERS}:page_writer", "page_writer:a", hub.url, log=tmp_path / "worker.log")
        closing.callback(worker.kill9)
        stream = closing.enter_context(StreamReader(hub.port, open_stream("page_writer", "500 0.02")))
        idle = closing.enter_context(RawClient(hub.port))
        idle.send(get("/livez")).receive(b"\r\n\r\n")
        stream.read_until(lambda it: len(it.numbers) > 3)
        began = time.monotonic()
        assert hub.stop(8) == 0
        assert time.monotonic() - began < 3
        stream.read_until(lambda it: it.ended)
        assert stream.numbers == list(range(len(stream.numbers)))
        idle.receive_all()
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", hub.port), 2)


def test_a_quiet_feed_does_not_delay_a_stop_and_ends_completely(tmp_path: Path) -> None:
    with start_hub(tmp_path, drain=20) as hub, RawClient(hub.port) as feed:
        feed.send(get("/registry/events")).receive(b":")
        began = time.monotonic()
        assert hub.stop(15) == 0
        assert time.monotonic() - began < 5
        assert feed.receive_all().endswith(b"0\r\n\r\n")
