"""Answers to a paused task: they go to the worker that asked, once, and what becomes of them if something goes wrong."""

from __future__ import annotations

import asyncio

import pytest

from rolecall.errors import InvalidParams, NoLiveWorker, StoreUnavailable, TaskEnded, WorkerFault, WorkerRefused
from rolecall.model.a2a import WorkerEvent
from rolecall.model.principal import LOCAL
from tests.flow.callers import Speaker
from tests.flow.conftest import SILENCE, House, proof
from tests.flow.relayed import CUT, REFUSED, asked, end, gaps, reaches, texts, words
from tests.helpers.scripted import chunk, status, task
from tests.helpers.watched_engine import Hold

ASKS = task("input-required", "which?")


async def test_an_answer_goes_to_the_worker_that_asked(house: House) -> None:
    task_id = await asked(house)
    await house.enrol("echo:b")
    house.forwarder.plan("echo:a", task("working"), status("completed", "that"))
    answer = await house.send("the blue one", taskId=task_id)
    assert house.forwarder.calls[-1][1] == "echo:a"
    assert house.forwarder.calls[-1][2].ids.worker_task == "wt"
    assert end(answer) == ("completed", "")
    assert [turn["role"] for turn in answer["history"]] == ["user", "agent", "user"]
    with pytest.raises(TaskEnded):
        await house.send("more", taskId=task_id)


async def test_an_answer_counts_as_load_from_its_first_moment(house: House) -> None:
    await asked(house)
    (lease,) = house.engine.registry.live("default", "echo")
    sending, hold = await reaches(house, taskId=(await house.row()).id, then=(status("completed"), 60.0))
    assert lease.in_flight == 1
    hold.release()
    await sending
    assert lease.in_flight == 0


@pytest.mark.parametrize("goes_on", [(status("working"), chunk("x", append=False)), (chunk("x", append=False),)])
async def test_the_stream_of_an_answer_begins_with_the_task_at_work(house: House, goes_on: tuple[WorkerEvent, ...]) -> None:
    task_id = await asked(house)
    house.forwarder.plan("echo:a", *goes_on, status("completed"))
    got = await house.stream("blue", taskId=task_id)
    kinds = ["task", "artifact-update", "status-update"]
    assert [(frame["kind"], frame["cursor"]) for frame in got] == list(zip(kinds, (3, 4, 5), strict=True))
    assert got[0]["status"]["state"] == "working"


async def test_a_lone_context_answers_its_one_paused_task(house: House) -> None:
    task_id = await asked(house)
    house.forwarder.plan("echo:a", status("completed"))
    answer = await house.send("blue", contextId=(await house.get(task_id))["contextId"])
    assert answer["id"] == task_id


async def test_a_first_word_that_says_nothing_new_costs_no_event(house: House) -> None:
    """The worker repeats its Task as it was: the stream of the answer begins with the first news, and misses none of it."""
    task_id = await asked(house)
    hold = Hold()
    house.forwarder.plan("echo:a", ASKS, hold, chunk("x", append=False), status("completed"))
    streaming = asyncio.create_task(house.stream("blue", taskId=task_id))
    await hold.reached.wait()
    await asyncio.sleep(0.1)
    hold.release()
    got = await streaming
    assert [frame["cursor"] for frame in got] == [3, 4, 5]
    assert [frame["kind"] for frame in got] == ["task", "artifact-update", "status-update"]
    assert texts(await house.get(task_id)) == ["x"]


# --- one at a time


async def test_of_two_answers_at_once_the_worker_gets_one(house: House) -> None:
    task_id = await asked(house)
    hold = Hold()
    house.forwarder.plan("echo:a", task("working"), hold, status("completed"))
    answers = [asyncio.create_task(house.send(colour, taskId=task_id)) for colour in ("blue", "red", "green")]
    await hold.reached.wait()
    for late in answers[1:]:
        with pytest.raises(InvalidParams):
            await late
    hold.release()
    assert end(await answers[0]) == ("completed", "")
    assert len(house.forwarder.calls) == 2
    history = (await house.get(task_id))["history"]
    assert [turn["role"] for turn in history] == ["user", "agent", "user"]


@pytest.mark.parametrize("operation", ["tasks.get", "tasks.add_turn", "tasks.turns"])
async def test_a_second_answer_is_refused_while_the_first_is_being_taken_on(house: House, operation: str) -> None:
    task_id = await asked(house)
    if operation == "tasks.get":
        # The first look finds the task; the second one is behind the door.
        first_look = house.engine.hold(operation)
        first_look.release()
    taking_on = house.engine.hold(operation)
    first = asyncio.create_task(house.send("blue", taskId=task_id))
    await taking_on.reached.wait()
    with pytest.raises(InvalidParams, match="at work"):
        await house.send("red", taskId=task_id)
    house.forwarder.plan("echo:a", status("completed"))
    taking_on.release()
    assert end(await first) == ("completed", "")
    assert len(house.engine.arguments("tasks.add_turn")) == 1


async def test_an_answer_that_could_not_be_stored_may_be_given_again(house: House) -> None:
    task_id = await asked(house)
    house.engine.fail("tasks.add_turn", StoreUnavailable())
    with pytest.raises(StoreUnavailable):
        await house.send("blue", taskId=task_id)
    house.forwarder.plan("echo:a", status("completed"))
    assert end(await house.send("blue", taskId=task_id)) == ("completed", "")


async def test_an_answer_may_come_as_soon_as_the_question_is_in_the_log(house: House) -> None:
    """Readers can have it before the relay itself knows that it was stored."""
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), status("input-required", "which?"))
    opened, stored = house.engine.hold_after("events.append"), house.engine.hold_after("events.append")
    opened.release()
    question = await house.send()
    assert stored.reached.is_set()
    answering = asyncio.create_task(house.send("blue", taskId=question["id"]))
    await asyncio.sleep(0.1)
    house.forwarder.plan("echo:a", status("completed"))
    stored.release()
    assert end(await answering) == ("completed", "")


async def test_a_message_to_a_task_at_work_is_refused(house: House) -> None:
    await house.enrol("echo:a")
    sending, hold = await reaches(house, task(), then=(status("completed"),))
    with pytest.raises(InvalidParams, match="at work"):
        await house.send("more", taskId=(await house.row()).id)
    hold.release()
    assert end(await sending) == ("completed", "")


async def test_an_answer_to_a_task_that_ends_meanwhile_is_refused(house: House) -> None:
    """Its worker ends the task by itself, while the hub lets go of the old stream."""
    await house.enrol("echo:a")
    goes_on = Hold()
    house.forwarder.plan("echo:a", task(), status("input-required", "which?"), goes_on, status("completed"))
    task_id = (await house.send())["id"]
    await goes_on.reached.wait()
    looked = house.engine.hold_after("tasks.get")
    looked.release()
    answered = house.engine.hold_after("tasks.get")
    answering = asyncio.create_task(house.send("blue", taskId=task_id))
    await answered.reached.wait()
    goes_on.release()
    await asyncio.sleep(0.1)
    answered.release()
    with pytest.raises(TaskEnded):
        await answering
    assert house.forwarder.asked("deliver") == ["echo:a"]


async def test_an_answer_in_another_context_is_refused(house: House) -> None:
    task_id = await asked(house)
    with pytest.raises(InvalidParams, match="contextId"):
        await house.send("blue", taskId=task_id, contextId="another")


# --- refused


async def test_a_refused_answer_leaves_no_trace(house: House) -> None:
    task_id = await asked(house)
    (lease,) = house.engine.registry.live("default", "echo")
    before = await house.get(task_id)
    house.forwarder.plan("echo:a", WorkerRefused("echo:a"))
    with pytest.raises(WorkerRefused):
        await house.send("blue", taskId=task_id)
    assert await house.get(task_id) == before
    assert lease.in_flight == 0
    house.forwarder.plan("echo:a", status("completed"))
    assert end(await house.send("blue", taskId=task_id)) == ("completed", "")


async def test_an_answer_goes_to_no_other_worker(house: House) -> None:
    task_id = await asked(house)
    await house.enrol("echo:b")
    house.forwarder.plan("echo:a", REFUSED)
    with pytest.raises(type(REFUSED)):
        await house.send("blue", taskId=task_id)
    assert "echo:b" not in house.forwarder.asked("deliver")


async def test_a_refused_answer_under_a_name_may_be_given_again_at_once(house: House) -> None:
    await house.enrol("echo:a")
    caller = Speaker(house, "0.1")
    house.forwarder.plan("echo:a", task(), status("input-required", "which?"))
    await caller.send("hi", name="t1")
    house.forwarder.plan("echo:a", WorkerRefused("echo:a"))
    with pytest.raises(WorkerRefused):
        await caller.send("blue", name="t1")
    house.forwarder.plan("echo:a", status("completed"))
    assert (await caller.send("blue", name="t1")).state == "completed"


async def test_an_answer_to_a_task_that_its_worker_has_forgotten_loses_the_task(house: House) -> None:
    task_id = await asked(house)
    house.forwarder.plan("echo:a", WorkerFault(-32001, "which task?"))
    with pytest.raises(WorkerFault):
        await house.send("blue", taskId=task_id)
    lost = await house.get(task_id)
    assert end(lost) == ("failed", "WORKER_LOST")
    assert words(lost) == "echo:a no longer knows the task."


async def test_an_answer_that_its_worker_finds_wrong_leaves_the_task_waiting(house: House) -> None:
    task_id = await asked(house)
    house.forwarder.plan("echo:a", WorkerFault(-32602, "no"))
    with pytest.raises(WorkerFault):
        await house.send("blue", taskId=task_id)
    assert end(await house.get(task_id)) == ("input-required", "")


async def test_a_message_to_a_task_whose_worker_is_gone_is_refused(house: House) -> None:
    task_id = await asked(house)
    (lease,) = house.engine.registry.live("default", "echo")
    await house.directory.withdraw(LOCAL, lease.worker, proof(lease))
    await house.enrol("echo:b")
    with pytest.raises(NoLiveWorker):
        await house.send("x", taskId=task_id)


async def test_a_message_to_a_task_whose_worker_began_anew_is_refused(house: House) -> None:
    task_id = await asked(house)
    await house.enrol("echo:a", boot="another")
    with pytest.raises(NoLiveWorker):
        await house.send("x", taskId=task_id)
    assert house.forwarder.asked("deliver") == ["echo:a"]


# --- cut off


@pytest.mark.parametrize("cut", [(CUT,), ()], ids=["cut", "ended without a word"])
async def test_an_answer_that_did_not_get_there_is_refused_and_the_task_waits_on(
    house: House, cut: tuple[Exception, ...]
) -> None:
    task_id = await asked(house)
    house.forwarder.plan("echo:a", *cut)
    house.forwarder.plan_fetch("echo:a", *[ASKS] * 20)
    with pytest.raises(WorkerRefused):
        await house.send("blue", taskId=task_id)
    assert len(house.forwarder.asked("fetch")) == 6
    assert [turn["role"] for turn in (await house.get(task_id))["history"]] == ["user"]
    house.forwarder.plan("echo:a", status("completed"))
    assert end(await house.send("blue", taskId=task_id)) == ("completed", "")


async def test_an_answer_whose_line_was_cut_is_followed_to_its_end(house: House) -> None:
    task_id = await asked(house)
    house.forwarder.plan("echo:a", CUT)
    house.forwarder.plan_fetch("echo:a", *[ASKS] * 5, task("working"), task("completed"))
    got = await house.stream("blue", taskId=task_id)
    assert [end(frame)[0] for frame in got] == ["working", "completed"]
    assert gaps(got) == [3, 4]


async def test_an_answer_that_was_never_heard_is_given_again_to_a_worker_that_recognises_it(house: House) -> None:
    """To listen again would bring the question, which the worker may still be asking."""
    task_id = await asked(house, replays=True)
    house.forwarder.plan("echo:a", CUT)
    house.forwarder.plan("echo:a", status("completed", position="b.3"))
    assert end(await house.send("blue", taskId=task_id)) == ("completed", "")
    assert [kind for kind, _, _ in house.forwarder.calls] == ["deliver"] * 3
    assert [message["parts"][0]["text"] for message in house.forwarder.told()] == ["hi", "blue", "blue"]


async def test_an_answer_that_was_heard_is_followed_at_its_position(house: House) -> None:
    task_id = await asked(house, replays=True)
    house.forwarder.plan("echo:a", status("working", position="b.3"), CUT)
    house.forwarder.plan("echo:a", status("completed", position="b.4"))
    assert end(await house.send("blue", taskId=task_id)) == ("completed", "")
    assert [kind for kind, _, _ in house.forwarder.calls] == ["deliver", "deliver", "attach"]
    assert house.forwarder.calls[-1][2].position == "b.3"


async def test_a_second_question_behind_an_answer_ends_the_call(house: House) -> None:
    task_id = await asked(house)
    house.forwarder.plan("echo:a", status("input-required", "which one?"), 3600.0)
    answer = await house.send("blue", taskId=task_id)
    assert (end(answer), words(answer)) == (("input-required", ""), "which one?")


async def test_an_answer_that_takes_long_to_begin_is_waited_for(house: House) -> None:
    house.watch()
    task_id = await asked(house)
    house.forwarder.plan("echo:a", 2 * SILENCE, status("completed"))
    house.forwarder.plan_fetch("echo:a", *[ASKS] * 9)
    assert end(await house.send("blue", taskId=task_id)) == ("completed", "")


async def test_a_worker_that_is_gone_when_it_is_answered_loses_the_task(house: House) -> None:
    task_id = await asked(house, replays=True)
    house.forwarder.plan("echo:a", CUT)
    house.forwarder.plan("echo:a", REFUSED)
    house.forwarder.plan("echo:a", REFUSED)
    assert end(await house.send("blue", taskId=task_id)) == ("failed", "WORKER_LOST")


async def test_an_answer_whose_task_is_found_ended_on_a_dead_line_gets_the_end(house: House) -> None:
    house.watch()
    task_id = await asked(house)
    house.forwarder.plan_fetch("echo:a", task("completed"))
    sending, _ = await reaches(house, taskId=task_id)
    assert end(await sending) == ("completed", "")
