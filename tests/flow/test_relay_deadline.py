"""The limits of one task: its time, and the bytes of its log."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from rolecall.errors import StoreUnavailable, WorkerBroke, WorkerFault
from tests.flow.conftest import System, frames
from tests.flow.relayed import asked, end, reaches, words
from tests.helpers.scripted import Step, chunk, status, task
from tests.helpers.watched_engine import Hold

LATE = ("failed", "DEADLINE_EXCEEDED")
SLOW: dict[str, Any] = {"silence": timedelta(seconds=600)}


def bound(system: System, seconds: float = 10) -> None:
    system.with_bounds(deadline=timedelta(seconds=seconds), **SLOW)
    system.watch()


async def test_a_task_is_given_up_at_its_deadline_and_cancelled_at_its_worker(system: System) -> None:
    bound(system)
    lease = await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), *[5.0, []] * 100)
    system.forwarder.plan_fetch("echo:a", task("canceled"))
    answer = await system.send()
    assert end(answer) == LATE
    assert words(answer) == "The task was not done within 10 s (ROLECALL_TASK_DEADLINE on the hub)."
    await asyncio.sleep(0.1)
    assert system.forwarder.times("cancel") == [pytest.approx(10.0, abs=0.1)]
    assert system.forwarder.left == ["echo:a"]
    assert lease.in_flight == 0
    assert system.observer.failures == ["DeadlinePassed"]


async def test_a_task_without_a_workers_id_is_not_cancelled_at_its_worker(system: System) -> None:
    bound(system)
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", *[5.0, []] * 100)
    assert end(await system.send()) == LATE
    assert system.forwarder.asked("cancel") == []


@pytest.mark.parametrize("error", [WorkerBroke("echo:a", "cut"), WorkerFault(-32002, "too late")])
async def test_a_failed_cancel_after_the_deadline_is_ignored(
    system: System, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    bound(system)
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), *[5.0, []] * 100)
    system.forwarder.plan_fetch("echo:a", error)
    assert end(await system.send()) == LATE
    await asyncio.sleep(0.1)
    assert len(system.hub.relays) == 0
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_task_has_no_deadline_unless_one_is_set(system: System) -> None:
    system.with_bounds(**SLOW)
    system.watch()
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), *[500.0, []] * 3, status("completed"))
    assert end(await system.send()) == ("completed", "")


async def test_a_paused_task_has_no_deadline(system: System) -> None:
    bound(system)
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), status("auth-required", "log in"), 3600.0)
    answer = await system.send()
    await asyncio.sleep(100)
    assert end(await system.get(answer["id"])) == ("auth-required", "")


async def test_the_deadline_of_an_answered_task_counts_from_the_answer(system: System) -> None:
    bound(system)
    task_id = await asked(system)
    await asyncio.sleep(100)
    system.forwarder.plan("echo:a", 9.0, status("completed"))
    assert end(await system.send("blue", taskId=task_id)) == ("completed", "")


async def test_a_task_may_take_exactly_its_deadline(system: System) -> None:
    bound(system)
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), 9.9, status("completed"))
    assert end(await system.send()) == ("completed", "")


# --- during an append


async def test_a_deadline_that_passes_during_an_append_applies_after_it(system: System) -> None:
    bound(system)
    await system.enrol("echo:a")
    opening, writing = system.engine.hold("events.append"), system.engine.hold("events.append")
    opening.release()
    system.forwarder.plan("echo:a", task(), chunk("x", append=False), 11.0, status("completed"))
    pending = asyncio.create_task(system.send())
    await writing.reached.wait()
    await asyncio.sleep(12)
    writing.release()
    answer = await pending
    assert end(answer) == LATE
    assert [frame["kind"] for frame in await frames(await system.subscribe(answer["id"], after=0))] == [
        "task",
        "artifact-update",
        "status-update",
    ]


async def test_an_end_that_is_appended_as_the_deadline_passes_is_kept(system: System) -> None:
    bound(system)
    await system.enrol("echo:a")
    opening, writing = system.engine.hold("events.append"), system.engine.hold("events.append")
    opening.release()
    system.forwarder.plan("echo:a", task(), status("completed"))
    pending = asyncio.create_task(system.send())
    await writing.reached.wait()
    await asyncio.sleep(12)
    writing.release()
    assert end(await pending) == ("completed", "")
    assert system.forwarder.asked("cancel") == []


async def test_a_deadline_that_passes_while_a_task_is_polled_applies(system: System) -> None:
    bound(system)
    await system.enrol("echo:a", streaming=False)
    opening, writing = system.engine.hold("events.append"), system.engine.hold("events.append")
    opening.release()
    system.forwarder.plan("echo:a", task())
    system.forwarder.plan_fetch("echo:a", task("working", "x"), task("completed"))
    pending = asyncio.create_task(system.send())
    await writing.reached.wait()
    await asyncio.sleep(12)
    writing.release()
    assert end(await pending) == LATE
    assert len(system.forwarder.asked("fetch")) == 1


async def test_a_task_is_given_up_once(system: System) -> None:
    """The deadline passes at every look while the store takes no writes."""
    bound(system)
    await system.enrol("echo:a")
    opening, writing = system.engine.hold("events.append"), system.engine.hold("events.append")
    opening.release()
    system.forwarder.plan("echo:a", task(), *[5.0, []] * 100)
    system.forwarder.plan_fetch("echo:a", *[task("canceled")] * 9)
    pending = asyncio.create_task(system.send())
    await writing.reached.wait()
    await asyncio.sleep(30)
    writing.release()
    assert end(await pending) == LATE
    await asyncio.sleep(5)
    assert system.forwarder.asked("cancel") == ["echo:a"]
    assert system.observer.failures == ["DeadlinePassed"]


async def test_a_task_that_is_being_given_up_is_not_interrupted(system: System) -> None:
    """The deadline passes at every look while the store takes no writes."""
    bound(system)
    await system.enrol("echo:a")
    opening = system.engine.hold_after("events.append")
    system.forwarder.plan("echo:a", task(), *[5.0, []] * 100)
    pending = asyncio.create_task(system.send())
    await opening.reached.wait()
    system.engine.fail("events.append", StoreUnavailable(), times=20)
    opening.release()
    assert end(await asyncio.wait_for(pending, 20)) == LATE


# --- after a restart


@pytest.mark.parametrize(("takes", "outcome"), [(3.5, ("completed", "")), (6.0, LATE)])
async def test_a_restart_does_not_move_the_deadline(stored_system: System, takes: float, outcome: tuple[str, str]) -> None:
    """It counts from the call, not from later events."""
    system = stored_system
    system.with_bounds(**SLOW)
    await system.enrol("echo:a", replays=True)
    await reaches(system, 5.0, task(position="b.1"))
    row = await system.row()
    await asyncio.sleep(1)
    system.forwarder.plan("echo:a", takes, status("completed", position="b.2"))
    system.forwarder.plan_fetch("echo:a", task("canceled"))
    await system.restart(deadline=timedelta(seconds=10), **SLOW)
    system.watch()
    await asyncio.sleep(7)
    assert end(await system.get(row.id)) == outcome
    assert system.forwarder.asked("cancel") == (["echo:a"] if outcome == LATE else [])


@pytest.mark.parametrize(("takes", "outcome"), [(3.5, ("completed", "")), (6.0, LATE)])
async def test_the_deadline_of_an_answer_counts_from_it_after_a_restart_too(
    stored_system: System, takes: float, outcome: tuple[str, str]
) -> None:
    system = stored_system
    system.with_bounds(**SLOW)
    task_id = await asked(system, replays=True)
    await asyncio.sleep(100)
    await reaches(system, taskId=task_id)
    await asyncio.sleep(6)
    system.forwarder.plan("echo:a", takes, status("completed", position="b.3"))
    await system.restart(deadline=timedelta(seconds=10), **SLOW)
    system.watch()
    await asyncio.sleep(7)
    assert end(await system.get(task_id)) == outcome


async def test_a_wall_clock_set_back_does_not_extend_a_deadline(stored_system: System) -> None:
    system = stored_system
    system.with_bounds(**SLOW)
    await system.enrol("echo:a", replays=True)
    await reaches(system, task(position="b.1"))
    row = await system.row()
    system.clock.step_wall(-3600)
    system.forwarder.plan("echo:a", 15.0, status("completed", position="b.2"))
    await system.restart(deadline=timedelta(seconds=10), **SLOW)
    system.watch()
    await asyncio.sleep(20)
    assert end(await system.get(row.id)) == LATE


# --- bytes


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_task_whose_log_is_full_is_given_up_and_cancelled_at_its_worker(system: System, streaming: bool) -> None:
    system.with_bounds(max_log=2000)
    await system.enrol("echo:a", streaming=streaming)
    hold = Hold()
    system.forwarder.plan("echo:a", task(), *([chunk("x" * 1000)] * 2 + [chunk("late"), hold] if streaming else []))
    parts = [{"kind": "text", "text": "x" * 3000}]
    called_off: list[Step] = [task("canceled")]
    found: list[Step] = [] if streaming else [task("working", artifacts=[{"artifactId": "a", "parts": parts}])]
    system.forwarder.plan_fetch("echo:a", *found, *called_off)  # type: ignore[arg-type]
    answer = await system.send()
    assert end(answer) == ("failed", "OVERLOADED")
    assert words(answer).startswith("The worker sent more than 2000 bytes, the limit of a task's log")
    assert "late" not in str(answer["artifacts"])
    await asyncio.sleep(0.1)
    assert system.forwarder.asked("cancel") == ["echo:a"]


async def test_a_task_that_ends_above_its_log_limit_has_ended(system: System) -> None:
    system.with_bounds(max_log=2000)
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), [chunk("x" * 3000), status("completed")])
    assert end(await system.send()) == ("completed", "")
    assert system.forwarder.asked("cancel") == []


async def test_a_log_may_be_filled_to_its_last_byte(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), chunk("x", append=False), 0.1, status("completed"))
    task_stream = asyncio.create_task(system.send())
    await asyncio.sleep(0.05)
    size = (await system.row()).size
    await task_stream
    for limit, outcome in ((size, "completed"), (size - 1, "failed")):
        system.with_bounds(max_log=limit)
        system.forwarder.plan("echo:a", task(), chunk("x", append=False), 0.1, status("completed"))
        assert end(await system.send())[0] == outcome


# --- events


@pytest.mark.parametrize(("limit", "outcome"), [(4, "completed"), (3, "failed")])
async def test_a_log_may_hold_as_many_events_as_its_limit_says(system: System, limit: int, outcome: str) -> None:
    system.with_bounds(max_log_events=limit)
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), chunk("x", append=False), chunk("y"), chunk("z"), 0.1, status("completed"))
    answer = await system.send()
    assert end(answer) == (outcome, "" if outcome == "completed" else "OVERLOADED")
    if outcome == "failed":
        assert words(answer).startswith("The worker sent more than 3 events, the limit of a task's log (ROLECALL_MAX_")
        await asyncio.sleep(0.1)
        assert system.forwarder.asked("cancel") == ["echo:a"]
