"""The same message twice is one call (ruling R7)."""

from __future__ import annotations

import asyncio

import pytest

from hub.errors import BrokenOff, InvalidAnswer, KeyConflict, WorkerUnreachable
from hub.wire.jsontext import parse
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


async def test_another_callers_message_is_another_message(house: House) -> None:
    await house.enrol("echo:a")
    for _ in range(2):
        house.forwarder.plan("echo:a", task("completed"))
    mine = await house.send(messageId="m")
    theirs = parse((await house.hub.send(ME._replace(name="other"), say(messageId="m"))).body)
    assert theirs["id"] != mine["id"]


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
