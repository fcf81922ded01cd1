"""A hub that goes down: it takes nothing new, lets everybody go with what there is, and its tasks go on."""

from __future__ import annotations

import asyncio

import pytest

from rolecall.errors import ClientGone, HubDraining, RoleUnknown, WorkerRefused
from tests.flow.conftest import ME, House, frames, say
from tests.flow.relayed import asked, end, reaches
from tests.helpers.scripted import chunk, message, status, task
from tests.helpers.watched_engine import Hold


async def test_a_draining_hub_takes_no_calls(house: House) -> None:
    await house.enrol("echo:a")
    house.hub.drain()
    with pytest.raises(HubDraining):
        await house.send()
    with pytest.raises(HubDraining):
        await house.stream()
    assert house.forwarder.calls == []
    assert await house.rows() == []


async def test_a_blocking_caller_gets_the_task_as_it_stands_and_the_task_goes_on(house: House) -> None:
    await house.enrol("echo:a")
    sending, hold = await reaches(house, task(), chunk("x", append=False), then=(status("completed"),))
    house.hub.drain()
    answer = await asyncio.wait_for(sending, 0.1)
    assert end(answer) == ("working", "")
    hold.release()
    await asyncio.sleep(0.1)
    assert end(await house.get(answer["id"])) == ("completed", "")


async def test_a_caller_whose_worker_has_not_spoken_gets_the_task_as_it_stands(house: House) -> None:
    await house.enrol("echo:a")
    sending, hold = await reaches(house, then=(message("done after all"),))
    house.hub.drain()
    answer = await asyncio.wait_for(sending, 0.1)
    assert end(answer) == ("submitted", "")
    assert await house.get(answer["id"]) == answer
    hold.release()
    await asyncio.sleep(0.1)
    assert end(await house.get(answer["id"])) == ("completed", "")


async def test_an_answer_whose_worker_has_not_spoken_gets_the_task_as_it_stood(house: House) -> None:
    task_id = await asked(house)
    sending, hold = await reaches(house, taskId=task_id, then=(status("completed"),))
    house.hub.drain()
    assert end(await asyncio.wait_for(sending, 0.1)) == ("input-required", "")
    hold.release()
    await asyncio.sleep(0.1)
    assert end(await house.get(task_id)) == ("completed", "")


async def test_an_answer_that_is_refused_after_its_caller_was_let_go_fails_the_task(house: House) -> None:
    """Its caller believes it given: that cannot be taken back."""
    task_id = await asked(house)
    sending, hold = await reaches(house, taskId=task_id, then=(WorkerRefused("echo:a"),))
    house.hub.drain()
    await asyncio.wait_for(sending, 0.1)
    hold.release()
    await asyncio.sleep(0.1)
    assert end(await house.get(task_id)) == ("failed", "WORKER_BUSY")


async def test_a_call_that_is_refused_after_its_caller_was_let_go_fails_the_task(house: House) -> None:
    await house.enrol("echo:a")
    sending, hold = await reaches(house, then=(WorkerRefused("echo:a"),))
    house.hub.drain()
    answer = await asyncio.wait_for(sending, 0.1)
    hold.release()
    await asyncio.sleep(0.1)
    assert end(await house.get(answer["id"])) == ("failed", "WORKER_BUSY")


async def test_a_call_that_is_being_taken_on_as_the_hub_begins_to_drain_is_shown(house: House) -> None:
    await house.enrol("echo:a")
    admitting, hold = house.engine.hold("tasks.admit"), Hold()
    house.forwarder.plan("echo:a", hold, status("completed"))
    sending = asyncio.create_task(house.send())
    await admitting.reached.wait()
    house.hub.drain()
    admitting.release()
    assert end(await asyncio.wait_for(sending, 0.1)) == ("submitted", "")


async def test_who_begins_to_wait_as_the_hub_drains_waits_for_nothing(house: House) -> None:
    await house.enrol("echo:a")
    admitting = house.engine.hold("tasks.admit")
    showing = house.engine.hold_after("events.append")
    house.forwarder.plan("echo:a", task(), Hold())
    sending = asyncio.create_task(house.send())
    await admitting.reached.wait()
    admitting.release()
    await showing.reached.wait()
    house.hub.drain()
    showing.release()
    assert end(await asyncio.wait_for(sending, 0.1)) == ("working", "")


async def test_who_waits_for_a_worker_to_come_is_told_that_there_is_none(house: House) -> None:
    waiting = asyncio.create_task(house.send(metadata={"waitSeconds": 60}))
    await asyncio.sleep(1)
    house.hub.drain()
    with pytest.raises(RoleUnknown):
        await asyncio.wait_for(waiting, 0.2)


# --- streams


async def test_open_streams_are_broken_off_and_the_reader_can_come_back(house: House) -> None:
    await house.enrol("echo:a")
    hold = Hold()
    house.forwarder.plan("echo:a", task(), hold, status("completed"))
    task_stream = await house.hub.stream(ME, say())
    reader = asyncio.create_task(frames(task_stream))
    await hold.reached.wait()
    await asyncio.sleep(0.1)
    house.hub.drain()
    got = await asyncio.wait_for(reader, 0.1)
    assert [frame["kind"] for frame in got] == ["task"]
    assert task_stream.broken_off
    assert house.observer.streams == 0


async def test_a_stream_that_had_ended_is_not_broken_off(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), status("completed"))
    task_stream = await house.hub.stream(ME, say())
    assert len(await frames(task_stream)) == 2
    house.hub.drain()
    assert not task_stream.broken_off
    task_stream.close()


async def test_a_stream_whose_worker_has_not_spoken_is_broken_off(house: House) -> None:
    await house.enrol("echo:a")
    hold = Hold()
    house.forwarder.plan("echo:a", hold, status("completed"))
    streaming = asyncio.create_task(house.hub.stream(ME, say()))
    await hold.reached.wait()
    house.hub.drain()
    task_stream = await asyncio.wait_for(streaming, 0.1)
    assert task_stream.broken_off
    assert await asyncio.wait_for(frames(task_stream), 0.1) == []
    assert house.observer.streams == 0


async def test_a_stream_that_begins_while_the_hub_drains_is_broken_off(house: House) -> None:
    """Its reader would keep the hub up for as long as the task takes."""
    await house.enrol("echo:a")
    await reaches(house, task(), then=(status("completed"),))
    row = await house.row()
    house.hub.drain()
    for after in (None, 0, 1):
        task_stream = await house.subscribe(row.id, after)
        assert task_stream.broken_off
        assert len(await asyncio.wait_for(frames(task_stream), 0.1)) == (0 if after == 0 else 1)
    assert house.observer.streams == 0


# --- callers who leave


async def test_a_caller_who_leaves_stops_waiting_and_the_task_goes_on(house: House) -> None:
    await house.enrol("echo:a")
    hold, leave = Hold(), []
    house.forwarder.plan("echo:a", task(), hold, status("completed"))
    sending = asyncio.create_task(house.hub.send(ME, say(), leave.append))
    await hold.reached.wait()
    await asyncio.sleep(0.1)
    (gone,) = leave
    gone()
    with pytest.raises(ClientGone):
        await asyncio.wait_for(sending, 0.1)
    hold.release()
    await asyncio.sleep(0.1)
    assert end(await house.get((await house.row()).id)) == ("completed", "")


async def test_a_caller_who_leaves_as_the_task_ends_is_gone(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), 0.1, status("completed"))
    with pytest.raises(ClientGone):
        await house.hub.send(ME, say(), lambda leave: leave())


# --- a task that is taken back


async def test_a_reader_of_a_task_that_is_taken_back_finds_nothing(house: House) -> None:
    await house.enrol("echo:a")
    sending, hold = await reaches(house, then=(WorkerRefused("echo:a"),))
    task_stream = await house.subscribe((await house.row()).id)
    hold.release()
    with pytest.raises(WorkerRefused):
        await sending
    assert await asyncio.wait_for(frames(task_stream), 1) == []
    assert not task_stream.broken_off
