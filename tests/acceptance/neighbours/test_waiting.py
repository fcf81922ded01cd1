"""Calls of one workspace that wait for a worker, and are abandoned by their callers."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from hub.identity.tokens import new
from rolecall.model.principal import Kind, Principal
from tests.acceptance.loadclients import percentile
from tests.acceptance.neighbours.rig import BUSY, Neighbours, neighbours
from tests.helpers.client import text_message
from tests.helpers.processes import wait_for

LIMITS = {"max_rate": 0, "max_at_once": 0}
MOST = 4_000
"""Calls of one workspace that wait, where no setting says otherwise."""
_USED = 'a2a_hub_share_used{thing="waiting calls"}'


class WaitingCount:
    """How many calls wait, as an operator sees it."""

    def __init__(self, pair: Neighbours) -> None:
        operator = Principal("operator", Kind.ADMIN, "default")
        token, _ = new(pair.folder / "hub" / "tokens.json", operator, lasts=None, now=0.0)
        self._pair, self._headers = pair, {"Authorization": f"Bearer {token}"}
        wait_for(lambda: self._metrics().status_code == 200)

    def __call__(self) -> float:
        lines = self._metrics().text.splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(_USED))

    def _metrics(self) -> httpx.Response:
        return self._pair.http.get(f"{self._pair.hub.url}/metrics", headers=self._headers)


@contextmanager
def waiting_calls(pair: Neighbours, count: int, method: str = "message/send") -> Iterator[Sequence[socket.socket]]:
    """Calls to a role that has no worker. Their callers disappear at the end: their connections are reset."""
    clients = []
    try:
        for _ in range(count):
            client = socket.create_connection(("127.0.0.1", pair.hub.port), timeout=30)
            client.sendall(_request(pair.tokens[BUSY, "client"], method))
            clients.append(client)
        yield clients
    finally:
        for client in clients:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()


def _request(token: str, method: str) -> bytes:
    """Each with a messageId of its own."""
    params = {**text_message("hi"), "metadata": {"waitSeconds": 300}}
    body = json.dumps({"jsonrpc": "2.0", "id": "1", "method": method, "params": params})
    kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nAuthorization: Bearer {token}\r\n"
    return f"POST /agents/nobody/ HTTP/1.1\r\nHost: 127.0.0.1\r\n{kind}\r\n{body}".encode()


def test_calls_that_wait_are_limited_and_end_when_their_callers_disconnect(tmp_path: Path) -> None:
    with neighbours(tmp_path, **{**LIMITS, "max_waiting_per_workspace": 400}) as pair, pair.unharmed():
        count = WaitingCount(pair)
        with waiting_calls(pair, 200), waiting_calls(pair, 200, "message/stream"):
            wait_for(lambda: count() == 400)
            with waiting_calls(pair, 1) as (refused,):
                assert b"ROLECALL_MAX_WAITING_PER_WORKSPACE" in refused.recv(4096)
        began = time.monotonic()
        wait_for(lambda: count() == 0, 5)
        assert time.monotonic() - began < 2


@pytest.mark.soak
def test_8000_calls_that_wait_and_are_abandoned_leave_a_neighbours_latency_as_it_was(tmp_path: Path) -> None:
    with neighbours(tmp_path, **LIMITS) as pair:
        count = WaitingCount(pair)
        idle = pair.idle(10)
        with pair.unharmed() as harm, waiting_calls(pair, 8_000) as clients:
            wait_for(lambda: count() == MOST, 60)
            assert b"ROLECALL_MAX_WAITING_PER_WORKSPACE" in clients[-1].recv(10_000)
            began = time.monotonic()
            time.sleep(20)
            waiting = pair.probe.figures(since=began)
        abandoned = time.monotonic()
        wait_for(lambda: count() == 0, 30)
        ended = time.monotonic() - abandoned
        after = pair.idle(10)
    p50 = {name: percentile(figures, 0.5) for name, figures in (("idle", idle), ("waiting", waiting), ("after", after))}
    print(f"p50 in ms: {p50}; {harm.growth:+.0f} MB; all had ended {ended:.1f} s after their callers disconnected")
    assert p50["waiting"] <= 2 * p50["idle"] + 5
    assert p50["after"] <= 2 * p50["idle"] + 5
