"""Two things at the same moment: whoever waits hears what became of his call, and the log stays one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hub.errors import WorkerRefused
from hub.model.a2a import Heard
from hub.model.ids import TaskId
from hub.ports import Entry
from tests.flow.callers import Speaker
from tests.flow.conftest import House
from tests.flow.test_answers import asked
from tests.helpers.scripted import chunk, status, task


class SlowLog:
    """The engine's log, where the append of that number takes some time."""

    def __init__(self, house: House, number: int, seconds: float) -> None:
        self._append = house.engine.events.append
        self._left, self._seconds = number, seconds

    async def append(self, task: TaskId, entry: Entry, *, after: Any) -> Any:
        self._left -= 1
        if self._left == 0:
            await asyncio.sleep(self._seconds)
        return await self._append(task, entry, after=after)


def slow_append(house: House, monkeypatch: pytest.MonkeyPatch, number: int, seconds: float) -> None:
    monkeypatch.setattr(house.engine.events, "append", SlowLog(house, number, seconds).append)


class Hanger:
    """A worker whose streams end properly, at once, and without a word."""

    def __init__(self, house: House) -> None:
        self.attached = 0
        house.forwarder.attach = self.attach  # type: ignore[method-assign]

    def attach(self, *_: Any) -> Any:
        self.attached += 1
        return self._stream()

    @asynccontextmanager
    async def _stream(self) -> AsyncIterator[AsyncIterator[Sequence[Heard]]]:
        yield self._nothing()

    async def _nothing(self) -> AsyncIterator[Sequence[Heard]]:
        await asyncio.sleep(0.001)
        for nothing in ():
            yield nothing


async def test_an_answer_whose_task_is_cancelled_before_the_workers_first_word_gets_the_end(house: House) -> None:
    task_id = await asked(house)
    house.forwarder.plan("echo:a", 5.0)
    house.forwarder.plan_fetch("echo:a", task("canceled"))
    answering = asyncio.create_task(house.send("blue", taskId=task_id))
    await asyncio.sleep(0.05)
    assert (await house.cancel(task_id))["status"]["state"] == "canceled"
    assert (await asyncio.wait_for(answering, 4))["status"]["state"] == "canceled"


async def test_an_answer_whose_task_is_found_ended_on_a_dead_line_gets_the_end(house: House) -> None:
    task_id = await asked(house)
    house.forwarder.plan("echo:a", 5.0)
    house.forwarder.plan_fetch("echo:a", task("completed"))
    house.supervisor.keep_running("watch", house.hub.relays.watch)
    answering = asyncio.create_task(house.send("blue", taskId=task_id))
    await asyncio.sleep(0.05)
    house.clock.advance(0.5)
    assert (await asyncio.wait_for(answering, 4))["status"]["state"] == "completed"


async def test_a_refused_answer_under_a_name_may_be_said_again_at_once(house: House) -> None:
    await house.enrol("echo:a")
    caller = Speaker(house, "0.1")
    house.forwarder.plan("echo:a", task(), status("input-required", "which?"))
    await caller.send("hi", name="t1")
    house.forwarder.plan("echo:a", WorkerRefused("echo:a"))
    with pytest.raises(WorkerRefused):
        await caller.send("blue", name="t1")
    house.forwarder.plan("echo:a", status("completed"))
    assert (await caller.send("blue", name="t1")).state == "completed"


async def test_a_worker_whose_streams_end_without_a_word_is_asked_calmly_and_given_up_as_silent(house: House) -> None:
    await house.enrol("echo:a", replays=True)
    worker = Hanger(house)
    house.forwarder.plan("echo:a", task(position="b.1"))
    house.supervisor.keep_running("watch", house.hub.relays.watch)
    sending = asyncio.create_task(house.send("x"))
    for _ in range(10):
        await asyncio.sleep(0.1)
        house.clock.advance(0.15)
    assert (await asyncio.wait_for(sending, 4))["status"]["state"] == "failed"
    assert 1 <= worker.attached < 10


async def test_a_store_that_takes_long_is_no_silence_of_the_worker(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await house.enrol("echo:a")
    slow_append(house, monkeypatch, number=2, seconds=0.8)
    house.supervisor.keep_running("watch", house.hub.relays.watch)
    house.forwarder.plan("echo:a", task(), 0.01, chunk("x", append=False), status("completed"))
    sending = asyncio.create_task(house.send("x"))
    await asyncio.sleep(0.2)
    house.clock.advance(1.0)
    assert (await asyncio.wait_for(sending, 4))["status"]["state"] == "completed"


async def test_an_answer_goes_out_when_the_question_before_it_is_in_the_log(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second question is being written as the answer to the first one comes."""
    await house.enrol("echo:a")
    slow_append(house, monkeypatch, number=3, seconds=0.3)
    house.forwarder.plan("echo:a", task(), status("input-required", "which?"), 0.1, status("input-required", "which one?"), 5.0)
    first = await house.send("x")
    await asyncio.sleep(0.2)
    house.forwarder.plan("echo:a", 0.2, status("completed"))
    answer = await asyncio.wait_for(house.send("blue", taskId=first["id"]), 3)
    assert answer["status"]["state"] == "completed"


async def test_who_is_about_to_be_shown_a_task_that_is_taken_back_hears_why(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.enrol("echo:a")
    slow_append(house, monkeypatch, number=1, seconds=0.1)
    house.forwarder.plan("echo:a", 1.03, WorkerRefused("echo:a"))
    answer = await asyncio.wait_for(house.send("x", blocking=False), 4)
    assert answer["status"]["state"] in ("submitted", "failed")


async def test_a_refused_answer_is_not_sent_by_the_next_hub(house: House) -> None:
    task_id = await asked(house, replays=True)
    house.forwarder.plan("echo:a", WorkerRefused("echo:a"))
    with pytest.raises(WorkerRefused):
        await house.send("blue", taskId=task_id)
    delivered = len(house.forwarder.asked("deliver"))
    house.forwarder.plan("echo:a", status("completed", position="b.3"))
    await house.restarted().settle()
    await asyncio.sleep(0.2)
    assert len(house.forwarder.asked("deliver")) == delivered
    assert [turn["role"] for turn in (await house.get(task_id))["history"]] == ["user"]


async def test_a_cancel_that_waits_while_the_call_moves_goes_to_the_worker_that_has_it(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", 0.2, WorkerRefused("echo:a"))
    sending = asyncio.create_task(house.send("x"))
    await asyncio.sleep(0.05)
    await house.enrol("echo:b")
    house.forwarder.plan("echo:b", task(), 5.0)
    house.forwarder.plan_fetch("echo:b", task("canceled"))
    (task_id,) = house.hub.relays._running
    assert (await house.cancel(task_id))["status"]["state"] == "canceled"
    assert house.forwarder.asked("cancel") == ["echo:b"]
    assert (await asyncio.wait_for(sending, 4))["status"]["state"] == "canceled"
