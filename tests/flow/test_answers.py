"""Answers to a paused task, when something goes wrong on the way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hub.errors import HubError, InvalidParams, WorkerBroke, WorkerRefused, WorkerUnreachable
from hub.model.command import Subscribe, Target
from hub.model.ids import TaskId
from hub.wire.jsontext import parse
from tests.flow.conftest import ME, SILENCE, House, frames, say
from tests.helpers.scripted import chunk, status, task

CUT = WorkerBroke("echo:a", "cut")


async def asked(house: House, **offer: Any) -> str:
    """A task that waits for its caller."""
    await house.enrol("echo:a", **offer)
    house.forwarder.plan("echo:a", task(position="b.1"), status("input-required", "which?", position="b.2"))
    answer = await house.send()
    assert answer["status"]["state"] == "input-required"
    return str(answer["id"])


@pytest.mark.parametrize("cut", [(CUT,), ()], ids=["cut", "ended without a word"])
async def test_an_answer_that_did_not_get_there_is_refused_and_the_task_waits_on(
    house: House, cut: tuple[Exception, ...]
) -> None:
    task_id = await asked(house)
    house.forwarder.plan("echo:a", *cut)
    house.forwarder.plan_fetch("echo:a", *(task("input-required", "which?") for _ in range(20)))
    with pytest.raises(WorkerRefused):
        await asyncio.wait_for(house.send("blue", taskId=task_id), 5)
    house.forwarder.plan("echo:a", status("completed"))
    assert (await house.send("blue", taskId=task_id))["status"]["state"] == "completed"


async def test_an_answer_whose_line_was_cut_is_followed_to_its_end(house: House) -> None:
    task_id = await asked(house)
    house.forwarder.plan("echo:a", CUT)
    house.forwarder.plan_fetch("echo:a", task("input-required", "which?"), task("working"), task("completed"))
    answer = await asyncio.wait_for(house.send("blue", taskId=task_id), 5)
    assert answer["status"]["state"] == "completed"


async def test_an_answer_that_takes_long_to_begin_is_waited_for(house: House) -> None:
    task_id = await asked(house)
    house.forwarder.plan("echo:a", 2 * SILENCE, status("completed"))
    house.forwarder.plan_fetch("echo:a", *(task("input-required", "which?") for _ in range(9)))
    house.supervisor.keep_running("watch", house.hub.relays.watch)
    assert (await asyncio.wait_for(house.send("blue", taskId=task_id), 4))["status"]["state"] == "completed"


async def test_a_first_word_that_says_nothing_new_costs_no_event(house: House) -> None:
    """The worker repeats its Task as it was: the stream of the answer begins with the first news, and misses none of it."""
    task_id = await asked(house)
    house.forwarder.plan("echo:a", task("input-required", "which?"), 0.1, chunk("x", append=False), status("completed"))
    got = await house.stream("blue", taskId=task_id)
    assert [frame["cursor"] for frame in got] == [3, 4, 5]
    assert [frame["kind"] for frame in got] == ["task", "artifact-update", "status-update"]
    assert (await house.get(task_id))["artifacts"][0]["parts"] == [{"kind": "text", "text": "x"}]


async def test_of_two_answers_at_once_the_worker_gets_one(house: House) -> None:
    task_id = await asked(house)
    house.forwarder.plan("echo:a", task("working"), 0.2, status("completed"))
    answers = await asyncio.gather(
        *(house.send(colour, taskId=task_id) for colour in ("blue", "red", "green")), return_exceptions=True
    )
    assert sum(isinstance(answer, InvalidParams) for answer in answers) == 2
    assert len(house.forwarder.calls) == 2
    history = (await house.get(task_id))["history"]
    assert [turn["role"] for turn in history] == ["user", "agent", "user"]


@pytest.mark.parametrize("replays", [True, False])
async def test_a_restarted_hub_takes_up_an_answer_that_had_set_out(house: House, replays: bool) -> None:
    task_id = await asked(house, replays=replays)
    house.forwarder.plan("echo:a", 5.0)
    lost = asyncio.create_task(house.send("blue", taskId=task_id))
    await asyncio.sleep(0.05)
    lost.cancel()
    again = house.restarted()
    house.forwarder.plan("echo:a", task("working", position="b.3"), status("completed", "blue", position="b.4"))
    house.forwarder.plan_fetch("echo:a", task("completed"))
    await again.settle()
    reading = await again.subscribe(ME, Subscribe(Target(), TaskId(task_id), "0.3", None))
    await asyncio.wait_for(frames(reading), 3)
    await asyncio.sleep(0.2)
    assert (await house.get(task_id))["status"]["state"] == "completed"


async def test_a_restarted_hub_leaves_a_question_to_its_caller(house: House) -> None:
    task_id = await asked(house)
    again = house.restarted()
    await again.settle()
    assert len(again.relays) == 0
    assert (await house.get(task_id))["status"]["state"] == "input-required"


async def test_a_hub_that_goes_down_before_the_first_word_answers_with_the_task(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", 5.0)
    waiting = asyncio.create_task(house.send())
    await asyncio.sleep(0.05)
    house.hub.drain()
    answer = await asyncio.wait_for(waiting, 1)
    assert answer["status"]["state"] == "submitted"
    assert await house.get(answer["id"]) == answer


async def test_a_task_that_is_cancelled_before_the_first_word_is_canceled_for_everybody(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", 5.0)
    waiting = asyncio.create_task(house.send())
    await asyncio.sleep(0.05)
    (row,) = await house.engine.tasks.recent(ended_within=house.around.silence)
    cancelled = await house.cancel(row.id)
    assert cancelled["status"]["state"] == "canceled"
    assert (await asyncio.wait_for(waiting, 1))["status"]["state"] == "canceled"


async def test_a_reader_of_a_task_that_is_taken_back_finds_nothing(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", 0.2, WorkerUnreachable("echo:a", "http://w/", "refused"))
    calling = asyncio.create_task(house.send())
    await asyncio.sleep(0.05)
    (row,) = await house.engine.tasks.recent(ended_within=house.around.silence)
    reading = await house.hub.subscribe(ME, Subscribe(Target(), row.id, "0.3", None))
    with pytest.raises(HubError):
        await calling
    assert await asyncio.wait_for(frames(reading), 1) == []
    assert not reading.broken_off


async def test_a_worker_that_is_gone_when_it_is_answered_loses_the_task(house: House) -> None:
    task_id = await asked(house, replays=True)
    house.forwarder.plan("echo:a", CUT)
    house.forwarder.plan("echo:a", WorkerUnreachable("echo:a", "http://w/", "refused"))
    house.forwarder.plan("echo:a", WorkerUnreachable("echo:a", "http://w/", "refused"))
    answer = parse((await asyncio.wait_for(house.hub.send(ME, say("blue", taskId=task_id)), 4)).body)
    assert answer["status"]["state"] == "failed"
    assert answer["metadata"]["rolecall"]["reason"] == "WORKER_LOST"


async def test_events_before_a_repeated_task_keep_their_own_position(house: House) -> None:
    """They are stored first, to compare the Task with; a replay from an older position would double them."""
    await house.enrol("echo:a", replays=True)
    again = task("working", position="b.3", artifacts=[{"artifactId": "a", "parts": [{"kind": "text", "text": "x"}]}])
    house.forwarder.plan_together("echo:a", task(position="b.1"), chunk("x", append=False, position="b.2"), again)
    house.forwarder.plan("echo:a", status("completed", position="b.4"))
    seen: list[str | None] = []
    append = house.engine.events.append

    async def noting(task_id: Any, entry: Any, *, after: Any) -> Any:
        seen.append(entry.position)
        return await append(task_id, entry, after=after)

    house.engine.events.append = noting  # type: ignore[method-assign]
    assert (await house.send())["status"]["state"] == "completed"
    assert seen[0] == "b.2"
