"""Tasks that are too large or too long, and streams that are too many, get a reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from hub.core.hub import Hub
from rolecall.errors import ClientDisconnected, Overloaded
from rolecall.model.command import GetTask, Subscribe, Target, TaskQuery
from rolecall.model.ids import TaskId
from rolecall.protocol.text.jsontext import parse
from tests.flow.conftest import CALLER, System, frames, say, shares
from tests.helpers.scripted import chunk, status, task


async def test_a_task_whose_log_grows_too_large_fails_and_is_cancelled_at_its_worker(system: System) -> None:
    hub = system.restarted(max_log=2_000)
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), *(chunk("x" * 500) for _ in range(100)), 5.0, status("completed"))
    answer = parse((await hub.send(CALLER, say())).body)
    assert answer["status"]["state"] == "failed"
    assert "ROLECALL_MAX_LOG" in answer["status"]["message"]["parts"][0]["text"]
    assert len(answer["artifacts"][0]["parts"]) < 10
    await asyncio.sleep(0)
    assert system.forwarder.asked("cancel") == ["echo:a"]


@pytest.mark.parametrize(
    ("holder", "setting"), [("default", "ROLECALL_MAX_DISK_PER_WORKSPACE"), ("elsewhere", "ROLECALL_MAX_DISK")]
)
async def test_a_task_that_needs_more_disk_than_there_is_fails_with_the_setting(
    system: System, holder: str, setting: str
) -> None:
    disk = system.deps.shares.disk
    disk.fill(holder, disk.cap if holder == "default" else 2 * disk.cap)
    hub = system.restarted(shares=system.deps.shares)
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), chunk("x"), 5.0, status("completed"))
    disk.give_back(holder, 1)
    system.engine.before("events.append", lambda: disk.fill(holder, 2))
    answer = parse((await hub.send(CALLER, say())).body)
    assert answer["status"]["state"] == "failed"
    assert f"({setting})" in answer["status"]["message"]["parts"][0]["text"]
    await asyncio.sleep(0)
    assert system.forwarder.asked("cancel") == ["echo:a"]


async def test_a_task_that_takes_too_long_fails_and_is_cancelled_at_its_worker(system: System) -> None:
    hub = system.restarted(deadline=timedelta(seconds=30), silence=timedelta(seconds=60))
    system.supervisor.keep_running("watch", hub.relays.watch)
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), 60.0, status("completed"))
    begun = await hub.send(CALLER, say(blocking=False))
    system.clock.advance(31)
    answer = hub.subscribe(CALLER, Subscribe(Target(), TaskId(parse(begun.body)["id"]), ("0.3",), None))
    assert (await frames(await answer))[-1]["status"]["state"] == "failed"
    answer = hub.get(CALLER, GetTask(Target(), TaskId(parse(begun.body)["id"]), ("0.3",)))
    found = parse((await answer).body)
    assert found["status"]["state"] == "failed"
    assert "ROLECALL_TASK_DEADLINE" in found["status"]["message"]["parts"][0]["text"]
    await asyncio.sleep(0.01)
    assert system.forwarder.asked("cancel") == ["echo:a"]


async def test_a_call_ends_when_its_caller_disconnects_and_the_task_continues(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), 1.0, status("completed"))
    callbacks: list[Callable[[], None]] = []
    waiting = asyncio.create_task(system.hub.send(CALLER, say(), callbacks.append))
    await asyncio.sleep(0.5)
    for tell in callbacks:
        tell()
    with pytest.raises(ClientDisconnected):
        await asyncio.wait_for(waiting, 0.5)
    assert system.forwarder.asked("cancel") == []
    (row,) = (await system.engine.tasks.page(CALLER, TaskQuery(limit=9))).rows
    found = await frames(await system.hub.subscribe(CALLER, Subscribe(Target(), row.id, ("0.3",), None)))
    assert found[-1]["status"]["state"] == "completed"


async def test_streams_beyond_the_limit_are_refused_before_anything_runs(system: System) -> None:
    hub = system.restarted(shares=shares(streams=1))
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), 0.3, status("completed"))
    first = await hub.stream(CALLER, say())
    with pytest.raises(Overloaded):
        await hub.stream(CALLER, say())
    assert system.forwarder.asked("deliver") == ["echo:a"]
    found = await frames(first)
    with pytest.raises(Overloaded):
        await _second_while_first_is_open(hub, system, found[0]["id"])
    first.close()
    assert await frames(await hub.subscribe(CALLER, Subscribe(Target(), TaskId(found[0]["id"]), ("0.3",), None)))


async def _second_while_first_is_open(hub: Hub, system: System, known: str) -> None:
    system.forwarder.plan("echo:a", task(), 0.3, status("completed"))
    open_one = await hub.stream(CALLER, say())
    try:
        assert await hub.get(CALLER, GetTask(Target(), TaskId(known), ("0.3",)))
        await hub.subscribe(CALLER, Subscribe(Target(), TaskId(known), ("0.3",), None))
    finally:
        open_one.close()
