"""A task that asks: its place is free, its stream is kept for a while, and it waits for its caller."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from hub.core.hub import HubLimits
from rolecall.errors import InvalidParams
from tests.flow.conftest import KEEP_ALIVE, House, frames
from tests.flow.relayed import asked, end, reaches, texts, words
from tests.helpers.scripted import Step, chunk, status, task
from tests.helpers.watched_engine import Hold

WHICH = status("input-required", "which?")
LOGIN = status("auth-required", "log in")


async def paused(house: House, *then: Step, question: Step = WHICH, **offer: object) -> str:
    """A task that asks over a stream which stays open for what comes `then`."""
    await house.enrol("echo:a", **offer)
    house.forwarder.plan("echo:a", task(), question, *then)
    return str((await house.send())["id"])


def minute(house: House) -> None:
    house.with_bounds(silence=timedelta(seconds=60))
    house.watch()


async def test_a_question_ends_the_stream_of_the_call(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), WHICH, 3600.0)
    got = await house.stream()
    assert end(got[-1]) == ("input-required", "")
    assert got[-1]["final"] is True


async def test_a_paused_task_takes_none_of_its_workers_places(house: House) -> None:
    task_id = await paused(house, 3600.0, capacity=1)
    (lease,) = house.engine.registry.live("default", "echo")
    assert lease.in_flight == 0
    house.forwarder.plan("echo:a", task("completed", task_id="second"))
    assert end(await house.send("another")) == ("completed", "")
    assert end(await house.get(task_id)) == ("input-required", "")


async def test_a_worker_that_asks_and_keeps_its_stream_open_is_left_after_five_seconds(house: House) -> None:
    minute(house)
    await paused(house, 3600.0)
    await asyncio.sleep(4.9)
    assert house.forwarder.left == []
    assert len(house.hub.relays) == 1
    await asyncio.sleep(1.2)
    assert house.forwarder.left == ["echo:a"]
    assert len(house.hub.relays) == 0
    assert house.forwarder.asked("fetch") == []


async def test_a_worker_that_asks_for_credentials_is_not_left(house: House) -> None:
    """Its caller may give them another way; then it goes on over the same stream."""
    minute(house)
    task_id = await paused(house, 3600.0, chunk("x", append=False), status("completed"), question=LOGIN)
    task_stream = await house.subscribe(task_id, after=2)
    await asyncio.sleep(3599)
    assert house.forwarder.left == []
    assert end(await house.get(task_id)) == ("auth-required", "")
    await asyncio.sleep(2)
    done = await house.get(task_id)
    assert (end(done), texts(done)) == (("completed", ""), ["x"])
    task_stream.close()
    assert len(house.hub.relays) == 0


async def test_a_worker_that_goes_on_without_an_answer_is_at_work(house: House) -> None:
    hold = Hold()
    task_id = await paused(house, hold, chunk("x", append=False), status("completed"))
    await hold.reached.wait()
    hold.release()
    await asyncio.sleep(0.1)
    got = await frames(await house.subscribe(task_id, after=0))
    assert [frame.get("status", {}).get("state") for frame in got] == [
        "working",
        "input-required",
        "working",
        None,
        "completed",
    ]


async def test_an_answer_that_crosses_the_news_that_its_worker_has_gone_on_is_refused(house: House) -> None:
    goes_on = Hold()
    task_id = await paused(house, goes_on, chunk("x", append=False), status("completed"))
    await goes_on.reached.wait()
    writing = house.engine.hold("events.append")
    goes_on.release()
    await writing.reached.wait()
    answering = asyncio.create_task(house.send("blue", taskId=task_id))
    await asyncio.sleep(0.1)
    writing.release()
    with pytest.raises(InvalidParams, match="at work"):
        await answering
    await asyncio.sleep(0.1)
    assert end(await house.get(task_id)) == ("completed", "")
    assert house.forwarder.asked("deliver") == ["echo:a"]


async def test_a_worker_that_is_left_while_its_next_question_is_written_is_left_behind_it(house: House) -> None:
    minute(house)
    asks_again = Hold()
    task_id = await paused(house, asks_again, status("input-required", "which one?"), 3600.0)
    await asks_again.reached.wait()
    writing = house.engine.hold("events.append")
    asks_again.release()
    await writing.reached.wait()
    await asyncio.sleep(8.5)  # between two looks
    assert house.forwarder.left == []
    writing.release()
    await asyncio.sleep(0.01)
    assert house.forwarder.left == ["echo:a"]
    assert len(house.hub.relays) == 0
    assert words(await house.get(task_id)) == "which one?"


async def test_a_worker_that_goes_on_in_the_moment_that_it_is_left_is_heard_to_its_end(house: House) -> None:
    """The hub is about to leave it as it writes that the worker has gone on: it is followed, also over its next question."""
    minute(house)
    goes_on, asks_again, finishes = Hold(), Hold(), Hold()
    again = status("input-required", "which one?")
    task_id = await paused(house, goes_on, chunk("x", append=False), asks_again, again, finishes, status("completed"))
    await goes_on.reached.wait()
    writing = house.engine.hold("events.append")
    goes_on.release()
    await writing.reached.wait()
    await asyncio.sleep(8)
    writing.release()
    asks_again.release()
    await finishes.reached.wait()
    assert words(await house.get(task_id)) == "which one?"
    finishes.release()
    await asyncio.sleep(0.1)
    assert end(await house.get(task_id)) == ("completed", "")
    assert house.forwarder.left == []


async def test_a_paused_task_fills_a_place_of_the_hub_only_while_its_stream_is_open(house: House) -> None:
    house.with_bounds(silence=timedelta(seconds=60), limits=HubLimits(open_tasks=1, keep_alive=KEEP_ALIVE))
    house.watch()
    await paused(house, 3600.0)
    await asyncio.sleep(7)
    house.forwarder.plan("echo:a", task("completed", task_id="second"))
    assert end(await house.send("another")) == ("completed", "")


async def test_a_restarted_hub_leaves_a_question_to_its_caller(stored_house: House) -> None:
    house = stored_house
    task_id = await asked(house)
    await house.restart()
    assert len(house.hub.relays) == 0
    assert end(await house.get(task_id)) == ("input-required", "")
    house.forwarder.plan("echo:a", status("completed"))
    assert end(await house.send("blue", taskId=task_id)) == ("completed", "")


async def test_a_question_that_is_being_written_as_its_caller_is_asked_twice_is_answered_in_order(house: House) -> None:
    """A second question is being written as the answer to the first one comes: the answer goes out behind it."""
    task_id = await paused(house, hold := Hold(), status("input-required", "which one?"), 3600.0)
    await hold.reached.wait()
    writing = house.engine.hold("events.append")
    hold.release()
    await writing.reached.wait()
    house.forwarder.plan("echo:a", status("completed"))
    answering = asyncio.create_task(house.send("blue", taskId=task_id))
    await asyncio.sleep(0.3)
    assert house.forwarder.asked("deliver") == ["echo:a"]
    writing.release()
    answer = await answering
    assert end(answer) == ("completed", "")
    assert [turn["role"] for turn in answer["history"]] == ["user", "agent", "agent", "user"]
    assert house.forwarder.left == ["echo:a"]


async def test_the_place_of_a_task_that_asked_and_went_on_stays_free(house: House) -> None:
    """What a worker does without being called is its own affair."""
    lease = await house.enrol("echo:a")
    first = Hold()
    sending, hold = await reaches(house, task(), WHICH, then=(status("working"), first, status("completed")))
    await sending
    hold.release()
    await first.reached.wait()
    assert lease.in_flight == 0
    first.release()
    await asyncio.sleep(0.1)
    assert lease.in_flight == 0
