"""Which task a name means: its caller's alone, by the hub's id or by the name that the caller made."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rolecall.errors import HubError, InvalidParams, TaskEnded, TaskNotFound
from rolecall.model.command import CancelTask, GetTask, Subscribe, Target, TaskQuery
from rolecall.model.ids import Caller, TaskId
from tests.flow.callers import OTHER, Speaker
from tests.flow.conftest import ME, House, say
from tests.helpers.scripted import status, task

ABROAD = Caller("acme", ME.name)
ASKS = task("input-required", "which?")


def gets(house: House, caller: Caller, target: Target, name: str) -> Awaitable[Any]:
    return house.hub.get(caller, GetTask(target, TaskId(name), "0.3"))


def cancels(house: House, caller: Caller, target: Target, name: str) -> Awaitable[Any]:
    return house.hub.cancel(caller, CancelTask(target, TaskId(name), "0.3"))


def subscribes(house: House, caller: Caller, target: Target, name: str) -> Awaitable[Any]:
    return house.hub.subscribe(caller, Subscribe(target, TaskId(name), "0.3", None))


def answers(house: House, caller: Caller, target: Target, name: str) -> Awaitable[Any]:
    send = say("blue", target.path_role, taskId=name, metadata={"role": target.role} if target.role else {})
    return house.hub.send(caller, send)


def looks(house: House, caller: Caller, target: Target, name: str) -> Awaitable[Any]:
    return house.hub.task(caller, TaskId(name), target)


OPERATIONS = [gets, cancels, subscribes, answers, looks]


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_another_callers_task_reads_like_one_that_never_was(
    stored_house: House, operation: Callable[..., Awaitable[Any]]
) -> None:
    house = stored_house
    await house.enrol("echo:a")
    await house.enrol("echo:a", workspace="acme")
    house.forwarder.plan("echo:a", ASKS)
    mine = (await house.send())["id"]
    unknown = "0" * len(mine)
    for caller, name in ((OTHER, mine), (ABROAD, mine), (ME, unknown), (OTHER, unknown)):
        with pytest.raises(TaskNotFound) as refused:
            await operation(house, caller, Target(), name)
        assert refused.value.message == f"Task not found: {name}"
    assert house.forwarder.asked("cancel") == []


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("target", [Target(path_role="other"), Target(role="other"), Target(path_role="echo", role="other")])
async def test_a_task_of_another_role_is_not_found_there(
    house: House, target: Target, operation: Callable[..., Awaitable[Any]]
) -> None:
    await house.enrol("echo:a")
    await house.enrol("other:a")
    house.forwarder.plan("echo:a", ASKS)
    mine = (await house.send())["id"]
    with pytest.raises(TaskNotFound, match=f"^Task not found: {mine}$"):
        await operation(house, ME, target, mine)


@pytest.mark.parametrize("target", [Target(), Target(path_role="echo"), Target(role="echo"), Target(skill="whatever")])
async def test_a_task_is_found_at_its_own_role_and_at_none(house: House, target: Target) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", ASKS)
    mine = (await house.send())["id"]
    assert (await house.hub.task(ME, TaskId(mine), target)).id == mine


async def test_the_hubs_own_id_comes_before_a_name_that_reads_the_same(house: House) -> None:
    caller = Speaker(house, "0.1")
    await house.enrol("echo:a")
    for _ in range(2):
        house.forwarder.plan("echo:a", task("completed"))
    first = (await house.send())["id"]
    with pytest.raises(TaskEnded):
        await caller.send("something else", name=first)
    assert (await caller.get(first)).document["id"] == first
    assert (await house.engine.tasks.page(ME, TaskQuery())).total == 1


async def test_a_name_lives_in_its_workspace(house: House) -> None:
    await house.enrol("echo:a")
    await house.enrol("echo:b", workspace="acme")
    for worker, state in (("echo:a", "completed"), ("echo:b", "failed")):
        house.forwarder.plan(worker, task(state))
    here, there = Speaker(house, "0.1"), Speaker(house, "0.1", ABROAD)
    assert (await here.send(name="mine")).state == "completed"
    with pytest.raises(TaskNotFound):
        await there.get("mine")
    assert (await there.send(name="mine")).state == "failed"


@pytest.mark.parametrize("other", [OTHER, ABROAD])
async def test_callers_of_one_name_do_not_wait_for_each_other(house: House, other: Caller) -> None:
    await house.enrol("echo:a")
    await house.enrol("echo:b", workspace="acme")
    for worker in ("echo:a", "echo:a", "echo:b"):
        house.forwarder.plan(worker, task("completed"))
    hold = house.engine.hold("tasks.admit")
    mine = asyncio.create_task(Speaker(house, "0.1").send(name="mine"))
    await hold.reached.wait()
    async with asyncio.timeout(1):
        assert (await Speaker(house, "0.1", other).send(name="mine")).state == "completed"
    assert not mine.done()
    hold.release()
    assert (await mine).state == "completed"


async def test_names_of_one_caller_do_not_wait_for_each_other(house: House) -> None:
    await house.enrol("echo:a")
    for _ in range(2):
        house.forwarder.plan("echo:a", task("completed"))
    hold = house.engine.hold("tasks.admit")
    first = asyncio.create_task(Speaker(house, "0.1").send(name="first"))
    await hold.reached.wait()
    async with asyncio.timeout(1):
        assert (await Speaker(house, "0.1").send(name="second")).state == "completed"
    hold.release()
    await first


async def test_two_at_once_under_one_name_are_one_call(house: House) -> None:
    """However long the first takes to be stored."""
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task("completed"))
    hold = house.engine.hold("tasks.admit")
    first, second = (asyncio.create_task(Speaker(house, "0.1").send(name="mine")) for _ in range(2))
    await hold.reached.wait()
    await asyncio.sleep(1)
    assert not second.done()
    hold.release()
    assert [(await sender).state for sender in (first, second)] == ["completed", "completed"]
    assert (await house.engine.tasks.page(ME, TaskQuery())).total == 1


async def test_calls_with_keys_do_not_wait_for_each_other(house: House) -> None:
    await house.enrol("echo:a")
    for _ in range(2):
        house.forwarder.plan("echo:a", task("completed"))
    hold = house.engine.hold("tasks.admit")
    first = asyncio.create_task(house.send(key="first"))
    await hold.reached.wait()
    async with asyncio.timeout(1):
        assert (await house.send(key="second"))["status"]["state"] == "completed"
    hold.release()
    await first


@pytest.mark.parametrize("open_for", [0.0, 30.0])
@pytest.mark.parametrize("pause", [0.0, 20.0])
async def test_the_same_words_answer_each_question_anew(house: House, open_for: float, pause: float) -> None:
    """Whether its worker's line is still open or not, and its relay still there or long gone."""
    caller = Speaker(house, "0.1")
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", ASKS, open_for)
    house.forwarder.plan("echo:a", status("input-required", "sure?"), open_for)
    house.forwarder.plan("echo:a", status("completed"))
    await caller.send("delete it", name="mine")
    for state in ("input-required", "completed"):
        await asyncio.sleep(pause)
        await caller.stream("yes", name="mine")
        assert (await caller.get("mine")).state == state
    assert [told["parts"][0]["text"] for told in house.forwarder.told()] == ["delete it", "yes", "yes"]


async def test_an_answer_that_its_worker_has_not_heard_yet_is_the_same_call_again(house: House) -> None:
    caller = Speaker(house, "0.1")
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", ASKS)
    house.forwarder.plan("echo:a", 10.0, status("completed"))
    await caller.send("paint", name="mine")
    first = asyncio.create_task(caller.stream("blue", name="mine"))
    await asyncio.sleep(5)
    again = await caller.stream("blue", name="mine")
    assert [seen.state for seen in again] == [seen.state for seen in await first] == ["completed"]
    # And once more when the task has ended: still the same call.
    assert (await caller.send("blue", name="mine")).state == "completed"
    assert [told["parts"][0]["text"] for told in house.forwarder.told()] == ["paint", "blue"]


async def test_the_same_words_just_after_a_long_task_are_the_same_call(house: House) -> None:
    """What counts is when it ended, not when it began."""
    caller = Speaker(house, "0.1")
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), 300.0, status("completed"))
    await caller.send(name="mine")
    await caller.subscribe("mine", after=0)
    house.clock.advance(59)
    assert (await caller.send(name="mine")).state == "completed"
    house.clock.advance(2)
    with pytest.raises(TaskEnded):
        await caller.send(name="mine")
    assert house.forwarder.asked("deliver") == ["echo:a"]


async def test_a_paused_task_knows_its_first_message_however_long_ago_that_was(house: House) -> None:
    caller = Speaker(house, "0.1")
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", ASKS)
    await caller.send("paint", name="mine")
    house.clock.advance(3600)
    assert (await caller.send("paint", name="mine")).state == "input-required"
    assert house.forwarder.asked("deliver") == ["echo:a"]


async def test_a_second_answer_while_the_first_is_at_work_is_the_same_call_or_refused(house: House) -> None:
    caller = Speaker(house, "0.1")
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", ASKS)
    house.forwarder.plan("echo:a", status("working"), 10.0, status("completed"))
    await caller.send("paint", name="mine")
    first = await caller.send("blue", name="mine")
    assert (await caller.send("blue", name="mine")).state == first.state == "working"
    with pytest.raises(InvalidParams, match="at work"):
        await caller.send("red", name="mine")
    assert [told["parts"][0]["text"] for told in house.forwarder.told()] == ["paint", "blue"]


async def test_a_message_refers_to_its_callers_tasks_alone(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task("completed", task_id="w1"))
    house.forwarder.plan("echo:a", task("completed", task_id="w2"))
    first = (await house.send())["id"]
    with pytest.raises(TaskNotFound):
        await house.send(caller=OTHER, referenceTaskIds=[first])
    await house.send(referenceTaskIds=[first])
    assert [told.get("referenceTaskIds") for told in house.forwarder.told()] == [None, ["w1"]]


# --- a context alone


async def test_a_context_alone_answers_its_one_paused_task(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", ASKS)
    house.forwarder.plan("echo:a", status("completed"))
    asked = await house.send(contextId="c")
    assert (await house.send("blue", contextId="c"))["id"] == asked["id"]


async def test_a_context_alone_answers_none_of_two(house: House) -> None:
    await house.enrol("echo:a")
    for number in range(2):
        asks = status("input-required", "which?", f"w{number}")
        house.forwarder.plan("echo:a", task(task_id=f"w{number}"), 1.0, asks)
    house.forwarder.plan("echo:a", task("completed", task_id="w2"))
    paused = await asyncio.gather(*(house.send(text, contextId="c") for text in "ab"))
    assert [answer["status"]["state"] for answer in paused] == ["input-required"] * 2
    new = await house.send("blue", contextId="c")
    assert new["id"] not in {answer["id"] for answer in paused}


async def test_a_context_alone_answers_nobody_elses_task_nor_another_roles(house: House) -> None:
    await house.enrol("echo:a")
    await house.enrol("other:a")
    house.forwarder.plan("echo:a", ASKS)
    house.forwarder.plan("echo:a", task("completed"))
    house.forwarder.plan("other:a", task("completed"))
    asked = (await house.send(contextId="c"))["id"]
    assert (await house.send("blue", contextId="c", caller=OTHER))["id"] != asked
    assert (await house.send("blue", contextId="c", role="other"))["id"] != asked
    assert (await house.get(asked))["status"]["state"] == "input-required"


async def test_in_1_0_a_context_alone_begins_a_new_task(house: House) -> None:
    caller = Speaker(house, "1.0")
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", ASKS)
    house.forwarder.plan("echo:a", task("completed"))
    asked = await caller.send(contextId="c")
    assert (await caller.send("blue", contextId="c")).document["id"] != asked.document["id"]


async def test_two_answers_at_once_are_one_answer_and_one_refusal(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", ASKS)
    house.forwarder.plan("echo:a", status("completed"))
    asked = (await house.send())["id"]
    hold = house.engine.hold("tasks.add_turn")
    first = asyncio.create_task(house.send("blue", taskId=asked))
    await hold.reached.wait()
    with pytest.raises(InvalidParams, match="at work"):
        await house.send("red", taskId=asked)
    hold.release()
    assert (await first)["status"]["state"] == "completed"
    assert [told["parts"][0]["text"] for told in house.forwarder.told()] == ["hi", "blue"]


async def test_an_answer_that_failed_leaves_room_for_the_next(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", ASKS)
    house.forwarder.plan("echo:a", status("completed"))
    asked = (await house.send())["id"]
    house.engine.fail("tasks.add_turn", HubError("broken"))
    with pytest.raises(HubError, match="broken"):
        await house.send("blue", taskId=asked)
    assert (await house.send("blue", taskId=asked))["status"]["state"] == "completed"
