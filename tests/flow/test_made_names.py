"""Under the oldest names the caller makes the task's id. It is his alone, and it is what his messages are known by."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from hub.core.hub import HubLimits
from rolecall.errors import InvalidParams, KeyConflict, TaskEnded, TaskNotFound, WorkerRefused
from rolecall.model.command import TaskQuery
from tests.flow.callers import OTHER, Seen, Speaker
from tests.flow.conftest import ME, House
from tests.helpers.scripted import chunk, status, task

ASKS = task("input-required", "which?")


@pytest.fixture
async def caller(house: House) -> Speaker:
    await house.enrol("echo:a")
    return Speaker(house, "0.1")


def asked(house: House) -> list[str]:
    """What the worker has heard, in order."""
    return [told["parts"][0]["text"] for told in house.forwarder.told()]


async def at_rest(caller: Speaker, name: str = "mine") -> Seen:
    """The task when its stream has come to rest."""
    await caller.subscribe(name, after=0)
    return await caller.get(name)


async def test_a_task_is_found_by_the_name_that_its_caller_made(house: House, caller: Speaker) -> None:
    house.forwarder.plan("echo:a", task(), chunk("one", append=False), status("completed"))
    sent = await caller.send(name="mine", contextId="session-1")
    assert (sent.document["id"], sent.document["sessionId"]) == ("mine", "session-1")
    done = await at_rest(caller)
    assert (done.document["id"], done.texts) == ("mine", ["one"])
    own = (await Speaker(house, "0.3").listed())[0].document["id"]
    assert own != "mine"
    assert (await Speaker(house, "0.3").get("mine")).document["id"] == own
    assert (await caller.get(own)).document["id"] == "mine"


async def test_a_name_that_nobody_made_is_not_found(caller: Speaker) -> None:
    for missing in (caller.get("none"), caller.subscribe("none"), caller.cancel("none")):
        with pytest.raises(TaskNotFound, match="Task not found: none"):
            await missing


async def test_two_callers_of_one_name_do_not_see_each_other(house: House, caller: Speaker) -> None:
    other = Speaker(house, "0.1", OTHER)
    house.forwarder.plan("echo:a", task(), chunk("for me", append=False), status("completed"))
    house.forwarder.plan(
        "echo:a", task(task_id="w2"), chunk("for them", append=False, task_id="w2"), status("failed", None, "w2")
    )
    await caller.send(name="mine")
    with pytest.raises(TaskNotFound):
        await other.get("mine")
    await other.send(name="mine")
    mine, theirs = await at_rest(caller), await at_rest(other)
    assert (mine.texts, mine.state) == (["for me"], "completed")
    assert (theirs.texts, theirs.state) == (["for them"], "failed")


async def test_the_same_message_while_the_task_is_at_work_is_the_same_call(house: House, caller: Speaker) -> None:
    house.forwarder.plan("echo:a", task(), 0.2, status("completed"))
    first, second = await caller.send(name="mine"), await caller.send(name="mine")
    assert first.state == second.state == "working"
    assert asked(house) == ["hi"]
    assert (await at_rest(caller)).state == "completed"


async def test_other_words_to_a_task_at_work_are_refused(house: House, caller: Speaker) -> None:
    house.forwarder.plan("echo:a", task(), 0.2, status("completed"))
    await caller.send(name="mine")
    with pytest.raises(InvalidParams, match="at work"):
        await caller.send("more", name="mine")
    assert (await at_rest(caller)).state == "completed"


async def test_a_task_that_asks_gets_its_answer_even_in_the_same_words_twice(house: House, caller: Speaker) -> None:
    house.forwarder.plan("echo:a", ASKS)
    house.forwarder.plan("echo:a", status("input-required", "sure?"))
    house.forwarder.plan("echo:a", status("input-required", "really?"))
    house.forwarder.plan("echo:a", status("completed"))
    assert (await caller.send("delete it", name="mine")).state == "input-required"
    for text, question in (("yes", "sure?"), ("yes", "really?"), ("yes", None)):
        await caller.stream(text, name="mine")
        message = (await caller.get("mine")).document["status"].get("message")
        assert (message and message["parts"][0]["text"]) == question
    assert asked(house) == ["delete it", "yes", "yes", "yes"]


async def test_the_first_message_once_more_is_no_answer(house: House, caller: Speaker) -> None:
    """Its caller cannot know yet that there is a question."""
    house.forwarder.plan("echo:a", ASKS)
    assert (await caller.send("paint", name="mine")).state == "input-required"
    assert (await caller.send("paint", name="mine")).state == "input-required"
    assert asked(house) == ["paint"]


async def test_a_task_that_has_ended_takes_no_more_but_says_again_what_was_asked_just_now(
    house: House, caller: Speaker
) -> None:
    house.forwarder.plan("echo:a", task("completed"))
    await caller.send(name="mine")
    assert (await caller.send(name="mine")).state == "completed"
    with pytest.raises(TaskEnded):
        await caller.send("more", name="mine")
    house.clock.advance(61)
    with pytest.raises(TaskEnded):
        await caller.send(name="mine")
    assert asked(house) == ["hi"]


async def test_of_two_at_once_under_one_name_one_makes_the_task(house: House, caller: Speaker) -> None:
    house.forwarder.plan("echo:a", task(), 0.1, status("completed"))
    same = await asyncio.gather(caller.send(name="mine"), caller.send(name="mine"))
    assert [answer.document["id"] for answer in same] == ["mine", "mine"]
    house.forwarder.plan("echo:a", task(task_id="w2"), 0.1, status("completed", None, "w2"))
    others = await asyncio.gather(*(caller.send(text, name="next") for text in ("a", "b")), return_exceptions=True)
    assert [type(answer) for answer in others if not isinstance(answer, Seen)] == [InvalidParams]
    assert (await house.engine.tasks.page(ME, TaskQuery())).total == 2


async def test_a_name_that_was_taken_back_is_free_again(house: House, caller: Speaker) -> None:
    house.forwarder.plan("echo:a", WorkerRefused("echo:a"))
    with pytest.raises(WorkerRefused):
        await caller.send(name="mine")
    house.forwarder.plan("echo:a", task("completed"))
    assert (await caller.send(name="mine")).state == "completed"


async def test_a_restarted_hub_still_knows_the_message_by_its_name(house: House, caller: Speaker) -> None:
    house.forwarder.plan("echo:a", task("completed"))
    await caller.send(name="mine")
    house.hub = house.restarted()
    assert (await caller.send(name="mine")).state == "completed"
    assert asked(house) == ["hi"]


async def test_an_idempotency_key_beside_a_name_holds_as_well(house: House, caller: Speaker) -> None:
    house.forwarder.plan("echo:a", task("completed"))
    first = await caller.send(name="mine", key="k")
    assert (await caller.send(name="mine", key="k")).document == first.document
    with pytest.raises(KeyConflict):
        await caller.send(name="other", key="k")
    assert asked(house) == ["hi"]


async def test_a_key_is_no_name_and_a_name_is_no_key(house: House, caller: Speaker) -> None:
    house.forwarder.plan("echo:a", task("completed"))
    house.forwarder.plan("echo:a", task("completed", task_id="w2"))
    await caller.send(name="mine")
    answer = await Speaker(house, "0.3").send(key="mine")
    assert answer.state == "completed"
    with pytest.raises(TaskNotFound):
        await Speaker(house, "0.3", OTHER).get("mine")
    assert (await house.engine.tasks.page(ME, TaskQuery())).total == 2


async def test_messages_without_a_name_are_calls_of_their_own(house: House, caller: Speaker) -> None:
    house.forwarder.plan("echo:a", task("completed"))
    house.forwarder.plan("echo:a", task("completed", task_id="w2"))
    first, second = await caller.send(), await caller.send()
    assert first.document["id"] != second.document["id"]


async def test_the_window_is_a_setting(house: House, caller: Speaker) -> None:
    house.hub = house.restarted(limits=HubLimits(keep_alive=timedelta(seconds=0.05), same_message=timedelta(seconds=5)))
    house.forwarder.plan("echo:a", task("completed"))
    await caller.send(name="mine")
    house.clock.advance(6)
    with pytest.raises(TaskEnded):
        await caller.send(name="mine")
