"""A long log is folded in a thread of its own, page by page: the loop serves other calls meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

import pytest

from hub.core.relay.context import Dependencies
from hub.core.shares.table import ShareLimits, Shares
from hub.core.tasks.reader import TaskReader, TaskView
from rolecall.errors import AnswerNotSent, ClientDisconnected
from rolecall.model.a2a import Event, EventKind, Logged, TaskState
from rolecall.model.ids import START, Caller, Cursor, TaskId
from rolecall.model.task import TaskRow
from rolecall.model.value import replace
from tests.contract.words import a_row

CALLER, OTHER, THIRD = Caller("default", "anna"), Caller("default", "bert"), Caller("default", "carla")


class Fold:
    """Counts what is added, in the thread in which it is."""

    def __init__(self, parts: Parts) -> None:
        self.at = START
        self._parts = parts

    def add(self, page: Sequence[Logged]) -> None:
        self._parts.threads.add(threading.current_thread().name)
        self._parts.page_sizes.append(len(page))
        self.at = page[-1].cursor if page else self.at

    def snapshot(self, **_: Any) -> bytes:
        self._parts.threads.add(threading.current_thread().name)
        return b"%d" % self.at


class Parts:
    """The parts that a TaskReader needs: one log for every task, and folds that record their threads."""

    def __init__(self, log: Sequence[Logged]) -> None:
        self.shares = Shares()
        self.engine = self.tasks = self.codec = self.events = self
        self.log = log
        self.threads: set[str] = set()
        self.page_sizes: list[int] = []
        self.reading: list[TaskId] = []
        self.hold: asyncio.Event | None = None

    async def turns(self, task: TaskId) -> list[Any]:
        return []

    async def read(self, task: TaskId, *, after: int = 0, upto: int | None = None) -> Sequence[Logged]:
        self.reading.append(task)
        if self.hold is not None:
            await self.hold.wait()
        return self.log[after:upto]

    def fold(self, turns: list[Any], *, dialect: str) -> Fold:
        return Fold(self)

    def snapshot(self, *_: Any, **__: Any) -> bytes:
        self.threads.add(threading.current_thread().name)
        return b"{}"

    @property
    def reader(self) -> TaskReader:
        return TaskReader(cast(Dependencies, self))


def a_log(events: int, size: int) -> list[Logged]:
    event = Event(EventKind.TASK, TaskState.WORKING, "0.3", b"x" * size)
    return [Logged(Cursor(at), event) for at in range(1, events + 1)]


def row_of(parts: Parts, task: str = "t") -> TaskRow:
    return replace(a_row(size=sum(len(logged.event.body) for logged in parts.log)), id=TaskId(task), at=parts.log[-1].cursor)


LENGTHS = [(1, 10, False), (200, 1_024, False), (201, 1, True), (3, 100_000, True), (1, 204_800, False), (1, 204_801, True)]


@pytest.mark.parametrize(("events", "size", "beside"), LENGTHS)
async def test_a_long_log_is_folded_in_a_thread(events: int, size: int, beside: bool) -> None:
    parts = Parts(a_log(events, size))
    await parts.reader.of(CALLER, TaskId("t"), parts.log, TaskView("0.3"))
    await parts.reader.now(CALLER, row_of(parts), TaskView("0.3"))
    assert {name.startswith("folding") for name in parts.threads} == {beside}


async def test_a_long_log_is_read_and_folded_page_by_page_to_its_end() -> None:
    parts = Parts(a_log(1_100, 1))
    answer = await parts.reader.now(CALLER, row_of(parts), TaskView("0.3"))
    assert answer.body == b"1100"
    assert sum(parts.page_sizes) == 1_100
    assert max(parts.page_sizes) <= 250


async def test_a_caller_has_one_long_log_folded_at_a_time_and_others_do_not_wait() -> None:
    parts = Parts(a_log(1_000, 1))
    parts.hold = asyncio.Event()
    reader = parts.reader
    mine = [asyncio.create_task(reader.now(CALLER, row_of(parts, f"t{n}"), TaskView("0.3"))) for n in range(3)]
    other = asyncio.create_task(reader.now(OTHER, row_of(parts, "other"), TaskView("0.3")))
    await asyncio.sleep(0.05)
    assert sorted(parts.reading) == ["other", "t0"]
    parts.hold.set()
    assert {answer.body for answer in await asyncio.gather(*mine, other)} == {b"1000"}


async def test_a_fold_ends_when_its_caller_has_disconnected() -> None:
    parts = Parts(a_log(10_000, 1))
    callbacks: list[Callable[[], None]] = []
    parts.hold = asyncio.Event()
    folding = asyncio.create_task(parts.reader.now(CALLER, row_of(parts), TaskView("0.3"), callbacks.append))
    await asyncio.sleep(0.01)
    callbacks[0]()
    parts.hold.set()
    with pytest.raises(ClientDisconnected):
        await folding
    assert len(parts.page_sizes) == 1


async def test_the_memory_for_a_large_task_is_held_while_it_is_read_and_refused_above_the_cap() -> None:
    parts = Parts(a_log(300, 1_000))
    parts.shares = Shares(ShareLimits(unsent=1_000_000, unsent_per_workspace=1_000_000))
    parts.hold, reader, row, view = asyncio.Event(), parts.reader, row_of(parts), TaskView("0.3")
    readers: list[Coroutine[Any, Any, Any]] = [
        reader.now(CALLER, row, view),
        reader.documents(OTHER, [row, row], view),
    ]
    reading = [asyncio.create_task(one) for one in readers]
    await asyncio.sleep(0.01)
    assert parts.shares.unsent.use.used == 900_000
    for refused in (reader.of(CALLER, TaskId("t"), parts.log, view), reader.now(THIRD, row, view)):
        with pytest.raises(AnswerNotSent, match="300000 bytes"):
            await refused
    parts.hold.set()
    await asyncio.gather(*reading)
    assert parts.shares.unsent.use.used == 0
