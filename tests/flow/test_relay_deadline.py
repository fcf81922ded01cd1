"""The bounds of one task: the time that it may take, and the bytes that it may leave."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from rolecall.errors import StoreUnavailable, WorkerBroke, WorkerFault
from tests.flow.conftest import House, frames
from tests.flow.relayed import asked, end, reaches, words
from tests.helpers.scripted import Step, chunk, status, task
from tests.helpers.watched_engine import Hold

LATE = ("failed", "DEADLINE_EXCEEDED")
SLOW: dict[str, Any] = {"silence": timedelta(seconds=600)}


def bound(house: House, seconds: float = 10) -> None:
    house.with_bounds(deadline=timedelta(seconds=seconds), **SLOW)
    house.watch()


async def test_a_task_is_given_up_at_its_deadline_and_its_worker_told(house: House) -> None:
    bound(house)
    lease = await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), *[5.0, []] * 100)
    house.forwarder.plan_fetch("echo:a", task("canceled"))
    answer = await house.send()
    assert end(answer) == LATE
    assert words(answer) == "The task was not done within 10 s (ROLECALL_TASK_DEADLINE on the hub)."
    await asyncio.sleep(0.1)
    assert house.forwarder.times("cancel") == [pytest.approx(10.0, abs=0.1)]
    assert house.forwarder.left == ["echo:a"]
    assert lease.in_flight == 0
    assert house.observer.failures == ["DeadlinePassed"]


async def test_a_task_that_its_worker_has_not_named_cannot_be_called_off(house: House) -> None:
    bound(house)
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", *[5.0, []] * 100)
    assert end(await house.send()) == LATE
    assert house.forwarder.asked("cancel") == []


@pytest.mark.parametrize("error", [WorkerBroke("echo:a", "cut"), WorkerFault(-32002, "too late")])
async def test_a_worker_that_cannot_be_called_off_is_left(
    house: House, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    bound(house)
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), *[5.0, []] * 100)
    house.forwarder.plan_fetch("echo:a", error)
    assert end(await house.send()) == LATE
    await asyncio.sleep(0.1)
    assert len(house.hub.relays) == 0
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_task_has_no_deadline_unless_one_is_set(house: House) -> None:
    house.with_bounds(**SLOW)
    house.watch()
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), *[500.0, []] * 3, status("completed"))
    assert end(await house.send()) == ("completed", "")


async def test_a_paused_task_has_no_deadline(house: House) -> None:
    bound(house)
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), status("auth-required", "log in"), 3600.0)
    answer = await house.send()
    await asyncio.sleep(100)
    assert end(await house.get(answer["id"])) == ("auth-required", "")


async def test_the_deadline_of_an_answered_task_counts_from_the_answer(house: House) -> None:
    bound(house)
    task_id = await asked(house)
    await asyncio.sleep(100)
    house.forwarder.plan("echo:a", 9.0, status("completed"))
    assert end(await house.send("blue", taskId=task_id)) == ("completed", "")


async def test_a_task_may_take_just_its_time(house: House) -> None:
    bound(house)
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), 9.9, status("completed"))
    assert end(await house.send()) == ("completed", "")


# --- during an append


async def test_a_deadline_that_passes_during_an_append_holds_behind_it(house: House) -> None:
    bound(house)
    await house.enrol("echo:a")
    opening, writing = house.engine.hold("events.append"), house.engine.hold("events.append")
    opening.release()
    house.forwarder.plan("echo:a", task(), chunk("x", append=False), status("completed"))
    sending = asyncio.create_task(house.send())
    await writing.reached.wait()
    await asyncio.sleep(12)
    writing.release()
    answer = await sending
    assert end(answer) == LATE
    assert [frame["kind"] for frame in await frames(await house.subscribe(answer["id"], after=0))] == [
        "task",
        "artifact-update",
        "status-update",
    ]


async def test_an_end_that_is_written_as_the_deadline_passes_stands(house: House) -> None:
    bound(house)
    await house.enrol("echo:a")
    opening, writing = house.engine.hold("events.append"), house.engine.hold("events.append")
    opening.release()
    house.forwarder.plan("echo:a", task(), status("completed"))
    sending = asyncio.create_task(house.send())
    await writing.reached.wait()
    await asyncio.sleep(12)
    writing.release()
    assert end(await sending) == ("completed", "")
    assert house.forwarder.asked("cancel") == []


async def test_a_deadline_that_passes_while_a_task_is_polled_holds(house: House) -> None:
    bound(house)
    await house.enrol("echo:a", streaming=False)
    opening, writing = house.engine.hold("events.append"), house.engine.hold("events.append")
    opening.release()
    house.forwarder.plan("echo:a", task())
    house.forwarder.plan_fetch("echo:a", task("working", "x"), task("completed"))
    sending = asyncio.create_task(house.send())
    await writing.reached.wait()
    await asyncio.sleep(12)
    writing.release()
    assert end(await sending) == LATE
    assert len(house.forwarder.asked("fetch")) == 1


async def test_a_task_is_given_up_once(house: House) -> None:
    """The deadline passes again and again while the store takes nothing."""
    bound(house)
    await house.enrol("echo:a")
    opening, writing = house.engine.hold("events.append"), house.engine.hold("events.append")
    opening.release()
    house.forwarder.plan("echo:a", task(), *[5.0, []] * 100)
    house.forwarder.plan_fetch("echo:a", *[task("canceled")] * 9)
    sending = asyncio.create_task(house.send())
    await writing.reached.wait()
    await asyncio.sleep(30)
    writing.release()
    assert end(await sending) == LATE
    await asyncio.sleep(5)
    assert house.forwarder.asked("cancel") == ["echo:a"]
    assert house.observer.failures == ["DeadlinePassed"]


async def test_a_task_that_is_being_given_up_is_not_interrupted(house: House) -> None:
    """The deadline has passed at every further look, while the store takes no writes."""
    bound(house)
    await house.enrol("echo:a")
    opening = house.engine.hold_after("events.append")
    house.forwarder.plan("echo:a", task(), *[5.0, []] * 100)
    sending = asyncio.create_task(house.send())
    await opening.reached.wait()
    house.engine.fail("events.append", StoreUnavailable(), times=20)
    opening.release()
    assert end(await asyncio.wait_for(sending, 20)) == LATE


# --- after a restart


@pytest.mark.parametrize(("takes", "outcome"), [(3.5, ("completed", "")), (6.0, LATE)])
async def test_a_restart_does_not_move_the_deadline(stored_house: House, takes: float, outcome: tuple[str, str]) -> None:
    """It counts from the call, whatever the worker has said since."""
    house = stored_house
    house.with_bounds(**SLOW)
    await house.enrol("echo:a", replays=True)
    await reaches(house, 5.0, task(position="b.1"))
    row = await house.row()
    await asyncio.sleep(1)
    house.forwarder.plan("echo:a", takes, status("completed", position="b.2"))
    house.forwarder.plan_fetch("echo:a", task("canceled"))
    await house.restart(deadline=timedelta(seconds=10), **SLOW)
    house.watch()
    await asyncio.sleep(7)
    assert end(await house.get(row.id)) == outcome
    assert house.forwarder.asked("cancel") == (["echo:a"] if outcome == LATE else [])


@pytest.mark.parametrize(("takes", "outcome"), [(3.5, ("completed", "")), (6.0, LATE)])
async def test_the_deadline_of_an_answer_counts_from_it_after_a_restart_too(
    stored_house: House, takes: float, outcome: tuple[str, str]
) -> None:
    house = stored_house
    house.with_bounds(**SLOW)
    task_id = await asked(house, replays=True)
    await asyncio.sleep(100)
    await reaches(house, taskId=task_id)
    await asyncio.sleep(6)
    house.forwarder.plan("echo:a", takes, status("completed", position="b.3"))
    await house.restart(deadline=timedelta(seconds=10), **SLOW)
    house.watch()
    await asyncio.sleep(7)
    assert end(await house.get(task_id)) == outcome


async def test_a_machine_whose_time_was_set_back_gives_nobody_more_time(stored_house: House) -> None:
    house = stored_house
    house.with_bounds(**SLOW)
    await house.enrol("echo:a", replays=True)
    await reaches(house, task(position="b.1"))
    row = await house.row()
    house.clock.step_wall(-3600)
    house.forwarder.plan("echo:a", 15.0, status("completed", position="b.2"))
    await house.restart(deadline=timedelta(seconds=10), **SLOW)
    house.watch()
    await asyncio.sleep(20)
    assert end(await house.get(row.id)) == LATE


# --- bytes


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_task_whose_log_is_full_is_given_up_and_its_worker_told(house: House, streaming: bool) -> None:
    house.with_bounds(most_logged=2000)
    await house.enrol("echo:a", streaming=streaming)
    hold = Hold()
    house.forwarder.plan("echo:a", task(), *([chunk("x" * 1000)] * 2 + [chunk("late"), hold] if streaming else []))
    parts = [{"kind": "text", "text": "x" * 3000}]
    called_off: list[Step] = [task("canceled")]
    found: list[Step] = [] if streaming else [task("working", artifacts=[{"artifactId": "a", "parts": parts}])]
    house.forwarder.plan_fetch("echo:a", *found, *called_off)  # type: ignore[arg-type]
    answer = await house.send()
    assert end(answer) == ("failed", "OVERLOADED")
    assert words(answer).startswith("The worker sent more than 2000 bytes, the limit of a task's log")
    assert "late" not in str(answer["artifacts"])
    await asyncio.sleep(0.1)
    assert house.forwarder.asked("cancel") == ["echo:a"]


async def test_a_task_that_ends_beyond_its_bytes_has_ended(house: House) -> None:
    house.with_bounds(most_logged=2000)
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), [chunk("x" * 3000), status("completed")])
    assert end(await house.send()) == ("completed", "")
    assert house.forwarder.asked("cancel") == []


async def test_a_log_may_be_filled_to_its_last_byte(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), chunk("x", append=False), 0.1, status("completed"))
    task_stream = asyncio.create_task(house.send())
    await asyncio.sleep(0.05)
    size = (await house.row()).size
    await task_stream
    for most, outcome in ((size, "completed"), (size - 1, "failed")):
        house.with_bounds(most_logged=most)
        house.forwarder.plan("echo:a", task(), chunk("x", append=False), 0.1, status("completed"))
        assert end(await house.send())[0] == outcome
