"""A restarted hub continues its open tasks: exactly at a worker that replays, and never twice at any other."""

from __future__ import annotations

import asyncio

import pytest

from rolecall.errors import WorkerRefused
from tests.flow.conftest import System, frames
from tests.flow.relayed import CUT, asked, end, gap_cursors, reaches, words
from tests.helpers.scripted import chunk, status, task
from tests.helpers.watched_engine import Hold


async def killed(system: System, task_id: str | None = None) -> str:
    """Kill the hub after a call, or the answer "blue", and before the worker's first event. Returns the task."""
    await (reaches(system) if task_id is None else reaches(system, text="blue", taskId=task_id))
    return (await system.row()).id


async def settled(system: System) -> None:
    """Restart the hub, and wait until it has settled every task."""
    await system.restart()
    await asyncio.sleep(10)
    assert len(system.hub.relays) == 0


async def test_a_call_that_a_worker_would_recognise_is_repeated(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a", replays=True)
    task_id = await killed(system)
    system.forwarder.plan("echo:a", task(position="b.1"), status("completed", position="b.2"))
    await settled(system)
    assert end(await system.get(task_id)) == ("completed", "")
    first, second = system.forwarder.delivered_messages()
    assert first == second


async def test_a_call_that_may_have_run_is_not_repeated_by_the_next_hub(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a")
    task_id = await killed(system)
    await settled(system)
    assert end(await system.get(task_id)) == ("failed", "HUB_RESTARTED")
    assert system.forwarder.asked("deliver") == ["echo:a"]


async def test_a_stream_continues_at_the_workers_position(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a", replays=True)
    await reaches(system, task(position="b.1"), chunk("x", append=False, position="b.2"))
    row = await system.row()
    system.forwarder.plan("echo:a", chunk("y", position="b.3"), status("completed", position="b.4"))
    await settled(system)
    got = await frames(await system.subscribe(row.id, after=0))
    assert [frame["cursor"] for frame in got] == [1, 2, 3, 4]
    assert gap_cursors(got) == []
    assert system.forwarder.asked("attach") == ["echo:a"]
    assert system.forwarder.calls[-1][2].position == "b.2"


async def test_a_stream_of_a_worker_that_cannot_replay_continues_with_a_gap(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a")
    await reaches(system, task())
    row = await system.row()
    system.forwarder.plan_fetch("echo:a", task("working"), task("completed"))
    await settled(system)
    assert gap_cursors(await frames(await system.subscribe(row.id, after=0))) == [2]


async def test_a_task_whose_worker_restarted_meanwhile_is_lost(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a", replays=True)
    await reaches(system, task(position="b.1"))
    row = await system.row()
    await system.enrol("echo:a", boot="another", replays=True)
    system.forwarder.plan("echo:a", status("completed", position="b.2"))
    await settled(system)
    assert end(await system.get(row.id)) == ("failed", "WORKER_LOST")
    assert system.forwarder.asked("attach") == []


@pytest.mark.parametrize("replays", [True, False])
async def test_an_answer_that_was_sent_before_the_restart_is_continued(stored_system: System, replays: bool) -> None:
    """A worker that recognises it gets the answer again, not the first message."""
    system = stored_system
    task_id = await killed(system, await asked(system, replays=replays))
    system.forwarder.plan("echo:a", task("working", position="b.3"), status("completed", "blue", position="b.4"))
    system.forwarder.plan_fetch("echo:a", task("input-required", "which?"), task("completed"))
    await settled(system)
    assert end(await system.get(task_id)) == ("completed", "")
    delivered = [message["parts"][0]["text"] for message in system.forwarder.delivered_messages()]
    assert delivered == (["hi", "blue", "blue"] if replays else ["hi", "blue"])
    assert system.forwarder.asked("attach") == []


async def test_an_undelivered_answer_leaves_the_task_paused_after_a_restart(stored_system: System) -> None:
    system = stored_system
    task_id = await killed(system, await asked(system))
    system.forwarder.plan_fetch("echo:a", *[task("input-required", "which?")] * 20)
    await settled(system)
    assert len(system.forwarder.asked("fetch")) == 6
    assert end(await system.get(task_id)) == ("input-required", "")
    assert [turn["role"] for turn in (await system.get(task_id))["history"]] == ["user"]


async def test_a_refused_answer_is_not_repeated_by_the_next_hub(stored_system: System) -> None:
    system = stored_system
    task_id = await asked(system, replays=True)
    system.forwarder.plan("echo:a", WorkerRefused("echo:a"))
    with pytest.raises(WorkerRefused):
        await system.send("blue", taskId=task_id)
    await settled(system)
    assert system.forwarder.asked("deliver") == ["echo:a"] * 2
    assert [turn["role"] for turn in (await system.get(task_id))["history"]] == ["user"]


async def test_a_call_whose_removal_was_interrupted_fails_after_the_restart(stored_system: System) -> None:
    """The hub is killed before the row is deleted: the next one cannot know that the call was refused."""
    system = stored_system
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", WorkerRefused("echo:a"))
    discard_hold = system.engine.hold("tasks.discard")
    pending = asyncio.create_task(system.send())
    await discard_hold.reached.wait()
    await settled(system)
    pending.cancel()
    assert end(await system.get((await system.row()).id)) == ("failed", "HUB_RESTARTED")


async def test_an_ended_task_is_left_alone(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a", replays=True)
    system.forwarder.plan("echo:a", task("completed", position="b.1"))
    answer = await system.send()
    await system.restart()
    assert len(system.hub.relays) == 0
    assert await system.get(answer["id"]) == answer


@pytest.mark.parametrize("state", ["paused", "answered", "ended"])
async def test_the_message_that_began_a_task_is_recognised(stored_system: System, state: str) -> None:
    """It is the first one, even after further messages."""
    system = stored_system
    await system.enrol("echo:a", replays=True)
    system.forwarder.plan("echo:a", task(position="b.1"), status("input-required", "which?", position="b.2"))
    first = await system.send(messageId="m")
    if state == "answered":
        await reaches(system, status("working", position="b.3"), taskId=first["id"])
    elif state == "ended":
        system.forwarder.plan("echo:a", status("completed", position="b.3"))
        await system.send("blue", taskId=first["id"])
    delivered = system.forwarder.asked("deliver")
    system.forwarder.plan("echo:a", status("completed", position="b.4"))
    await system.restart()
    assert (await system.send(messageId="m"))["id"] == first["id"]
    assert system.forwarder.asked("deliver") == delivered


async def test_the_message_of_a_running_task_gets_its_end(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a", replays=True)
    await reaches(system, task(position="b.1"), messageId="m")
    hold = Hold()
    system.forwarder.plan("echo:a", hold, status("completed", "done", position="b.2"))
    await system.restart()
    await hold.reached.wait()
    again = asyncio.create_task(system.send(messageId="m"))
    await asyncio.sleep(0.1)
    hold.release()
    assert (end(await again), words(await again)) == (("completed", ""), "done")
    assert system.forwarder.asked("deliver") == ["echo:a"]


async def test_a_connection_that_is_cut_again_after_the_restart_is_continued_again(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a", replays=True)
    await reaches(system, task(position="b.1"))
    row = await system.row()
    system.forwarder.plan("echo:a", CUT)
    system.forwarder.plan("echo:a", status("completed", position="b.2"))
    await settled(system)
    assert end(await system.get(row.id)) == ("completed", "")
