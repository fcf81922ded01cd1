"""Readers of a task: where a stream begins, what it has, and when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from hub.core.tasks.stream import TaskStream
from rolecall.errors import InvalidParams, Overloaded, TaskNotFound, TaskOver
from rolecall.model.a2a import Logged
from rolecall.model.ids import TaskId
from rolecall.protocol.text.jsontext import parse
from tests.flow.callers import ANY, DialectCaller
from tests.flow.conftest import CALLER, KEEP_ALIVE, System, frames, hub_limits, say, shares
from tests.helpers.reading import next_batch
from tests.helpers.scripted import chunk, message, status, task
from tests.helpers.watched_engine import Hold


async def paused(system: System, *before: Any) -> str:
    """A paused task."""
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", *(before or (task(),)), status("input-required", "which?"))
    return str((await system.send())["id"])


async def at_work(system: System, *steps: Any) -> tuple[str, Hold]:
    """A task whose worker has sent these events and then waits. Released, it completes."""
    await system.enrol("echo:a")
    here = Hold()
    system.forwarder.plan("echo:a", *(steps or (task(),)), here, status("completed"))
    beginning = asyncio.create_task(system.hub.stream(CALLER, say()))
    await here.reached.wait()
    (await beginning).close()
    return str((await system.row()).id), here


def outline(got: list[dict[str, Any]]) -> list[tuple[int, str, str | None]]:
    """Cursor, kind and state of each frame."""
    return [(frame["cursor"], frame["kind"], frame.get("status", {}).get("state")) for frame in got]


def texts(document: dict[str, Any]) -> list[str]:
    return [part["text"] for artifact in document.get("artifacts", []) for part in artifact["parts"]]


# --- where a stream begins


async def test_a_reader_after_an_answered_pause_gets_the_later_events(stored_system: System) -> None:
    system = stored_system
    task_id = await paused(system)
    system.forwarder.plan("echo:a", status("working"), chunk("x", append=False), status("completed"))
    await system.send("blue", taskId=task_id)
    assert outline(await frames(await system.subscribe(task_id, after=2))) == [
        (2, "task", "input-required"),
        (3, "status-update", "working"),
        (4, "artifact-update", None),
        (5, "status-update", "completed"),
    ]


async def test_a_reader_continues_over_an_answered_pause(stored_system: System) -> None:
    system = stored_system
    task_id = await paused(system)
    system.forwarder.plan("echo:a", status("working"), status("auth-required"))
    await system.send("blue", taskId=task_id)
    system.forwarder.plan("echo:a", status("working"), status("completed"))
    await system.send("key", taskId=task_id)
    assert [cursor for cursor, _, _ in outline(await frames(await system.subscribe(task_id, after=1)))] == [1, 2, 3, 4, 5, 6]


async def test_a_stream_ends_at_an_unanswered_pause(stored_system: System) -> None:
    system = stored_system
    task_id = await paused(system)
    for after in (None, 2):
        assert outline(await frames(await system.subscribe(task_id, after))) == [(2, "task", "input-required")]
    assert outline(await frames(await system.subscribe(task_id, after=1))) == [
        (1, "task", "working"),
        (2, "status-update", "input-required"),
    ]


async def test_a_reader_without_a_cursor_gets_the_task_as_of_now_and_what_follows(stored_system: System) -> None:
    system = stored_system
    task_id, here = await at_work(system, task(), chunk("x", append=False))
    task_stream = await system.subscribe(task_id)
    (first,) = await next_batch(task_stream)
    assert (first.cursor, texts(parse(first.event.body))) == (2, ["x"])
    here.release()
    assert outline(await frames(task_stream)) == [(3, "status-update", "completed")]


@pytest.mark.parametrize("after", [1, 2, 3])
async def test_the_first_frame_is_the_task_as_of_the_readers_cursor(stored_system: System, after: int) -> None:
    system = stored_system
    await system.enrol("echo:a")
    script = (task(), chunk("x", append=False), status("working", "soon"), chunk("y"), status("completed", "done"))
    system.forwarder.plan("echo:a", *script)
    whole = await system.stream()
    got = await frames(await system.subscribe(whole[0]["id"], after))
    assert (got[0]["cursor"], got[0]["kind"], got[0]["status"]["state"]) == (after, "task", "working")
    assert texts(got[0]) == ["x"][: after - 1]
    assert ("message" in got[0]["status"]) is (after == 3)
    assert got[1:] == whole[after:]


async def test_a_reader_at_the_beginning_gets_the_log_as_it_is(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), chunk("x", append=False), status("completed"))
    whole = await system.stream()
    assert await frames(await system.subscribe(whole[0]["id"], after=0)) == whole


async def test_a_reader_of_an_unrevealed_task_waits_for_its_first_event(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a")
    here = Hold()
    system.forwarder.plan("echo:a", here, task(), status("completed"))
    pending = asyncio.create_task(system.send())
    await here.reached.wait()
    task_id = (await system.row()).id
    assert (await system.get(task_id))["status"]["state"] == "submitted"
    assert (await DialectCaller(system, "1.0").list_tasks()) == []
    task_stream = await system.subscribe(task_id)
    assert await next_batch(task_stream) == ()
    here.release()
    assert outline(await frames(task_stream)) == [(1, "task", "working"), (2, "status-update", "completed")]
    await pending


async def test_a_cursor_that_the_log_has_not_reached_is_refused(stored_system: System) -> None:
    system = stored_system
    task_id, here = await at_work(system)
    with pytest.raises(InvalidParams, match="Last-Event-ID 2 is after the task's last event, 1"):
        await system.subscribe(task_id, after=2)
    assert outline([{"cursor": 1, **parse((await next_batch(await system.subscribe(task_id, after=1)))[0].event.body)}])
    here.release()


async def test_a_task_that_has_ended_is_one_frame_in_0_3_and_over_in_1_0(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), status("completed"))
    task_id = (await system.send())["id"]
    for after in (None, 2):
        assert outline(await frames(await system.subscribe(task_id, after))) == [(2, "task", "completed")]
        with pytest.raises(TaskOver) as over:
            await system.subscribe(task_id, after, dialect="1.0")
        assert over.value.facts == {"sequence": "2"}
    assert [seen.cursor for seen in await DialectCaller(system, "1.0").subscribe(task_id, after=1)] == [1, 2]


async def test_a_paused_task_is_not_over_in_1_0(stored_system: System) -> None:
    task_id = await paused(stored_system)
    (seen,) = await DialectCaller(stored_system, "1.0").subscribe(task_id)
    assert (seen.cursor, seen.state) == (2, "input-required")


async def test_the_stream_of_an_answer_begins_with_the_task_after_its_pause(stored_system: System) -> None:
    system = stored_system
    task_id = await paused(system)
    system.forwarder.plan("echo:a", chunk("x", append=False), status("completed"))
    got = await system.stream("blue", taskId=task_id)
    assert outline(got) == [
        (3, "task", "working"),
        (4, "artifact-update", None),
        (5, "status-update", "completed"),
    ]
    assert [turn["parts"][0]["text"] for turn in got[0]["history"]] == ["hi", "which?", "blue"]


async def test_a_blocking_answer_does_not_return_the_pause_that_it_answers(stored_system: System) -> None:
    system = stored_system
    task_id = await paused(system)
    system.forwarder.plan("echo:a", 1.0, status("working"), 1.0, status("input-required", "and now?"))
    answer = await system.send("blue", taskId=task_id)
    assert answer["status"]["message"]["parts"][0]["text"] == "and now?"


# --- how a stream ends


async def test_an_open_stream_without_events_gets_a_keep_alive(stored_system: System) -> None:
    task_id, here = await at_work(stored_system)
    task_stream = await stored_system.subscribe(task_id)
    await next_batch(task_stream)
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await next_batch(task_stream) == ()
    assert loop.time() - began == pytest.approx(KEEP_ALIVE.total_seconds(), abs=0.01)
    here.release()
    assert outline(await frames(task_stream)) == [(2, "status-update", "completed")]


async def test_a_keep_alive_comes_a_whole_idle_time_after_the_last_event(stored_system: System) -> None:
    system = stored_system
    half = KEEP_ALIVE.total_seconds() / 2
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), half, chunk("x", append=False), 3.0, status("completed"))
    task_stream = await system.hub.stream(CALLER, say())
    loop, seen = asyncio.get_running_loop(), list[tuple[float, list[int]]]()
    began = loop.time()

    def take(events: Sequence[Logged]) -> bool:
        seen.append((round((loop.time() - began) / half, 1), [one.cursor for one in events]))
        return True

    take(await task_stream.page())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5.5 * half):
            await task_stream.live(take)
    assert seen == [(0.0, [1]), (1.0, [2]), (3.0, []), (5.0, [])]
    task_stream.close()


async def test_an_open_stream_is_counted_until_it_is_closed_and_once(system: System) -> None:
    system.with_bounds(shares=shares(streams=1))
    task_id, here = await at_work(system)
    assert system.observer.streams == 0
    task_stream = await system.subscribe(task_id)
    assert system.observer.streams == 1
    with pytest.raises(Overloaded):
        await system.subscribe(task_id)
    task_stream.close()
    task_stream.close()
    assert system.observer.streams == 0
    again = await system.subscribe(task_id)
    with pytest.raises(Overloaded):
        await system.subscribe(task_id)
    assert system.observer.streams == 1
    again.close()
    here.release()


async def test_closing_a_stream_wakes_a_waiting_reader(system: System) -> None:
    system.with_bounds(limits=hub_limits(keep_alive=timedelta(hours=1)))
    task_id, here = await at_work(system)
    task_stream = await system.subscribe(task_id)
    await next_batch(task_stream)
    waiting = asyncio.ensure_future(next_batch(task_stream))
    await asyncio.sleep(1)
    began = asyncio.get_running_loop().time()
    task_stream.close()
    with pytest.raises(EOFError):
        await waiting
    assert asyncio.get_running_loop().time() - began < 1
    assert task_stream.closed
    assert not task_stream.broken_off
    here.release()


async def test_a_closed_stream_gives_no_more_events(system: System) -> None:
    task_id, here = await at_work(system)
    task_stream = await system.subscribe(task_id, after=0)
    here.release()
    await asyncio.sleep(1)
    task_stream.close()
    assert await frames(task_stream) == []


async def test_streams_are_broken_off_when_the_hub_drains(system: System) -> None:
    task_id, here = await at_work(system)
    waits, ended = await system.subscribe(task_id), await system.subscribe(task_id)
    await next_batch(waits)
    waiting = asyncio.ensure_future(next_batch(waits))
    await asyncio.sleep(0)
    await next_batch(ended)
    ended.close()
    system.hub.drain()
    with pytest.raises(EOFError):
        await waiting
    assert (waits.broken_off, ended.broken_off) == (True, False)
    assert system.observer.streams == 0
    here.release()


@pytest.mark.parametrize("after", [None, 1])
@pytest.mark.parametrize("last", ["input-required", "completed"])
async def test_a_stream_that_was_read_to_its_end_is_not_broken_off(system: System, last: str, after: int | None) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), status(last))
    task_stream: TaskStream = await system.subscribe((await system.send())["id"], after)
    assert (await frames(task_stream))[-1]["status"]["state"] == last
    assert system.observer.streams == 1
    system.hub.drain()
    assert not task_stream.broken_off
    task_stream.close()
    assert system.observer.streams == 0


async def test_a_stream_that_begins_during_the_drain_is_broken_off(system: System) -> None:
    task_id, here = await at_work(system)
    system.hub.drain()
    task_stream = await system.subscribe(task_id)
    assert task_stream.broken_off
    assert outline(await frames(task_stream)) == [(1, "task", "working")]
    here.release()


async def test_a_broken_off_stream_of_an_answer_gives_its_cursor(system: System) -> None:
    """Its worker has sent nothing yet: a reader that resumes with the cursor misses nothing."""
    task_id = await paused(system)
    here = Hold()
    system.forwarder.plan("echo:a", here, status("completed"))
    beginning = asyncio.create_task(system.hub.stream(CALLER, say("blue", taskId=task_id)))
    await here.reached.wait()
    system.hub.drain()
    got = await frames(await beginning)
    assert outline(got) == [(2, "task", "input-required")]
    here.release()


# --- tasks as of now


async def test_a_bare_message_is_no_task_to_get_or_to_subscribe_to(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", message("yes"))
    assert (await system.send())["parts"][0]["text"] == "yes"
    row = system.engine.arguments("tasks.admit")[0][0][0]
    for refused in (system.get(row.id), system.subscribe(row.id), system.subscribe(row.id, after=0)):
        with pytest.raises(TaskNotFound):
            await refused


async def test_get_returns_as_much_history_as_requested(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), status("working", "one"), status("working", "two"), status("completed"))
    task_id = (await system.send())["id"]
    caller = DialectCaller(system, "0.3")
    turns = [len((await caller.get(task_id, wanted)).document.get("history", [])) for wanted in (None, 0, 1, 2, 9)]
    assert turns == [3, 0, 1, 2, 3]


async def test_get_returns_a_task_in_the_callers_dialect(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), status("completed"))
    task_id = (await DialectCaller(system, "1.0").send()).document["id"]
    assert (await DialectCaller(system, "1.0").get(task_id)).document["status"]["state"] == "TASK_STATE_COMPLETED"
    assert (await DialectCaller(system, "0.3").get(task_id)).document["status"]["state"] == "completed"
    row = await system.hub.task(CALLER, TaskId(task_id), ANY)
    assert (row.dialect, row.at) == ("1.0", 2)
