"""Parsing does not depend on how the network splits the bytes, for valid and for malformed requests."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest

from hub.server.asgi import Scope
from hub.server.cycle import RequestCycle
from hub.server.parser import _UNREADABLE, RequestParser

UPGRADE = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
REQUESTS = (
    b"GET /a%20b?c=%41 HTTP/1.1\r\nHost: a\r\nX-Empty:\r\n\r\n",
    b"POST /b HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=1\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: x\r\n\r\n",
    b"POST /d HTTP/1.1\r\nHost: a\r\n" + UPGRADE + b"Content-Length: 3\r\n\r\nxyz",
    b"POST /e HTTP/1.1\r\nHost: a\r\n" + UPGRADE + b"Transfer-Encoding: chunked\r\n\r\n1\r\nq\r\n0\r\n\r\n",
    b"\r\nOPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET http://b:1/f HTTP/1.1\r\nhost: a\r\n\r\n",
    b"GET /g HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"PUT /h HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\n" + b"y" * 9000,
)


class ParsedRequest(NamedTuple):
    scope: Scope
    keep_alive: bool
    expects_continue: bool
    body: bytearray


class BodyRecorder(RequestCycle):
    """Records its body."""

    def __init__(self, request: ParsedRequest) -> None:
        self.request = request
        self.disconnected = False

    def add_body(self, data: bytes) -> None:
        self.request.body.extend(data)

    def finish(self) -> None:
        self.request.scope["complete"] = True


def read(data: bytes, split_at: list[int]) -> tuple[list[ParsedRequest], str]:
    parsed: list[ParsedRequest] = []

    def on_request(scope: Scope, *, keep_alive: bool, expects_continue: bool) -> RequestCycle:
        parsed.append(ParsedRequest(scope, keep_alive, expects_continue, bytearray()))
        return BodyRecorder(parsed[-1])

    parser = RequestParser(on_request, (None, None), max_head=64 * 1024)
    error, at = None, 0
    for position in (*split_at, len(data)):
        if position > at and error is None:
            error, at = parser.feed(data[at:position]), position
    return parsed, str(error or "")


def positions(rng: random.Random, data: bytes) -> list[int]:
    return sorted(rng.sample(range(len(data)), min(len(data), rng.choice([1, 3, 10, 60]))))


def test_a_head_with_too_many_headers_is_refused() -> None:
    """Even if they are short: each costs many times its bytes."""
    head = b"GET / HTTP/1.1\r\nHost: a\r\n%b\r\n"
    assert read(head % (b"a:\r\n" * 250), [])[1] == ""
    parsed, error = read(head % (b"a:\r\n" * 300), [])
    assert not parsed
    assert "200 headers" in error


@pytest.mark.parametrize("space", [b" ", b"\t", b" \t  "])
def test_white_space_behind_a_value_is_no_part_of_it(space: bytes) -> None:
    head = b"POST / HTTP/1.1\r\nHost: a b%b\r\nContent-Length: 2%b\r\nExpect: 100-continue%b\r\nX:%b\r\n\r\nhi"
    data = head.replace(b"%b", space)
    for split_at in ([], [*range(1, len(data))]):
        (only,), error = read(data, split_at)
        assert error == ""
        assert only.scope["headers"] == [
            (b"host", b"a b"),
            (b"content-length", b"2"),
            (b"expect", b"100-continue"),
            (b"x", b""),
        ]
        assert (only.expects_continue, bytes(only.body)) == (True, b"hi")


@pytest.mark.parametrize("protocol", [b"RTSP/1.0", b"RTSP/1.1"])
@pytest.mark.parametrize("rest", [b"Host: a\r\n\r\n", b"Host: a\r\n" + UPGRADE + b"\r\n", b"\r\n"])
@pytest.mark.parametrize("line", [b"GET /a?b ", b"POST /  ", b"SETUP rtsp://a/ "])
def test_another_protocol_is_refused(line: bytes, rest: bytes, protocol: bytes) -> None:
    data = line + protocol + b"\r\n" + rest
    for before in (b"", REQUESTS[1], b"GET /a?b HTTP/1.1\r\nHost: a\r\n\r\n"):
        for split_at in ([], [len(before + data) // 2], [*range(1, len(before + data))]):
            parsed, error = read(before + data, split_at)
            assert (len(parsed), error) == (len(before) and 1, str(_UNREADABLE))


def test_icecast_is_refused() -> None:
    assert read(b"SOURCE /a ICE/1.0\r\nHost: a\r\n\r\n", [])[1] == str(_UNREADABLE)


def test_another_protocol_may_be_named_anywhere_but_in_the_first_line() -> None:
    text = b'{"a": "GET / RTSP/1.0\\r\\n"}'
    head = b"GET / HTTP/1.1\r\nX: GET / RTSP/1.0\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b"
    data = (head % (len(text), text)) * 2
    for split_at in ([], [*range(1, len(data))]):
        parsed, error = read(data, split_at)
        assert (len(parsed), error) == (2, "")


@pytest.mark.parametrize("seed", range(5))
def test_requests_are_parsed_alike_wherever_the_bytes_are_split(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        sent = rng.choices(REQUESTS, k=rng.randint(1, 6))
        data = b"".join(sent)
        parsed, error = read(data, [])
        assert (len(parsed), error) == (len(sent), "")
        assert all(one.scope["complete"] for one in parsed)
        assert read(data, positions(rng, data)) == (parsed, error)


@pytest.mark.parametrize("seed", range(5))
def test_malformed_requests_are_refused_alike_wherever_the_bytes_are_split(seed: int) -> None:
    rng = random.Random(seed)
    refused = 0
    for _ in range(100):
        data = bytearray(b"".join(rng.choices(REQUESTS[:8], k=rng.randint(1, 5))))
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.choice(b"\r\n\0 :;0a\xff#*")
        (parsed, error), (second, second_error) = read(bytes(data), []), read(bytes(data), positions(rng, data))
        assert (error, [one.scope for one in parsed]) == (second_error, [one.scope for one in second])
        refused += bool(error)
    assert refused > 30
