"""Readers of a task: where a stream begins, what it holds, and when it ends."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from hub.core.hub import HubLimits
from hub.core.tasks.stream import TaskStream
from rolecall.errors import InvalidParams, Overloaded, TaskNotFound, TaskOver
from rolecall.model.ids import TaskId
from rolecall.protocol.text.jsontext import parse
from tests.flow.callers import ANY, Speaker
from tests.flow.conftest import KEEP_ALIVE, ME, House, frames, say
from tests.helpers.scripted import chunk, message, status, task
from tests.helpers.watched_engine import Hold


async def paused(house: House, *before: Any) -> str:
    """A task that waits for its caller."""
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", *(before or (task(),)), status("input-required", "which?"))
    return str((await house.send())["id"])


async def at_work(house: House, *steps: Any) -> tuple[str, Hold]:
    """A task whose worker has said this much and then waits. Released, it completes."""
    await house.enrol("echo:a")
    here = Hold()
    house.forwarder.plan("echo:a", *(steps or (task(),)), here, status("completed"))
    beginning = asyncio.create_task(house.hub.stream(ME, say()))
    await here.reached.wait()
    (await beginning).close()
    return str((await house.row()).id), here


def outline(got: list[dict[str, Any]]) -> list[tuple[int, str, str | None]]:
    """Cursor, kind and state of each frame."""
    return [(frame["cursor"], frame["kind"], frame.get("status", {}).get("state")) for frame in got]


def texts(document: dict[str, Any]) -> list[str]:
    return [part["text"] for artifact in document.get("artifacts", []) for part in artifact["parts"]]


# --- where a stream begins


async def test_a_reader_behind_a_pause_that_was_answered_gets_what_followed(stored_house: House) -> None:
    house = stored_house
    task_id = await paused(house)
    house.forwarder.plan("echo:a", status("working"), chunk("x", append=False), status("completed"))
    await house.send("blue", taskId=task_id)
    assert outline(await frames(await house.subscribe(task_id, after=2))) == [
        (2, "task", "input-required"),
        (3, "status-update", "working"),
        (4, "artifact-update", None),
        (5, "status-update", "completed"),
    ]


async def test_a_reader_who_meets_an_answered_pause_on_the_way_reads_on(stored_house: House) -> None:
    house = stored_house
    task_id = await paused(house)
    house.forwarder.plan("echo:a", status("working"), status("auth-required"))
    await house.send("blue", taskId=task_id)
    house.forwarder.plan("echo:a", status("working"), status("completed"))
    await house.send("key", taskId=task_id)
    assert [cursor for cursor, _, _ in outline(await frames(await house.subscribe(task_id, after=1)))] == [1, 2, 3, 4, 5, 6]


async def test_a_stream_ends_at_a_pause_that_nobody_has_answered(stored_house: House) -> None:
    house = stored_house
    task_id = await paused(house)
    for after in (None, 2):
        assert outline(await frames(await house.subscribe(task_id, after))) == [(2, "task", "input-required")]
    assert outline(await frames(await house.subscribe(task_id, after=1))) == [
        (1, "task", "working"),
        (2, "status-update", "input-required"),
    ]


async def test_a_reader_without_a_cursor_gets_the_task_as_of_now_and_what_follows(stored_house: House) -> None:
    house = stored_house
    task_id, here = await at_work(house, task(), chunk("x", append=False))
    task_stream = await house.subscribe(task_id)
    (first,) = await anext(task_stream)
    assert (first.cursor, texts(parse(first.event.body))) == (2, ["x"])
    here.release()
    assert outline(await frames(task_stream)) == [(3, "status-update", "completed")]


@pytest.mark.parametrize("after", [1, 2, 3])
async def test_the_first_frame_is_the_task_as_of_the_readers_cursor(stored_house: House, after: int) -> None:
    house = stored_house
    await house.enrol("echo:a")
    script = (task(), chunk("x", append=False), status("working", "soon"), chunk("y"), status("completed", "done"))
    house.forwarder.plan("echo:a", *script)
    whole = await house.stream()
    got = await frames(await house.subscribe(whole[0]["id"], after))
    assert (got[0]["cursor"], got[0]["kind"], got[0]["status"]["state"]) == (after, "task", "working")
    assert texts(got[0]) == ["x"][: after - 1]
    assert ("message" in got[0]["status"]) is (after == 3)
    assert got[1:] == whole[after:]


async def test_a_reader_at_the_beginning_gets_the_log_as_it_is(stored_house: House) -> None:
    house = stored_house
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), chunk("x", append=False), status("completed"))
    whole = await house.stream()
    assert await frames(await house.subscribe(whole[0]["id"], after=0)) == whole


async def test_a_reader_of_a_task_that_nobody_was_shown_waits_for_its_first_event(stored_house: House) -> None:
    house = stored_house
    await house.enrol("echo:a")
    here = Hold()
    house.forwarder.plan("echo:a", here, task(), status("completed"))
    sending = asyncio.create_task(house.send())
    await here.reached.wait()
    task_id = (await house.row()).id
    with pytest.raises(TaskNotFound):
        await house.get(task_id)
    assert (await Speaker(house, "1.0").listed()) == []
    task_stream = await house.subscribe(task_id)
    assert await anext(task_stream) == ()
    here.release()
    assert outline(await frames(task_stream)) == [(1, "task", "working"), (2, "status-update", "completed")]
    await sending


async def test_a_cursor_that_the_log_has_not_reached_is_refused(stored_house: House) -> None:
    house = stored_house
    task_id, here = await at_work(house)
    with pytest.raises(InvalidParams, match="Last-Event-ID 2 lies behind the task's last event, 1"):
        await house.subscribe(task_id, after=2)
    assert outline([{"cursor": 1, **parse((await anext(await house.subscribe(task_id, after=1)))[0].event.body)}])
    here.release()


async def test_a_task_that_has_ended_is_one_frame_in_0_3_and_over_in_1_0(stored_house: House) -> None:
    house = stored_house
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), status("completed"))
    task_id = (await house.send())["id"]
    for after in (None, 2):
        assert outline(await frames(await house.subscribe(task_id, after))) == [(2, "task", "completed")]
        with pytest.raises(TaskOver):
            await house.subscribe(task_id, after, dialect="1.0")
    assert [seen.cursor for seen in await Speaker(house, "1.0").subscribe(task_id, after=1)] == [1, 2]


async def test_a_task_that_only_waits_is_not_over_in_1_0(stored_house: House) -> None:
    task_id = await paused(stored_house)
    (seen,) = await Speaker(stored_house, "1.0").subscribe(task_id)
    assert (seen.cursor, seen.state) == (2, "input-required")


async def test_the_stream_of_an_answer_begins_with_the_task_as_it_went_on(stored_house: House) -> None:
    house = stored_house
    task_id = await paused(house)
    house.forwarder.plan("echo:a", chunk("x", append=False), status("completed"))
    got = await house.stream("blue", taskId=task_id)
    assert outline(got) == [
        (3, "task", "working"),
        (4, "artifact-update", None),
        (5, "status-update", "completed"),
    ]
    assert [turn["parts"][0]["text"] for turn in got[0]["history"]] == ["hi", "which?", "blue"]


async def test_a_blocking_answer_is_not_satisfied_by_the_pause_that_it_answers(stored_house: House) -> None:
    house = stored_house
    task_id = await paused(house)
    house.forwarder.plan("echo:a", 1.0, status("working"), 1.0, status("input-required", "and now?"))
    answer = await house.send("blue", taskId=task_id)
    assert answer["status"]["message"]["parts"][0]["text"] == "and now?"


# --- how a stream ends


async def test_a_stream_that_is_open_gets_a_keep_alive_when_nothing_comes(stored_house: House) -> None:
    task_id, here = await at_work(stored_house)
    task_stream = await stored_house.subscribe(task_id)
    await anext(task_stream)
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await anext(task_stream) == ()
    assert loop.time() - began == pytest.approx(KEEP_ALIVE.total_seconds(), abs=0.01)
    here.release()
    assert outline(await frames(task_stream)) == [(2, "status-update", "completed")]


async def test_a_keep_alive_comes_a_whole_idle_time_after_the_last_event(stored_house: House) -> None:
    house = stored_house
    half = KEEP_ALIVE.total_seconds() / 2
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), half, chunk("x", append=False), 3.0, status("completed"))
    task_stream = await house.hub.stream(ME, say())
    loop, seen = asyncio.get_running_loop(), list[tuple[float, list[int]]]()
    began = loop.time()
    async for batch in task_stream:
        seen.append((round((loop.time() - began) / half, 1), [one.cursor for one in batch]))
        if len(seen) == 4:
            break
    assert seen == [(0.0, [1]), (1.0, [2]), (3.0, []), (5.0, [])]
    task_stream.close()


async def test_an_open_stream_is_counted_until_it_is_closed_and_once(house: House) -> None:
    house.with_bounds(limits=HubLimits(streams=1, keep_alive=KEEP_ALIVE))
    task_id, here = await at_work(house)
    assert house.observer.streams == 0
    task_stream = await house.subscribe(task_id)
    assert house.observer.streams == 1
    with pytest.raises(Overloaded):
        await house.subscribe(task_id)
    task_stream.close()
    task_stream.close()
    assert house.observer.streams == 0
    again = await house.subscribe(task_id)
    with pytest.raises(Overloaded):
        await house.subscribe(task_id)
    assert house.observer.streams == 1
    again.close()
    here.release()


async def test_closing_a_stream_wakes_the_reader_who_waits(house: House) -> None:
    house.with_bounds(limits=HubLimits(keep_alive=timedelta(hours=1)))
    task_id, here = await at_work(house)
    task_stream = await house.subscribe(task_id)
    await anext(task_stream)
    waiting = asyncio.ensure_future(anext(task_stream, "the end"))
    await asyncio.sleep(1)
    began = asyncio.get_running_loop().time()
    task_stream.close()
    assert await waiting == "the end"
    assert asyncio.get_running_loop().time() - began < 1
    assert task_stream.closed
    assert not task_stream.broken_off
    here.release()


async def test_a_stream_that_is_closed_gives_nothing_more(house: House) -> None:
    task_id, here = await at_work(house)
    task_stream = await house.subscribe(task_id, after=0)
    here.release()
    await asyncio.sleep(1)
    task_stream.close()
    assert await frames(task_stream) == []


async def test_streams_are_broken_off_when_the_hub_goes_down(house: House) -> None:
    task_id, here = await at_work(house)
    waits, ended = await house.subscribe(task_id), await house.subscribe(task_id)
    await anext(waits)
    waiting = asyncio.ensure_future(anext(waits, "the end"))
    await asyncio.sleep(0)
    await anext(ended)
    ended.close()
    house.hub.drain()
    assert await waiting == "the end"
    assert (waits.broken_off, ended.broken_off) == (True, False)
    assert house.observer.streams == 0
    here.release()


@pytest.mark.parametrize("after", [None, 1])
@pytest.mark.parametrize("last", ["input-required", "completed"])
async def test_a_stream_that_was_read_to_its_end_is_not_broken_off(house: House, last: str, after: int | None) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), status(last))
    task_stream: TaskStream = await house.subscribe((await house.send())["id"], after)
    assert (await frames(task_stream))[-1]["status"]["state"] == last
    assert house.observer.streams == 1
    house.hub.drain()
    assert not task_stream.broken_off
    task_stream.close()
    assert house.observer.streams == 0


async def test_a_stream_that_begins_while_the_hub_goes_down_is_broken_off(house: House) -> None:
    task_id, here = await at_work(house)
    house.hub.drain()
    task_stream = await house.subscribe(task_id)
    assert task_stream.broken_off
    assert outline(await frames(task_stream)) == [(1, "task", "working")]
    here.release()


async def test_the_stream_of_an_answer_that_the_hub_breaks_off_names_the_event_that_it_stands_at(house: House) -> None:
    """Its worker has said nothing yet: a reader that comes back with the cursor misses nothing."""
    task_id = await paused(house)
    here = Hold()
    house.forwarder.plan("echo:a", here, status("completed"))
    beginning = asyncio.create_task(house.hub.stream(ME, say("blue", taskId=task_id)))
    await here.reached.wait()
    house.hub.drain()
    got = await frames(await beginning)
    assert outline(got) == [(2, "task", "input-required")]
    here.release()


# --- tasks as of now


async def test_a_bare_message_is_no_task_to_get_or_to_come_back_to(stored_house: House) -> None:
    house = stored_house
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", message("yes"))
    assert (await house.send())["parts"][0]["text"] == "yes"
    (row,) = await house.rows()
    for refused in (house.get(row.id), house.subscribe(row.id), house.subscribe(row.id, after=0)):
        with pytest.raises(TaskNotFound):
            await refused


async def test_a_task_is_got_with_as_much_history_as_is_wanted(stored_house: House) -> None:
    house = stored_house
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), status("working", "one"), status("working", "two"), status("completed"))
    task_id = (await house.send())["id"]
    caller = Speaker(house, "0.3")
    turns = [len((await caller.get(task_id, wanted)).document.get("history", [])) for wanted in (None, 0, 1, 2, 9)]
    assert turns == [3, 0, 1, 2, 3]


async def test_a_task_of_1_0_is_got_as_its_caller_spells_it(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), status("completed"))
    task_id = (await Speaker(house, "1.0").send()).document["id"]
    assert (await Speaker(house, "1.0").get(task_id)).document["status"]["state"] == "TASK_STATE_COMPLETED"
    assert (await Speaker(house, "0.3").get(task_id)).document["status"]["state"] == "completed"
    row = await house.hub.task(ME, TaskId(task_id), ANY)
    assert (row.dialect, row.at) == ("1.0", 2)
