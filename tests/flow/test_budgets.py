"""A call may have a budget: when it is spent, its tree gets no new calls, and what runs goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rolecall.errors import BudgetSpent, InvalidParams
from rolecall.model.a2a import TaskState, WorkerEvent
from rolecall.model.card import USAGE_EXTENSION
from rolecall.model.command import TaskQuery
from rolecall.model.ids import TaskId
from rolecall.model.principal import LOCAL
from rolecall.model.usage import NANOS, Budget, Usage
from rolecall.model.value import replace
from rolecall.protocol.faults import fault_of
from rolecall.protocol.text.jsontext import parse
from tests.flow.conftest import CALLER, System, say
from tests.flow.test_trees import settled, state_of, within
from tests.helpers.scripted import status, task
from tests.helpers.watched_engine import Hold


def reports(nanos: int, tokens: int = 10, state: str = "working") -> WorkerEvent:
    usage = Usage("small", tokens, 0, nanos, "USD")
    return status(state, metadata={USAGE_EXTENSION: usage.document()})


async def called(system: System, role: str, *steps: Any, parent: TaskId | None = None, budget: Budget | None = None) -> TaskId:
    """A task of that role whose worker plays these steps, and works on."""
    if not system.engine.registry.live("default", role):
        await system.enrol(f"{role}:a", replays=True)
    system.forwarder.plan(f"{role}:a", task(), *steps, Hold(), status("completed"))
    call = await within(system, parent) if parent is not None else None
    caller = CALLER if call is None else system.hub.trees.caller_of(LOCAL, call)
    send = replace(say("hi", role=role, blocking=False), parent=call, budget=budget)
    answer = parse((await system.hub.send(caller, send)).body)
    await asyncio.sleep(1)
    return TaskId(answer["id"])


async def test_a_list_has_what_the_trees_of_its_roots_have_used_and_reads_it_once(stored_system: System) -> None:
    system = stored_system
    roots = [await called(system, "planner", reports(NANOS)) for _ in range(3)]
    child = await called(system, "writer", reports(NANOS // 2), parent=roots[0])
    below = await called(system, "editor", reports(NANOS // 4), parent=child)
    await called(system, "tester", parent=roots[1])
    before = system.engine.done.copy()
    found = await system.hub.page(CALLER, TaskQuery())
    assert system.engine.done - before == {"tasks.page": 1, "usage.of_tasks": 1, "usage.below": 1, "tasks.first_turns": 1}
    assert {task: usage[0].nanos for task, usage in found.usage.items()} == {
        **dict.fromkeys(roots, NANOS),
        child: NANOS // 2,
        below: NANOS // 4,
    }
    assert found.tree_usage == {roots[0]: (Usage("small", 30, 0, NANOS * 7 // 4, "USD"),)}
    only_child = await system.hub.page(CALLER, TaskQuery(role="writer"))
    assert (list(only_child.usage), only_child.tree_usage) == ([child], {})


async def test_a_spent_budget_refuses_new_calls_with_the_figures_and_lets_tasks_run(stored_system: System) -> None:
    system = stored_system
    root = await called(system, "planner", reports(NANOS), budget=Budget(None, 2 * NANOS, "USD"))
    first = await called(system, "writer", reports(NANOS // 2), parent=root)
    below = await called(system, "editor", reports(NANOS // 2), parent=first)
    for parent, chain in ((root, "planner > tester"), (below, "planner > writer > editor > tester")):
        with pytest.raises(BudgetSpent, match=f"The budget of task {root} is spent: 2 of 2 USD. .* {chain}.") as refused:
            await called(system, "tester", parent=parent)
        fault = fault_of(refused.value)
        assert (fault.code, fault.status, fault.reason) == (-32000, 402, "BUDGET_SPENT")
        assert fault.data is not None
        figures = {"spentCost": "2", "budgetCost": "2", "currency": "USD", "budgetTask": root, "chain": chain}
        assert fault.data[0]["metadata"] == figures
    await settled()
    for task_id in (root, first, below):
        assert await state_of(system, task_id) is TaskState.WORKING
    assert len(await system.engine.tasks.tree(root, limit=10)) == 2


async def test_a_tree_without_a_budget_and_one_beside_are_not_bounded(system: System) -> None:
    spent = await called(system, "planner", reports(NANOS), budget=Budget(None, NANOS, "USD"))
    free = await called(system, "planner", reports(50 * NANOS))
    other = await called(system, "planner", reports(NANOS), budget=Budget(None, 2 * NANOS, "USD"))
    for root in (free, other):
        await called(system, "writer", parent=root)
    with pytest.raises(BudgetSpent):
        await called(system, "writer", parent=spent)


async def test_a_child_may_have_a_budget_of_its_own_below_that_of_its_tree(system: System) -> None:
    root = await called(system, "planner", budget=Budget(1_000))
    small = await called(system, "writer", reports(0, 100), parent=root, budget=Budget(100))
    with pytest.raises(BudgetSpent, match=f"The budget of task {small} is spent: 100 of 100 tokens"):
        await called(system, "editor", parent=small)
    large = await called(system, "tester", reports(0, 900), parent=root, budget=Budget(5_000))
    with pytest.raises(BudgetSpent, match=f"The budget of task {root} is spent: 1000 of 1000 tokens"):
        await called(system, "editor", parent=large)


async def test_a_budget_holds_over_a_restart(stored_system: System) -> None:
    system = stored_system
    root = await called(system, "planner", reports(NANOS), budget=Budget(None, NANOS, "USD"))
    system.forwarder.plan("planner:a", Hold())
    await system.restart()
    await settled()
    with pytest.raises(BudgetSpent):
        await called(system, "writer", parent=root)


async def test_reports_that_come_after_the_check_make_the_sum_larger_than_the_budget(system: System) -> None:
    root = await called(system, "planner", budget=Budget(10))
    holds = [Hold(), Hold()]
    for hold in holds:
        await called(system, "writer", hold, reports(0, 10), parent=root)
    for hold in holds:
        hold.release()
    await settled()
    with pytest.raises(BudgetSpent, match="20 of 10 tokens"):
        await called(system, "writer", parent=root)


async def test_a_message_that_goes_on_with_a_task_brings_no_budget(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), status("input-required", "which?"))
    asked = await system.send()
    answer = replace(say("blue", taskId=asked["id"]), budget=Budget(10))
    with pytest.raises(InvalidParams, match="A budget comes with the message that begins a task"):
        await system.hub.send(CALLER, answer)
    assert (await system.get(asked["id"]))["status"]["state"] == "input-required"


async def test_a_repeated_message_has_the_budget_of_the_first(system: System) -> None:
    await system.enrol("echo:a", replays=True)
    system.forwarder.plan("echo:a", task(), status("completed"))
    send = replace(say("hi"), budget=Budget(10))
    first, second = [parse((await system.hub.send(CALLER, send)).body)["id"] for _ in range(2)]
    assert first == second
    assert [one.budget for one in await system.engine.usage.spendings(TaskId(first))] == [Budget(10)]
