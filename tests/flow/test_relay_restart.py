"""A hub that comes up again takes its open tasks up: exactly at a worker that replays, and never twice at any other."""

from __future__ import annotations

import asyncio

import pytest

from rolecall.errors import WorkerRefused
from tests.flow.conftest import House, frames
from tests.flow.relayed import CUT, asked, end, gaps, reaches, words
from tests.helpers.scripted import chunk, status, task
from tests.helpers.watched_engine import Hold


async def killed(house: House, task_id: str | None = None) -> str:
    """A call, or the answer "blue", that its worker has not said a word to as its hub is killed: its task."""
    await (reaches(house) if task_id is None else reaches(house, text="blue", taskId=task_id))
    return (await house.row()).id


async def settled(house: House) -> None:
    """The hub is killed, and the next one has done what was left."""
    await house.restart()
    await asyncio.sleep(10)
    assert len(house.hub.relays) == 0


async def test_a_call_that_a_worker_would_recognise_is_repeated(stored_house: House) -> None:
    house = stored_house
    await house.enrol("echo:a", replays=True)
    task_id = await killed(house)
    house.forwarder.plan("echo:a", task(position="b.1"), status("completed", position="b.2"))
    await settled(house)
    assert end(await house.get(task_id)) == ("completed", "")
    first, second = house.forwarder.told()
    assert first == second


async def test_a_call_that_may_have_run_is_not_repeated_by_the_next_hub(stored_house: House) -> None:
    house = stored_house
    await house.enrol("echo:a")
    task_id = await killed(house)
    await settled(house)
    assert end(await house.get(task_id)) == ("failed", "HUB_RESTARTED")
    assert house.forwarder.asked("deliver") == ["echo:a"]


async def test_a_stream_goes_on_at_the_workers_position(stored_house: House) -> None:
    house = stored_house
    await house.enrol("echo:a", replays=True)
    await reaches(house, task(position="b.1"), chunk("x", append=False, position="b.2"))
    row = await house.row()
    house.forwarder.plan("echo:a", chunk("y", position="b.3"), status("completed", position="b.4"))
    await settled(house)
    got = await frames(await house.subscribe(row.id, after=0))
    assert [frame["cursor"] for frame in got] == [1, 2, 3, 4]
    assert gaps(got) == []
    assert house.forwarder.asked("attach") == ["echo:a"]
    assert house.forwarder.calls[-1][2].position == "b.2"


async def test_a_stream_of_a_worker_that_cannot_replay_goes_on_with_a_gap(stored_house: House) -> None:
    house = stored_house
    await house.enrol("echo:a")
    await reaches(house, task())
    row = await house.row()
    house.forwarder.plan_fetch("echo:a", task("working"), task("completed"))
    await settled(house)
    assert gaps(await frames(await house.subscribe(row.id, after=0))) == [2]


async def test_a_task_whose_worker_began_anew_meanwhile_is_lost(stored_house: House) -> None:
    house = stored_house
    await house.enrol("echo:a", replays=True)
    await reaches(house, task(position="b.1"))
    row = await house.row()
    await house.enrol("echo:a", boot="another", replays=True)
    house.forwarder.plan("echo:a", status("completed", position="b.2"))
    await settled(house)
    assert end(await house.get(row.id)) == ("failed", "WORKER_LOST")
    assert house.forwarder.asked("attach") == []


@pytest.mark.parametrize("replays", [True, False])
async def test_an_answer_that_had_set_out_is_taken_up(stored_house: House, replays: bool) -> None:
    """To a worker that recognises it, it is given again: the answer, not the message that began the task."""
    house = stored_house
    task_id = await killed(house, await asked(house, replays=replays))
    house.forwarder.plan("echo:a", task("working", position="b.3"), status("completed", "blue", position="b.4"))
    house.forwarder.plan_fetch("echo:a", task("input-required", "which?"), task("completed"))
    await settled(house)
    assert end(await house.get(task_id)) == ("completed", "")
    told = [message["parts"][0]["text"] for message in house.forwarder.told()]
    assert told == (["hi", "blue", "blue"] if replays else ["hi", "blue"])
    assert house.forwarder.asked("attach") == []


async def test_an_answer_that_did_not_get_there_leaves_the_task_waiting(stored_house: House) -> None:
    house = stored_house
    task_id = await killed(house, await asked(house))
    house.forwarder.plan_fetch("echo:a", *[task("input-required", "which?")] * 20)
    await settled(house)
    assert len(house.forwarder.asked("fetch")) == 6
    assert end(await house.get(task_id)) == ("input-required", "")
    assert [turn["role"] for turn in (await house.get(task_id))["history"]] == ["user"]


async def test_a_refused_answer_is_not_given_by_the_next_hub(stored_house: House) -> None:
    house = stored_house
    task_id = await asked(house, replays=True)
    house.forwarder.plan("echo:a", WorkerRefused("echo:a"))
    with pytest.raises(WorkerRefused):
        await house.send("blue", taskId=task_id)
    await settled(house)
    assert house.forwarder.asked("deliver") == ["echo:a"] * 2
    assert [turn["role"] for turn in (await house.get(task_id))["history"]] == ["user"]


async def test_a_call_that_was_being_taken_back_is_taken_back_by_nobody_twice(stored_house: House) -> None:
    """Its hub is killed before the row is gone: the next one cannot know that it was refused."""
    house = stored_house
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", WorkerRefused("echo:a"))
    discarding = house.engine.hold("tasks.discard")
    sending = asyncio.create_task(house.send())
    await discarding.reached.wait()
    await settled(house)
    sending.cancel()
    assert end(await house.get((await house.row()).id)) == ("failed", "HUB_RESTARTED")


async def test_an_ended_task_is_left_alone(stored_house: House) -> None:
    house = stored_house
    await house.enrol("echo:a", replays=True)
    house.forwarder.plan("echo:a", task("completed", position="b.1"))
    answer = await house.send()
    await house.restart()
    assert len(house.hub.relays) == 0
    assert await house.get(answer["id"]) == answer


@pytest.mark.parametrize("state", ["paused", "answered", "ended"])
async def test_the_message_that_began_a_task_is_recognised(stored_house: House, state: str) -> None:
    """It is the first one, however many came since."""
    house = stored_house
    await house.enrol("echo:a", replays=True)
    house.forwarder.plan("echo:a", task(position="b.1"), status("input-required", "which?", position="b.2"))
    first = await house.send(messageId="m")
    if state == "answered":
        await reaches(house, status("working", position="b.3"), taskId=first["id"])
    elif state == "ended":
        house.forwarder.plan("echo:a", status("completed", position="b.3"))
        await house.send("blue", taskId=first["id"])
    delivered = house.forwarder.asked("deliver")
    house.forwarder.plan("echo:a", status("completed", position="b.4"))
    await house.restart()
    assert (await house.send(messageId="m"))["id"] == first["id"]
    assert house.forwarder.asked("deliver") == delivered


async def test_the_message_of_a_running_task_gets_its_end(stored_house: House) -> None:
    house = stored_house
    await house.enrol("echo:a", replays=True)
    await reaches(house, task(position="b.1"), messageId="m")
    hold = Hold()
    house.forwarder.plan("echo:a", hold, status("completed", "done", position="b.2"))
    await house.restart()
    await hold.reached.wait()
    again = asyncio.create_task(house.send(messageId="m"))
    await asyncio.sleep(0.1)
    hold.release()
    assert (end(await again), words(await again)) == (("completed", ""), "done")
    assert house.forwarder.asked("deliver") == ["echo:a"]


async def test_a_line_that_is_cut_again_after_the_restart_is_found_again(stored_house: House) -> None:
    house = stored_house
    await house.enrol("echo:a", replays=True)
    await reaches(house, task(position="b.1"))
    row = await house.row()
    house.forwarder.plan("echo:a", CUT)
    house.forwarder.plan("echo:a", status("completed", position="b.2"))
    await settled(house)
    assert end(await house.get(row.id)) == ("completed", "")
