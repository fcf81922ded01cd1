"""In 0.1 the caller makes the task's id, an alias. It is valid for this caller only, and identifies its messages."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rolecall.errors import InvalidParams, KeyConflict, TaskEnded, TaskNotFound, WorkerRefused
from rolecall.model.command import TaskQuery
from tests.flow.callers import OTHER, DialectCaller, Seen
from tests.flow.conftest import CALLER, System, hub_limits
from tests.helpers.scripted import chunk, status, task

ASKS = task("input-required", "which?")


@pytest.fixture
async def caller(system: System) -> DialectCaller:
    await system.enrol("echo:a")
    return DialectCaller(system, "0.1")


def asked(system: System) -> list[str]:
    """The texts that the worker got, in order."""
    return [sent["parts"][0]["text"] for sent in system.forwarder.delivered_messages()]


async def at_rest(caller: DialectCaller, name: str = "mine") -> Seen:
    """The task when it rests."""
    await caller.subscribe(name, after=0)
    return await caller.get(name)


async def test_a_task_is_found_by_its_alias(system: System, caller: DialectCaller) -> None:
    system.forwarder.plan("echo:a", task(), chunk("one", append=False), status("completed"))
    sent = await caller.send(name="mine", contextId="session-1")
    assert (sent.document["id"], sent.document["sessionId"]) == ("mine", "session-1")
    done = await at_rest(caller)
    assert (done.document["id"], done.texts) == ("mine", ["one"])
    own = (await DialectCaller(system, "0.3").list_tasks())[0].document["id"]
    assert own != "mine"
    assert (await DialectCaller(system, "0.3").get("mine")).document["id"] == own
    assert (await caller.get(own)).document["id"] == "mine"


async def test_an_unknown_alias_is_not_found(caller: DialectCaller) -> None:
    for missing in (caller.get("none"), caller.subscribe("none"), caller.cancel("none")):
        with pytest.raises(TaskNotFound, match="Task not found: none"):
            await missing


async def test_two_callers_with_equal_aliases_have_separate_tasks(system: System, caller: DialectCaller) -> None:
    other = DialectCaller(system, "0.1", OTHER)
    system.forwarder.plan("echo:a", task(), chunk("for me", append=False), status("completed"))
    system.forwarder.plan(
        "echo:a", task(task_id="w2"), chunk("for them", append=False, task_id="w2"), status("failed", None, "w2")
    )
    await caller.send(name="mine")
    with pytest.raises(TaskNotFound):
        await other.get("mine")
    await other.send(name="mine")
    mine, other_task = await at_rest(caller), await at_rest(other)
    assert (mine.texts, mine.state) == (["for me"], "completed")
    assert (other_task.texts, other_task.state) == (["for them"], "failed")


async def test_a_repeat_while_the_task_is_working_is_the_same_call(system: System, caller: DialectCaller) -> None:
    system.forwarder.plan("echo:a", task(), 0.2, status("completed"))
    first, second = await caller.send(name="mine"), await caller.send(name="mine")
    assert first.state == second.state == "working"
    assert asked(system) == ["hi"]
    assert (await at_rest(caller)).state == "completed"


async def test_another_message_to_a_working_task_is_refused(system: System, caller: DialectCaller) -> None:
    system.forwarder.plan("echo:a", task(), 0.2, status("completed"))
    await caller.send(name="mine")
    with pytest.raises(InvalidParams, match="is working"):
        await caller.send("more", name="mine")
    assert (await at_rest(caller)).state == "completed"


async def test_a_paused_task_gets_its_answer_even_with_the_same_text_twice(system: System, caller: DialectCaller) -> None:
    system.forwarder.plan("echo:a", ASKS)
    system.forwarder.plan("echo:a", status("input-required", "sure?"))
    system.forwarder.plan("echo:a", status("input-required", "really?"))
    system.forwarder.plan("echo:a", status("completed"))
    assert (await caller.send("delete it", name="mine")).state == "input-required"
    for text, question in (("yes", "sure?"), ("yes", "really?"), ("yes", None)):
        await caller.stream(text, name="mine")
        message = (await caller.get("mine")).document["status"].get("message")
        assert (message and message["parts"][0]["text"]) == question
    assert asked(system) == ["delete it", "yes", "yes", "yes"]


async def test_a_repeat_of_the_first_message_is_no_answer(system: System, caller: DialectCaller) -> None:
    """Its caller cannot know yet that the task paused."""
    system.forwarder.plan("echo:a", ASKS)
    assert (await caller.send("paint", name="mine")).state == "input-required"
    assert (await caller.send("paint", name="mine")).state == "input-required"
    assert asked(system) == ["paint"]


async def test_an_ended_task_refuses_new_messages_and_answers_a_recent_repeat(system: System, caller: DialectCaller) -> None:
    system.forwarder.plan("echo:a", task("completed"))
    await caller.send(name="mine")
    assert (await caller.send(name="mine")).state == "completed"
    with pytest.raises(TaskEnded):
        await caller.send("more", name="mine")
    system.clock.advance(61)
    with pytest.raises(TaskEnded):
        await caller.send(name="mine")
    assert asked(system) == ["hi"]


async def test_of_two_concurrent_messages_under_one_alias_one_makes_the_task(system: System, caller: DialectCaller) -> None:
    system.forwarder.plan("echo:a", task(), 0.1, status("completed"))
    same = await asyncio.gather(caller.send(name="mine"), caller.send(name="mine"))
    assert [answer.document["id"] for answer in same] == ["mine", "mine"]
    system.forwarder.plan("echo:a", task(task_id="w2"), 0.1, status("completed", None, "w2"))
    others = await asyncio.gather(*(caller.send(text, name="next") for text in ("a", "b")), return_exceptions=True)
    assert [type(answer) for answer in others if not isinstance(answer, Seen)] == [InvalidParams]
    assert (await system.engine.tasks.page(CALLER, TaskQuery())).total == 2


async def test_the_alias_of_a_task_that_was_taken_back_is_free_again(system: System, caller: DialectCaller) -> None:
    system.forwarder.plan("echo:a", WorkerRefused("echo:a"))
    with pytest.raises(WorkerRefused):
        await caller.send(name="mine")
    system.forwarder.plan("echo:a", task("completed"))
    assert (await caller.send(name="mine")).state == "completed"


async def test_a_restarted_hub_recognises_the_message_by_its_alias(system: System, caller: DialectCaller) -> None:
    system.forwarder.plan("echo:a", task("completed"))
    await caller.send(name="mine")
    system.hub = system.restarted()
    assert (await caller.send(name="mine")).state == "completed"
    assert asked(system) == ["hi"]


async def test_an_idempotency_key_works_beside_an_alias(system: System, caller: DialectCaller) -> None:
    system.forwarder.plan("echo:a", task("completed"))
    first = await caller.send(name="mine", key="k")
    assert (await caller.send(name="mine", key="k")).document == first.document
    with pytest.raises(KeyConflict):
        await caller.send(name="other", key="k")
    assert asked(system) == ["hi"]


async def test_a_key_is_no_alias_and_an_alias_is_no_key(system: System, caller: DialectCaller) -> None:
    system.forwarder.plan("echo:a", task("completed"))
    system.forwarder.plan("echo:a", task("completed", task_id="w2"))
    await caller.send(name="mine")
    answer = await DialectCaller(system, "0.3").send(key="mine")
    assert answer.state == "completed"
    with pytest.raises(TaskNotFound):
        await DialectCaller(system, "0.3", OTHER).get("mine")
    assert (await system.engine.tasks.page(CALLER, TaskQuery())).total == 2


async def test_messages_without_an_alias_are_separate_calls(system: System, caller: DialectCaller) -> None:
    system.forwarder.plan("echo:a", task("completed"))
    system.forwarder.plan("echo:a", task("completed", task_id="w2"))
    first, second = await caller.send(), await caller.send()
    assert first.document["id"] != second.document["id"]


async def test_the_window_is_a_setting(system: System, caller: DialectCaller) -> None:
    system.hub = system.restarted(limits=hub_limits(same_message=timedelta(seconds=5)))
    system.forwarder.plan("echo:a", task("completed"))
    await caller.send(name="mine")
    system.clock.advance(6)
    with pytest.raises(TaskEnded):
        await caller.send(name="mine")
