"""A repeated message is the same call."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rolecall.errors import (
    BrokenOff,
    InvalidAnswer,
    KeyConflict,
    NoLiveWorker,
    Overloaded,
    StoreUnavailable,
    WorkerUnreachable,
)
from rolecall.model.a2a import WorkerEvent
from rolecall.model.ids import Caller
from rolecall.protocol.text.jsontext import parse
from tests.flow.conftest import CALLER, System, frames, hub_limits, proof, say, shares
from tests.helpers.scripted import chunk, message, status, task


async def test_a_repeat_of_a_running_message_gets_the_same_answer(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), 0.1, chunk("x", append=False), status("completed"))
    answers = await asyncio.gather(*(system.send(messageId="m") for _ in range(5)))
    assert all(answer == answers[0] for answer in answers)
    assert len(system.forwarder.calls) == 1


async def test_a_repeated_streaming_message_gets_the_same_stream(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), chunk("x", append=False), 0.1, chunk("y"), status("completed"))
    first, second = await asyncio.gather(system.stream(messageId="m"), system.stream(messageId="m"))
    assert first == second
    assert await system.stream(messageId="m") == first
    assert len(system.forwarder.calls) == 1


async def test_a_message_is_recognised_for_a_while_after_its_end(system: System) -> None:
    await system.enrol("echo:a")
    for _ in range(2):
        system.forwarder.plan("echo:a", task("completed"))
    first = await system.send(messageId="m")
    system.clock.advance(59)
    assert (await system.send(messageId="m"))["id"] == first["id"]
    system.clock.advance(2)
    assert (await system.send(messageId="m"))["id"] != first["id"]


async def test_a_repeat_gets_a_bare_message_again_too(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", message("yes"))
    assert await system.send(messageId="m") == await system.send(messageId="m")


@pytest.mark.parametrize("other", [{"text": "other words"}, {"role": "second"}])
async def test_an_old_id_with_new_content_is_a_new_message(system: System, other: dict[str, str]) -> None:
    for name in ("echo:a", "second:a"):
        await system.enrol(name)
        for _ in range(2):
            system.forwarder.plan(name, task("completed"))
    first = await system.send(messageId="m")
    assert (await system.send(**other, messageId="m"))["id"] != first["id"]


@pytest.mark.parametrize("other", [Caller("default", "other"), Caller("acme", "local")])
@pytest.mark.parametrize("key", [None, "k"])
async def test_another_callers_message_is_another_message(system: System, other: Caller, key: str | None) -> None:
    """Also if only the workspaces differ, or both use the same key."""
    await system.enrol("echo:a")
    await system.enrol("echo:b", workspace="acme")
    plans = ("echo:a", "echo:b" if other.workspace == "acme" else "echo:a")
    for number, worker in enumerate(plans):
        system.forwarder.plan(worker, answered_with(f"for {number}"))
    mine = await system.send(messageId="m", key=key)
    other_answer = await system.send(messageId="m", key=key, caller=other)
    assert [answer["artifacts"][0]["parts"][0]["text"] for answer in (mine, other_answer)] == ["for 0", "for 1"]
    assert other_answer["id"] != mine["id"]


@pytest.mark.parametrize("key", [None, "k"])
async def test_another_callers_message_is_another_message_after_a_restart(system: System, key: str | None) -> None:
    await system.enrol("echo:a")
    await system.enrol("echo:b", workspace="acme")
    for worker in ("echo:a", "echo:b"):
        system.forwarder.plan(worker, task("completed"))
    mine = await system.send(messageId="m", key=key)
    await system.restart()
    other_answer = await system.send(messageId="m", key=key, caller=Caller("acme", "local"))
    assert other_answer["id"] != mine["id"]


async def test_callers_whose_joined_names_are_equal_are_different_callers(system: System) -> None:
    await system.enrol("echo:a", workspace="a")
    await system.enrol("echo:a", workspace="ab")
    for _ in range(2):
        system.forwarder.plan("echo:a", task("completed"))
    first = await system.send(messageId="m", caller=Caller("a", "bc"))
    assert (await system.send(messageId="m", caller=Caller("ab", "c")))["id"] != first["id"]


async def test_a_key_is_valid_on_every_path(system: System) -> None:
    """It is the caller's own name for the call; the same text to another role is other content."""
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task("completed"))
    first = await system.send(messageId="m", key="k")
    assert (await system.send(messageId="m", key="k", role=None))["id"] == first["id"]


async def test_a_message_with_a_key_is_not_the_one_without(system: System) -> None:
    await system.enrol("echo:a")
    for _ in range(3):
        system.forwarder.plan("echo:a", task("completed"))
    answers = [await system.send(messageId="m", key=key) for key in (None, "k", "l")]
    assert len({answer["id"] for answer in answers}) == 3


async def test_a_call_that_never_began_may_be_repeated(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", WorkerUnreachable("echo:a", "http://w/", "refused"))
    system.forwarder.plan("echo:a", task("completed"))
    with pytest.raises(WorkerUnreachable):
        await system.send(messageId="m")
    assert (await system.send(messageId="m"))["status"]["state"] == "completed"


async def test_a_repeat_of_a_call_that_may_have_run_does_not_run_it_again(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", InvalidAnswer("echo:a", "HTML"))
    with pytest.raises(InvalidAnswer):
        await system.send(messageId="m")
    assert (await system.send(messageId="m"))["status"]["state"] == "failed"
    assert len(system.forwarder.calls) == 1


async def test_a_repeat_gets_an_error_if_the_first_sender_disconnects_early(system: System) -> None:
    first = asyncio.create_task(system.send(messageId="m", metadata={"waitSeconds": 60}))
    await asyncio.sleep(0.05)
    second = asyncio.create_task(system.send(messageId="m", metadata={"waitSeconds": 60}))
    await asyncio.sleep(0.05)
    first.cancel()
    with pytest.raises(BrokenOff):
        await second


async def test_a_message_whose_sender_disconnected_early_may_be_sent_again(system: System) -> None:
    waiting = asyncio.create_task(system.send(messageId="m", metadata={"waitSeconds": 60}))
    await asyncio.sleep(1)
    waiting.cancel()
    await asyncio.wait([waiting])
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task("completed"))
    async with asyncio.timeout(5):
        answer = await system.send(messageId="m", metadata={"waitSeconds": 60})
    assert answer["status"]["state"] == "completed"


async def test_a_repeat_that_is_cancelled_does_not_affect_others(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task("completed"))
    hold = system.engine.hold("tasks.admit")
    first, cancelled, waiting = (asyncio.create_task(system.send(messageId="m")) for _ in range(3))
    await hold.reached.wait()
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    hold.release()
    assert (await first)["status"]["state"] == "completed"
    assert await waiting == await first


async def test_a_message_that_could_not_be_stored_may_be_sent_again(stored_system: System) -> None:
    await stored_system.enrol("echo:a")
    stored_system.engine.fail("tasks.admit", StoreUnavailable("full"))
    hold = stored_system.engine.hold("tasks.admit")
    first, second = (asyncio.create_task(stored_system.send(messageId="m")) for _ in range(2))
    await hold.reached.wait()
    await asyncio.sleep(0)
    hold.release()
    for sender in (first, second):
        with pytest.raises(StoreUnavailable):
            await sender
    stored_system.forwarder.plan("echo:a", task("completed"))
    assert (await stored_system.send(messageId="m"))["status"]["state"] == "completed"
    assert stored_system.forwarder.asked("deliver") == ["echo:a"]


async def test_all_senders_of_a_message_get_the_same_error(system: System) -> None:
    """All sent the same message, and get the same error."""
    await system.enrol("echo:a")
    await system.directory.drain(CALLER, (await system.enrol("echo:a")).worker, "test")
    waiting = [asyncio.create_task(system.send(messageId="m", metadata={"waitSeconds": 5})) for _ in range(3)]
    for sender in waiting:
        with pytest.raises(NoLiveWorker, match="draining"):
            await sender


async def test_a_repeated_answer_to_a_paused_task_is_delivered_once(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), status("input-required", "which?"))
    asked = await system.send()
    system.forwarder.plan("echo:a", task("working"), 0.1, status("completed"))
    answers = await asyncio.gather(*(system.send("blue", messageId="m2", taskId=asked["id"]) for _ in range(3)))
    assert {answer["status"]["state"] for answer in answers} == {"completed"}
    assert len(system.forwarder.calls) == 2
    again = await system.hub.stream(CALLER, say("blue", messageId="m2", taskId=asked["id"]))
    assert (await frames(again))[-1]["status"]["state"] == "completed"


async def test_two_messages_with_one_key_are_one_call_and_other_content_is_refused(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task("completed"))
    first = await system.send(messageId="m", key="k")
    system.clock.advance(3600)
    assert (await system.send(messageId="m", key="k"))["id"] == first["id"]
    with pytest.raises(KeyConflict):
        await system.send("other", messageId="m", key="k")
    assert len(system.forwarder.calls) == 1


async def test_a_restarted_hub_recognises_the_messages_of_the_earlier_one(system: System) -> None:
    await system.enrol("echo:a", replays=True)
    system.forwarder.plan("echo:a", task(position="b.1"), 5.0)
    running = asyncio.create_task(system.send(messageId="m"))
    await asyncio.sleep(0.05)
    running.cancel()
    again = system.restarted()
    system.forwarder.plan("echo:a", status("completed", position="b.2"))
    await again.settle()
    answer = parse((await again.send(CALLER, say(messageId="m"))).body)
    assert answer["status"]["state"] == "completed"
    assert system.forwarder.asked("deliver") == ["echo:a"]
    assert system.forwarder.asked("attach") == ["echo:a"]


async def test_a_finished_call_is_recognised_by_the_next_hub(stored_system: System) -> None:
    await stored_system.enrol("echo:a")
    for _ in range(2):
        stored_system.forwarder.plan("echo:a", answered_with("one"))
    first = await stored_system.send(messageId="m")
    await stored_system.restart()
    assert await stored_system.send(messageId="m") == first
    stored_system.clock.advance(61)
    assert (await stored_system.send(messageId="m"))["id"] != first["id"]


@pytest.mark.parametrize("path", ["echo", None])
async def test_the_next_hub_recognises_a_message_at_either_path(stored_system: System, path: str | None) -> None:
    """The role was in the path, or in the message."""
    await stored_system.enrol("echo:a")
    stored_system.forwarder.plan("echo:a", task("completed"))
    members = {"messageId": "m", "metadata": {"role": "echo"}}
    first = await stored_system.send(role=path, **members)
    await stored_system.restart()
    assert (await stored_system.send(role=path, **members))["id"] == first["id"]
    assert stored_system.forwarder.asked("deliver") == ["echo:a"]


async def test_the_next_hub_does_not_recognise_calls_that_ended_before_the_window(stored_system: System) -> None:
    await stored_system.enrol("echo:a")
    for _ in range(2):
        stored_system.forwarder.plan("echo:a", task("completed"))
    first = await stored_system.send(messageId="m")
    stored_system.clock.advance(61)
    await stored_system.restart()
    assert (await stored_system.send(messageId="m"))["id"] != first["id"]


async def test_a_key_belongs_to_the_first_message_also_after_answers(stored_system: System) -> None:
    await stored_system.enrol("echo:a")
    stored_system.forwarder.plan("echo:a", task("input-required", "which?"))
    stored_system.forwarder.plan("echo:a", status("completed"))
    asked = await stored_system.send("paint", messageId="m", key="k")
    await stored_system.send("blue", messageId="m2", taskId=asked["id"])
    await stored_system.restart()
    stored_system.clock.advance(3600)  # long after the window
    assert (await stored_system.send("paint", messageId="m", key="k"))["status"]["state"] == "completed"
    with pytest.raises(KeyConflict):
        await stored_system.send("blue", messageId="m2", key="k")
    assert stored_system.forwarder.asked("deliver") == ["echo:a", "echo:a"]


async def test_the_next_hub_recognises_the_first_message_of_a_task_that_was_answered(stored_system: System) -> None:
    await stored_system.enrol("echo:a")
    stored_system.forwarder.plan("echo:a", task("input-required", "which?"))
    stored_system.forwarder.plan("echo:a", status("completed"))
    asked = await stored_system.send("paint", messageId="m")
    await stored_system.send("blue", messageId="m2", taskId=asked["id"])
    await stored_system.restart()
    assert (await stored_system.send("paint", messageId="m"))["id"] == asked["id"]
    assert stored_system.forwarder.asked("deliver") == ["echo:a", "echo:a"]


async def test_an_answer_that_is_sent_again_is_answered_from_where_it_began(system: System) -> None:
    """Not from the pause before it."""
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task("input-required", "which?"))
    system.forwarder.plan("echo:a", status("working"), 5.0, status("completed"))
    asked = await system.send("paint", messageId="m")
    first = asyncio.create_task(system.send("blue", messageId="m2", taskId=asked["id"]))
    await asyncio.sleep(1)
    again = await system.stream("blue", messageId="m2", taskId=asked["id"])
    assert [frame.get("cursor") for frame in again] == [2, 3]
    assert [frame["status"]["state"] for frame in again] == ["working", "completed"]
    assert (await first)["status"]["state"] == "completed"
    repeated = await system.stream("blue", messageId="m2", taskId=asked["id"])
    assert [frame["cursor"] for frame in repeated] == [2, 3]


async def test_the_window_is_a_setting(system: System) -> None:
    system.with_bounds(limits=hub_limits(same_message=timedelta(seconds=5)))
    await system.enrol("echo:a")
    for _ in range(2):
        system.forwarder.plan("echo:a", task("completed"))
    first = await system.send(messageId="m")
    system.clock.advance(4)
    assert (await system.send(messageId="m"))["id"] == first["id"]
    system.clock.advance(2)
    assert (await system.send(messageId="m"))["id"] != first["id"]


async def test_the_window_begins_at_the_end_of_a_call(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), 300.0, status("completed"))
    first = await system.send(messageId="m")
    system.clock.advance(59)
    assert (await system.send(messageId="m"))["id"] == first["id"]


async def test_a_message_is_recognised_anew_after_it_was_sent_anew(system: System) -> None:
    await system.enrol("echo:a")
    for _ in range(2):
        system.forwarder.plan("echo:a", task("completed"))
    await system.send(messageId="m")
    system.clock.advance(100)
    second = await system.send(messageId="m")
    system.clock.advance(59)
    assert (await system.send(messageId="m"))["id"] == second["id"]


async def test_a_repeat_does_not_extend_the_window(system: System) -> None:
    await system.enrol("echo:a")
    for _ in range(2):
        system.forwarder.plan("echo:a", task("completed"))
    first = await system.send(messageId="m")
    system.clock.advance(40)
    assert (await system.send(messageId="m"))["id"] == first["id"]
    system.clock.advance(30)
    assert (await system.send(messageId="m"))["id"] != first["id"]


def answered_with(text: str) -> WorkerEvent:
    """A whole task with one result."""
    return task("completed", artifacts=[{"artifactId": "a", "parts": [{"kind": "text", "text": text}]}])


# --- the row in the store


async def test_a_message_that_is_sent_a_thousand_times_at_once_is_one_task(stored_system: System) -> None:
    await stored_system.enrol("echo:a")
    stored_system.forwarder.plan("echo:a", task(), 0.1, status("completed"))
    answers = await asyncio.gather(*(stored_system.send(messageId="m") for _ in range(1_000)))
    assert len({answer["id"] for answer in answers}) == 1
    assert len(await stored_system.rows()) == 1
    assert stored_system.forwarder.asked("deliver") == ["echo:a"]


async def test_a_message_that_is_repeated_a_thousand_times_after_its_end_is_one_task(stored_system: System) -> None:
    await stored_system.enrol("echo:a")
    stored_system.forwarder.plan("echo:a", task("completed"))
    first = await stored_system.send(messageId="m")
    answers = await asyncio.gather(*(stored_system.send(messageId="m") for _ in range(1_000)))
    assert all(answer == first for answer in answers)
    assert len(await stored_system.rows()) == 1
    assert stored_system.forwarder.asked("deliver") == ["echo:a"]


async def test_a_new_plain_call_reads_nothing_from_the_store_to_be_recognised(stored_system: System) -> None:
    await stored_system.enrol("echo:a")
    stored_system.forwarder.plan("echo:a", task("completed"))
    await stored_system.send(messageId="m")
    asked = [operation for operation, _, _ in stored_system.engine.asked]
    assert "tasks.find_call" not in asked
    assert asked.count("tasks.admit") == 1


async def test_the_next_hub_reads_no_task_that_has_ended(stored_system: System) -> None:
    await stored_system.enrol("echo:a")
    for _ in range(5):
        stored_system.forwarder.plan("echo:a", task("completed"))
        await stored_system.send()
    await stored_system.restart()
    assert stored_system.engine.arguments("tasks.turns") == []
    assert len(stored_system.engine.arguments("tasks.unfinished")) == 1


async def test_a_repeat_needs_no_worker_and_no_free_slot(stored_system: System) -> None:
    lease = await stored_system.enrol("echo:a")
    stored_system.forwarder.plan("echo:a", answered_with("one"))
    first = await stored_system.send(messageId="m")
    await stored_system.directory.withdraw(CALLER, lease.worker, proof(lease))
    with pytest.raises(NoLiveWorker):
        await stored_system.send(messageId="other")
    assert await stored_system.send(messageId="m") == first
    await stored_system.restart(shares=shares(open_tasks=0))
    with pytest.raises(Overloaded):
        await stored_system.send(messageId="other")
    assert await stored_system.send(messageId="m") == first


async def test_a_repeat_that_may_wait_for_a_worker_is_answered_at_once(stored_system: System) -> None:
    lease = await stored_system.enrol("echo:a")
    stored_system.forwarder.plan("echo:a", answered_with("one"))
    first = await stored_system.send(messageId="m", metadata={"waitSeconds": 60})
    await stored_system.directory.withdraw(CALLER, lease.worker, proof(lease))
    async with asyncio.timeout(1):
        assert await stored_system.send(messageId="m", metadata={"waitSeconds": 60}) == first


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_repeat_waits_for_the_call_that_the_next_hub_continues(stored_system: System, key: str | None) -> None:
    """Before its first event, and after it."""
    for events in ((), (task(position="b.1"),)):
        await stored_system.enrol("echo:a", replays=True)
        stored_system.forwarder.plan("echo:a", *events, 5.0)
        first = asyncio.create_task(stored_system.send(messageId=f"m{len(events)}", key=key and key + str(len(events))))
        await asyncio.sleep(1)
        (rest,) = (task(position="b.1"),) if not events else (status("working", position="b.2"),)
        stored_system.forwarder.plan("echo:a", 2.0, rest, 2.0, status("completed", position="b.3"))
        await stored_system.restart()
        first.cancel()
        repeats = [stored_system.send(messageId=f"m{len(events)}", key=key and key + str(len(events))) for _ in range(3)]
        answers = await asyncio.gather(*repeats)
        assert {answer["status"]["state"] for answer in answers} == {"completed"}
        assert len({answer["id"] for answer in answers}) == 1
    assert len(await stored_system.rows()) == 2


async def test_other_content_under_an_old_id_is_a_new_task_for_the_next_hub_too(stored_system: System) -> None:
    await stored_system.enrol("echo:a")
    for _ in range(2):
        stored_system.forwarder.plan("echo:a", task("completed"))
    first = await stored_system.send(messageId="m")
    await stored_system.restart()
    assert (await stored_system.send("other words", messageId="m"))["id"] != first["id"]


async def test_the_same_message_at_another_path_is_another_call_for_the_next_hub_too(stored_system: System) -> None:
    await stored_system.enrol("echo:a")
    for _ in range(2):
        stored_system.forwarder.plan("echo:a", task("completed"))
    first = await stored_system.send(messageId="m", metadata={"role": "echo"})
    await stored_system.restart()
    assert (await stored_system.send(role=None, messageId="m", metadata={"role": "echo"}))["id"] != first["id"]


async def test_a_paused_task_recognises_its_messages_however_long_it_waits(stored_system: System) -> None:
    await stored_system.enrol("echo:a")
    stored_system.forwarder.plan("echo:a", task("input-required", "which?"))
    stored_system.forwarder.plan("echo:a", status("input-required", "sure?"))
    asked = await stored_system.send("paint", messageId="m")
    await stored_system.send("blue", messageId="m2", taskId=asked["id"])
    await asyncio.sleep(3600)
    await stored_system.hub.forget()
    assert (await stored_system.send("paint", messageId="m"))["id"] == asked["id"]
    assert (await stored_system.send("blue", messageId="m2", taskId=asked["id"]))["id"] == asked["id"]
    assert stored_system.forwarder.asked("deliver") == ["echo:a", "echo:a"]


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("then", ["input-required", "completed"])
async def test_an_answer_repeated_after_a_restart_adds_no_turn(stored_system: System, key: str | None, then: str) -> None:
    await stored_system.enrol("echo:a")
    stored_system.forwarder.plan("echo:a", task("input-required", "which?"))
    stored_system.forwarder.plan("echo:a", status(then))
    asked = await stored_system.send("paint", messageId="m")
    answered = await stored_system.send("blue", messageId="m2", taskId=asked["id"], key=key)
    await stored_system.restart()
    again = await stored_system.send("blue", messageId="m2", taskId=asked["id"], key=key)
    assert again == answered
    assert [turn.message_id for turn in await stored_system.engine.tasks.turns(asked["id"])] == ["m", "m2"]
    assert stored_system.forwarder.asked("deliver") == ["echo:a", "echo:a"]


async def test_an_answer_by_its_context_repeated_after_a_restart_is_the_same_call(stored_system: System) -> None:
    """Also while the worker has not yet reacted to it, so that the task still looks paused."""
    await stored_system.enrol("echo:a", replays=True)
    stored_system.forwarder.plan("echo:a", task("input-required", "which?", position="b.1"))
    stored_system.forwarder.plan("echo:a", 60.0)
    asked = await stored_system.send("paint", messageId="m", contextId="c")
    first = asyncio.create_task(stored_system.send("blue", messageId="m2", contextId="c"))
    await asyncio.sleep(1)
    stored_system.forwarder.plan("echo:a", 0.1, status("completed", position="b.2"))
    await stored_system.restart()
    first.cancel()
    assert (await stored_system.send("blue", messageId="m2", contextId="c"))["id"] == asked["id"]
    assert [turn.message_id for turn in await stored_system.engine.tasks.turns(asked["id"])] == ["m", "m2"]


async def test_a_call_that_was_taken_back_runs_when_it_is_sent_again(stored_system: System) -> None:
    await stored_system.enrol("echo:a")
    stored_system.forwarder.plan("echo:a", WorkerUnreachable("echo:a", "http://w/", "refused"))
    with pytest.raises(WorkerUnreachable):
        await stored_system.send(messageId="m")
    await stored_system.restart()
    stored_system.forwarder.plan("echo:a", task("completed"))
    assert (await stored_system.send(messageId="m"))["status"]["state"] == "completed"
    assert len(await stored_system.rows()) == 1


async def test_an_answer_that_was_taken_back_runs_when_it_is_sent_again(stored_system: System) -> None:
    await stored_system.enrol("echo:a")
    stored_system.forwarder.plan("echo:a", task("input-required", "which?"))
    stored_system.forwarder.plan("echo:a", WorkerUnreachable("echo:a", "http://w/", "refused"))
    asked = await stored_system.send("paint", messageId="m")
    with pytest.raises(WorkerUnreachable):
        await stored_system.send("blue", messageId="m2", taskId=asked["id"])
    await stored_system.restart()
    stored_system.forwarder.plan("echo:a", status("completed"))
    again = await stored_system.send("blue", messageId="m2", taskId=asked["id"])
    assert again["status"]["state"] == "completed"
    assert [turn.message_id for turn in await stored_system.engine.tasks.turns(asked["id"])] == ["m", "m2"]


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_message_whose_sender_disconnected_while_it_was_stored_may_be_sent_again(
    stored_system: System, key: str | None
) -> None:
    """It may have been stored, although nobody calls the worker."""
    await stored_system.enrol("echo:a")
    hold = stored_system.engine.hold_after("tasks.admit")
    first, second = (asyncio.create_task(stored_system.send(messageId="m", key=key)) for _ in range(2))
    await hold.reached.wait()
    stored_system.engine.fail("tasks.discard", StoreUnavailable("full"))
    first.cancel()
    with pytest.raises(BrokenOff):
        await second
    assert await stored_system.rows() == []
    stored_system.forwarder.plan("echo:a", task("completed"))
    assert (await stored_system.send(messageId="m", key=key))["status"]["state"] == "completed"
    assert len(await stored_system.rows()) == 1


async def test_an_answer_whose_sender_disconnected_while_it_was_stored_may_be_sent_again(stored_system: System) -> None:
    await stored_system.enrol("echo:a")
    stored_system.forwarder.plan("echo:a", task("input-required", "which?"))
    asked = await stored_system.send("paint", messageId="m")
    hold = stored_system.engine.hold_after("tasks.add_turn")
    first = asyncio.create_task(stored_system.send("blue", messageId="m2", taskId=asked["id"]))
    await hold.reached.wait()
    first.cancel()
    await asyncio.wait([first])
    assert len(await stored_system.engine.tasks.turns(asked["id"])) == 1
    stored_system.forwarder.plan("echo:a", status("completed"))
    again = await stored_system.send("blue", messageId="m2", taskId=asked["id"])
    assert again["status"]["state"] == "completed"


async def test_the_hub_forgets_names_when_the_window_is_over(stored_system: System) -> None:
    await stored_system.enrol("echo:a")
    for number in range(3):
        stored_system.forwarder.plan("echo:a", task("completed"))
        await stored_system.send(messageId=f"m{number}")
    names = [kwargs["names"][0].digest for _, kwargs in stored_system.engine.arguments("tasks.admit")]
    for seconds, kept in ((59, 3), (2, 0)):
        stored_system.clock.advance(seconds)
        await stored_system.hub.forget()
        found = [await stored_system.engine.tasks.find_call(name, remembered=timedelta(days=1)) for name in names]
        assert len([call for call in found if call is not None]) == kept


async def test_other_content_under_the_key_of_a_running_call_is_refused(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), 5.0, status("completed"))
    first = asyncio.create_task(system.send(messageId="m", key="k"))
    await asyncio.sleep(1)
    with pytest.raises(KeyConflict):
        await system.send("other", messageId="m", key="k")
    assert (await first)["status"]["state"] == "completed"


async def test_a_repeat_to_the_next_hub_sees_the_task_before_its_worker_answers(stored_system: System) -> None:
    await stored_system.enrol("echo:a", replays=True)
    stored_system.forwarder.plan("echo:a", 60.0)
    first = asyncio.create_task(stored_system.send(messageId="m", blocking=False))
    await asyncio.sleep(0.5)
    stored_system.forwarder.plan("echo:a", 5.0, task("completed", position="b.1"))
    await stored_system.restart(silence=timedelta(seconds=60))
    first.cancel()
    assert (await stored_system.send(messageId="m", blocking=False))["status"]["state"] == "submitted"
    await asyncio.sleep(10)
    assert (await stored_system.send(messageId="m", blocking=False))["status"]["state"] == "completed"
    assert len(await stored_system.rows()) == 1


async def test_a_repeat_to_the_next_hub_gets_what_is_logged_at_once(stored_system: System) -> None:
    """Even if the worker sends nothing more for long."""
    await stored_system.enrol("echo:a", replays=True)
    stored_system.forwarder.plan("echo:a", task(position="b.1"), 60.0)
    first = asyncio.create_task(stored_system.send(messageId="m"))
    await asyncio.sleep(0.5)
    stored_system.forwarder.plan("echo:a", 20.0, status("completed", position="b.2"))
    await stored_system.restart(silence=timedelta(seconds=60))
    first.cancel()
    async with asyncio.timeout(1):
        task_stream = await stored_system.hub.stream(CALLER, say(messageId="m"))
    assert [frame["cursor"] for frame in await frames(task_stream)] == [1, 2]
