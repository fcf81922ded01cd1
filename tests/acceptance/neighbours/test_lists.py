"""Lists of many tasks: they are read beside the path of calls, and for no caller that has gone."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.neighbours.rig import BUSY, Neighbours, neighbours
from tests.acceptance.neighbours.stored import store_tasks

STATES = ("completed", "input-required", "failed", "completed")
BATCHES, ENTRIES = 4, 50


def batch(*states: str) -> list[dict[str, Any]]:
    return [
        {"jsonrpc": "2.0", "id": number, "method": "tasks/list", "params": {"status": states[number % len(states)]}}
        for number in range(ENTRIES)
    ]


def list_at_once(pair: Neighbours, seconds: float = 0.0) -> list[httpx.Response]:
    """Four batches of lists by state at the same time, again and again for so long."""
    until = time.monotonic() + seconds

    def batches(_: int) -> Iterator[httpx.Response]:
        while True:
            yield pair.ask(BUSY, "POST", "/", batch(*STATES))
            if time.monotonic() >= until:
                return

    with ThreadPoolExecutor(BATCHES) as threads:
        return [answer for answers in threads.map(lambda number: list(batches(number)), range(BATCHES)) for answer in answers]


def check(answers: list[httpx.Response], total: int) -> None:
    for answer in answers:
        for entry in answer.json():
            result = entry["result"]
            assert (len(result["tasks"]), result["totalSize"]) == (50, total)


def leave_lists(pair: Neighbours, count: int) -> None:
    """Batches whose callers close their connections by a reset."""
    body = json.dumps(batch(*STATES)).encode()
    head = f"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    head += f"Authorization: {pair.headers(BUSY)['Authorization']}\r\n\r\n"
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", pair.hub.port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(head.encode() + body)
            time.sleep(0.02)


def test_lists_by_state_do_not_make_a_neighbour_wait_and_end_when_their_callers_leave(tmp_path: Path) -> None:
    store_tasks(tmp_path / "hub", BUSY, f"{BUSY}-client", STATES, 4_000)
    with neighbours(tmp_path) as pair, pair.unharmed():
        answers = list_at_once(pair)
        assert {entry["result"]["totalSize"] for answer in answers for entry in answer.json()} == {1000, 2000}
        leave_lists(pair, 20)
        began = time.monotonic()
        assert pair.ask(BUSY, "POST", "/", batch("completed")[0]).json()["result"]["totalSize"] == 2000
        assert time.monotonic() - began < 3, "the lists that were left are still read"


@pytest.mark.soak
def test_lists_by_state_of_a_hundred_thousand_tasks_do_not_slow_a_neighbour(tmp_path: Path) -> None:
    store_tasks(tmp_path / "hub", BUSY, f"{BUSY}-client", STATES, 100_000)
    with neighbours(tmp_path) as pair:
        idle = pair.idle()
        with pair.unharmed() as harm:
            check(list_at_once(pair, seconds=20), 10_000)
        print("\nfour batches of fifty lists by state, 100,000 tasks:", harm.check_latency(idle))
