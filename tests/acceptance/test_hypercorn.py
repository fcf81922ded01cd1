"""The other server, which one setting chooses, keeps the promises that matter most: calls, streams that survive, drains, and
readers that stop.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.acceptance.loadclients import StreamReader, metric, open_stream
from tests.helpers.client import Reader, get_task, send, texts
from tests.helpers.processes import start_hub, start_worker, wait_for

SETTINGS = {"server": "hypercorn", "lease_ttl": 4, "heartbeat": 0.5, "worker_silence": 3, "reader_patience": 1}
PATIENCE = 1.0


class System:
    """A hub, and workers that outlive it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.enough = folder / "enough"
        """The counter counts until this file is there, so that a hub on a slow machine ends before its streams do."""
        self.hub = start_hub(folder, **SETTINGS)
        sources = (("syncs.workers:counter", "counter"), ("loadworkers:reams", "reams"), ("workers:instant", "echo"))
        self._workers = [
            start_worker(
                f"tests.acceptance.{source}",
                f"{role}:a",
                self.hub.url,
                log=folder / f"{role}.log",
                env={"ENOUGH": str(self.enough)},
            )
            for source, role in sources
        ]

    def open_again(self) -> None:
        self.hub = start_hub(self._folder, port=self.hub.port, **SETTINGS)

    def close(self) -> None:
        for process in (*self._workers, self.hub):
            process.end()


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    house = System(tmp_path_factory.mktemp("house"))
    yield house
    house.close()
    assert "Traceback" not in house.hub.output


def test_a_call_is_answered(house: System) -> None:
    task = send(house.hub.url, "echo", "hello")
    assert texts(task) == ["hello"]
    assert get_task(house.hub.url, task["id"]) == task


def test_a_reader_that_stops_is_dropped(house: System) -> None:
    with StreamReader(house.hub.port, open_stream("reams", "400 0.005")) as reader:
        reader.read_until(lambda it: len(it.numbers) >= 5)
        halted = time.monotonic()
        assert metric(house.hub, "streams_active") == 1
        wait_for(lambda: metric(house.hub, "streams_active") == 0, 8 * PATIENCE)
        assert time.monotonic() - halted >= 0.9 * PATIENCE
        reader.read_until(lambda it: it.broken)
        assert not reader.ended


def test_streams_survive_the_hubs_death_exactly(house: System) -> None:
    readers = _counting(house, 5)
    house.hub.kill9()
    _come_back(house, readers)


def test_twenty_streams_come_back_to_a_hub_that_was_told_to_stop_and_miss_nothing(house: System) -> None:
    readers = _counting(house, 20)
    assert house.hub.stop(10) == 0
    _come_back(house, readers)


def _counting(house: System, many: int) -> list[tuple[Reader, threading.Thread]]:
    """Streams that are under way, and their threads."""
    house.enough.unlink(missing_ok=True)
    readers = [Reader(house.hub.url, "counter", "count") for _ in range(many)]
    threads = [reader.start() for reader in readers]
    wait_for(lambda: all(len(reader.chunks) > 5 for reader in readers), 30)
    return list(zip(readers, threads, strict=True))


def _come_back(house: System, streams: list[tuple[Reader, threading.Thread]]) -> None:
    """Each stream has been cut. In the hub that follows it goes on, and nothing is missing or doubled."""
    readers = [reader for reader, _ in streams]
    _join([thread for _, thread in streams])
    assert [(reader.done, reader.errors) for reader in readers] == [(False, [])] * len(readers)
    house.open_again()
    threads = [reader.start_again() for reader in readers]
    house.enough.touch()
    _join(threads)
    for reader in readers:
        many = len(reader.chunks) - 1
        assert reader.chunks == [*(f"{n} " for n in range(many)), f"that was {many}"]
        assert [cursor for cursor, _ in reader.frames] == list(range(1, len(reader.frames) + 1))
        assert reader.state == "completed"


def _join(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
