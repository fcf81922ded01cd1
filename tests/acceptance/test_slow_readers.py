"""Readers that stop or dawdle, and workers that are too fast: what the hub holds stays small, and nobody else waits."""

from __future__ import annotations

import shutil
import sqlite3
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from hub.storage import FILE_NAME
from tests.acceptance.loadclients import Crowd, Stopwatch, StreamReader, metric, open_stream, p99, resident, resume
from tests.acceptance.loadworkers import PAGE
from tests.helpers.processes import HubProcess, start_hub, start_worker, wait_for
from tests.helpers.waiting import until_still
from worker_sdk.tasks.log import CAP

WORKERS = "tests.acceptance.loadworkers"
READERS = 200
OPENING = 2.0
"""Seconds in which all of them have got their first page."""
PATIENCE = 2.0
SHARED = 500
"""Milliseconds that a call may take on a machine that others use too. Who really waits for a slow reader waits for seconds."""
CHECKED = 10
"""So many of them come back and are looked at page by page; the rest is only load."""
ON_THE_WAY = 16 * 1024 * 1024
"""What the system may hold between two processes of one machine, and the hub in its hands."""


class Desk(NamedTuple):
    """A hub, a worker that writes, one for other callers' calls, and where they leave what they say."""

    hub: HubProcess
    folder: Path

    @property
    def written(self) -> int:
        """How many pages of its newest task the worker has been relieved of."""
        return int((self.folder / "written").read_text() or 0)


@contextmanager
def set_up(folder: Path, *, reader_patience: float = 30) -> Iterator[Desk]:
    """What the timed calls leave behind is forgotten soon, so that memory tells of the streams alone. The database is large
    and goes at the end.
    """
    with ExitStack() as closing:
        hub = closing.enter_context(start_hub(folder / "hub", same_message=1, reader_patience=reader_patience))
        closing.callback(shutil.rmtree, hub.data_dir, ignore_errors=True)
        env = {"WRITTEN": str(folder / "written")}
        log = folder / "workers.log"
        closing.enter_context(start_worker(f"{WORKERS}:reams", "reams:a", hub.url, log=log, env=env))
        closing.enter_context(start_worker(f"{WORKERS}:echo", "echo:a", hub.url, log=log))
        yield Desk(hub, folder)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with set_up(tmp_path_factory.mktemp("desk")) as desk:
        yield desk


def typical_p99(watch: Stopwatch, since: float, until: float, window: float) -> float:
    """The median of many windows' p99: others use this machine too, and their moments are not ours. Where no call came back
    at all, it is the whole span.
    """
    starts = [since + at * window for at in range(int((until - since) / window))]
    found = [p99(figures) for start in starts if (figures := watch.figures(start, start + window))]
    return statistics.median(found or [(until - since) * 1000])


class Figures(NamedTuple):
    """How many streams stood still to the end, MB, and milliseconds of other callers' calls: with readers that read, that stand
    still, that have left.
    """

    held: float
    grown: float
    reading: float
    stopped: float
    left: float


def stop_reading(desk: Desk, *, reading: float, stopped: float, left: float, pause: float, window: float) -> Figures:
    """200 readers read for a while, stop for a while, and leave, while their worker writes on at the same pace. The first
    while also fills what the hub keeps of its newest tasks.
    """
    pages = int((OPENING + reading + stopped + left) / pause)
    hub = desk.hub
    with ExitStack() as closing:
        watch = closing.enter_context(Stopwatch("calls", hub, desk.folder, pause=0.005))
        readers = [StreamReader(hub.port, open_stream("reams", f"{pages} {pause}")) for _ in range(READERS)]
        crowd = closing.enter_context(Crowd(readers))
        with crowd.reading():
            wait_for(lambda: all(reader.numbers for reader in readers), 30)
            began = time.monotonic()
            time.sleep(reading)
            before = resident(hub)
        halted = time.monotonic()
        time.sleep(stopped)
        grown = resident(hub) - before
        held = metric(hub, "streams_active")
        parted = time.monotonic()
        crowd.leave()
        time.sleep(left)
        spans = (began, halted), (halted, parted), (parted, time.monotonic())
        figures = Figures(held, grown, *(typical_p99(watch, *span, window) for span in spans))
    print(f"\n{READERS} readers of {pages * PAGE / 1e6:.1f} MB each: {figures}")
    for reader in readers[:CHECKED]:
        check_rest(hub, reader, pages)
    return figures


def check_rest(hub: HubProcess, reader: StreamReader, pages: int) -> None:
    """It had a part; coming back, it gets exactly what it lacks."""
    assert reader.numbers == list(range(len(reader.numbers)))
    assert 0 < len(reader.numbers) < pages
    with StreamReader(hub.port, resume(reader.task, reader.cursors[-1])) as again:
        again.read_until(lambda it: it.ended)
    assert reader.numbers + again.numbers == list(range(pages))
    assert reader.cursors + again.cursors == list(range(2, 2 + len(reader.cursors) + len(again.cursors)))
    assert again.state == "completed"


def test_readers_that_stop_cost_neither_memory_nor_others_time(desk: Desk) -> None:
    """Once more where the first look was bad: it may have been somebody else's load."""
    for _ in range(2):
        figures = stop_reading(desk, reading=2, stopped=6, left=2, pause=0.2, window=1)
        if figures.held == READERS and figures.stopped <= max(3 * figures.left, SHARED):
            break
    assert figures.held == READERS
    assert figures.grown <= 20
    assert figures.stopped <= max(3 * figures.left, SHARED)


@pytest.mark.soak
def test_readers_that_stop_for_ten_minutes_cost_neither_memory_nor_others_time(tmp_path: Path) -> None:
    with set_up(tmp_path, reader_patience=3600) as desk:
        figures = stop_reading(desk, reading=120, stopped=600, left=60, pause=1, window=10)
    assert figures.held == READERS
    assert figures.grown <= 20
    assert figures.stopped <= 1.5 * max(figures.reading, figures.left)


def test_a_slow_reader_gets_everything_and_slows_nobody(desk: Desk) -> None:
    pages = 1000
    hub = desk.hub
    with ExitStack() as closing:
        watch = closing.enter_context(Stopwatch("calls", hub, desk.folder))
        began = time.monotonic()
        time.sleep(2)
        slow = closing.enter_context(StreamReader(hub.port, open_stream("reams", str(pages))))
        slow.read_until(lambda it: bool(it.numbers))
        dawdled = time.monotonic()
        slow.read_at(50_000, 2)
        eager = closing.enter_context(StreamReader(hub.port, resume(slow.task, 1)))
        eager.read_until(lambda it: it.ended)
        assert eager.numbers == list(range(pages))
        slow.read_at(50_000, 2)
        ended = time.monotonic()
        assert 20 < len(slow.numbers) < pages / 2
        slow.read_until(lambda it: it.ended)
        assert slow.numbers == list(range(pages))
        assert slow.cursors == list(range(2, 2 + len(slow.cursors)))
        alone, beside = typical_p99(watch, began, dawdled, 1), typical_p99(watch, dawdled, ended, 1)
    print(f"\np99 of others: {alone:.0f} ms alone, {beside:.0f} ms beside a slow reader")
    assert beside <= max(3 * alone, SHARED)


def test_what_a_fast_worker_writes_waits_on_the_disk(desk: Desk) -> None:
    """24 MB for a reader that takes nothing: all of it is logged at once, and hardly any of it stays in memory."""
    pages = 3000
    hub = desk.hub
    with StreamReader(hub.port, open_stream("reams", str(pages))) as warm:
        warm.read_until(lambda it: it.ended)
    before, logged = resident(hub), metric(hub, "stream_bytes_total")
    with StreamReader(hub.port, open_stream("reams", str(pages))) as still:
        still.read_until(lambda it: bool(it.numbers))
        wait_for(lambda: metric(hub, "stream_bytes_total") - logged > pages * PAGE, 20)
        grown = resident(hub) - before
        print(f"\n{pages * PAGE / 1e6:.0f} MB passed, {grown:.1f} MB stayed")
        assert len(still.numbers) < pages / 10
        assert grown <= 10
        still.read_until(lambda it: it.ended)
        assert still.numbers == list(range(pages))


def test_a_fast_worker_waits_for_a_hub_that_takes_nothing(desk: Desk) -> None:
    pages = 6000
    with StreamReader(desk.hub.port, open_stream("reams", str(pages))) as reader:
        reader.read_until(lambda it: len(it.numbers) >= 100)
        desk.hub.pause()
        try:
            until_still(lambda: desk.written, quiet=0.3, timeout=15)
            written, taken = desk.written, logged(desk.hub, reader.task)
        finally:
            desk.hub.resume()
        ahead = written - taken
        print(f"\nthe worker got {ahead * PAGE / 1e6:.1f} MB ahead")
        assert written < pages
        assert CAP / 2 <= ahead * PAGE <= CAP + ON_THE_WAY
        reader.read_until(lambda it: it.ended)
        assert reader.numbers == list(range(pages))
        wait_for(lambda: desk.written == pages)


def logged(hub: HubProcess, task: str) -> int:
    """How many events of the task the hub has taken, read from its disk: it may be unable to say."""
    db = sqlite3.connect(f"file:{hub.data_dir / FILE_NAME}?mode=ro", uri=True)
    try:
        return int(db.execute("select last from task_now where id = ?", (task,)).fetchone()[0])
    finally:
        db.close()


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with set_up(tmp_path_factory.mktemp("hasty"), reader_patience=PATIENCE) as desk:
        yield desk


def test_a_reader_that_stops_is_dropped_and_comes_back_for_exactly_the_rest(hasty: Desk) -> None:
    hub = hasty.hub
    with ExitStack() as closing:
        readers = [closing.enter_context(StreamReader(hub.port, open_stream("reams", "300 0.01"))) for _ in range(5)]
        for reader in readers:
            reader.read_until(lambda it: len(it.numbers) >= 5)
        halted = time.monotonic()
        assert metric(hub, "streams_active") == len(readers)
        wait_for(lambda: metric(hub, "streams_active") == 0, 5 * PATIENCE)
        assert time.monotonic() - halted >= 0.9 * PATIENCE
        for reader in readers:
            reader.read_until(lambda it: it.broken)
            assert not reader.ended
            check_rest(hub, reader, 300)


def test_a_reader_that_was_dropped_keeps_neither_its_line_nor_the_hub(hasty: Desk) -> None:
    hub = hasty.hub
    with StreamReader(hub.port, open_stream("reams", "300")) as reader:
        reader.read_until(lambda it: len(it.numbers) >= 5)
        wait_for(lambda: not is_connected(hub, reader), 2 * PATIENCE)
        told = time.monotonic()
        assert hub.stop(10) == 0
        assert time.monotonic() - told < 5
        assert "Traceback" not in hub.output


def is_connected(hub: HubProcess, reader: StreamReader) -> bool:
    """Whether the hub still holds its end of the reader's connection."""
    ends = f":{hub.port:04X}", f":{reader.socket.getsockname()[1]:04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(line[1].endswith(ends[0]) and line[2].endswith(ends[1]) for line in lines)
