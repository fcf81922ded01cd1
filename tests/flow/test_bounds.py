"""What is too large, too long or too many ends with a reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from hub.core.hub import Hub, HubLimits
from rolecall.errors import ClientGone, Overloaded
from rolecall.model.command import GetTask, Subscribe, Target, TaskQuery
from rolecall.model.ids import TaskId
from rolecall.protocol.text.jsontext import parse
from tests.flow.conftest import ME, House, frames, say
from tests.helpers.scripted import chunk, status, task


async def test_a_task_whose_log_grows_too_large_fails_and_is_called_off(house: House) -> None:
    hub = house.restarted(most_logged=2_000)
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), *(chunk("x" * 500) for _ in range(100)), 5.0, status("completed"))
    answer = parse((await hub.send(ME, say())).body)
    assert answer["status"]["state"] == "failed"
    assert "ROLECALL_MAX_LOG" in answer["status"]["message"]["parts"][0]["text"]
    assert len(answer["artifacts"][0]["parts"]) < 10
    await asyncio.sleep(0)
    assert house.forwarder.asked("cancel") == ["echo:a"]


async def test_a_task_that_takes_too_long_fails_and_is_called_off(house: House) -> None:
    hub = house.restarted(deadline=timedelta(seconds=30), silence=timedelta(seconds=60))
    house.supervisor.keep_running("watch", hub.relays.watch)
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), 60.0, status("completed"))
    begun = await hub.send(ME, say(blocking=False))
    house.clock.advance(31)
    answer = hub.subscribe(ME, Subscribe(Target(), TaskId(parse(begun.body)["id"]), "0.3", None))
    assert (await frames(await answer))[-1]["status"]["state"] == "failed"
    answer = hub.get(ME, GetTask(Target(), TaskId(parse(begun.body)["id"]), "0.3"))
    found = parse((await answer).body)
    assert found["status"]["state"] == "failed"
    assert "ROLECALL_TASK_DEADLINE" in found["status"]["message"]["parts"][0]["text"]
    assert house.forwarder.asked("cancel") == ["echo:a"]


async def test_nobody_waits_for_a_caller_who_has_left_and_his_task_goes_on(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), 1.0, status("completed"))
    on_disconnect: asyncio.Future[Callable[[], None]] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(house.hub.send(ME, say(), on_disconnect.set_result))
    tell = await asyncio.wait_for(on_disconnect, 1)
    tell()
    with pytest.raises(ClientGone):
        await asyncio.wait_for(waiting, 0.5)
    assert house.forwarder.asked("cancel") == []
    (row,) = (await house.engine.tasks.page(ME, TaskQuery(limit=9))).rows
    found = await frames(await house.hub.subscribe(ME, Subscribe(Target(), row.id, "0.3", None)))
    assert found[-1]["status"]["state"] == "completed"


async def test_streams_beyond_the_limit_are_refused_before_anything_runs(house: House) -> None:
    hub = house.restarted(limits=HubLimits(streams=1, keep_alive=timedelta(seconds=0.05)))
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), 0.3, status("completed"))
    first = await hub.stream(ME, say())
    with pytest.raises(Overloaded):
        await hub.stream(ME, say())
    assert house.forwarder.asked("deliver") == ["echo:a"]
    found = await frames(first)
    with pytest.raises(Overloaded):
        await _second_while_first_is_open(hub, house, found[0]["id"])
    first.close()
    assert await frames(await hub.subscribe(ME, Subscribe(Target(), TaskId(found[0]["id"]), "0.3", None)))


async def _second_while_first_is_open(hub: Hub, house: House, known: str) -> None:
    house.forwarder.plan("echo:a", task(), 0.3, status("completed"))
    open_one = await hub.stream(ME, say())
    try:
        assert await hub.get(ME, GetTask(Target(), TaskId(known), "0.3"))
        await hub.subscribe(ME, Subscribe(Target(), TaskId(known), "0.3", None))
    finally:
        open_one.close()
