"""Cancelling a task: at its worker if it can be reached, in the log in any case."""

from __future__ import annotations

import asyncio

import pytest

from rolecall.errors import TaskNotCancelable, TaskNotFound, WorkerBroke, WorkerFault, WorkerRefused
from rolecall.model.command import CancelTask, Target
from rolecall.model.ids import TaskId
from rolecall.model.principal import LOCAL
from tests.flow.conftest import CALLER, System, frames, proof
from tests.flow.relayed import asked, end, gap_cursors, moved, reaches, texts, words
from tests.helpers.scripted import Step, chunk, status, task
from tests.helpers.watched_engine import Hold

UNREACHABLE = "Canceled. echo:a could not be notified."


async def test_a_running_task_is_cancelled_at_its_worker(system: System) -> None:
    lease = await system.enrol("echo:a")
    pending, _ = await reaches(system, task())
    row = await system.row()
    system.forwarder.plan_fetch("echo:a", task("canceled"))
    began = system.clock.monotonic()
    assert end(await system.cancel(row.id)) == ("canceled", "")
    # The stream had half a second to bring the end itself.
    assert system.clock.monotonic() - began == pytest.approx(0.5, abs=0.01)
    assert end(await pending) == ("canceled", "")
    assert system.forwarder.asked("cancel") == ["echo:a"]
    assert system.forwarder.calls[-1][2].worker_task == "wt"
    await asyncio.sleep(0.01)
    assert system.forwarder.left == ["echo:a"]
    assert len(system.hub.relays) == 0
    assert lease.in_flight == 0
    with pytest.raises(TaskNotCancelable):
        await system.cancel(row.id)


async def test_the_end_that_the_stream_brings_is_logged(system: System) -> None:
    await system.enrol("echo:a")
    pending, hold = await reaches(system, task(), then=(chunk("x", append=False), status("canceled", "tidied up")))
    row = await system.row()
    system.forwarder.plan_fetch("echo:a", task("canceled", "stopped"))
    began = system.clock.monotonic()
    cancelling = asyncio.create_task(system.cancel(row.id))
    await asyncio.sleep(0.3)
    hold.release()
    await cancelling
    assert system.clock.monotonic() - began == pytest.approx(0.3, abs=0.05)
    for answer in (await cancelling, await pending):
        assert (end(answer), words(answer)) == (("canceled", ""), "tidied up")
    assert len(await frames(await system.subscribe(row.id, after=0))) == 3


async def test_a_paused_task_whose_stream_is_still_open_is_cancelled(system: System) -> None:
    await system.enrol("echo:a")
    question, _ = await reaches(system, task(), status("input-required", "which?"))
    task_id = (await question)["id"]
    assert len(system.hub.relays) == 1
    system.forwarder.plan_fetch("echo:a", task("canceled"))
    assert end(await system.cancel(task_id)) == ("canceled", "")


@pytest.mark.parametrize("replays", [False, True])
async def test_a_paused_task_whose_stream_ends_during_the_cancel_is_cancelled(system: System, replays: bool) -> None:
    await system.enrol("echo:a", replays=replays)
    asks = status("input-required", "which?", position="b.2")
    question, stream_hold = await reaches(system, task(position="b.1"), asks)
    task_id = (await question)["id"]
    cancel_hold = Hold()
    system.forwarder.plan_fetch("echo:a", cancel_hold, task("canceled"))
    cancelling = asyncio.create_task(system.cancel(task_id))
    await cancel_hold.reached.wait()
    stream_hold.release()
    await asyncio.sleep(0.01)
    assert len(system.hub.relays) == 0
    cancel_hold.release()
    assert end(await cancelling) == ("canceled", "")


async def test_an_end_that_the_worker_reached_before_the_cancel_is_kept(system: System) -> None:
    await system.enrol("echo:a")
    pending, hold = await reaches(system, task(), then=(status("completed"),))
    row = await system.row()
    cancel_hold = Hold()
    system.forwarder.plan_fetch("echo:a", cancel_hold, task("canceled"))
    cancelling = asyncio.create_task(system.cancel(row.id))
    await cancel_hold.reached.wait()
    hold.release()
    assert end(await pending) == ("completed", "")
    began = system.clock.monotonic()
    cancel_hold.release()
    assert end(await cancelling) == ("completed", "")
    assert system.clock.monotonic() - began < 0.01
    assert len(await frames(await system.subscribe(row.id, after=0))) == 2
    assert dict(system.observer.drops) == {}


async def test_an_end_that_is_appended_during_the_cancel_is_kept(system: System) -> None:
    await system.enrol("echo:a")
    pending, hold = await reaches(system, task(), then=(status("completed"),))
    row = await system.row()
    system.forwarder.plan_fetch("echo:a", task("canceled"))
    writing = system.engine.hold("events.append")
    hold.release()
    await writing.reached.wait()
    cancelling = asyncio.create_task(system.cancel(row.id))
    await asyncio.sleep(1)
    writing.release()
    assert end(await cancelling) == ("completed", "")
    assert end(await pending) == ("completed", "")
    assert len(await frames(await system.subscribe(row.id, after=0))) == 2


async def test_a_worker_that_is_still_ending_is_followed(system: System) -> None:
    await system.enrol("echo:a")
    pending, hold = await reaches(system, task(), then=(status("canceled"),))
    row = await system.row()
    system.forwarder.plan_fetch("echo:a", task("working", "stopping"))
    answer = await system.cancel(row.id)
    assert (end(answer), words(answer)) == (("working", ""), "stopping")
    hold.release()
    assert end(await pending) == ("canceled", "")


# --- paused


async def test_a_paused_task_is_cancelled_at_its_worker(system: System) -> None:
    task_id = await asked(system)
    await asyncio.sleep(0.1)
    assert len(system.hub.relays) == 0
    system.forwarder.plan_fetch("echo:a", task("canceled"))
    began = system.clock.monotonic()
    assert end(await system.cancel(task_id)) == ("canceled", "")
    assert system.clock.monotonic() - began < 0.01
    assert system.forwarder.asked("cancel") == ["echo:a"]


async def test_a_replaying_worker_brings_the_end_of_a_paused_task_without_a_gap(system: System) -> None:
    task_id = await asked(system, replays=True)
    await asyncio.sleep(0.1)
    system.forwarder.plan_fetch("echo:a", task("canceled", "stopped"))
    system.forwarder.plan("echo:a", chunk("x", append=False, position="b.3"), status("canceled", "tidied up", position="b.4"))
    cancelled = await system.cancel(task_id)
    assert (end(cancelled), words(cancelled), texts(cancelled)) == (("canceled", ""), "tidied up", ["x"])
    seen = await frames(await system.subscribe(task_id, after=0))
    assert (seen[-1]["cursor"], gap_cursors(seen)) == (len(seen), [])
    assert [attach.position for what, _, attach in system.forwarder.calls if what == "attach"] == ["b.2"]
    assert len(system.hub.relays) == 0


@pytest.mark.parametrize("step", [WorkerBroke("echo:a", "cut"), 3600.0])
async def test_a_replaying_worker_that_brings_no_end_of_a_paused_task_leaves_a_gap(system: System, step: Step) -> None:
    task_id = await asked(system, replays=True)
    await asyncio.sleep(0.1)
    system.forwarder.plan_fetch("echo:a", task("canceled", "stopped"))
    system.forwarder.plan("echo:a", step)
    cancelled = await system.cancel(task_id)
    assert (end(cancelled), words(cancelled)) == (("canceled", ""), "stopped")
    seen = await frames(await system.subscribe(task_id, after=0))
    assert gap_cursors(seen) == [3]
    assert len(system.hub.relays) == 0


@pytest.mark.parametrize("gone", ["withdrawn", "begun anew"])
async def test_a_task_whose_worker_is_gone_can_be_cancelled(system: System, gone: str) -> None:
    """A new process of that name does not have its tasks."""
    task_id = await asked(system)
    await asyncio.sleep(0.1)
    (lease,) = system.engine.registry.live("default", "echo")
    if gone == "withdrawn":
        await system.directory.withdraw(LOCAL, lease.worker, proof(lease))
    else:
        await system.enrol("echo:a", boot="another")
    system.forwarder.plan_fetch("echo:a", task("canceled"))
    cancelled = await system.cancel(task_id)
    assert (end(cancelled), words(cancelled)) == (("canceled", "WORKER_LOST"), UNREACHABLE)
    assert system.forwarder.asked("cancel") == []


async def test_a_running_task_is_not_cancelled_at_another_process_of_its_workers_name(system: System) -> None:
    await system.enrol("echo:a")
    pending, _ = await reaches(system, task())
    await system.enrol("echo:a", boot="another")
    system.forwarder.plan_fetch("echo:a", task("canceled"))
    assert end(await system.cancel((await system.row()).id)) == ("canceled", "WORKER_LOST")
    assert end(await pending) == ("canceled", "WORKER_LOST")
    assert system.forwarder.asked("cancel") == []
    await asyncio.sleep(0.01)
    assert system.forwarder.left == ["echo:a"]


# --- before the first event


async def test_a_task_without_a_workers_id_is_cancelled_after_two_seconds(system: System) -> None:
    await system.enrol("echo:a")
    pending, _ = await reaches(system)
    began = system.clock.monotonic()
    cancelled = await system.cancel((await system.row()).id)
    assert (end(cancelled), words(cancelled)) == (("canceled", "WORKER_LOST"), UNREACHABLE)
    assert system.clock.monotonic() - began == pytest.approx(2.0, abs=0.01)
    assert end(await pending) == ("canceled", "WORKER_LOST")
    await asyncio.sleep(0.01)
    assert system.forwarder.left == ["echo:a"]
    assert len(system.hub.relays) == 0


async def test_a_cancel_before_the_first_event_is_sent_after_it(system: System) -> None:
    await system.enrol("echo:a")
    pending, hold = await reaches(system, then=(task(), 60.0))
    cancelling = asyncio.create_task(system.cancel((await system.row()).id))
    await asyncio.sleep(1)
    assert system.forwarder.asked("cancel") == []
    system.forwarder.plan_fetch("echo:a", task("canceled"))
    hold.release()
    assert end(await cancelling) == ("canceled", "")
    assert end(await pending) == ("canceled", "")
    assert system.forwarder.asked("cancel") == ["echo:a"]


async def test_a_cancel_of_a_task_that_is_shown_without_a_workers_id_waits_no_longer(system: System) -> None:
    await system.enrol("echo:a")
    shown, _ = await reaches(system, blocking=False)
    began = system.clock.monotonic()
    task_id = (await shown)["id"]
    assert end(await system.cancel(task_id)) == ("canceled", "WORKER_LOST")
    assert system.clock.monotonic() - began == pytest.approx(3.0, abs=0.02)


async def test_a_cancel_that_waits_while_the_call_moves_goes_to_the_worker_that_has_it(system: System) -> None:
    await system.enrol("echo:a")
    pending, hold = await reaches(system, then=(WorkerRefused("echo:a"),))
    row = await system.row()
    cancelling = asyncio.create_task(system.cancel(row.id))
    await asyncio.sleep(0.05)
    await system.enrol("echo:b")
    system.forwarder.plan("echo:b", task(), 5.0)
    system.forwarder.plan_fetch("echo:b", task("canceled"))
    hold.release()
    assert end(await cancelling) == ("canceled", "")
    assert system.forwarder.asked("cancel") == ["echo:b"]
    assert end(await pending) == ("canceled", "")


async def test_a_cancel_of_a_call_that_was_moved_goes_to_its_new_lease(system: System) -> None:
    """Its epoch counts, not that of the worker that refused."""
    await system.enrol("echo:a", boot="first")
    await system.enrol("echo:a", boot="second")
    at_work = Hold()
    pending = await moved(system, task(), at_work, refusal=WorkerRefused("echo:a"))
    await at_work.reached.wait()
    system.forwarder.plan_fetch("echo:b", task("canceled"))
    assert end(await system.cancel((await system.row()).id)) == ("canceled", "")
    assert end(await pending) == ("canceled", "")
    assert system.forwarder.asked("cancel") == ["echo:b"]


async def test_an_answer_whose_task_is_cancelled_before_the_first_event_gets_the_end(system: System) -> None:
    task_id = await asked(system)
    system.forwarder.plan_fetch("echo:a", task("canceled"))
    pending, _ = await reaches(system, taskId=task_id)
    assert end(await system.cancel(task_id)) == ("canceled", "")
    assert end(await pending) == ("canceled", "")


async def test_an_answer_whose_task_can_no_longer_be_cancelled_gets_the_end(system: System) -> None:
    task_id = await asked(system)
    system.forwarder.plan_fetch("echo:a", WorkerFault(-32001, "which task?"))
    pending, _ = await reaches(system, taskId=task_id)
    assert end(await system.cancel(task_id)) == ("canceled", "WORKER_LOST")
    assert end(await pending) == ("canceled", "WORKER_LOST")


# --- answers of the worker


async def test_a_task_that_its_worker_does_not_know_is_canceled(system: System) -> None:
    task_id = await asked(system)
    await asyncio.sleep(0.1)
    system.forwarder.plan_fetch("echo:a", WorkerFault(-32001, "which task?"))
    cancelled = await system.cancel(task_id)
    assert (end(cancelled), words(cancelled)) == (("canceled", "WORKER_LOST"), UNREACHABLE)


async def test_a_worker_may_answer_that_it_is_too_late(system: System) -> None:
    await system.enrol("echo:a")
    pending, hold = await reaches(system, task(), then=(status("completed"),))
    system.forwarder.plan_fetch("echo:a", WorkerFault(-32002, "too late"))
    with pytest.raises(TaskNotCancelable):
        await system.cancel((await system.row()).id)
    hold.release()
    assert end(await pending) == ("completed", "")


@pytest.mark.parametrize("error", [WorkerFault(-32603, "no"), WorkerBroke("echo:a", "cut")])
async def test_another_error_of_the_worker_is_returned_and_does_not_end_the_task(system: System, error: Exception) -> None:
    await system.enrol("echo:a")
    pending, hold = await reaches(system, task(), then=(status("completed"),))
    system.forwarder.plan_fetch("echo:a", error)
    with pytest.raises(type(error)):
        await system.cancel((await system.row()).id)
    hold.release()
    assert end(await pending) == ("completed", "")


async def test_another_callers_task_is_not_found(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task("completed"))
    answer = await system.send()
    with pytest.raises(TaskNotFound):
        await system.hub.cancel(CALLER._replace(name="other"), CancelTask(Target(), TaskId(answer["id"]), ("0.3",)))
    with pytest.raises(TaskNotFound):
        await system.hub.cancel(CALLER, CancelTask(Target(path_role="other"), TaskId(answer["id"]), ("0.3",)))
