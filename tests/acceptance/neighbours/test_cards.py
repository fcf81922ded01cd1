"""Cards and the catalog of a role with many workers and large cards, which change all the time."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.neighbours.rig import BUSY, Neighbours, neighbours

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


def test_cards_of_a_wide_role_do_not_make_a_neighbour_wait(tmp_path: Path) -> None:
    with neighbours(tmp_path) as pair, pair.unharmed():
        enrol_all(pair, 40)
        assert 64 * 1024 < max(read(pair, 16, 1.5)) < LARGEST
        assert "skills are not listed" in pair.ask(BUSY, "GET", CARD).json()["description"]


@pytest.mark.soak
def test_cards_of_a_role_with_a_thousand_workers_do_not_slow_a_neighbour(tmp_path: Path) -> None:
    with neighbours(tmp_path) as pair:
        idle = pair.idle()
        enrol_all(pair, 1_000)
        with pair.unharmed() as harm:
            sizes = read(pair, 32, 20)
        print("\n32 cards and catalogs a second, 1,000 workers:", harm.check_latency(idle), f"{max(sizes)} bytes at most")
