"""Erasing tasks: what runs is cancelled first, and then nothing of it is left."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hub.core.tasks import erasure
from hub.core.tasks.erasure import Erased
from rolecall.errors import StoreUnavailable, TaskNotFound, WorkerBroke, WorkerFault
from rolecall.model.command import TaskQuery
from rolecall.model.ids import Caller, TaskId
from rolecall.model.push import PushConfig
from tests.flow.callers import OTHER
from tests.flow.conftest import CALLER, System
from tests.flow.relayed import asked, reaches
from tests.helpers.reading import read_all
from tests.helpers.scripted import Step, chunk, message, status, task
from tests.helpers.watched_engine import Hold


async def erase(system: System, task_id: str, caller: Caller = CALLER) -> Erased:
    return await system.hub.erasure.task(caller, TaskId(task_id))


async def finished(system: System, count: int = 1, **members: Any) -> list[str]:
    ids = []
    for _ in range(count):
        system.forwarder.plan("echo:a", task(), chunk("x", append=False), status("completed"))
        ids.append((await system.send(**members))["id"])
    return ids


async def is_known(system: System, task_id: str) -> bool:
    try:
        await system.get(task_id)
    except TaskNotFound:
        return False
    return True


async def test_an_ended_task_is_erased_and_its_message_is_a_new_one(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a")
    (first,) = await finished(system, messageId="m-1")
    assert await erase(system, first) == (1, False)
    assert not await is_known(system, first)
    with pytest.raises(TaskNotFound):
        await erase(system, first)
    (second,) = await finished(system, messageId="m-1")
    assert second != first
    assert system.forwarder.asked("cancel") == []


async def test_another_callers_task_cannot_be_erased(system: System) -> None:
    await system.enrol("echo:a")
    (task_id,) = await finished(system)
    errors = []
    for name in (task_id, "x" * len(task_id)):
        with pytest.raises(TaskNotFound) as raised:
            await erase(system, name, OTHER)
        errors.append(str(raised.value).replace(name, "~"))
    assert errors[0] == errors[1]
    assert await is_known(system, task_id)


async def test_a_running_task_is_cancelled_at_its_worker_and_its_readers_get_the_end(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a")
    pending, _ = await reaches(system, task(), blocking=False)
    task_id = (await pending)["id"]
    reader = asyncio.create_task(read_all(await system.subscribe(task_id)))
    await asyncio.sleep(0.01)
    system.forwarder.plan_fetch("echo:a", task("canceled"))
    assert await erase(system, task_id) == (1, False)
    assert system.forwarder.asked("cancel") == ["echo:a"]
    assert str((await reader)[-1].event.state) == "canceled"
    assert len(system.hub.relays) == 0
    assert not await is_known(system, task_id)
    assert not await system.rows()


@pytest.mark.parametrize(
    "answer",
    [WorkerFault(-32002, "too late"), WorkerFault(-32603, "no"), WorkerBroke("echo:a", "cut"), Hold(), task("working")],
)
async def test_a_task_is_erased_whatever_its_worker_says(system: System, answer: Step) -> None:
    await system.enrol("echo:a")
    pending, hold = await reaches(system, task(), then=(chunk("late", append=False), status("completed")), blocking=False)
    task_id = (await pending)["id"]
    system.forwarder.plan_fetch("echo:a", answer)
    began = system.clock.monotonic()
    assert await erase(system, task_id) == (1, False)
    assert system.clock.monotonic() - began < 6
    assert len(system.hub.relays) == 0
    hold.release()
    await asyncio.sleep(1)
    assert not await is_known(system, task_id)
    assert not await system.rows()


async def test_a_paused_task_is_erased_also_when_its_worker_is_gone(stored_system: System) -> None:
    task_id = await asked(stored_system)
    await stored_system.restart()
    assert await erase(stored_system, task_id) == (1, False)
    assert not await is_known(stored_system, task_id)


async def test_its_deliveries_are_owed_to_nobody(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    await system.enrol("echo:a")
    (task_id,) = await finished(system)
    cancelled: list[TaskId] = []
    monkeypatch.setattr(system.push, "erased", cancelled.append)
    await system.push.set(CALLER, PushConfig(TaskId(task_id), "c", "http://127.0.0.1:9/hook", "1.0"))
    await erase(system, task_id)
    with pytest.raises(TaskNotFound):
        await system.push.list(CALLER, TaskId(task_id))
    assert cancelled == [task_id]


async def test_all_tasks_of_a_context_or_of_a_holder_are_erased(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a")
    kept = await finished(system, 2, caller=OTHER)
    in_context = await finished(system, 3, contextId="c")
    elsewhere = await finished(system, 2)
    system.forwarder.plan("echo:a", message("bare"))
    await system.send()
    assert await system.hub.erasure.all_of(CALLER, "unknown") == (0, False)
    assert await system.hub.erasure.all_of(CALLER, "c") == (3, False)
    assert [await is_known(system, one) for one in (*in_context, *elsewhere)] == [False] * 3 + [True] * 2
    system.forwarder.plan_fetch("echo:a", task("canceled"))
    system.forwarder.plan("echo:a", task(), 60.0)
    await system.send(blocking=False)
    assert await system.hub.erasure.all_of(CALLER) == (4, False)
    assert (await system.engine.tasks.page(CALLER, TaskQuery())).total == 0
    assert await system.hub.erasure.all_of(CALLER) == (0, False)
    assert [row.id for row in (await system.engine.tasks.page(OTHER, TaskQuery())).rows] == [*reversed(kept)]


async def test_all_that_have_ended_long_ago_are_erased_and_what_goes_on_stays(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a")
    kept = await finished(system, 1, caller=OTHER)
    old = await finished(system, 2)
    system.forwarder.plan("echo:a", task("input-required", "which?", task_id="asks"))
    asks = (await system.send())["id"]
    until = system.clock.wall()
    system.clock.advance(60)
    new = await finished(system, 1)
    assert await system.hub.erasure.all_of(CALLER, ended_by=until) == (2, False)
    assert [await is_known(system, one) for one in (*old, asks, *new)] == [False, False, True, True]
    assert [row.id for row in (await system.engine.tasks.page(OTHER, TaskQuery())).rows] == kept
    assert system.engine.arguments("usage.forget_holder") == system.engine.arguments("tasks.forget_discarded") == []


async def test_a_request_erases_a_part_and_says_that_there_is_more(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasure, "_AT_ONCE", 3)
    await system.enrol("echo:a")
    await finished(system, 7)
    found = [await system.hub.erasure.all_of(CALLER) for _ in range(3)]
    assert found == [(3, True), (3, True), (1, False)]


async def test_a_request_ends_when_workers_make_it_slow(system: System) -> None:
    await system.enrol("echo:a")
    for number in range(4):
        system.forwarder.plan("echo:a", task(task_id=f"w{number}"), 600.0)
        await system.send(blocking=False)
        system.forwarder.plan_fetch("echo:a", Hold())
    began = system.clock.monotonic()
    assert await system.hub.erasure.all_of(CALLER) == (2, True)
    assert system.clock.monotonic() - began < 16
    assert await system.hub.erasure.all_of(CALLER) == (2, False)


async def test_a_store_that_cannot_write_is_said_and_nothing_looks_erased(system: System) -> None:
    await system.enrol("echo:a")
    (task_id,) = await finished(system)
    system.engine.fail("tasks.erase", StoreUnavailable())
    with pytest.raises(StoreUnavailable):
        await erase(system, task_id)
    assert await is_known(system, task_id)
    assert await erase(system, task_id) == (1, False)


async def test_a_piece_that_took_long_is_followed_by_a_rest(system: System) -> None:
    await system.enrol("echo:a")
    (task_id,) = await finished(system)
    hold = system.engine.hold("tasks.erase")
    pending = asyncio.create_task(erase(system, task_id))
    await hold.reached.wait()
    await asyncio.sleep(0.2)
    hold.release()
    began = system.clock.monotonic()
    await pending
    assert system.clock.monotonic() - began == pytest.approx(0.2, abs=0.05)
