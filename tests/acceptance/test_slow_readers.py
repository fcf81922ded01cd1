"""Readers that stop or are slow, and workers that are too fast: the hub's memory stays small, and no other caller waits."""

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
from tests.acceptance.loadclients import LatencyProbe, ReaderGroup, StreamReader, memory_used, metric, open_stream, p99, resume
from tests.acceptance.loadworkers import PAGE
from tests.helpers.processes import HubProcess, start_hub, start_worker, wait_for
from tests.helpers.waiting import until_still
from worker_sdk.tasks.log import CAP

WORKERS = "tests.acceptance.loadworkers"
READERS = 200
OPENING = 2.0
"""Seconds within which every reader has its first page."""
PATIENCE = 2.0
SHARED = 500
"""Milliseconds that a call may take on a shared machine. A call that waits for a slow reader would take seconds."""
CHECKED = 10
"""Number of readers that resume and are checked page by page. The rest is only load."""
ON_THE_WAY = 16 * 1024 * 1024
"""Bytes that the system may buffer between two processes, together with the hub's own buffers."""


class LoadSetup(NamedTuple):
    """A hub, a worker that writes, one for the calls of others, and the folder of their logs."""

    hub: HubProcess
    folder: Path

    @property
    def written(self) -> int:
        """How many pages of its newest task the worker has handed over."""
        return int((self.folder / "written").read_text() or 0)


@contextmanager
def set_up(folder: Path, *, reader_patience: float = 30) -> Iterator[LoadSetup]:
    """Tasks of the timed calls are dropped soon, so that memory shows the streams only. The database is large and is
    deleted at the end.
    """
    with ExitStack() as closing:
        hub = closing.enter_context(start_hub(folder / "hub", same_message=1, reader_patience=reader_patience))
        closing.callback(shutil.rmtree, hub.data_dir, ignore_errors=True)
        env = {"WRITTEN": str(folder / "written")}
        log = folder / "workers.log"
        closing.enter_context(start_worker(f"{WORKERS}:page_writer", "page_writer:a", hub.url, log=log, env=env))
        closing.enter_context(start_worker(f"{WORKERS}:echo", "echo:a", hub.url, log=log))
        yield LoadSetup(hub, folder)


@pytest.fixture(scope="module")
def load_setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadSetup]:
    with set_up(tmp_path_factory.mktemp("desk")) as load_setup:
        yield load_setup


def median_p99(watch: LatencyProbe, since: float, until: float, window: float) -> float:
    """The median of the p99 of many windows, because the machine is shared. If no call came back, the whole time."""
    starts = [since + at * window for at in range(int((until - since) / window))]
    found = [p99(figures) for start in starts if (figures := watch.figures(start, start + window))]
    return statistics.median(found or [(until - since) * 1000])


class Figures(NamedTuple):
    """The number of stalled streams at the end, the growth in MB, and the milliseconds of other calls while readers read,
    while they are stopped, and after they have disconnected.
    """

    stalled: float
    grown: float
    reading: float
    stopped: float
    left: float


def stop_reading(load_setup: LoadSetup, *, reading: float, stopped: float, left: float, pause: float, window: float) -> Figures:
    """200 readers read, then stop, then disconnect, while their worker writes at the same pace. The first phase also fills
    the hub's cache of its newest tasks.
    """
    page_count = int((OPENING + reading + stopped + left) / pause)
    hub = load_setup.hub
    with ExitStack() as closing:
        watch = closing.enter_context(LatencyProbe("calls", hub, load_setup.folder, pause=0.005))
        readers = [StreamReader(hub.port, open_stream("page_writer", f"{page_count} {pause}")) for _ in range(READERS)]
        group = closing.enter_context(ReaderGroup(readers))
        with group.reading():
            wait_for(lambda: all(reader.numbers for reader in readers), 30)
            began = time.monotonic()
            time.sleep(reading)
            before = memory_used(hub)
        stopped_at = time.monotonic()
        time.sleep(stopped)
        grown = memory_used(hub) - before
        stalled = metric(hub, "streams_active")
        disconnected_at = time.monotonic()
        group.disconnect()
        time.sleep(left)
        windows = (began, stopped_at), (stopped_at, disconnected_at), (disconnected_at, time.monotonic())
        figures = Figures(stalled, grown, *(median_p99(watch, *span, window) for span in windows))
    print(f"\n{READERS} readers of {page_count * PAGE / 1e6:.1f} MB each: {figures}")
    for reader in readers[:CHECKED]:
        check_rest(hub, reader, page_count)
    return figures


def check_rest(hub: HubProcess, reader: StreamReader, page_count: int) -> None:
    """The reader has a part. When it resumes, it gets exactly the rest."""
    assert reader.numbers == list(range(len(reader.numbers)))
    assert 0 < len(reader.numbers) < page_count
    with StreamReader(hub.port, resume(reader.task, reader.cursors[-1])) as again:
        again.read_until(lambda it: it.ended)
    assert reader.numbers + again.numbers == list(range(page_count))
    assert reader.cursors + again.cursors == list(range(2, 2 + len(reader.cursors) + len(again.cursors)))
    assert again.state == "completed"


def test_readers_that_stop_cost_neither_memory_nor_latency(load_setup: LoadSetup) -> None:
    """A second try if the first fails: the cause may be other load on the machine."""
    for _ in range(2):
        figures = stop_reading(load_setup, reading=2, stopped=6, left=2, pause=0.2, window=1)
        if figures.stalled == READERS and figures.stopped <= max(3 * figures.left, SHARED):
            break
    assert figures.stalled == READERS
    assert figures.grown <= 20
    assert figures.stopped <= max(3 * figures.left, SHARED)


@pytest.mark.soak
def test_readers_that_stop_for_ten_minutes_cost_neither_memory_nor_latency(tmp_path: Path) -> None:
    with set_up(tmp_path, reader_patience=3600) as load_setup:
        figures = stop_reading(load_setup, reading=120, stopped=600, left=60, pause=1, window=10)
    assert figures.stalled == READERS
    assert figures.grown <= 20
    assert figures.stopped <= 1.5 * max(figures.reading, figures.left)


def test_a_slow_reader_gets_everything_and_delays_no_other_caller(load_setup: LoadSetup) -> None:
    page_count = 1000
    hub = load_setup.hub
    with ExitStack() as closing:
        watch = closing.enter_context(LatencyProbe("calls", hub, load_setup.folder))
        began = time.monotonic()
        time.sleep(2)
        slow = closing.enter_context(StreamReader(hub.port, open_stream("page_writer", str(page_count))))
        slow.read_until(lambda it: bool(it.numbers))
        slow_since = time.monotonic()
        slow.read_at(50_000, 2)
        second = closing.enter_context(StreamReader(hub.port, resume(slow.task, 1)))
        second.read_until(lambda it: it.ended)
        assert second.numbers == list(range(page_count))
        slow.read_at(50_000, 2)
        ended = time.monotonic()
        assert 20 < len(slow.numbers) < page_count / 2
        slow.read_until(lambda it: it.ended)
        assert slow.numbers == list(range(page_count))
        assert slow.cursors == list(range(2, 2 + len(slow.cursors)))
        usual, beside = median_p99(watch, began, slow_since, 1), median_p99(watch, slow_since, ended, 1)
    print(f"\np99 of others: {usual:.0f} ms alone, {beside:.0f} ms beside a slow reader")
    assert beside <= max(3 * usual, SHARED)


def test_what_a_fast_worker_writes_waits_on_disk_and_not_in_memory(load_setup: LoadSetup) -> None:
    """24 MB for a reader that reads nothing: all of it is logged at once, and almost none stays in memory."""
    page_count = 3000
    hub = load_setup.hub
    with StreamReader(hub.port, open_stream("page_writer", str(page_count))) as first:
        first.read_until(lambda it: it.ended)
    before, logged = memory_used(hub), metric(hub, "stream_bytes_total")
    with StreamReader(hub.port, open_stream("page_writer", str(page_count))) as still:
        still.read_until(lambda it: bool(it.numbers))
        wait_for(lambda: metric(hub, "stream_bytes_total") - logged > page_count * PAGE, 20)
        grown = memory_used(hub) - before
        print(f"\n{page_count * PAGE / 1e6:.0f} MB passed, {grown:.1f} MB stayed")
        assert len(still.numbers) < page_count / 10
        assert grown <= 10
        still.read_until(lambda it: it.ended)
        assert still.numbers == list(range(page_count))


def test_a_fast_worker_waits_for_a_hub_that_takes_nothing(load_setup: LoadSetup) -> None:
    page_count = 6000
    with StreamReader(load_setup.hub.port, open_stream("page_writer", str(page_count))) as reader:
        reader.read_until(lambda it: len(it.numbers) >= 100)
        load_setup.hub.pause()
        try:
            until_still(lambda: load_setup.written, quiet=0.3, timeout=15)
            written, taken = load_setup.written, logged(load_setup.hub, reader.task)
        finally:
            load_setup.hub.resume()
        ahead = written - taken
        print(f"\nthe worker got {ahead * PAGE / 1e6:.1f} MB ahead")
        assert written < page_count
        assert CAP / 2 <= ahead * PAGE <= CAP + ON_THE_WAY
        reader.read_until(lambda it: it.ended)
        assert reader.numbers == list(range(page_count))
        wait_for(lambda: load_setup.written == page_count)


def logged(hub: HubProcess, task: str) -> int:
    """How many events of the task the hub has logged, read from its disk, because the hub may be paused."""
    db = sqlite3.connect(f"file:{hub.data_dir / FILE_NAME}?mode=ro", uri=True)
    try:
        return int(db.execute("select last from task_now where id = ?", (task,)).fetchone()[0])
    finally:
        db.close()


@pytest.fixture(scope="module")
def short_patience(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadSetup]:
    with set_up(tmp_path_factory.mktemp("hasty"), reader_patience=PATIENCE) as load_setup:
        yield load_setup


def test_a_reader_that_stops_is_dropped_and_resumes_with_exactly_the_rest(short_patience: LoadSetup) -> None:
    hub = short_patience.hub
    with ExitStack() as closing:
        readers = [closing.enter_context(StreamReader(hub.port, open_stream("page_writer", "300 0.01"))) for _ in range(5)]
        for reader in readers:
            reader.read_until(lambda it: len(it.numbers) >= 5)
        stopped_at = time.monotonic()
        assert metric(hub, "streams_active") == len(readers)
        wait_for(lambda: metric(hub, "streams_active") == 0, 5 * PATIENCE)
        assert time.monotonic() - stopped_at >= 0.9 * PATIENCE
        for reader in readers:
            reader.read_until(lambda it: it.broken)
            assert not reader.ended
            check_rest(hub, reader, 300)


def test_a_dropped_reader_keeps_no_connection_and_does_not_delay_a_stop(short_patience: LoadSetup) -> None:
    hub = short_patience.hub
    with StreamReader(hub.port, open_stream("page_writer", "300")) as reader:
        reader.read_until(lambda it: len(it.numbers) >= 5)
        wait_for(lambda: not is_connected(hub, reader), 2 * PATIENCE)
        began = time.monotonic()
        assert hub.stop(10) == 0
        assert time.monotonic() - began < 5
        assert "Traceback" not in hub.output


def is_connected(hub: HubProcess, reader: StreamReader) -> bool:
    """Whether the hub still holds its end of the reader's connection."""
    ports = f":{hub.port:04X}", f":{reader.socket.getsockname()[1]:04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(line[1].endswith(ports[0]) and line[2].endswith(ports[1]) for line in lines)
