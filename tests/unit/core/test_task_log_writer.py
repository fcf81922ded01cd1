"""The log writer without a relay, on the memory engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from hub.core.observe import NullObserver
from hub.core.relay.log_writer import TaskLogWriter
from hub.core.supervisor import Supervisor
from hub.ports.state.engine import Engine
from hub.storage import open_engine
from rolecall.errors import HubError, LogMoved, WorkerLost
from rolecall.model.a2a import EventKind, TaskState, WorkerEvent
from rolecall.model.ids import START
from rolecall.model.task import TaskRow
from rolecall.protocol.codec import Codec
from rolecall.protocol.text.jsontext import parse
from tests.contract.words import a_row, a_turn
from tests.helpers.clock import ManualClock
from tests.helpers.scripted import chunk, status, task

PARAMS = b'{"message":{"messageId":"m-1","role":"user","kind":"message","parts":[{"kind":"text","text":"hi"}]}}'


class Setup:
    """A stored task and its only writer."""

    def __init__(self, engine: Engine, row: TaskRow, supervisor: Supervisor) -> None:
        self.engine = engine
        self.row = row
        self.drops: list[str] = []
        setup = self

        class Drops(NullObserver):
            def dropped(self, role: str, what: str, count: int) -> None:
                setup.drops.append(what)

        self._turns = (a_turn(params=PARAMS),)
        self._make: Callable[[TaskRow], TaskLogWriter] = lambda row: TaskLogWriter(
            engine.events, Codec(lambda: 0.0), Drops(), supervisor, row, self._turns
        )
        self.writer = self._make(row)

    def another_writer(self) -> TaskLogWriter:
        return self._make(self.row)

    async def write(self, *worker_event: WorkerEvent, **options: Any) -> HubError | None:
        return await outcome(lambda done: self.writer.write(worker_event, done, **options))

    async def kinds(self) -> list[tuple[str, str]]:
        logged = await self.engine.events.read(self.row.id)
        return [(str(one.event.kind), str(one.event.state or "")) for one in logged]


async def outcome(write: Callable[[Callable[[HubError | None], None]], None]) -> HubError | None:
    done: asyncio.Future[HubError | None] = asyncio.get_running_loop().create_future()
    write(done.set_result)
    return await asyncio.wait_for(done, 5)


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    supervisor = Supervisor()
    async with open_engine("memory:", clock=ManualClock()) as engine:
        row = a_row()
        await engine.tasks.admit(row, a_turn(params=PARAMS))
        yield Setup(engine, row, supervisor)
        await supervisor.close()


async def test_a_batch_is_one_append_and_moves_the_end(setup: Setup) -> None:
    assert (
        await setup.write(task(position="b.1"), chunk("x", append=False, position="b.2"), status("completed", position="b.3"))
        is None
    )
    assert await setup.kinds() == [("task", "working"), ("artifact-update", ""), ("status-update", "completed")]
    assert (setup.writer.at, setup.writer.position, setup.writer.ended) == (3, "b.3", True)


async def test_what_follows_the_end_or_belongs_to_another_task_is_dropped(setup: Setup) -> None:
    await setup.write(task(), chunk("theirs", task_id="other"), status("completed"), chunk("late"))
    assert await setup.kinds() == [("task", "working"), ("status-update", "completed")]
    assert setup.drops == ["foreign task", "after the end"]


async def test_a_write_without_news_is_done_at_once(setup: Setup) -> None:
    await setup.write(task())
    outcomes: list[HubError | None] = []
    setup.writer.write((), outcomes.append)
    assert outcomes == [None]


@pytest.mark.parametrize("before", [(), (chunk("x", append=False),)], ids=["alone", "behind an event"])
async def test_a_repeated_task_adds_what_the_log_lacks(setup: Setup, before: Sequence[WorkerEvent]) -> None:
    await setup.write(task())
    artifact = {"artifactId": "a", "parts": [{"kind": "text", "text": "x"}]}
    assert await setup.write(*before, task("completed", artifacts=[artifact]), gap=True) is None
    assert await setup.kinds() == [("task", "working"), ("artifact-update", ""), ("status-update", "completed")]


async def test_the_opening_is_shown_once(setup: Setup) -> None:
    assert await outcome(setup.writer.reveal) is None
    assert await outcome(setup.writer.reveal) is None
    await setup.write(task())
    assert await setup.kinds() == [("task", "submitted"), ("status-update", "working")]


@pytest.mark.parametrize("begun", [False, True])
async def test_a_verdict_ends_the_task_once(setup: Setup, begun: bool) -> None:
    if begun:
        await setup.write(task())
    for _ in range(2):
        assert await outcome(lambda done: setup.writer.conclude(WorkerLost("gone"), done)) is None
    assert [state for _, state in await setup.kinds()] == ["working" if begun else "submitted", "failed"]
    assert setup.writer.ended


async def test_a_task_that_goes_on_after_a_pause_says_so(setup: Setup) -> None:
    await setup.write(task(), status("input-required"))
    assert setup.writer.rests
    await setup.write(chunk("x", append=False))
    assert await setup.kinds() == [
        ("task", "working"),
        ("status-update", "input-required"),
        ("status-update", "working"),
        ("artifact-update", ""),
    ]
    assert not setup.writer.rests


async def test_the_second_of_two_writers_gets_the_fence(setup: Setup) -> None:
    other = setup.another_writer()
    await setup.write(task())
    assert isinstance(await outcome(lambda done: other.write((task(),), done)), LogMoved)
    assert other.at == START
    assert len(await setup.kinds()) == 1


async def test_another_dialect_is_used_for_what_is_written_then(setup: Setup) -> None:
    setup.writer.use_dialect("1.0")
    await outcome(lambda done: setup.writer.conclude(WorkerLost("gone"), done, TaskState.CANCELED))
    logged = await setup.engine.events.read(setup.row.id)
    assert [one.event.dialect for one in logged] == ["1.0", "1.0"]
    assert parse(logged[-1].event.body)["status"]["state"] == "TASK_STATE_CANCELED"
    assert logged[0].event.kind is EventKind.TASK
