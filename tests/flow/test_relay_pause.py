"""A paused task: it frees its slot, its stream stays open for a while, and it waits for its caller."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rolecall.errors import InvalidParams
from tests.flow.conftest import System, frames, shares
from tests.flow.relayed import asked, end, reaches, texts, words
from tests.helpers.scripted import Step, chunk, status, task
from tests.helpers.watched_engine import Hold

WHICH = status("input-required", "which?")
AUTH_REQUIRED = status("auth-required", "log in")


async def paused(system: System, *then: Step, question: Step = WHICH, **offer: object) -> str:
    """A task that pauses on a stream which stays open and plays `then`."""
    await system.enrol("echo:a", **offer)
    system.forwarder.plan("echo:a", task(), question, *then)
    return str((await system.send())["id"])


def minute(system: System) -> None:
    system.with_bounds(silence=timedelta(seconds=60))
    system.watch()


async def test_a_pause_ends_the_stream_of_the_call(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), WHICH, 3600.0)
    got = await system.stream()
    assert end(got[-1]) == ("input-required", "")
    assert got[-1]["final"] is True


async def test_a_paused_task_takes_no_capacity_of_its_worker(system: System) -> None:
    task_id = await paused(system, 3600.0, capacity=1)
    (lease,) = system.engine.registry.live("default", "echo")
    assert lease.in_flight == 0
    system.forwarder.plan("echo:a", task("completed", task_id="second"))
    assert end(await system.send("another")) == ("completed", "")
    assert end(await system.get(task_id)) == ("input-required", "")


async def test_the_open_stream_of_a_paused_task_is_closed_after_five_seconds(system: System) -> None:
    minute(system)
    await paused(system, 3600.0)
    await asyncio.sleep(4.9)
    assert system.forwarder.left == []
    assert len(system.hub.relays) == 1
    await asyncio.sleep(1.2)
    assert system.forwarder.left == ["echo:a"]
    assert len(system.hub.relays) == 0
    assert system.forwarder.asked("fetch") == []


async def test_the_stream_of_a_task_that_needs_credentials_stays_open(system: System) -> None:
    """Its caller may give them elsewhere; then it continues on the same stream."""
    minute(system)
    task_id = await paused(system, 3600.0, chunk("x", append=False), status("completed"), question=AUTH_REQUIRED)
    task_stream = await system.subscribe(task_id, after=2)
    await asyncio.sleep(3599)
    assert system.forwarder.left == []
    assert end(await system.get(task_id)) == ("auth-required", "")
    await asyncio.sleep(2)
    done = await system.get(task_id)
    assert (end(done), texts(done)) == (("completed", ""), ["x"])
    task_stream.close()
    assert len(system.hub.relays) == 0


async def test_a_worker_that_continues_without_an_answer_is_working(system: System) -> None:
    hold = Hold()
    task_id = await paused(system, hold, chunk("x", append=False), status("completed"))
    await hold.reached.wait()
    hold.release()
    await asyncio.sleep(0.1)
    got = await frames(await system.subscribe(task_id, after=0))
    assert [frame.get("status", {}).get("state") for frame in got] == [
        "working",
        "input-required",
        "working",
        None,
        "completed",
    ]


async def test_an_answer_that_arrives_as_its_worker_continues_is_refused(system: System) -> None:
    goes_on = Hold()
    task_id = await paused(system, goes_on, chunk("x", append=False), 0.15, status("completed"))
    await goes_on.reached.wait()
    writing = system.engine.hold("events.append")
    goes_on.release()
    await writing.reached.wait()
    answering = asyncio.create_task(system.send("blue", taskId=task_id))
    await asyncio.sleep(0.1)
    writing.release()
    with pytest.raises(InvalidParams, match="is working"):
        await answering
    await asyncio.sleep(0.1)
    assert end(await system.get(task_id)) == ("completed", "")
    assert system.forwarder.asked("deliver") == ["echo:a"]


async def test_a_stream_is_closed_after_the_pause_that_is_being_appended(system: System) -> None:
    minute(system)
    asks_again = Hold()
    task_id = await paused(system, asks_again, status("input-required", "which one?"), 3600.0)
    await asks_again.reached.wait()
    writing = system.engine.hold("events.append")
    asks_again.release()
    await writing.reached.wait()
    await asyncio.sleep(8.5)  # between two looks
    assert system.forwarder.left == []
    writing.release()
    await asyncio.sleep(0.01)
    assert system.forwarder.left == ["echo:a"]
    assert len(system.hub.relays) == 0
    assert words(await system.get(task_id)) == "which one?"


async def test_a_worker_that_continues_as_its_stream_is_closed_is_followed_to_its_end(system: System) -> None:
    """The hub is about to close the stream while it appends a new event: it stays, also over the next pause."""
    minute(system)
    goes_on, asks_again, completed = Hold(), Hold(), Hold()
    again = status("input-required", "which one?")
    task_id = await paused(system, goes_on, chunk("x", append=False), asks_again, again, completed, status("completed"))
    await goes_on.reached.wait()
    writing = system.engine.hold("events.append")
    goes_on.release()
    await writing.reached.wait()
    await asyncio.sleep(8)
    writing.release()
    asks_again.release()
    await completed.reached.wait()
    assert words(await system.get(task_id)) == "which one?"
    completed.release()
    await asyncio.sleep(0.1)
    assert end(await system.get(task_id)) == ("completed", "")
    assert system.forwarder.left == []


async def test_a_paused_task_takes_a_slot_of_the_hub_only_while_its_stream_is_open(system: System) -> None:
    system.with_bounds(silence=timedelta(seconds=60), shares=shares(open_tasks=1))
    system.watch()
    await paused(system, 3600.0)
    await asyncio.sleep(7)
    system.forwarder.plan("echo:a", task("completed", task_id="second"))
    assert end(await system.send("another")) == ("completed", "")


async def test_a_restarted_hub_leaves_a_paused_task_paused(stored_system: System) -> None:
    system = stored_system
    task_id = await asked(system)
    await system.restart()
    assert len(system.hub.relays) == 0
    assert end(await system.get(task_id)) == ("input-required", "")
    system.forwarder.plan("echo:a", status("completed"))
    assert end(await system.send("blue", taskId=task_id)) == ("completed", "")


async def test_an_answer_that_arrives_during_the_append_of_a_second_pause_comes_after_it(system: System) -> None:
    """A second pause is being appended when the answer to the first one arrives: the answer comes after it."""
    task_id = await paused(system, hold := Hold(), status("input-required", "which one?"), 3600.0)
    await hold.reached.wait()
    writing = system.engine.hold("events.append")
    hold.release()
    await writing.reached.wait()
    system.forwarder.plan("echo:a", status("completed"))
    answering = asyncio.create_task(system.send("blue", taskId=task_id))
    await asyncio.sleep(0.3)
    assert system.forwarder.asked("deliver") == ["echo:a"]
    writing.release()
    answer = await answering
    assert end(answer) == ("completed", "")
    assert [turn["role"] for turn in answer["history"]] == ["user", "agent", "agent", "user"]
    assert system.forwarder.left == ["echo:a"]


async def test_the_slot_of_a_task_that_paused_and_continued_stays_free(system: System) -> None:
    """A worker that continues without a call takes no slot."""
    lease = await system.enrol("echo:a")
    first = Hold()
    pending, hold = await reaches(system, task(), WHICH, then=(status("working"), first, status("completed")))
    await pending
    hold.release()
    await first.reached.wait()
    assert lease.in_flight == 0
    first.release()
    await asyncio.sleep(0.1)
    assert lease.in_flight == 0


async def test_a_blocking_send_is_answered_although_content_follows_the_pause_at_once(system: System) -> None:
    await system.enrol("echo:a")
    together = [task(), status("input-required", "which?"), chunk("late", append=False)]
    system.forwarder.plan("echo:a", together, Hold())
    async with asyncio.timeout(30):
        answer = await system.send()
    assert answer["status"]["state"] == "input-required"
