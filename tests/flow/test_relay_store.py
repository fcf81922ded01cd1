"""The hub's own trouble: a store that takes long, takes nothing, or belongs to somebody else. No worker pays for it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rolecall.errors import LogMoved, StoreUnavailable, WorkerFault, WorkerRefused
from tests.flow.conftest import ME, House, say
from tests.flow.relayed import CUT, asked, end, moved, reaches, texts
from tests.helpers.scripted import chunk, status, task
from tests.helpers.watched_engine import Hold

DOWN = StoreUnavailable()


async def test_a_store_that_takes_long_is_no_silence_of_the_worker(house: House) -> None:
    house.with_bounds(silence=timedelta(seconds=10))
    house.watch()
    await house.enrol("echo:a")
    opening, writing = house.engine.hold("events.append"), house.engine.hold("events.append")
    opening.release()
    house.forwarder.plan("echo:a", task(), chunk("x", append=False), 5.0, status("completed"))
    sending = asyncio.create_task(house.send())
    await writing.reached.wait()
    await asyncio.sleep(60)
    assert house.forwarder.asked("fetch") == []
    writing.release()
    assert end(await sending) == ("completed", "")


async def test_a_worker_that_is_silent_behind_a_slow_append_is_given_up(house: House) -> None:
    house.with_bounds(silence=timedelta(seconds=10))
    house.watch()
    await house.enrol("echo:a")
    writing = house.engine.hold("events.append")
    house.forwarder.plan("echo:a", task(), 3600.0)
    sending = asyncio.create_task(house.send())
    await writing.reached.wait()
    await asyncio.sleep(60)
    began = house.clock.monotonic()
    writing.release()
    assert end(await sending) == ("failed", "WORKER_SILENT")
    # The look that found the hub still writing came five seconds before.
    assert house.clock.monotonic() - began == pytest.approx(5, abs=0.1)


# --- it takes nothing


@pytest.mark.parametrize("replays", [True, False])
async def test_a_first_event_that_cannot_be_stored_is_fetched_again_where_that_is_safe(house: House, replays: bool) -> None:
    await house.enrol("echo:a", replays=replays)
    house.engine.fail("events.append", DOWN)
    house.forwarder.plan("echo:a", task(), status("completed"))
    house.forwarder.plan("echo:a", task("completed"))
    if replays:
        assert end(await house.send()) == ("completed", "")
    else:
        assert end(await house.send()) == ("failed", "OVERLOADED")
    assert len(house.forwarder.asked("deliver")) == (2 if replays else 1)


async def test_an_event_that_cannot_be_stored_is_fetched_again(house: House) -> None:
    await house.enrol("echo:a", replays=True)
    sending, hold = await reaches(house, task(position="b.1"), then=(chunk("x", position="b.2"), status("completed")))
    house.engine.fail("events.append", DOWN)
    house.forwarder.plan("echo:a", chunk("x", append=False, position="b.2"), status("completed", position="b.3"))
    hold.release()
    answer = await sending
    assert (end(answer), texts(answer)) == (("completed", ""), ["x"])
    assert house.forwarder.calls[-1][2].position == "b.1"


async def test_a_store_that_is_down_for_longer_than_a_worker_may_be_silent_is_not_its_silence(house: House) -> None:
    house.with_bounds(silence=timedelta(seconds=2))
    house.watch()
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), CUT)
    house.forwarder.plan_fetch("echo:a", *[task("completed")] * 30)
    opening = house.engine.hold_after("events.append")
    sending = asyncio.create_task(house.send())
    await opening.reached.wait()
    house.engine.fail("events.append", DOWN, times=20)
    opening.release()
    assert end(await sending) == ("completed", "")
    assert house.forwarder.times("fetch") == [round(0.25 * n, 2) for n in range(21)]


async def test_an_end_is_stored_however_long_that_takes(house: House) -> None:
    """Nobody else would ever end this task."""
    lease = await house.enrol("echo:a")
    house.forwarder.plan("echo:a", CUT)
    house.engine.fail("events.append", DOWN, times=5)
    began = house.clock.monotonic()
    with pytest.raises(StoreUnavailable):
        await house.send()
    assert house.clock.monotonic() - began < 0.01
    await asyncio.sleep(1.2)
    assert lease.in_flight == 1
    await asyncio.sleep(0.1)
    assert end(await house.get((await house.row()).id)) == ("failed", "WORKER_LOST")
    assert lease.in_flight == 0


async def test_a_call_that_nobody_ran_is_taken_back_however_long_that_takes(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", WorkerRefused("echo:a"))
    house.engine.fail("tasks.discard", DOWN, times=5)
    with pytest.raises(StoreUnavailable):
        await house.send()
    assert len(await house.rows()) == 1
    await asyncio.sleep(1.3)
    assert await house.rows() == []


async def test_an_answer_that_nobody_took_is_taken_back_however_long_that_takes(house: House) -> None:
    task_id = await asked(house)
    house.forwarder.plan("echo:a", WorkerRefused("echo:a"))
    house.engine.fail("tasks.drop_turn", DOWN, times=5)
    with pytest.raises(StoreUnavailable):
        await house.send("blue", taskId=task_id)
    await asyncio.sleep(1.3)
    house.forwarder.plan("echo:a", status("completed"))
    answer = await house.send("red", taskId=task_id)
    assert [turn["parts"][0]["text"] for turn in answer["history"] if turn["role"] == "user"] == ["hi", "red"]


async def test_a_task_that_its_worker_has_forgotten_is_ended_however_long_that_takes(house: House) -> None:
    task_id = await asked(house)
    house.forwarder.plan("echo:a", WorkerFault(-32001, "which task?"))
    house.engine.fail("events.append", DOWN, times=5)
    with pytest.raises(StoreUnavailable):
        await house.send("blue", taskId=task_id)
    await asyncio.sleep(1.3)
    assert end(await house.get(task_id)) == ("failed", "WORKER_LOST")


async def test_a_call_whose_new_worker_cannot_be_stored_goes_nowhere(house: House) -> None:
    lease = await house.enrol("echo:a")
    house.engine.fail("tasks.assign", DOWN)
    sending = await moved(house, refusal=WorkerRefused("echo:a"))
    assert end(await sending) == ("failed", "OVERLOADED")
    assert house.forwarder.asked("deliver") == ["echo:a"]
    assert lease.in_flight == 0


# --- it belongs to somebody else


async def test_a_relay_whose_task_another_hub_writes_to_stops(house: House) -> None:
    lease = await house.enrol("echo:a")
    house.engine.fail("events.append", LogMoved())
    house.forwarder.plan("echo:a", task(), 3600.0)
    with pytest.raises(LogMoved):
        await house.send()
    await asyncio.sleep(0.01)
    assert house.forwarder.left == ["echo:a"]
    assert len(house.hub.relays) == 0
    assert lease.in_flight == 0
    (row,) = await house.rows()
    assert not row.ended


async def test_a_caller_whose_task_is_taken_over_by_another_hub_after_its_beginning_reads_on(house: House) -> None:
    await house.enrol("echo:a")
    opening = house.engine.hold_after("events.append")
    house.forwarder.plan("echo:a", task(), status("completed"))
    streaming = asyncio.create_task(house.hub.stream(ME, say()))
    await opening.reached.wait()
    house.engine.fail("events.append", LogMoved())
    opening.release()
    task_stream = await asyncio.wait_for(streaming, 1)
    assert [logged.cursor for logged in await anext(task_stream)] == [1]
    assert len(house.hub.relays) == 0
    task_stream.close()


async def test_a_relay_that_cannot_end_a_task_of_another_hub_says_so(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", CUT)
    house.engine.fail("events.append", LogMoved())
    with pytest.raises(LogMoved):
        await house.send()
    await asyncio.sleep(0.01)
    assert len(house.hub.relays) == 0


async def test_a_relay_that_is_overtaken_while_its_task_is_polled_stops(house: House) -> None:
    await house.enrol("echo:a", streaming=False)
    hold = Hold()
    house.forwarder.plan("echo:a", task())
    house.forwarder.plan_fetch("echo:a", hold, task("completed"))
    sending = asyncio.create_task(house.send())
    await hold.reached.wait()
    house.engine.fail("events.append", LogMoved())
    hold.release()
    await asyncio.sleep(0.1)
    assert len(house.hub.relays) == 0
    assert len(house.forwarder.asked("fetch")) == 1
    sending.cancel()
