"""The same message twice is one call (ruling R7)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from hub.core.hub import HubLimits
from rolecall.errors import BrokenOff, InvalidAnswer, KeyConflict, NoLiveWorker, StoreUnavailable, WorkerUnreachable
from rolecall.model.a2a import WorkerEvent
from rolecall.model.ids import Caller
from rolecall.protocol.text.jsontext import parse
from tests.flow.conftest import ME, House, frames, say
from tests.helpers.scripted import chunk, message, status, task


async def test_a_message_that_comes_again_while_it_runs_gets_the_same_answer(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), 0.1, chunk("x", append=False), status("completed"))
    answers = await asyncio.gather(*(house.send(messageId="m") for _ in range(5)))
    assert all(answer == answers[0] for answer in answers)
    assert len(house.forwarder.calls) == 1


async def test_a_stream_that_is_asked_for_again_is_the_same_stream(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), chunk("x", append=False), 0.1, chunk("y"), status("completed"))
    first, second = await asyncio.gather(house.stream(messageId="m"), house.stream(messageId="m"))
    assert first == second
    assert await house.stream(messageId="m") == first
    assert len(house.forwarder.calls) == 1


async def test_a_message_is_recognised_for_a_while_after_its_end(house: House) -> None:
    await house.enrol("echo:a")
    for _ in range(2):
        house.forwarder.plan("echo:a", task("completed"))
    first = await house.send(messageId="m")
    house.clock.advance(59)
    assert (await house.send(messageId="m"))["id"] == first["id"]
    house.clock.advance(2)
    assert (await house.send(messageId="m"))["id"] != first["id"]


async def test_a_bare_message_is_answered_again_too(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", message("yes"))
    assert await house.send(messageId="m") == await house.send(messageId="m")


@pytest.mark.parametrize("other", [{"text": "other words"}, {"role": "second"}])
async def test_an_old_id_with_something_new_is_a_new_message(house: House, other: dict[str, str]) -> None:
    for name in ("echo:a", "second:a"):
        await house.enrol(name)
        for _ in range(2):
            house.forwarder.plan(name, task("completed"))
    first = await house.send(messageId="m")
    assert (await house.send(**other, messageId="m"))["id"] != first["id"]


@pytest.mark.parametrize("other", [Caller("default", "other"), Caller("acme", "local")])
@pytest.mark.parametrize("key", [None, "k"])
async def test_another_callers_message_is_another_message(house: House, other: Caller, key: str | None) -> None:
    """Also where they differ in the workspace alone, or use the same key."""
    await house.enrol("echo:a")
    await house.enrol("echo:b", workspace="acme")
    plans = ("echo:a", "echo:b" if other.workspace == "acme" else "echo:a")
    for number, worker in enumerate(plans):
        house.forwarder.plan(worker, answered_with(f"for {number}"))
    mine = await house.send(messageId="m", key=key)
    theirs = await house.send(messageId="m", key=key, caller=other)
    assert [answer["artifacts"][0]["parts"][0]["text"] for answer in (mine, theirs)] == ["for 0", "for 1"]
    assert theirs["id"] != mine["id"]


@pytest.mark.parametrize("key", [None, "k"])
async def test_another_callers_message_is_another_message_after_a_restart(house: House, key: str | None) -> None:
    await house.enrol("echo:a")
    await house.enrol("echo:b", workspace="acme")
    for worker in ("echo:a", "echo:b"):
        house.forwarder.plan(worker, task("completed"))
    mine = await house.send(messageId="m", key=key)
    await house.restart()
    theirs = await house.send(messageId="m", key=key, caller=Caller("acme", "local"))
    assert theirs["id"] != mine["id"]


async def test_names_that_read_the_same_when_joined_are_two_callers(house: House) -> None:
    await house.enrol("echo:a", workspace="a")
    await house.enrol("echo:a", workspace="ab")
    for _ in range(2):
        house.forwarder.plan("echo:a", task("completed"))
    first = await house.send(messageId="m", caller=Caller("a", "bc"))
    assert (await house.send(messageId="m", caller=Caller("ab", "c")))["id"] != first["id"]


async def test_a_key_holds_whatever_the_path_was(house: House) -> None:
    """It is the caller's own name for the call; the same words to another role are not the same content."""
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task("completed"))
    first = await house.send(messageId="m", key="k")
    assert (await house.send(messageId="m", key="k", role=None))["id"] == first["id"]


async def test_a_message_with_a_key_is_not_the_one_without(house: House) -> None:
    await house.enrol("echo:a")
    for _ in range(3):
        house.forwarder.plan("echo:a", task("completed"))
    answers = [await house.send(messageId="m", key=key) for key in (None, "k", "l")]
    assert len({answer["id"] for answer in answers}) == 3


async def test_a_call_that_never_began_may_be_tried_again(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", WorkerUnreachable("echo:a", "http://w/", "refused"))
    house.forwarder.plan("echo:a", task("completed"))
    with pytest.raises(WorkerUnreachable):
        await house.send(messageId="m")
    assert (await house.send(messageId="m"))["status"]["state"] == "completed"


async def test_a_call_that_may_have_run_is_not_run_again_by_its_repetition(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", InvalidAnswer("echo:a", "HTML"))
    with pytest.raises(InvalidAnswer):
        await house.send(messageId="m")
    assert (await house.send(messageId="m"))["status"]["state"] == "failed"
    assert len(house.forwarder.calls) == 1


async def test_who_sends_the_same_message_is_told_when_the_first_sender_leaves_early(house: House) -> None:
    first = asyncio.create_task(house.send(messageId="m", metadata={"waitSeconds": 60}))
    await asyncio.sleep(0.05)
    second = asyncio.create_task(house.send(messageId="m", metadata={"waitSeconds": 60}))
    await asyncio.sleep(0.05)
    first.cancel()
    with pytest.raises(BrokenOff):
        await second


async def test_a_message_whose_sender_left_early_may_be_sent_again(house: House) -> None:
    waiting = asyncio.create_task(house.send(messageId="m", metadata={"waitSeconds": 60}))
    await asyncio.sleep(1)
    waiting.cancel()
    await asyncio.wait([waiting])
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task("completed"))
    async with asyncio.timeout(5):
        answer = await house.send(messageId="m", metadata={"waitSeconds": 60})
    assert answer["status"]["state"] == "completed"


async def test_who_sends_it_again_and_leaves_disturbs_nobody(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task("completed"))
    hold = house.engine.hold("tasks.admit")
    first, leaves, stays = (asyncio.create_task(house.send(messageId="m")) for _ in range(3))
    await hold.reached.wait()
    await asyncio.sleep(0)
    leaves.cancel()
    await asyncio.wait([leaves])
    hold.release()
    assert (await first)["status"]["state"] == "completed"
    assert await stays == await first


async def test_a_message_that_could_not_be_stored_may_be_sent_again(stored_house: House) -> None:
    await stored_house.enrol("echo:a")
    stored_house.engine.fail("tasks.admit", StoreUnavailable("full"))
    hold = stored_house.engine.hold("tasks.admit")
    first, second = (asyncio.create_task(stored_house.send(messageId="m")) for _ in range(2))
    await hold.reached.wait()
    await asyncio.sleep(0)
    hold.release()
    for sender in (first, second):
        with pytest.raises(StoreUnavailable):
            await sender
    stored_house.forwarder.plan("echo:a", task("completed"))
    assert (await stored_house.send(messageId="m"))["status"]["state"] == "completed"
    assert stored_house.forwarder.asked("deliver") == ["echo:a"]


async def test_the_error_of_the_first_sender_is_everybodys(house: House) -> None:
    """All ask for the same, and one error answers them all."""
    await house.enrol("echo:a")
    await house.directory.drain(ME, (await house.enrol("echo:a")).worker, "test")
    waiting = [asyncio.create_task(house.send(messageId="m", metadata={"waitSeconds": 5})) for _ in range(3)]
    for sender in waiting:
        with pytest.raises(NoLiveWorker, match="draining"):
            await sender


async def test_an_answer_to_a_question_that_comes_again_is_given_once(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), status("input-required", "which?"))
    asked = await house.send()
    house.forwarder.plan("echo:a", task("working"), 0.1, status("completed"))
    answers = await asyncio.gather(*(house.send("blue", messageId="m2", taskId=asked["id"]) for _ in range(3)))
    assert {answer["status"]["state"] for answer in answers} == {"completed"}
    assert len(house.forwarder.calls) == 2
    again = await house.hub.stream(ME, say("blue", messageId="m2", taskId=asked["id"]))
    assert (await frames(again))[-1]["status"]["state"] == "completed"


async def test_a_key_makes_two_messages_one_and_refuses_another_content(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task("completed"))
    first = await house.send(messageId="m", key="k")
    house.clock.advance(3600)
    assert (await house.send(messageId="m", key="k"))["id"] == first["id"]
    with pytest.raises(KeyConflict):
        await house.send("other", messageId="m", key="k")
    assert len(house.forwarder.calls) == 1


async def test_a_restarted_hub_recognises_what_the_last_one_took_on(house: House) -> None:
    await house.enrol("echo:a", replays=True)
    house.forwarder.plan("echo:a", task(position="b.1"), 5.0)
    running = asyncio.create_task(house.send(messageId="m"))
    await asyncio.sleep(0.05)
    running.cancel()
    again = house.restarted()
    house.forwarder.plan("echo:a", status("completed", position="b.2"))
    await again.settle()
    answer = parse((await again.send(ME, say(messageId="m"))).body)
    assert answer["status"]["state"] == "completed"
    assert house.forwarder.asked("deliver") == ["echo:a"]
    assert house.forwarder.asked("attach") == ["echo:a"]


async def test_a_finished_call_is_recognised_by_the_next_hub(stored_house: House) -> None:
    await stored_house.enrol("echo:a")
    for _ in range(2):
        stored_house.forwarder.plan("echo:a", answered_with("one"))
    first = await stored_house.send(messageId="m")
    await stored_house.restart()
    assert await stored_house.send(messageId="m") == first
    stored_house.clock.advance(61)
    assert (await stored_house.send(messageId="m"))["id"] != first["id"]


@pytest.mark.parametrize("path", ["echo", None])
async def test_the_next_hub_recognises_a_message_at_either_path(stored_house: House, path: str | None) -> None:
    """Whether the path named the role, or the message itself."""
    await stored_house.enrol("echo:a")
    stored_house.forwarder.plan("echo:a", task("completed"))
    said = {"messageId": "m", "metadata": {"role": "echo"}}
    first = await stored_house.send(role=path, **said)
    await stored_house.restart()
    assert (await stored_house.send(role=path, **said))["id"] == first["id"]
    assert stored_house.forwarder.asked("deliver") == ["echo:a"]


async def test_the_next_hub_does_not_recognise_what_ended_longer_ago(stored_house: House) -> None:
    await stored_house.enrol("echo:a")
    for _ in range(2):
        stored_house.forwarder.plan("echo:a", task("completed"))
    first = await stored_house.send(messageId="m")
    stored_house.clock.advance(61)
    await stored_house.restart()
    assert (await stored_house.send(messageId="m"))["id"] != first["id"]


async def test_a_key_is_that_of_the_first_message_whatever_was_answered_since(stored_house: House) -> None:
    await stored_house.enrol("echo:a")
    stored_house.forwarder.plan("echo:a", task("input-required", "which?"))
    stored_house.forwarder.plan("echo:a", status("completed"))
    asked = await stored_house.send("paint", messageId="m", key="k")
    await stored_house.send("blue", messageId="m2", taskId=asked["id"])
    await stored_house.restart()
    stored_house.clock.advance(3600)  # long after what is recognised by its content
    assert (await stored_house.send("paint", messageId="m", key="k"))["status"]["state"] == "completed"
    with pytest.raises(KeyConflict):
        await stored_house.send("blue", messageId="m2", key="k")
    assert stored_house.forwarder.asked("deliver") == ["echo:a", "echo:a"]


async def test_the_next_hub_recognises_the_first_message_of_a_task_that_was_answered(stored_house: House) -> None:
    await stored_house.enrol("echo:a")
    stored_house.forwarder.plan("echo:a", task("input-required", "which?"))
    stored_house.forwarder.plan("echo:a", status("completed"))
    asked = await stored_house.send("paint", messageId="m")
    await stored_house.send("blue", messageId="m2", taskId=asked["id"])
    await stored_house.restart()
    assert (await stored_house.send("paint", messageId="m"))["id"] == asked["id"]
    assert stored_house.forwarder.asked("deliver") == ["echo:a", "echo:a"]


async def test_an_answer_that_is_sent_again_is_answered_from_where_it_began(house: House) -> None:
    """Not with the pause that it answered."""
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task("input-required", "which?"))
    house.forwarder.plan("echo:a", status("working"), 5.0, status("completed"))
    asked = await house.send("paint", messageId="m")
    first = asyncio.create_task(house.send("blue", messageId="m2", taskId=asked["id"]))
    await asyncio.sleep(1)
    again = await house.stream("blue", messageId="m2", taskId=asked["id"])
    assert [frame.get("cursor") for frame in again] == [2, 3]
    assert [frame["status"]["state"] for frame in again] == ["working", "completed"]
    assert (await first)["status"]["state"] == "completed"
    repeated = await house.stream("blue", messageId="m2", taskId=asked["id"])
    assert [frame["cursor"] for frame in repeated] == [2, 3]


async def test_the_window_is_a_setting(house: House) -> None:
    house.with_bounds(limits=HubLimits(same_message=timedelta(seconds=5)))
    await house.enrol("echo:a")
    for _ in range(2):
        house.forwarder.plan("echo:a", task("completed"))
    first = await house.send(messageId="m")
    house.clock.advance(4)
    assert (await house.send(messageId="m"))["id"] == first["id"]
    house.clock.advance(2)
    assert (await house.send(messageId="m"))["id"] != first["id"]


async def test_the_window_opens_at_the_end_of_a_call_not_at_its_beginning(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), 300.0, status("completed"))
    first = await house.send(messageId="m")
    house.clock.advance(59)
    assert (await house.send(messageId="m"))["id"] == first["id"]


async def test_a_message_is_recognised_anew_after_it_was_sent_anew(house: House) -> None:
    await house.enrol("echo:a")
    for _ in range(2):
        house.forwarder.plan("echo:a", task("completed"))
    await house.send(messageId="m")
    house.clock.advance(100)
    second = await house.send(messageId="m")
    house.clock.advance(59)
    assert (await house.send(messageId="m"))["id"] == second["id"]


async def test_a_repeat_does_not_keep_its_call_in_mind_for_longer(house: House) -> None:
    await house.enrol("echo:a")
    for _ in range(2):
        house.forwarder.plan("echo:a", task("completed"))
    first = await house.send(messageId="m")
    house.clock.advance(40)
    assert (await house.send(messageId="m"))["id"] == first["id"]
    house.clock.advance(30)
    assert (await house.send(messageId="m"))["id"] != first["id"]


def answered_with(text: str) -> WorkerEvent:
    """A whole task with one result."""
    return task("completed", artifacts=[{"artifactId": "a", "parts": [{"kind": "text", "text": text}]}])
