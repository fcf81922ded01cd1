"""The same hub under `rolecall serve`, under Hypercorn and under uvicorn keeps the main promises."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.acceptance.loadclients import StreamReader, metric, open_stream
from tests.acceptance.test_push import Receiver, a_receiver, check_complete, set_push_1_0
from tests.helpers.client import Reader, get_task, send, texts
from tests.helpers.processes import SERVERS, start_hub, start_worker, wait_for

SETTINGS = {
    "lease_ttl": 4,
    "heartbeat": 0.5,
    "worker_silence": 3,
    "reader_patience": 1,
    "drain": 2,
    "push_allowed_hosts": "127.0.0.1",
}
PATIENCE = 1.0


class HubStack:
    """A hub, and workers that run longer than it."""

    def __init__(self, folder: Path, server: str) -> None:
        self._folder = folder
        self.server = server
        self.enough = folder / "enough"
        """The counter counts until this file exists, so that the hub stops before its streams end, also on a slow machine."""
        self.hub = start_hub(folder, server=server, **SETTINGS)
        sources = (
            ("syncs.workers:counter", "counter"),
            ("loadworkers:page_writer", "page_writer"),
            ("workers:instant", "echo"),
        )
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
        self.hub = start_hub(self._folder, server=self.server, port=self.hub.port, **SETTINGS)

    def close(self) -> None:
        for process in (*self._workers, self.hub):
            process.end()


@pytest.fixture(scope="module", params=SERVERS)
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubStack]:
    stack = HubStack(tmp_path_factory.mktemp("hub"), request.param)
    yield stack
    stack.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with a_receiver() as receiver:
        yield receiver


def test_a_call_is_answered(stack: HubStack) -> None:
    task = send(stack.hub.url, "echo", "hello")
    assert texts(task) == ["hello"]
    assert get_task(stack.hub.url, task["id"]) == task


def test_a_reader_that_stops_is_dropped(stack: HubStack) -> None:
    with StreamReader(stack.hub.port, open_stream("page_writer", "400 0.005")) as reader:
        reader.read_until(lambda it: len(it.numbers) >= 5)
        stopped_at = time.monotonic()
        assert metric(stack.hub, "streams_active") == 1
        wait_for(lambda: metric(stack.hub, "streams_active") == 0, 8 * PATIENCE)
        assert time.monotonic() - stopped_at >= 0.9 * PATIENCE
        reader.read_until(lambda it: it.broken)
        assert not reader.ended


def test_a_webhook_gets_every_event_over_a_kill_of_the_hub(stack: HubStack, receiver: Receiver) -> None:
    ((reader, thread),) = _started_streams(stack, 1)
    set_push_1_0(stack.hub, reader.task, "mine", receiver.url)
    wait_for(lambda: len(receiver.of(reader.task, "mine")) > 3)
    stack.hub.kill9()
    _come_back(stack, [(reader, thread)])
    wait_for(lambda: receiver.of(reader.task, "mine")[-1].cursor == reader.cursor, 30)
    check_complete(receiver.of(reader.task, "mine"), reader.cursor, repeats=2)


def test_streams_survive_a_kill_of_the_hub_exactly(stack: HubStack) -> None:
    readers = _started_streams(stack, 5)
    stack.hub.kill9()
    _come_back(stack, readers)


def test_twenty_streams_resume_after_a_stop_of_the_hub_and_miss_nothing(stack: HubStack) -> None:
    """The hub's own server drains; others cut streams after their time-out."""
    readers = _started_streams(stack, 20)
    began = time.monotonic()
    if stack.server == "hypercorn" and sys.version_info >= (3, 12):
        # It waits for open connections before its time-out begins (docs/howto/asgi-servers.md), until it is killed.
        stack.hub.signal(signal.SIGTERM)
        time.sleep(1)
        stack.hub.kill9()
    else:
        code = stack.hub.stop(15)
        assert time.monotonic() - began < 10
        if stack.server == "rolecall":
            assert code == 0
    assert "in_use" not in stack.hub.output
    _come_back(stack, readers)


def _started_streams(stack: HubStack, many: int) -> list[tuple[Reader, threading.Thread]]:
    """Running streams, and their threads."""
    stack.enough.unlink(missing_ok=True)
    readers = [Reader(stack.hub.url, "counter", "count") for _ in range(many)]
    threads = [reader.start() for reader in readers]
    wait_for(lambda: all(len(reader.chunks) > 5 for reader in readers), 30)
    return list(zip(readers, threads, strict=True))


def _come_back(stack: HubStack, streams: list[tuple[Reader, threading.Thread]]) -> None:
    """Each stream was cut. In the next hub it continues, and nothing is missing or doubled."""
    readers = [reader for reader, _ in streams]
    _join([thread for _, thread in streams])
    assert [(reader.done, reader.errors) for reader in readers] == [(False, [])] * len(readers)
    stack.open_again()
    threads = [reader.start_again() for reader in readers]
    stack.enough.touch()
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
