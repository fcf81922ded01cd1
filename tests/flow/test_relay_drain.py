"""A draining hub takes no new calls and answers all waiting callers; its tasks continue."""

from __future__ import annotations

import asyncio

import pytest

from rolecall.errors import ClientDisconnected, HubDraining, RoleUnknown, WorkerRefused
from tests.flow.conftest import CALLER, System, frames, say
from tests.flow.relayed import asked, end, reaches
from tests.helpers.scripted import chunk, message, status, task
from tests.helpers.watched_engine import Hold


async def test_a_draining_hub_takes_no_calls(system: System) -> None:
    await system.enrol("echo:a")
    system.hub.drain()
    with pytest.raises(HubDraining):
        await system.send()
    with pytest.raises(HubDraining):
        await system.stream()
    assert system.forwarder.calls == []
    assert await system.rows() == []


async def test_a_blocking_caller_gets_the_task_as_it_stands_and_the_task_goes_on(system: System) -> None:
    await system.enrol("echo:a")
    pending, hold = await reaches(system, task(), chunk("x", append=False), then=(status("completed"),))
    system.hub.drain()
    answer = await asyncio.wait_for(pending, 0.1)
    assert end(answer) == ("working", "")
    hold.release()
    await asyncio.sleep(0.1)
    assert end(await system.get(answer["id"])) == ("completed", "")


async def test_a_caller_whose_worker_has_sent_nothing_gets_the_task_as_it_stands(system: System) -> None:
    await system.enrol("echo:a")
    pending, hold = await reaches(system, then=(message("done after all"),))
    system.hub.drain()
    answer = await asyncio.wait_for(pending, 0.1)
    assert end(answer) == ("submitted", "")
    assert await system.get(answer["id"]) == answer
    hold.release()
    await asyncio.sleep(0.1)
    assert end(await system.get(answer["id"])) == ("completed", "")


async def test_an_answer_whose_worker_has_sent_nothing_gets_the_task_as_it_was(system: System) -> None:
    task_id = await asked(system)
    pending, hold = await reaches(system, taskId=task_id, then=(status("completed"),))
    system.hub.drain()
    assert end(await asyncio.wait_for(pending, 0.1)) == ("input-required", "")
    hold.release()
    await asyncio.sleep(0.1)
    assert end(await system.get(task_id)) == ("completed", "")


async def test_an_answer_that_is_refused_after_its_caller_was_answered_fails_the_task(system: System) -> None:
    """Its caller has got an answer already, so the turn cannot be removed."""
    task_id = await asked(system)
    pending, hold = await reaches(system, taskId=task_id, then=(WorkerRefused("echo:a"),))
    system.hub.drain()
    await asyncio.wait_for(pending, 0.1)
    hold.release()
    await asyncio.sleep(0.1)
    assert end(await system.get(task_id)) == ("failed", "WORKER_BUSY")


async def test_a_call_that_is_refused_after_its_caller_was_answered_fails_the_task(system: System) -> None:
    await system.enrol("echo:a")
    pending, hold = await reaches(system, then=(WorkerRefused("echo:a"),))
    system.hub.drain()
    answer = await asyncio.wait_for(pending, 0.1)
    hold.release()
    await asyncio.sleep(0.1)
    assert end(await system.get(answer["id"])) == ("failed", "WORKER_BUSY")


async def test_a_call_that_is_being_admitted_when_the_drain_begins_is_revealed(system: System) -> None:
    await system.enrol("echo:a")
    admit_hold, hold = system.engine.hold("tasks.admit"), Hold()
    system.forwarder.plan("echo:a", hold, status("completed"))
    pending = asyncio.create_task(system.send())
    await admit_hold.reached.wait()
    system.hub.drain()
    admit_hold.release()
    assert end(await asyncio.wait_for(pending, 0.1)) == ("submitted", "")


async def test_a_caller_that_begins_to_wait_during_the_drain_is_answered_at_once(system: System) -> None:
    await system.enrol("echo:a")
    admit_hold = system.engine.hold("tasks.admit")
    reveal_hold = system.engine.hold_after("events.append")
    system.forwarder.plan("echo:a", task(), Hold())
    pending = asyncio.create_task(system.send())
    await admit_hold.reached.wait()
    admit_hold.release()
    await reveal_hold.reached.wait()
    system.hub.drain()
    reveal_hold.release()
    assert end(await asyncio.wait_for(pending, 0.1)) == ("working", "")


async def test_a_caller_that_waits_for_a_worker_gets_no_live_worker(system: System) -> None:
    waiting = asyncio.create_task(system.send(metadata={"waitSeconds": 60}))
    await asyncio.sleep(1)
    system.hub.drain()
    with pytest.raises(RoleUnknown):
        await asyncio.wait_for(waiting, 0.2)


# --- streams


async def test_open_streams_are_broken_off_and_the_reader_can_resume(system: System) -> None:
    await system.enrol("echo:a")
    hold = Hold()
    system.forwarder.plan("echo:a", task(), hold, status("completed"))
    task_stream = await system.hub.stream(CALLER, say())
    reader = asyncio.create_task(frames(task_stream))
    await hold.reached.wait()
    await asyncio.sleep(0.1)
    system.hub.drain()
    got = await asyncio.wait_for(reader, 0.1)
    assert [frame["kind"] for frame in got] == ["task"]
    assert task_stream.broken_off
    assert system.observer.streams == 0


async def test_a_stream_that_had_ended_is_not_broken_off(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), status("completed"))
    task_stream = await system.hub.stream(CALLER, say())
    assert len(await frames(task_stream)) == 2
    system.hub.drain()
    assert not task_stream.broken_off
    task_stream.close()


async def test_a_stream_whose_worker_has_sent_nothing_is_broken_off(system: System) -> None:
    await system.enrol("echo:a")
    hold = Hold()
    system.forwarder.plan("echo:a", hold, status("completed"))
    streaming = asyncio.create_task(system.hub.stream(CALLER, say()))
    await hold.reached.wait()
    system.hub.drain()
    task_stream = await asyncio.wait_for(streaming, 0.1)
    assert task_stream.broken_off
    assert await asyncio.wait_for(frames(task_stream), 0.1) == []
    assert system.observer.streams == 0


async def test_a_stream_that_begins_while_the_hub_drains_is_broken_off(system: System) -> None:
    """Else its reader would delay the shutdown as long as the task runs."""
    await system.enrol("echo:a")
    await reaches(system, task(), then=(status("completed"),))
    row = await system.row()
    system.hub.drain()
    for after in (None, 0, 1):
        task_stream = await system.subscribe(row.id, after)
        assert task_stream.broken_off
        assert len(await asyncio.wait_for(frames(task_stream), 0.1)) == (0 if after == 0 else 1)
    assert system.observer.streams == 0


# --- callers that disconnect


async def test_a_caller_that_disconnects_stops_waiting_and_the_task_continues(system: System) -> None:
    await system.enrol("echo:a")
    hold, leave = Hold(), []
    system.forwarder.plan("echo:a", task(), hold, status("completed"))
    pending = asyncio.create_task(system.hub.send(CALLER, say(), leave.append))
    await hold.reached.wait()
    await asyncio.sleep(0.1)
    for gone in leave:
        gone()
    with pytest.raises(ClientDisconnected):
        await asyncio.wait_for(pending, 0.1)
    hold.release()
    await asyncio.sleep(0.1)
    assert end(await system.get((await system.row()).id)) == ("completed", "")


async def test_a_caller_that_disconnects_as_the_task_ends_gets_client_gone(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), 0.1, status("completed"))
    with pytest.raises(ClientDisconnected):
        await system.hub.send(CALLER, say(), lambda leave: leave())


# --- a task that is taken back


async def test_a_reader_of_a_task_that_is_taken_back_finds_nothing(system: System) -> None:
    await system.enrol("echo:a")
    pending, hold = await reaches(system, then=(WorkerRefused("echo:a"),))
    task_stream = await system.subscribe((await system.row()).id)
    hold.release()
    with pytest.raises(WorkerRefused):
        await pending
    assert await asyncio.wait_for(frames(task_stream), 1) == []
    assert not task_stream.broken_off
