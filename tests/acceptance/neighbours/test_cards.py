"""Cards and the catalog of a role with many workers and large cards, which change all the time."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.loadclients import StreamReader
from tests.acceptance.neighbours.rig import BUSY, UNSENT, Neighbours, neighbours
from tests.helpers.processes import wait_for

CARD, CATALOG = "/agents/wide/.well-known/agent-card.json", "/.well-known/ai-catalog.json"
LARGEST = 4 * 64 * 1024 + 4096
"""Bytes of a role's card, as SECURITY.md says."""


def offer(number: int, boot: str = "b") -> dict[str, Any]:
    skills = [{"id": f"{number}-{at}", "name": "n", "description": "d" * 550, "tags": [f"t{number}"]} for at in range(98)]
    return {"url": f"http://127.0.0.1:9/{number}", "description": "wide", "boot": boot, "card": {"name": "w", "skills": skills}}


def enrol(pair: Neighbours, number: int, boot: str = "b") -> None:
    path = f"/registry/agents/wide/{number:04}"
    answer = pair.ask(BUSY, "PUT", path, offer(number, boot), kind="worker")
    assert answer.status_code in (200, 201), answer.text


def read(pair: Neighbours, rate: float, seconds: float) -> list[int]:
    """Cards and the catalog by turns, that many a second, while a worker enrols again and again; the sizes of the cards."""
    sizes: list[int] = []
    began = time.monotonic()

    def ask(number: int) -> None:
        time.sleep(max(0.0, began + number / rate - time.monotonic()))
        if number % 8 == 0:
            enrol(pair, number % 5, boot=f"b{number}")
        for path in (CARD, CATALOG):
            answer = pair.ask(BUSY, "GET", path)
            assert answer.status_code == 200
            if path == CARD:
                sizes.append(len(answer.content))
        pair.http.get(pair.hub.url + CATALOG).raise_for_status()

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(ask, range(int(rate * seconds))))
    return sizes


def enrol_all(pair: Neighbours, count: int) -> None:
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: enrol(pair, number), range(count)))


def check_that_unread_lists_are_refused(pair: Neighbours) -> None:
    """Clients that do not read their lists of agents, of more than 2 MB each."""
    head = f"GET /agents HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {pair.headers(BUSY)['Authorization']}\r\n\r\n"
    with ExitStack() as clients:
        for _ in range(40):
            clients.enter_context(StreamReader(pair.hub.port, head.encode(), parse=False))
        wait_for(lambda: pair.ask(BUSY, "GET", "/agents").status_code == 503, 10)
        refused = pair.ask(BUSY, "GET", "/agents").json()
        assert refused["reason"] == "OVERLOADED" and "ROLECALL_MAX_UNSENT_PER_WORKSPACE" in refused["detail"]
        assert pair.used(UNSENT) > 0
        # A refused list is not kept either.
        assert all(pair.ask(BUSY, "GET", "/agents").status_code == 503 for _ in range(40))
    wait_for(lambda: pair.used(UNSENT) == 0)
    assert pair.ask(BUSY, "GET", "/agents").status_code == 200


def test_cards_of_a_wide_role_do_not_make_a_neighbour_wait(tmp_path: Path) -> None:
    with neighbours(tmp_path) as pair:
        with pair.unharmed():
            enrol_all(pair, 40)
            assert 64 * 1024 < max(read(pair, 16, 1.5)) < LARGEST
            assert "skills are not listed" in pair.ask(BUSY, "GET", CARD).json()["description"]
        with pair.unharmed() as harm:
            check_that_unread_lists_are_refused(pair)
        print(f"lists of agents that are not read: {harm.growth:+.0f} MB")


@pytest.mark.soak
def test_cards_of_a_role_with_a_thousand_workers_do_not_slow_a_neighbour(tmp_path: Path) -> None:
    with neighbours(tmp_path) as pair:
        idle = pair.idle()
        enrol_all(pair, 1_000)
        with pair.unharmed() as harm:
            sizes = read(pair, 32, 20)
        print("\n32 cards and catalogs a second, 1,000 workers:", harm.check_latency(idle), f"{max(sizes)} bytes at most")
