"""Finding a task by the hub's id or by its caller's alias; only for its caller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rolecall.errors import HubError, InvalidParams, TaskEnded, TaskNotFound
from rolecall.model.command import CancelTask, GetTask, Subscribe, Target, TaskQuery
from rolecall.model.ids import Caller, TaskId
from tests.flow.callers import OTHER, DialectCaller
from tests.flow.conftest import CALLER, System, say
from tests.helpers.scripted import status, task

OTHER_WORKSPACE = Caller("acme", CALLER.name)
ASKS = task("input-required", "which?")


def gets(system: System, caller: Caller, target: Target, name: str) -> Awaitable[Any]:
    return system.hub.get(caller, GetTask(target, TaskId(name), ("0.3",)))


def cancel(system: System, caller: Caller, target: Target, name: str) -> Awaitable[Any]:
    return system.hub.cancel(caller, CancelTask(target, TaskId(name), ("0.3",)))


def subscribe(system: System, caller: Caller, target: Target, name: str) -> Awaitable[Any]:
    return system.hub.subscribe(caller, Subscribe(target, TaskId(name), ("0.3",), None))


def answers(system: System, caller: Caller, target: Target, name: str) -> Awaitable[Any]:
    send = say("blue", target.path_role, taskId=name, metadata={"role": target.role} if target.role else {})
    return system.hub.send(caller, send)


def looks(system: System, caller: Caller, target: Target, name: str) -> Awaitable[Any]:
    return system.hub.task(caller, TaskId(name), target)


OPERATIONS = [gets, cancel, subscribe, answers, looks]


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_another_callers_task_looks_like_an_unknown_one(
    stored_system: System, operation: Callable[..., Awaitable[Any]]
) -> None:
    system = stored_system
    await system.enrol("echo:a")
    await system.enrol("echo:a", workspace="acme")
    system.forwarder.plan("echo:a", ASKS)
    mine = (await system.send())["id"]
    unknown = "0" * len(mine)
    for caller, name in ((OTHER, mine), (OTHER_WORKSPACE, mine), (CALLER, unknown), (OTHER, unknown)):
        with pytest.raises(TaskNotFound) as refused:
            await operation(system, caller, Target(), name)
        assert refused.value.message == f"Task not found: {name}"
    assert system.forwarder.asked("cancel") == []


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("target", [Target(path_role="other"), Target(role="other"), Target(path_role="echo", role="other")])
async def test_a_task_of_another_role_is_not_found_there(
    system: System, target: Target, operation: Callable[..., Awaitable[Any]]
) -> None:
    await system.enrol("echo:a")
    await system.enrol("other:a")
    system.forwarder.plan("echo:a", ASKS)
    mine = (await system.send())["id"]
    with pytest.raises(TaskNotFound, match=f"^Task not found: {mine}$"):
        await operation(system, CALLER, target, mine)


@pytest.mark.parametrize("target", [Target(), Target(path_role="echo"), Target(role="echo"), Target(skill="whatever")])
async def test_a_task_is_found_under_its_own_role_and_without_a_role(system: System, target: Target) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", ASKS)
    mine = (await system.send())["id"]
    assert (await system.hub.task(CALLER, TaskId(mine), target)).id == mine


async def test_the_hubs_id_takes_precedence_over_an_equal_alias(system: System) -> None:
    caller = DialectCaller(system, "0.1")
    await system.enrol("echo:a")
    for _ in range(2):
        system.forwarder.plan("echo:a", task("completed"))
    first = (await system.send())["id"]
    with pytest.raises(TaskEnded):
        await caller.send("something else", name=first)
    assert (await caller.get(first)).document["id"] == first
    assert (await system.engine.tasks.page(CALLER, TaskQuery())).total == 1


async def test_an_alias_is_valid_in_its_workspace(system: System) -> None:
    await system.enrol("echo:a")
    await system.enrol("echo:b", workspace="acme")
    for worker, state in (("echo:a", "completed"), ("echo:b", "failed")):
        system.forwarder.plan(worker, task(state))
    here, there = DialectCaller(system, "0.1"), DialectCaller(system, "0.1", OTHER_WORKSPACE)
    assert (await here.send(name="mine")).state == "completed"
    with pytest.raises(TaskNotFound):
        await there.get("mine")
    assert (await there.send(name="mine")).state == "failed"


@pytest.mark.parametrize("other", [OTHER, OTHER_WORKSPACE])
async def test_callers_with_equal_aliases_do_not_wait_for_each_other(system: System, other: Caller) -> None:
    await system.enrol("echo:a")
    await system.enrol("echo:b", workspace="acme")
    for worker in ("echo:a", "echo:a", "echo:b"):
        system.forwarder.plan(worker, task("completed"))
    hold = system.engine.hold("tasks.admit")
    mine = asyncio.create_task(DialectCaller(system, "0.1").send(name="mine"))
    await hold.reached.wait()
    async with asyncio.timeout(1):
        assert (await DialectCaller(system, "0.1", other).send(name="mine")).state == "completed"
    assert not mine.done()
    hold.release()
    assert (await mine).state == "completed"


async def test_calls_with_different_aliases_do_not_wait_for_each_other(system: System) -> None:
    await system.enrol("echo:a")
    for _ in range(2):
        system.forwarder.plan("echo:a", task("completed"))
    hold = system.engine.hold("tasks.admit")
    first = asyncio.create_task(DialectCaller(system, "0.1").send(name="first"))
    await hold.reached.wait()
    async with asyncio.timeout(1):
        assert (await DialectCaller(system, "0.1").send(name="second")).state == "completed"
    hold.release()
    await first


async def test_two_concurrent_messages_under_one_alias_are_one_call(system: System) -> None:
    """Even if the first one takes long to be stored."""
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task("completed"))
    hold = system.engine.hold("tasks.admit")
    first, second = (asyncio.create_task(DialectCaller(system, "0.1").send(name="mine")) for _ in range(2))
    await hold.reached.wait()
    await asyncio.sleep(1)
    assert not second.done()
    hold.release()
    assert [(await sender).state for sender in (first, second)] == ["completed", "completed"]
    assert (await system.engine.tasks.page(CALLER, TaskQuery())).total == 1


async def test_calls_with_keys_do_not_wait_for_each_other(system: System) -> None:
    await system.enrol("echo:a")
    for _ in range(2):
        system.forwarder.plan("echo:a", task("completed"))
    hold = system.engine.hold("tasks.admit")
    first = asyncio.create_task(system.send(key="first"))
    await hold.reached.wait()
    async with asyncio.timeout(1):
        assert (await system.send(key="second"))["status"]["state"] == "completed"
    hold.release()
    await first


@pytest.mark.parametrize("open_for", [0.0, 30.0])
@pytest.mark.parametrize("pause", [0.0, 20.0])
async def test_the_same_text_answers_each_pause(system: System, open_for: float, pause: float) -> None:
    """With the worker's stream open or closed, and with or without a relay."""
    caller = DialectCaller(system, "0.1")
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", ASKS, open_for)
    system.forwarder.plan("echo:a", status("input-required", "sure?"), open_for)
    system.forwarder.plan("echo:a", status("completed"))
    await caller.send("delete it", name="mine")
    for state in ("input-required", "completed"):
        await asyncio.sleep(pause)
        await caller.stream("yes", name="mine")
        assert (await caller.get("mine")).state == state
    assert [sent["parts"][0]["text"] for sent in system.forwarder.delivered_messages()] == ["delete it", "yes", "yes"]


async def test_a_repeat_of_an_answer_that_has_not_reached_the_worker_is_the_same_call(system: System) -> None:
    caller = DialectCaller(system, "0.1")
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", ASKS)
    system.forwarder.plan("echo:a", 10.0, status("completed"))
    await caller.send("paint", name="mine")
    first = asyncio.create_task(caller.stream("blue", name="mine"))
    await asyncio.sleep(5)
    again = await caller.stream("blue", name="mine")
    assert [seen.state for seen in again] == [seen.state for seen in await first] == ["completed"]
    # And once more when the task has ended: still the same call.
    assert (await caller.send("blue", name="mine")).state == "completed"
    assert [sent["parts"][0]["text"] for sent in system.forwarder.delivered_messages()] == ["paint", "blue"]


async def test_the_same_text_soon_after_a_long_task_is_the_same_call(system: System) -> None:
    """The window begins at the end of the task."""
    caller = DialectCaller(system, "0.1")
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), 300.0, status("completed"))
    await caller.send(name="mine")
    await caller.subscribe("mine", after=0)
    system.clock.advance(59)
    assert (await caller.send(name="mine")).state == "completed"
    system.clock.advance(2)
    with pytest.raises(TaskEnded):
        await caller.send(name="mine")
    assert system.forwarder.asked("deliver") == ["echo:a"]


async def test_a_paused_task_recognises_its_first_message_after_any_time(system: System) -> None:
    caller = DialectCaller(system, "0.1")
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", ASKS)
    await caller.send("paint", name="mine")
    system.clock.advance(3600)
    assert (await caller.send("paint", name="mine")).state == "input-required"
    assert system.forwarder.asked("deliver") == ["echo:a"]


async def test_a_second_answer_during_the_first_is_the_same_call_or_refused(system: System) -> None:
    caller = DialectCaller(system, "0.1")
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", ASKS)
    system.forwarder.plan("echo:a", status("working"), 10.0, status("completed"))
    await caller.send("paint", name="mine")
    first = await caller.send("blue", name="mine")
    assert (await caller.send("blue", name="mine")).state == first.state == "working"
    with pytest.raises(InvalidParams, match="is working"):
        await caller.send("red", name="mine")
    assert [sent["parts"][0]["text"] for sent in system.forwarder.delivered_messages()] == ["paint", "blue"]


async def test_a_message_can_only_refer_to_its_callers_tasks(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task("completed", task_id="w1"))
    system.forwarder.plan("echo:a", task("completed", task_id="w2"))
    first = (await system.send())["id"]
    with pytest.raises(TaskNotFound):
        await system.send(caller=OTHER, referenceTaskIds=[first])
    await system.send(referenceTaskIds=[first])
    assert [sent.get("referenceTaskIds") for sent in system.forwarder.delivered_messages()] == [None, ["w1"]]


# --- only a context


async def test_a_context_alone_answers_its_only_paused_task(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", ASKS)
    system.forwarder.plan("echo:a", status("completed"))
    asked = await system.send(contextId="c")
    assert (await system.send("blue", contextId="c"))["id"] == asked["id"]


async def test_a_context_alone_answers_none_of_two(system: System) -> None:
    await system.enrol("echo:a")
    for number in range(2):
        asks = status("input-required", "which?", f"w{number}")
        system.forwarder.plan("echo:a", task(task_id=f"w{number}"), 1.0, asks)
    system.forwarder.plan("echo:a", task("completed", task_id="w2"))
    paused = await asyncio.gather(*(system.send(text, contextId="c") for text in "ab"))
    assert [answer["status"]["state"] for answer in paused] == ["input-required"] * 2
    new = await system.send("blue", contextId="c")
    assert new["id"] not in {answer["id"] for answer in paused}


async def test_a_context_alone_does_not_answer_tasks_of_other_callers_or_roles(system: System) -> None:
    await system.enrol("echo:a")
    await system.enrol("other:a")
    system.forwarder.plan("echo:a", ASKS)
    system.forwarder.plan("echo:a", task("completed"))
    system.forwarder.plan("other:a", task("completed"))
    asked = (await system.send(contextId="c"))["id"]
    assert (await system.send("blue", contextId="c", caller=OTHER))["id"] != asked
    assert (await system.send("blue", contextId="c", role="other"))["id"] != asked
    assert (await system.get(asked))["status"]["state"] == "input-required"


async def test_in_1_0_a_context_alone_begins_a_new_task(system: System) -> None:
    caller = DialectCaller(system, "1.0")
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", ASKS)
    system.forwarder.plan("echo:a", task("completed"))
    asked = await caller.send(contextId="c")
    assert (await caller.send("blue", contextId="c")).document["id"] != asked.document["id"]


async def test_two_answers_at_once_are_one_answer_and_one_refusal(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", ASKS)
    system.forwarder.plan("echo:a", status("completed"))
    asked = (await system.send())["id"]
    hold = system.engine.hold("tasks.add_turn")
    first = asyncio.create_task(system.send("blue", taskId=asked))
    await hold.reached.wait()
    with pytest.raises(InvalidParams, match="is working"):
        await system.send("red", taskId=asked)
    hold.release()
    assert (await first)["status"]["state"] == "completed"
    assert [sent["parts"][0]["text"] for sent in system.forwarder.delivered_messages()] == ["hi", "blue"]


async def test_a_failed_answer_allows_the_next_one(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", ASKS)
    system.forwarder.plan("echo:a", status("completed"))
    asked = (await system.send())["id"]
    system.engine.fail("tasks.add_turn", HubError("broken"))
    with pytest.raises(HubError, match="broken"):
        await system.send("blue", taskId=asked)
    assert (await system.send("blue", taskId=asked))["status"]["state"] == "completed"
