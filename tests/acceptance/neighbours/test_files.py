"""Files of one workspace, as fast as its clients can send and take them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.acceptance.neighbours.rig import BUSY, QUIET, Neighbours, neighbours
from tests.helpers.processes import wait_for

FILES = "/registry/files"
MIB = 1024 * 1024
TRANSFERS = "uploads and downloads"
SIZE = 30


def pieces(count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield bytes(MIB)


def carry(pair: Neighbours, count: int) -> None:
    """So many files go in and come out again."""
    headers = pair.headers(BUSY)
    for _ in range(count):
        made = pair.http.post(f"{pair.hub.url}{FILES}", content=pieces(SIZE), headers=headers).raise_for_status().json()
        with pair.http.stream("GET", made["url"], headers=headers) as answer:
            assert sum(len(piece) for piece in answer.iter_bytes(MIB)) == SIZE * MIB
        pair.http.delete(made["url"], headers=headers).raise_for_status()


def test_files_at_full_speed_do_not_make_a_neighbour_wait(tmp_path: Path) -> None:
    with neighbours(tmp_path) as pair:
        with pair.unharmed(), ThreadPoolExecutor(4) as threads:
            running = [threads.submit(carry, pair, 3) for _ in range(4)]
            wait_for(lambda: pair.used(TRANSFERS) > 1)
            small = pair.http.post(f"{pair.hub.url}{FILES}", content=b"x", headers=pair.headers(QUIET))
            assert small.status_code == 201 and small.elapsed.total_seconds() < 1
            for one in running:
                one.result()
        assert pair.used(TRANSFERS) == 0
