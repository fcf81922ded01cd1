"""Answers to a paused task go to its worker once; and what happens on failures."""

from __future__ import annotations

import asyncio

import pytest

from rolecall.errors import InvalidParams, StoreUnavailable, TaskEnded, WorkerAway, WorkerFault, WorkerRefused
from rolecall.model.a2a import WorkerEvent
from rolecall.model.principal import LOCAL
from tests.flow.callers import DialectCaller
from tests.flow.conftest import CALLER, SILENCE, System, frames, proof, say
from tests.flow.relayed import CUT, REFUSED, asked, end, gap_cursors, reaches, texts, words
from tests.helpers.scripted import chunk, status, task
from tests.helpers.watched_engine import Hold

ASKS = task("input-required", "which?")


async def test_an_answer_goes_to_the_worker_that_paused(system: System) -> None:
    task_id = await asked(system)
    await system.enrol("echo:b")
    system.forwarder.plan("echo:a", task("working"), status("completed", "that"))
    answer = await system.send("the blue one", taskId=task_id)
    assert system.forwarder.calls[-1][1] == "echo:a"
    assert system.forwarder.calls[-1][2].ids.worker_task == "wt"
    assert end(answer) == ("completed", "")
    assert [turn["role"] for turn in answer["history"]] == ["user", "agent", "user"]
    with pytest.raises(TaskEnded):
        await system.send("more", taskId=task_id)


async def test_an_answer_counts_as_load_from_its_first_moment(system: System) -> None:
    await asked(system)
    (lease,) = system.engine.registry.live("default", "echo")
    pending, hold = await reaches(system, taskId=(await system.row()).id, then=(status("completed"), 60.0))
    assert lease.in_flight == 1
    hold.release()
    await pending
    assert lease.in_flight == 0


@pytest.mark.parametrize("goes_on", [(status("working"), chunk("x", append=False)), (chunk("x", append=False),)])
async def test_the_stream_of_an_answer_begins_with_the_task_at_work(system: System, goes_on: tuple[WorkerEvent, ...]) -> None:
    task_id = await asked(system)
    system.forwarder.plan("echo:a", *goes_on, status("completed"))
    got = await system.stream("blue", taskId=task_id)
    kinds = ["task", "artifact-update", "status-update"]
    assert [(frame["kind"], frame["cursor"]) for frame in got] == list(zip(kinds, (3, 4, 5), strict=True))
    assert got[0]["status"]["state"] == "working"


async def test_a_context_alone_answers_its_only_paused_task_at_its_worker(system: System) -> None:
    task_id = await asked(system)
    system.forwarder.plan("echo:a", status("completed"))
    answer = await system.send("blue", contextId=(await system.get(task_id))["contextId"])
    assert answer["id"] == task_id


async def test_a_first_event_without_new_content_is_not_logged(system: System) -> None:
    """The worker repeats its Task unchanged: the stream of the answer begins with the first new event."""
    task_id = await asked(system)
    hold = Hold()
    system.forwarder.plan("echo:a", ASKS, hold, chunk("x", append=False), status("completed"))
    streaming = asyncio.create_task(system.stream("blue", taskId=task_id))
    await hold.reached.wait()
    await asyncio.sleep(0.1)
    hold.release()
    got = await streaming
    assert [frame["cursor"] for frame in got] == [3, 4, 5]
    assert [frame["kind"] for frame in got] == ["task", "artifact-update", "status-update"]
    assert texts(await system.get(task_id)) == ["x"]


# --- one at a time


async def test_of_two_answers_at_once_the_worker_gets_one(system: System) -> None:
    task_id = await asked(system)
    hold = Hold()
    system.forwarder.plan("echo:a", task("working"), hold, status("completed"))
    answers = [asyncio.create_task(system.send(colour, taskId=task_id)) for colour in ("blue", "red", "green")]
    await hold.reached.wait()
    for late in answers[1:]:
        with pytest.raises(InvalidParams):
            await late
    hold.release()
    assert end(await answers[0]) == ("completed", "")
    assert len(system.forwarder.calls) == 2
    history = (await system.get(task_id))["history"]
    assert [turn["role"] for turn in history] == ["user", "agent", "user"]


@pytest.mark.parametrize("operation", ["tasks.get", "tasks.add_turn", "tasks.turns"])
async def test_a_second_answer_is_refused_while_the_first_is_being_admitted(system: System, operation: str) -> None:
    task_id = await asked(system)
    if operation == "tasks.get":
        # The first `get` finds the task; the second one is held.
        first_look = system.engine.hold(operation)
        first_look.release()
    taking_on = system.engine.hold(operation)
    first = asyncio.create_task(system.send("blue", taskId=task_id))
    await taking_on.reached.wait()
    with pytest.raises(InvalidParams, match="is working"):
        await system.send("red", taskId=task_id)
    system.forwarder.plan("echo:a", status("completed"))
    taking_on.release()
    assert end(await first) == ("completed", "")
    assert len(system.engine.arguments("tasks.add_turn")) == 1


async def test_an_answer_that_could_not_be_stored_may_be_repeated(system: System) -> None:
    task_id = await asked(system)
    system.engine.fail("tasks.add_turn", StoreUnavailable())
    with pytest.raises(StoreUnavailable):
        await system.send("blue", taskId=task_id)
    system.forwarder.plan("echo:a", status("completed"))
    assert end(await system.send("blue", taskId=task_id)) == ("completed", "")


async def test_an_answer_is_accepted_as_soon_as_the_pause_is_in_the_log(system: System) -> None:
    """Readers can get it before the relay knows that it was stored."""
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), status("input-required", "which?"))
    opened, stored = system.engine.hold_after("events.append"), system.engine.hold_after("events.append")
    opened.release()
    question = await system.send()
    await stored.reached.wait()
    answering = asyncio.create_task(system.send("blue", taskId=question["id"]))
    await asyncio.sleep(0.1)
    system.forwarder.plan("echo:a", status("completed"))
    stored.release()
    assert end(await answering) == ("completed", "")


async def test_a_message_to_a_task_at_work_is_refused(system: System) -> None:
    await system.enrol("echo:a")
    pending, hold = await reaches(system, task(), then=(status("completed"),))
    with pytest.raises(InvalidParams, match="is working"):
        await system.send("more", taskId=(await system.row()).id)
    hold.release()
    assert end(await pending) == ("completed", "")


async def test_an_answer_to_a_task_that_ends_meanwhile_is_refused(system: System) -> None:
    """The worker ends the task while the hub closes the old stream."""
    await system.enrol("echo:a")
    goes_on = Hold()
    system.forwarder.plan("echo:a", task(), status("input-required", "which?"), goes_on, status("completed"))
    task_id = (await system.send())["id"]
    await goes_on.reached.wait()
    looked = system.engine.hold_after("tasks.get")
    looked.release()
    answered = system.engine.hold_after("tasks.get")
    answering = asyncio.create_task(system.send("blue", taskId=task_id))
    await answered.reached.wait()
    goes_on.release()
    await asyncio.sleep(0.1)
    answered.release()
    with pytest.raises(TaskEnded):
        await answering
    assert system.forwarder.asked("deliver") == ["echo:a"]


async def test_an_answer_in_another_context_is_refused(system: System) -> None:
    task_id = await asked(system)
    with pytest.raises(InvalidParams, match="contextId"):
        await system.send("blue", taskId=task_id, contextId="another")


# --- refused


async def test_a_refused_answer_leaves_no_trace(system: System) -> None:
    task_id = await asked(system)
    (lease,) = system.engine.registry.live("default", "echo")
    before = await system.get(task_id)
    system.forwarder.plan("echo:a", WorkerRefused("echo:a"))
    with pytest.raises(WorkerRefused):
        await system.send("blue", taskId=task_id)
    assert await system.get(task_id) == before
    assert lease.in_flight == 0
    system.forwarder.plan("echo:a", status("completed"))
    assert end(await system.send("blue", taskId=task_id)) == ("completed", "")


async def test_an_answer_goes_to_no_other_worker(system: System) -> None:
    task_id = await asked(system)
    await system.enrol("echo:b")
    system.forwarder.plan("echo:a", REFUSED)
    with pytest.raises(type(REFUSED)):
        await system.send("blue", taskId=task_id)
    assert "echo:b" not in system.forwarder.asked("deliver")


async def test_a_refused_answer_under_an_alias_may_be_repeated_at_once(system: System) -> None:
    await system.enrol("echo:a")
    caller = DialectCaller(system, "0.1")
    system.forwarder.plan("echo:a", [task(), status("input-required", "which?")])
    await caller.send("hi", name="t1")
    system.forwarder.plan("echo:a", WorkerRefused("echo:a"))
    with pytest.raises(WorkerRefused):
        await caller.send("blue", name="t1")
    system.forwarder.plan("echo:a", status("completed"))
    assert (await caller.send("blue", name="t1")).state == "completed"


@pytest.mark.parametrize("replays", [True, False])
async def test_an_answer_to_a_task_that_its_worker_has_forgotten_gets_the_failed_task(system: System, replays: bool) -> None:
    task_id = await asked(system, replays=replays)
    system.forwarder.plan("echo:a", WorkerFault(-32001, "which task?"))
    lost = await system.send("blue", taskId=task_id, messageId="m")
    assert (lost["id"], end(lost), words(lost)) == (task_id, ("failed", "WORKER_LOST"), "echo:a no longer knows the task.")
    assert await system.send("blue", taskId=task_id, messageId="m") == lost == await system.get(task_id)
    assert system.forwarder.asked("deliver") == ["echo:a"] * 2


async def test_a_streamed_answer_to_a_task_that_its_worker_has_forgotten_is_its_end(system: System) -> None:
    task_id = await asked(system)
    system.forwarder.plan("echo:a", WorkerFault(-32001, "which task?"))
    first, *later = await frames(await system.hub.stream(CALLER, say("blue", taskId=task_id)))
    assert (first["id"], end(first), later) == (task_id, ("failed", "WORKER_LOST"), [])


async def test_an_answer_that_its_worker_rejects_leaves_the_task_paused(system: System) -> None:
    task_id = await asked(system)
    system.forwarder.plan("echo:a", WorkerFault(-32602, "no"))
    with pytest.raises(WorkerFault):
        await system.send("blue", taskId=task_id)
    assert end(await system.get(task_id)) == ("input-required", "")


async def test_a_message_to_a_task_whose_worker_is_gone_is_refused(system: System) -> None:
    task_id = await asked(system)
    (lease,) = system.engine.registry.live("default", "echo")
    await system.directory.withdraw(LOCAL, lease.worker, proof(lease))
    await system.enrol("echo:b")
    with pytest.raises(WorkerAway):
        await system.send("x", taskId=task_id)


async def test_a_message_to_a_task_whose_worker_restarted_is_refused(system: System) -> None:
    task_id = await asked(system)
    await system.enrol("echo:a", boot="another")
    with pytest.raises(WorkerAway):
        await system.send("x", taskId=task_id)
    assert system.forwarder.asked("deliver") == ["echo:a"]


# --- cut off


@pytest.mark.parametrize("cut", [(CUT,), ()], ids=["cut", "ended without a word"])
async def test_an_undelivered_answer_is_refused_and_the_task_stays_paused(system: System, cut: tuple[Exception, ...]) -> None:
    task_id = await asked(system)
    system.forwarder.plan("echo:a", *cut)
    system.forwarder.plan_fetch("echo:a", *[ASKS] * 20)
    with pytest.raises(WorkerRefused):
        await system.send("blue", taskId=task_id)
    assert len(system.forwarder.asked("fetch")) == 6
    assert [turn["role"] for turn in (await system.get(task_id))["history"]] == ["user"]
    system.forwarder.plan("echo:a", status("completed"))
    assert end(await system.send("blue", taskId=task_id)) == ("completed", "")


async def test_an_answer_whose_connection_was_cut_is_followed_to_its_end(system: System) -> None:
    task_id = await asked(system)
    system.forwarder.plan("echo:a", CUT)
    system.forwarder.plan_fetch("echo:a", *[ASKS] * 5, task("working"), task("completed"))
    got = await system.stream("blue", taskId=task_id)
    assert [end(frame)[0] for frame in got] == ["working", "completed"]
    assert gap_cursors(got) == [3, 4]


async def test_an_undelivered_answer_is_repeated_to_a_worker_that_recognises_it(system: System) -> None:
    """An attach could bring the old pause again."""
    task_id = await asked(system, replays=True)
    system.forwarder.plan("echo:a", CUT)
    system.forwarder.plan("echo:a", status("completed", position="b.3"))
    assert end(await system.send("blue", taskId=task_id)) == ("completed", "")
    assert [kind for kind, _, _ in system.forwarder.calls] == ["deliver"] * 3
    assert [message["parts"][0]["text"] for message in system.forwarder.delivered_messages()] == ["hi", "blue", "blue"]


async def test_a_delivered_answer_is_followed_from_its_position(system: System) -> None:
    task_id = await asked(system, replays=True)
    system.forwarder.plan("echo:a", status("working", position="b.3"), CUT)
    system.forwarder.plan("echo:a", status("completed", position="b.4"))
    assert end(await system.send("blue", taskId=task_id)) == ("completed", "")
    assert [kind for kind, _, _ in system.forwarder.calls] == ["deliver", "deliver", "attach"]
    assert system.forwarder.calls[-1][2].position == "b.3"


async def test_a_second_pause_after_an_answer_ends_the_call(system: System) -> None:
    task_id = await asked(system)
    system.forwarder.plan("echo:a", status("input-required", "which one?"), 3600.0)
    answer = await system.send("blue", taskId=task_id)
    assert (end(answer), words(answer)) == (("input-required", ""), "which one?")


async def test_an_answer_that_takes_long_to_begin_is_waited_for(system: System) -> None:
    system.watch()
    task_id = await asked(system)
    system.forwarder.plan("echo:a", 2 * SILENCE, status("completed"))
    system.forwarder.plan_fetch("echo:a", *[ASKS] * 9)
    assert end(await system.send("blue", taskId=task_id)) == ("completed", "")


async def test_a_worker_that_is_gone_when_it_is_answered_loses_the_task(system: System) -> None:
    task_id = await asked(system, replays=True)
    system.forwarder.plan("echo:a", CUT)
    system.forwarder.plan("echo:a", REFUSED)
    system.forwarder.plan("echo:a", REFUSED)
    assert end(await system.send("blue", taskId=task_id)) == ("failed", "WORKER_LOST")


async def test_an_answer_whose_task_ended_on_a_dead_connection_gets_the_end(system: System) -> None:
    system.watch()
    task_id = await asked(system)
    system.forwarder.plan_fetch("echo:a", task("completed"))
    pending, _ = await reaches(system, taskId=task_id)
    assert end(await pending) == ("completed", "")
