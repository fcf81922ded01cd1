"""A store that is slow, fails, or has another writer: not the fault of a worker."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rolecall.errors import LogMoved, StoreUnavailable, WorkerFault, WorkerRefused
from tests.flow.conftest import CALLER, System, say
from tests.flow.relayed import CUT, asked, end, moved, reaches, texts
from tests.helpers.reading import next_batch
from tests.helpers.scripted import chunk, status, task
from tests.helpers.watched_engine import Hold

DOWN = StoreUnavailable()


async def test_a_slow_store_does_not_count_as_silence_of_the_worker(system: System) -> None:
    system.with_bounds(silence=timedelta(seconds=10))
    system.watch()
    await system.enrol("echo:a")
    opening, writing = system.engine.hold("events.append"), system.engine.hold("events.append")
    opening.release()
    system.forwarder.plan("echo:a", task(), chunk("x", append=False), 5.0, status("completed"))
    pending = asyncio.create_task(system.send())
    await writing.reached.wait()
    await asyncio.sleep(60)
    assert system.forwarder.asked("fetch") == []
    writing.release()
    assert end(await pending) == ("completed", "")


async def test_a_worker_that_is_silent_after_a_slow_append_is_given_up(system: System) -> None:
    system.with_bounds(silence=timedelta(seconds=10))
    system.watch()
    await system.enrol("echo:a")
    writing = system.engine.hold("events.append")
    system.forwarder.plan("echo:a", task(), 3600.0)
    pending = asyncio.create_task(system.send())
    await writing.reached.wait()
    await asyncio.sleep(60)
    began = system.clock.monotonic()
    writing.release()
    assert end(await pending) == ("failed", "WORKER_SILENT")
    # The look that found the append running was five seconds earlier.
    assert system.clock.monotonic() - began == pytest.approx(5, abs=0.1)


# --- a failing store


@pytest.mark.parametrize("replays", [True, False])
async def test_a_first_event_that_cannot_be_stored_is_fetched_again_where_that_is_safe(system: System, replays: bool) -> None:
    await system.enrol("echo:a", replays=replays)
    system.engine.fail("events.append", DOWN)
    system.forwarder.plan("echo:a", task(), status("completed"))
    system.forwarder.plan("echo:a", task("completed"))
    if replays:
        assert end(await system.send()) == ("completed", "")
    else:
        assert end(await system.send()) == ("failed", "OVERLOADED")
    assert len(system.forwarder.asked("deliver")) == (2 if replays else 1)


async def test_an_event_that_cannot_be_stored_is_fetched_again(system: System) -> None:
    await system.enrol("echo:a", replays=True)
    pending, hold = await reaches(system, task(position="b.1"), then=(chunk("x", position="b.2"), status("completed")))
    system.engine.fail("events.append", DOWN)
    system.forwarder.plan("echo:a", chunk("x", append=False, position="b.2"), status("completed", position="b.3"))
    hold.release()
    answer = await pending
    assert (end(answer), texts(answer)) == (("completed", ""), ["x"])
    assert system.forwarder.calls[-1][2].position == "b.1"


async def test_a_long_store_failure_does_not_count_as_silence_of_the_worker(system: System) -> None:
    system.with_bounds(silence=timedelta(seconds=2))
    system.watch()
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), CUT)
    system.forwarder.plan_fetch("echo:a", *[task("completed")] * 30)
    opening = system.engine.hold_after("events.append")
    pending = asyncio.create_task(system.send())
    await opening.reached.wait()
    system.engine.fail("events.append", DOWN, times=20)
    opening.release()
    assert end(await pending) == ("completed", "")
    assert system.forwarder.times("fetch") == [round(0.25 * n, 2) for n in range(21)]


async def test_an_end_is_retried_until_it_is_stored(system: System) -> None:
    """Nothing else would end this task."""
    lease = await system.enrol("echo:a")
    system.forwarder.plan("echo:a", CUT)
    system.engine.fail("events.append", DOWN, times=5)
    began = system.clock.monotonic()
    with pytest.raises(StoreUnavailable):
        await system.send()
    assert system.clock.monotonic() - began < 0.01
    await asyncio.sleep(1.2)
    assert lease.in_flight == 1
    await asyncio.sleep(0.1)
    assert end(await system.get((await system.row()).id)) == ("failed", "WORKER_LOST")
    assert lease.in_flight == 0


async def test_the_removal_of_a_call_that_never_ran_is_retried_until_it_is_stored(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", WorkerRefused("echo:a"))
    system.engine.fail("tasks.discard", DOWN, times=5)
    with pytest.raises(StoreUnavailable):
        await system.send()
    assert len(await system.rows()) == 1
    await asyncio.sleep(1.3)
    assert await system.rows() == []


async def test_the_removal_of_a_refused_answer_is_retried_until_it_is_stored(system: System) -> None:
    task_id = await asked(system)
    system.forwarder.plan("echo:a", WorkerRefused("echo:a"))
    system.engine.fail("tasks.drop_turn", DOWN, times=5)
    with pytest.raises(StoreUnavailable):
        await system.send("blue", taskId=task_id)
    await asyncio.sleep(1.3)
    system.forwarder.plan("echo:a", status("completed"))
    answer = await system.send("red", taskId=task_id)
    assert [turn["parts"][0]["text"] for turn in answer["history"] if turn["role"] == "user"] == ["hi", "red"]


async def test_the_end_of_a_task_that_its_worker_forgot_is_retried_until_it_is_stored(system: System) -> None:
    task_id = await asked(system)
    system.forwarder.plan("echo:a", WorkerFault(-32001, "which task?"))
    system.engine.fail("events.append", DOWN, times=5)
    with pytest.raises(StoreUnavailable):
        await system.send("blue", taskId=task_id)
    await asyncio.sleep(1.3)
    assert end(await system.get(task_id)) == ("failed", "WORKER_LOST")


async def test_a_call_whose_new_worker_cannot_be_stored_reaches_no_worker(system: System) -> None:
    lease = await system.enrol("echo:a")
    system.engine.fail("tasks.assign", DOWN)
    pending = await moved(system, refusal=WorkerRefused("echo:a"))
    assert end(await pending) == ("failed", "OVERLOADED")
    assert system.forwarder.asked("deliver") == ["echo:a"]
    assert lease.in_flight == 0


# --- another writer


async def test_a_relay_whose_task_another_hub_writes_to_stops(system: System) -> None:
    lease = await system.enrol("echo:a")
    system.engine.fail("events.append", LogMoved())
    system.forwarder.plan("echo:a", task(), 3600.0)
    with pytest.raises(LogMoved):
        await system.send()
    await asyncio.sleep(0.01)
    assert system.forwarder.left == ["echo:a"]
    assert len(system.hub.relays) == 0
    assert lease.in_flight == 0
    (row,) = await system.rows()
    assert not row.ended


async def test_a_reader_continues_when_another_hub_takes_its_task_over(system: System) -> None:
    await system.enrol("echo:a")
    opening = system.engine.hold_after("events.append")
    system.forwarder.plan("echo:a", task(), status("completed"))
    streaming = asyncio.create_task(system.hub.stream(CALLER, say()))
    await opening.reached.wait()
    system.engine.fail("events.append", LogMoved())
    opening.release()
    task_stream = await asyncio.wait_for(streaming, 1)
    assert [logged.cursor for logged in await next_batch(task_stream)] == [1]
    await asyncio.sleep(0.01)
    assert len(system.hub.relays) == 0
    task_stream.close()


async def test_a_relay_that_cannot_end_the_task_of_another_hub_reports_it(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", CUT)
    system.engine.fail("events.append", LogMoved())
    with pytest.raises(LogMoved):
        await system.send()
    await asyncio.sleep(0.01)
    assert len(system.hub.relays) == 0


async def test_a_relay_that_is_overtaken_while_its_task_is_polled_stops(system: System) -> None:
    await system.enrol("echo:a", streaming=False)
    hold = Hold()
    system.forwarder.plan("echo:a", task())
    system.forwarder.plan_fetch("echo:a", hold, task("completed"))
    pending = asyncio.create_task(system.send())
    await hold.reached.wait()
    system.engine.fail("events.append", LogMoved())
    hold.release()
    await asyncio.sleep(0.1)
    assert len(system.hub.relays) == 0
    assert len(system.forwarder.asked("fetch")) == 1
    pending.cancel()
