"""Bytes to requests: however the network cuts them, and whatever is wrong with them, they are read in one way."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest

from hub.server.asgi import Scope
from hub.server.cycle import RequestCycle
from hub.server.parser import RequestParser

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


class WorkerEvent(NamedTuple):
    scope: Scope
    keeps: bool
    expects: bool
    body: bytearray


class Kept(RequestCycle):
    """Keeps its body."""

    def __init__(self, heard: WorkerEvent) -> None:
        self.heard = heard
        self.gone = False

    def take(self, data: bytes) -> None:
        self.heard.body.extend(data)

    def finish(self) -> None:
        self.heard.scope["whole"] = True


def read(data: bytes, cuts: list[int]) -> tuple[list[WorkerEvent], str]:
    heard: list[WorkerEvent] = []

    def asked(scope: Scope, *, keeps: bool, expects: bool) -> RequestCycle:
        heard.append(WorkerEvent(scope, keeps, expects, bytearray()))
        return Kept(heard[-1])

    intake = RequestParser(asked, (None, None), max_head=64 * 1024)
    wrong, at = None, 0
    for cut in (*cuts, len(data)):
        if cut > at and wrong is None:
            wrong, at = intake.feed(data[at:cut]), cut
    return heard, str(wrong or "")


def cuts(rng: random.Random, data: bytes) -> list[int]:
    return sorted(rng.sample(range(len(data)), min(len(data), rng.choice([1, 3, 10, 60]))))


def test_a_head_of_more_headers_than_anybody_needs_is_no_request() -> None:
    """However short they are: each costs many times its bytes."""
    head = b"GET / HTTP/1.1\r\nHost: a\r\n%b\r\n"
    assert read(head % (b"a:\r\n" * 250), [])[1] == ""
    heard, wrong = read(head % (b"a:\r\n" * 300), [])
    assert not heard
    assert "200 headers" in wrong


@pytest.mark.parametrize("seed", range(5))
def test_requests_are_the_same_wherever_they_are_cut(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        said = rng.choices(REQUESTS, k=rng.randint(1, 6))
        data = b"".join(said)
        heard, wrong = read(data, [])
        assert (len(heard), wrong) == (len(said), "")
        assert all(one.scope["whole"] for one in heard)
        assert read(data, cuts(rng, data)) == (heard, wrong)


@pytest.mark.parametrize("seed", range(5))
def test_so_is_what_has_been_spoilt(seed: int) -> None:
    rng = random.Random(seed)
    refused = 0
    for _ in range(100):
        data = bytearray(b"".join(rng.choices(REQUESTS[:8], k=rng.randint(1, 5))))
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.choice(b"\r\n\0 :;0a\xff#*")
        (heard, wrong), (again, wrong_again) = read(bytes(data), []), read(bytes(data), cuts(rng, data))
        assert (wrong, [one.scope for one in heard]) == (wrong_again, [one.scope for one in again])
        refused += bool(wrong)
    assert refused > 30
