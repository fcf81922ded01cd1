"""Ending a task because its caller wants it: at its worker if that can be reached, in the log in any case."""

from __future__ import annotations

import asyncio

import pytest

from rolecall.errors import TaskNotCancelable, TaskNotFound, WorkerBroke, WorkerFault, WorkerRefused
from rolecall.model.command import CancelTask, Target
from rolecall.model.ids import TaskId
from rolecall.model.principal import LOCAL
from tests.flow.conftest import ME, House, frames, proof
from tests.flow.relayed import asked, end, moved, reaches, words
from tests.helpers.scripted import chunk, status, task
from tests.helpers.watched_engine import Hold

UNTOLD = "Canceled. echo:a could not be told."


async def test_a_running_task_is_cancelled_at_its_worker(house: House) -> None:
    lease = await house.enrol("echo:a")
    sending, _ = await reaches(house, task())
    row = await house.row()
    house.forwarder.plan_fetch("echo:a", task("canceled"))
    began = house.clock.monotonic()
    assert end(await house.cancel(row.id)) == ("canceled", "")
    # The stream had half a second to say it in its own words.
    assert house.clock.monotonic() - began == pytest.approx(0.5, abs=0.01)
    assert end(await sending) == ("canceled", "")
    assert house.forwarder.asked("cancel") == ["echo:a"]
    assert house.forwarder.calls[-1][2].worker_task == "wt"
    await asyncio.sleep(0.01)
    assert house.forwarder.left == ["echo:a"]
    assert len(house.hub.relays) == 0
    assert lease.in_flight == 0
    with pytest.raises(TaskNotCancelable):
        await house.cancel(row.id)


async def test_what_the_stream_says_of_the_end_is_what_is_logged(house: House) -> None:
    await house.enrol("echo:a")
    sending, hold = await reaches(house, task(), then=(chunk("x", append=False), status("canceled", "tidied up")))
    row = await house.row()
    house.forwarder.plan_fetch("echo:a", task("canceled", "stopped"))
    cancelling = asyncio.create_task(house.cancel(row.id))
    await asyncio.sleep(0.3)
    hold.release()
    for answer in (await cancelling, await sending):
        assert (end(answer), words(answer)) == (("canceled", ""), "tidied up")
    assert len(await frames(await house.subscribe(row.id, after=0))) == 3


async def test_an_end_that_the_worker_reached_before_it_was_cancelled_stands(house: House) -> None:
    await house.enrol("echo:a")
    sending, hold = await reaches(house, task(), then=(status("completed"),))
    row = await house.row()
    telling = Hold()
    house.forwarder.plan_fetch("echo:a", telling, task("canceled"))
    cancelling = asyncio.create_task(house.cancel(row.id))
    await telling.reached.wait()
    hold.release()
    assert end(await sending) == ("completed", "")
    began = house.clock.monotonic()
    telling.release()
    assert end(await cancelling) == ("completed", "")
    assert house.clock.monotonic() - began < 0.01
    assert len(await frames(await house.subscribe(row.id, after=0))) == 2
    assert dict(house.observer.drops) == {}


async def test_an_end_that_is_being_written_as_the_cancel_is_stands(house: House) -> None:
    await house.enrol("echo:a")
    sending, hold = await reaches(house, task(), then=(status("completed"),))
    row = await house.row()
    house.forwarder.plan_fetch("echo:a", task("canceled"))
    writing = house.engine.hold("events.append")
    hold.release()
    await writing.reached.wait()
    cancelling = asyncio.create_task(house.cancel(row.id))
    await asyncio.sleep(1)
    writing.release()
    assert end(await cancelling) == ("completed", "")
    assert end(await sending) == ("completed", "")
    assert len(await frames(await house.subscribe(row.id, after=0))) == 2


async def test_a_worker_that_is_still_at_work_on_its_end_is_followed(house: House) -> None:
    await house.enrol("echo:a")
    sending, hold = await reaches(house, task(), then=(status("canceled"),))
    row = await house.row()
    house.forwarder.plan_fetch("echo:a", task("working", "stopping"))
    answer = await house.cancel(row.id)
    assert (end(answer), words(answer)) == (("working", ""), "stopping")
    hold.release()
    assert end(await sending) == ("canceled", "")


# --- paused


async def test_a_paused_task_is_cancelled_at_its_worker(house: House) -> None:
    task_id = await asked(house)
    await asyncio.sleep(0.1)
    assert len(house.hub.relays) == 0
    house.forwarder.plan_fetch("echo:a", task("canceled"))
    began = house.clock.monotonic()
    assert end(await house.cancel(task_id)) == ("canceled", "")
    assert house.clock.monotonic() - began < 0.01
    assert house.forwarder.asked("cancel") == ["echo:a"]


@pytest.mark.parametrize("gone", ["withdrawn", "begun anew"])
async def test_a_worker_that_is_gone_is_no_obstacle(house: House, gone: str) -> None:
    """Whoever has its name now does not have its tasks."""
    task_id = await asked(house)
    await asyncio.sleep(0.1)
    (lease,) = house.engine.registry.live("default", "echo")
    if gone == "withdrawn":
        await house.directory.withdraw(LOCAL, lease.worker, proof(lease))
    else:
        await house.enrol("echo:a", boot="another")
    house.forwarder.plan_fetch("echo:a", task("canceled"))
    cancelled = await house.cancel(task_id)
    assert (end(cancelled), words(cancelled)) == (("canceled", "WORKER_LOST"), UNTOLD)
    assert house.forwarder.asked("cancel") == []


async def test_a_running_task_is_not_cancelled_at_another_process_of_its_workers_name(house: House) -> None:
    await house.enrol("echo:a")
    sending, _ = await reaches(house, task())
    await house.enrol("echo:a", boot="another")
    house.forwarder.plan_fetch("echo:a", task("canceled"))
    assert end(await house.cancel((await house.row()).id)) == ("canceled", "WORKER_LOST")
    assert end(await sending) == ("canceled", "WORKER_LOST")
    assert house.forwarder.asked("cancel") == []
    await asyncio.sleep(0.01)
    assert house.forwarder.left == ["echo:a"]


# --- before the first word


async def test_a_task_is_cancelled_two_seconds_after_its_worker_was_to_name_it(house: House) -> None:
    await house.enrol("echo:a")
    sending, _ = await reaches(house)
    began = house.clock.monotonic()
    cancelled = await house.cancel((await house.row()).id)
    assert (end(cancelled), words(cancelled)) == (("canceled", "WORKER_LOST"), UNTOLD)
    assert house.clock.monotonic() - began == pytest.approx(2.0, abs=0.01)
    assert end(await sending) == ("canceled", "WORKER_LOST")
    await asyncio.sleep(0.01)
    assert house.forwarder.left == ["echo:a"]
    assert len(house.hub.relays) == 0


async def test_a_cancel_that_came_before_the_first_word_goes_out_behind_it(house: House) -> None:
    await house.enrol("echo:a")
    sending, hold = await reaches(house, then=(task(), 60.0))
    cancelling = asyncio.create_task(house.cancel((await house.row()).id))
    await asyncio.sleep(1)
    assert house.forwarder.asked("cancel") == []
    house.forwarder.plan_fetch("echo:a", task("canceled"))
    hold.release()
    assert end(await cancelling) == ("canceled", "")
    assert end(await sending) == ("canceled", "")
    assert house.forwarder.asked("cancel") == ["echo:a"]


async def test_a_cancel_of_a_task_that_is_shown_without_a_workers_id_waits_no_longer(house: House) -> None:
    await house.enrol("echo:a")
    shown, _ = await reaches(house, blocking=False)
    began = house.clock.monotonic()
    task_id = (await shown)["id"]
    assert end(await house.cancel(task_id)) == ("canceled", "WORKER_LOST")
    assert house.clock.monotonic() - began == pytest.approx(3.0, abs=0.02)


async def test_a_cancel_that_waits_while_the_call_moves_goes_to_the_worker_that_has_it(house: House) -> None:
    await house.enrol("echo:a")
    sending, hold = await reaches(house, then=(WorkerRefused("echo:a"),))
    row = await house.row()
    cancelling = asyncio.create_task(house.cancel(row.id))
    await asyncio.sleep(0.05)
    await house.enrol("echo:b")
    house.forwarder.plan("echo:b", task(), 5.0)
    house.forwarder.plan_fetch("echo:b", task("canceled"))
    hold.release()
    assert end(await cancelling) == ("canceled", "")
    assert house.forwarder.asked("cancel") == ["echo:b"]
    assert end(await sending) == ("canceled", "")


async def test_a_cancel_of_a_call_that_was_moved_goes_to_its_new_lease(house: House) -> None:
    """Which is another one than that of the worker that refused: its epoch counts."""
    await house.enrol("echo:a", boot="first")
    await house.enrol("echo:a", boot="second")
    at_work = Hold()
    sending = await moved(house, task(), at_work, refusal=WorkerRefused("echo:a"))
    await at_work.reached.wait()
    house.forwarder.plan_fetch("echo:b", task("canceled"))
    assert end(await house.cancel((await house.row()).id)) == ("canceled", "")
    assert end(await sending) == ("canceled", "")
    assert house.forwarder.asked("cancel") == ["echo:b"]


async def test_an_answer_whose_task_is_cancelled_before_the_workers_first_word_gets_the_end(house: House) -> None:
    task_id = await asked(house)
    house.forwarder.plan_fetch("echo:a", task("canceled"))
    sending, _ = await reaches(house, taskId=task_id)
    assert end(await house.cancel(task_id)) == ("canceled", "")
    assert end(await sending) == ("canceled", "")


async def test_an_answer_whose_task_nobody_can_cancel_any_more_gets_the_end(house: House) -> None:
    task_id = await asked(house)
    house.forwarder.plan_fetch("echo:a", WorkerFault(-32001, "which task?"))
    sending, _ = await reaches(house, taskId=task_id)
    assert end(await house.cancel(task_id)) == ("canceled", "WORKER_LOST")
    assert end(await sending) == ("canceled", "WORKER_LOST")


# --- what the worker may say to it


async def test_a_task_that_its_worker_does_not_know_is_canceled(house: House) -> None:
    task_id = await asked(house)
    await asyncio.sleep(0.1)
    house.forwarder.plan_fetch("echo:a", WorkerFault(-32001, "which task?"))
    cancelled = await house.cancel(task_id)
    assert (end(cancelled), words(cancelled)) == (("canceled", "WORKER_LOST"), UNTOLD)


async def test_a_worker_may_say_that_it_is_too_late(house: House) -> None:
    await house.enrol("echo:a")
    sending, hold = await reaches(house, task(), then=(status("completed"),))
    house.forwarder.plan_fetch("echo:a", WorkerFault(-32002, "too late"))
    with pytest.raises(TaskNotCancelable):
        await house.cancel((await house.row()).id)
    hold.release()
    assert end(await sending) == ("completed", "")


@pytest.mark.parametrize("error", [WorkerFault(-32603, "no"), WorkerBroke("echo:a", "cut")])
async def test_another_error_of_the_worker_is_told_and_ends_nothing(house: House, error: Exception) -> None:
    await house.enrol("echo:a")
    sending, hold = await reaches(house, task(), then=(status("completed"),))
    house.forwarder.plan_fetch("echo:a", error)
    with pytest.raises(type(error)):
        await house.cancel((await house.row()).id)
    hold.release()
    assert end(await sending) == ("completed", "")


async def test_somebody_elses_task_is_not_found(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task("completed"))
    answer = await house.send()
    with pytest.raises(TaskNotFound):
        await house.hub.cancel(ME._replace(name="other"), CancelTask(Target(), TaskId(answer["id"]), "0.3"))
    with pytest.raises(TaskNotFound):
        await house.hub.cancel(ME, CancelTask(Target(path_role="other"), TaskId(answer["id"]), "0.3"))
