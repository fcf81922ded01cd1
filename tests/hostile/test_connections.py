"""Inputs 18 to 23, 26, 27 and 63: faults in the head, the speed or the address of a request."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import pytest

from tests.helpers.processes import HubProcess
from tests.hostile.raw import GET_X, RawAnswer, exchange, get, post

pytestmark = pytest.mark.usefixtures("hub_healthy")

CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(GET_X), GET_X)


SLOW_HEADS = {
    "silence": (b"", b""),
    "headers": (b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ", b"a"),
    "later headers": (b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\nGET /livez HTTP/1.1\r\nX: ", b"a"),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0"),
}
SLOW_BODIES = {
    "a call": ("/", "Content-Length: 5000", b"a"),
    "chunks": ("/", "Transfer-Encoding: chunked", b"1\r\na\r\n"),
    "REST": ("/message:send", "Content-Length: 5000", b"a"),
    "the registry": ("/registry/agents", "Content-Length: 5000", b"a"),
}
REFUSED = "the body of a refused request"


@pytest.fixture(scope="module", autouse=True)
def slow(hub: HubProcess) -> Iterator[dict[str, Future[RawAnswer]]]:
    """Runs all slow requests at once, beside the other tests."""
    sent = {name: (head, repeat, 12.0) for name, (head, repeat) in SLOW_HEADS.items()}
    for name, (path, length, repeat) in SLOW_BODIES.items():
        sent[name] = (post(length, body=b"", path=path, length=False), repeat, 20.0)
    sent[REFUSED] = (post("Content-Length: 5000", body=b"", host="evil", length=False), b"a", 12.0)
    with ThreadPoolExecutor(len(sent)) as threads:
        yield {
            name: threads.submit(exchange, hub.port, data, repeat=repeat, wait=wait)
            for name, (data, repeat, wait) in sent.items()
        }


def with_length(*values: str, more: Sequence[str] = (), body: bytes = GET_X) -> bytes:
    return post(*(f"Content-Length: {value}" for value in values), *more, body=body, length=False)


@pytest.mark.parametrize(
    "order", [["Content-Length: 5", "Transfer-Encoding: chunked"], ["Transfer-Encoding: chunked", "Content-Length: 5"]]
)
@pytest.mark.parametrize("path", ["/", "/message:send", "/registry/agents", "/livez"])
def test_18_a_length_beside_chunks_is_refused_and_the_connection_closed(hub: HubProcess, path: str, order: list[str]) -> None:
    answer = exchange(hub.port, post(*order, body=CHUNKED, path=path, length=False))
    assert (answer.status, answer.closed) == (400, True)
    assert answer.text.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    "data",
    [
        with_length("65", "5"),
        with_length("+5"),
        with_length("0x5"),
        with_length("-1"),
        with_length("5 5"),
        with_length("9" * 5000),
        with_length("65, 5"),
        post("Transfer-Encoding: chunked", body=b"zz\r\nabc", length=False),
        post("Transfer-Encoding: chunked", body=b"-1\r\nabc", length=False),
        post("X: a\0b"),
        post("X : a"),
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /a b HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"GET /livez RTSP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    ],
)
def test_19_an_ambiguous_head_is_refused(hub: HubProcess, data: bytes) -> None:
    answer = exchange(hub.port, data)
    assert (answer.status, answer.closed) == (400, True)


def test_white_space_behind_a_value_is_legal(hub: HubProcess) -> None:
    call = with_length(f"{len(GET_X)} \t", more=["Connection: close"]).replace(b"Host: localhost", b"Host: localhost\t")
    answer = exchange(hub.port, call)
    assert (answer.status, b"-32001" in answer.text) == (200, True)


def test_19_an_unknown_transfer_coding_is_refused(hub: HubProcess) -> None:
    answer = exchange(hub.port, post("Transfer-Encoding: gzip, chunked", body=CHUNKED, length=False))
    assert (answer.status, answer.closed) == (501, True)


@pytest.mark.parametrize(
    "headers",
    [["X: " + "a" * 65536], ["X: " + "a" * 40_000], [f"X-{n}: a" for n in range(2000)], [f"X-{n}: a" for n in range(250)]],
)
def test_20_a_head_that_is_too_large_is_refused(hub: HubProcess, headers: list[str]) -> None:
    answer = exchange(hub.port, post(*headers))
    assert (answer.status, answer.closed) == (431, True)


def test_20_the_headers_of_browsers_and_proxies_are_accepted(hub: HubProcess) -> None:
    answer = exchange(hub.port, get("/livez", "Cookie: " + "c" * 8000, *(f"X-{n}: a" for n in range(80))))
    assert answer.status == 200


def test_23_two_thousand_idle_connections_block_no_other_and_are_closed(hub: HubProcess) -> None:
    lines = [socket.create_connection(("127.0.0.1", hub.port), timeout=10) for _ in range(2000)]
    try:
        asked = time.monotonic()
        assert httpx.get(f"{hub.url}/livez", trust_env=False, timeout=10).status_code == 200
        assert time.monotonic() - asked < 2
        closing = time.monotonic()
        for line in lines:
            line.settimeout(max(0.1, closing + 12 - time.monotonic()))
            assert line.recv(1) == b""
        assert time.monotonic() - closing < 10
    finally:
        for line in lines:
            line.close()


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "[::1].evil.example",
        "evil@localhost",
        "localhost@evil.example",
        "localhost:evil",
        "localhost:80:80",
        "127.0.0.1.evil.example",
        "localhost/evil",
        "",
    ],
)
def test_26_a_foreign_host_is_refused(hub: HubProcess, host: str) -> None:
    for path in ("/", "/livez", "/registry/agents", "/.well-known/agent-card.json"):
        answer = exchange(hub.port, get(path, host=host))
        assert (answer.status, answer.closed) == (421, True)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "[::1]", "localhost:1", "[::1]:8420"])
def test_26_this_machines_hosts_are_served(hub: HubProcess, host: str) -> None:
    assert exchange(hub.port, get("/livez", host=host)).status == 200


PATHS = [
    "/../../etc/passwd",
    "/%2e%2e%2f%2e%2e%2fetc/passwd",
    "/%252e%252e%252fetc/passwd",
    "/..%5c..%5cetc%5cpasswd",
    "/static/%00",
    "/agents/%00/",
    "/agents/..%2f..%2fetc/passwd",
    "/agents/%ff%fe/",
    "/agents/echo%2f..%2f..%2fregistry",
    "/registry/agents/%00",
    "/registry/agents/..%2f..%2fetc",
    "/registry/agents/%ed%a0%80",
    "/tasks/%00",
    "/tasks/..%2f..%2fetc%2fpasswd",
    "/v1/tasks/%ff",
    "/dashboard/..%2f..%2fetc/passwd",
    "/.well-known/%2e%2e/%2e%2e/etc/passwd",
    "/registry/push/dead-letters/%00",
    "//etc/passwd",
    "/%",
    "/%zz",
    "/" + "x" * 9000,
    "/" + "a/" * 4000,
]


@pytest.mark.parametrize("path", PATHS)
def test_27_path_traversal_is_refused(hub: HubProcess, path: str) -> None:
    for method in (b"GET", b"POST", b"PUT", b"DELETE", b"TRACE"):
        answer = exchange(hub.port, get(path).replace(b"GET", method, 1))
        assert answer.status in (400, 404, 405, 414, 415, 422, 431), method
        assert b"root:" not in answer.text


@pytest.mark.parametrize("origin", ["null", "https://evil.example"])
@pytest.mark.parametrize("path", ["/", "/registry/agents", "/message:send", "/registry/agents/a:b/drain"])
def test_63_a_cross_site_page_may_neither_write_nor_read(hub: HubProcess, path: str, origin: str) -> None:
    site = ["Sec-Fetch-Site: cross-site", f"Origin: {origin}", "Cookie: session=1"]
    assert exchange(hub.port, post("Connection: close", *site, path=path)).status == 403
    asks = [f"Origin: {origin}", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: content-type"]
    options = exchange(hub.port, get(path, *asks).replace(b"GET", b"OPTIONS", 1))
    assert options.status == 403
    assert b"access-control-allow" not in options.text.lower()


@pytest.mark.parametrize("name", SLOW_HEADS)
def test_21_a_slow_head_is_cut_off(slow: dict[str, Future[RawAnswer]], name: str) -> None:
    answer = slow[name].result(30)
    assert answer.closed
    assert answer.seconds < 5 * 1.6


@pytest.mark.parametrize("name", SLOW_BODIES)
def test_22_a_slow_body_is_cut_off(slow: dict[str, Future[RawAnswer]], name: str) -> None:
    answer = slow[name].result(30)
    assert (answer.status, answer.closed) == (408, True)
    assert answer.seconds < 10 * 1.6


def test_22_a_refused_request_cannot_hold_its_connection_either(slow: dict[str, Future[RawAnswer]]) -> None:
    answer = slow[REFUSED].result(30)
    assert (answer.status, answer.closed) == (421, True)
    assert answer.seconds < 5
