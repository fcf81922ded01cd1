"""Sums of usage: each report once, by task, budget and day; what goes with a task and what stays."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from hub.ports.state.engine import Engine
from rolecall.errors import LogMoved
from rolecall.model.a2a import TaskState
from rolecall.model.ids import Caller, TaskId
from rolecall.model.task import Branch
from rolecall.model.usage import DAY, MAX_SUMS, MOST_NANOS, MOST_SUMMED, Budget, Spending, Usage, UsageGroup, UsageQuery
from tests.contract.conftest import Store
from tests.contract.words import ANNA, BERT, DONE, OTHER_ANNA, a_row, a_turn, admitted, append, status, text
from tests.helpers.clock import ManualClock

WORKING = status(TaskState.WORKING)
SMALL = Usage("small", 100, 20, 500, "USD")
LARGE = Usage("large", 10, 2, 7_000, "USD")
FREE = Usage("small", 1, 1)
NONE = timedelta()


async def used(engine: Engine, task: TaskId, *usage: Usage, after: int = 0) -> None:
    await append(engine, task, WORKING, after=after, usage=usage)


async def of_task(engine: Engine, task: TaskId) -> Sequence[Usage]:
    return (await engine.usage.of_tasks([task])).get(task, ())


async def started(engine: Engine, parent: TaskId | None = None, budget: Budget | None = None, **members: Any) -> TaskId:
    row = a_row(**members)
    branch = Branch(parent, parent, ("planner",)) if parent is not None else None
    assert await engine.tasks.admit(row, a_turn(), branch=branch, budget=budget)
    return row.id


async def days(engine: Engine, *by: str, workspace: str = "default", **members: Any) -> list[tuple[Any, ...]]:
    found = await engine.usage.of_days(UsageQuery(workspace, by or ("role", "holder"), **members))
    return [(*group.names, group.input_tokens, group.output_tokens, group.costs) for group in found]


# --- of tasks


async def test_reports_add_up_by_model_and_currency(store: Store, engine: Engine) -> None:
    task, other = await admitted(engine), await admitted(engine)
    await append(engine, task, text(), usage=[SMALL, LARGE])
    await used(engine, task, SMALL, FREE, after=1)
    for again in (False, True):
        one = engine if not again else await store.open_again(engine)
        found = await one.usage.of_tasks([task, other, TaskId("unknown")])
        assert found == {task: [LARGE, Usage("small", 1, 1), Usage("small", 200, 40, 1_000, "USD")]}


async def test_what_is_not_appended_does_not_count(engine: Engine) -> None:
    task = await admitted(engine)
    await used(engine, task, SMALL)
    for after in (0, 2):
        with pytest.raises(LogMoved):
            await used(engine, task, SMALL, after=after)
    await append(engine, task, DONE, after=1)
    with pytest.raises(LogMoved):
        await used(engine, task, SMALL, after=2)
    assert await of_task(engine, task) == [SMALL]
    assert await days(engine) == [("echo", "anna", 100, 20, {"USD": 500})]


async def test_a_task_with_many_models_and_currencies_has_few_sums(engine: Engine) -> None:
    task = await admitted(engine)
    codes = [f"{one}{two}A" for one in "ABCDEFGHIJKLM" for two in "ABCDEFGHIJKLM"]
    reports = [Usage(f"m{at}", 1, 0, 1, code) for at, code in enumerate(codes)]
    await used(engine, task, *reports)
    found = await of_task(engine, task)
    assert len(found) == 2 * MAX_SUMS + 1
    assert sum(one.input_tokens for one in found) == len(codes)
    assert sum(one.nanos for one in found) == 2 * MAX_SUMS
    assert [one.input_tokens for one in found if one.key == ("", "")] == [len(codes) - 2 * MAX_SUMS]
    ((*_, tokens, _, costs),) = await days(engine)
    assert (tokens, len(costs)) == (len(codes), 2 * MAX_SUMS)


async def test_sums_stop_before_they_are_too_large_for_the_store(engine: Engine) -> None:
    tasks, largest = [await admitted(engine, role=role) for role in ("one", "two")], Usage("m", 0, 0, MOST_NANOS, "USD")
    for task in tasks:
        await used(engine, task, *[largest] * 10)
        assert [one.nanos for one in await of_task(engine, task)] == [MOST_SUMMED]
    assert await days(engine, "holder") == [("anna", 0, 0, {"USD": MOST_SUMMED})]


@pytest.mark.parametrize("how", ["erase", "discard", "forget"])
async def test_the_sums_of_a_task_go_with_it_and_those_of_its_day_stay(engine: Engine, clock: ManualClock, how: str) -> None:
    task = await started(engine, budget=Budget(10))
    await used(engine, task, SMALL)
    await append(engine, task, DONE, after=1)
    if how == "erase":
        await engine.tasks.erase(task)
    elif how == "discard":
        await engine.tasks.discard(task)
    else:
        clock.advance(10)
        await engine.tasks.forget(ended_for=timedelta(seconds=5), paused_for=timedelta(days=1))
    assert await of_task(engine, task) == ()
    assert await engine.usage.spendings(task) == []
    assert await days(engine) == [("echo", "anna", 100, 20, {"USD": 500})]


async def test_all_below_a_root_add_up_without_the_root(store: Store, engine: Engine) -> None:
    root, empty = await started(engine), await started(engine)
    child = await started(engine, root)
    branch = Branch(child, root, ("planner", "coder"))
    below = a_row()
    assert await engine.tasks.admit(below, a_turn(), branch=branch)
    idle, other = await started(engine, empty), await started(engine)
    for task in (root, child, below.id, other):
        await used(engine, task, SMALL)
    await used(engine, below.id, LARGE, after=1)
    sums = [LARGE, Usage("small", 200, 40, 1_000, "USD")]
    for again in (False, True):
        one = engine if not again else await store.open_again(engine)
        found = await one.usage.below([root, empty, child, below.id, idle, other, TaskId("unknown")])
        assert {task: list(usage) for task, usage in found.items()} == {root: sums}
    await one.tasks.discard(child)
    assert await one.usage.below([]) == {}
    assert [list(usage) for usage in (await one.usage.below([root])).values()] == [[LARGE, SMALL]]


async def test_many_roots_are_summed_together_and_large_sums_stop(engine: Engine) -> None:
    roots = [await started(engine) for _ in range(210)]
    largest = Usage("m", 0, 0, MOST_NANOS, "USD")
    for root in (roots[0], roots[-1]):
        for child in [await started(engine, root) for _ in range(2)]:
            await used(engine, child, *[largest] * 8)
    found = await engine.usage.below(roots)
    assert {root: [one.nanos for one in usage] for root, usage in found.items()} == {
        roots[0]: [MOST_SUMMED],
        roots[-1]: [MOST_SUMMED],
    }


# --- budgets


async def test_a_task_and_all_below_it_spend_from_its_budget(store: Store, engine: Engine) -> None:
    root = await started(engine, budget=Budget(1_000, 10_000, "USD"))
    child = await started(engine, root, Budget(100))
    below, beside = await started(engine, child), await started(engine, root)
    await started(engine)  # of another tree
    for task in (root, child, below, beside):
        await used(engine, task, SMALL)
    of_root = Spending(root, Budget(1_000, 10_000, "USD"), 480, 2_000)
    of_child = Spending(child, Budget(100), 240, 0)
    for again in (False, True):
        one = engine if not again else await store.open_again(engine)
        assert await one.usage.budgets([below, root, child]) == {root: of_root, child: of_child}
        assert await one.usage.spendings(root) == [of_root]
        assert await one.usage.spendings(below) == [of_root, of_child]
        assert await one.usage.spendings(beside) == [of_root]


async def test_only_costs_in_the_currency_of_a_budget_count(engine: Engine) -> None:
    task = await started(engine, budget=Budget(None, 100, "EUR"))
    await used(engine, task, Usage("m", 5, 5, 50, "USD"), Usage("m", 0, 0, 30, "EUR"), Usage("m", 1))
    assert await engine.usage.spendings(task) == [Spending(task, Budget(None, 100, "EUR"), 11, 30)]


async def test_a_budget_lasts_as_long_as_a_task_that_spends_from_it(engine: Engine) -> None:
    root = await started(engine, budget=Budget(100))
    child = await started(engine, root)
    await used(engine, child, SMALL)
    await engine.tasks.discard(root)
    assert await engine.usage.spendings(root) == []
    assert await engine.usage.spendings(child) == [Spending(root, Budget(100), 120, 0)]
    await engine.tasks.discard(child)
    # The store may give a new task the place of one that was deleted.
    for task in (await started(engine), await started(engine)):
        assert await engine.usage.spendings(task) == []
        assert await of_task(engine, task) == ()


async def test_a_call_that_is_known_already_brings_no_budget(engine: Engine) -> None:
    from tests.contract.words import NAME

    assert await engine.tasks.admit(a_row(), a_turn(), names=[NAME])
    row = a_row()
    assert not await engine.tasks.admit(row, a_turn(), names=[NAME], budget=Budget(5))
    assert await engine.usage.spendings(row.id) == []


# --- of days


async def test_days_are_told_apart_by_what_is_asked(engine: Engine, clock: ManualClock) -> None:
    first = int(clock.wall() // DAY)
    for holder, role, usage in (
        (ANNA, "echo", SMALL),
        (ANNA, "shop", LARGE),
        (BERT, "echo", FREE),
        (OTHER_ANNA, "echo", SMALL),
    ):
        await used(engine, await admitted(engine, holder, role=role), usage)
    clock.advance(DAY)
    await used(engine, await admitted(engine, ANNA), SMALL, Usage("small", 0, 0, 3, "EUR"))
    every = {"USD": 1_000, "EUR": 3}
    assert await days(engine) == [
        ("echo", "anna", 200, 40, every),
        ("echo", "bert", 1, 1, {}),
        ("shop", "anna", 10, 2, {"USD": 7_000}),
    ]
    assert await days(engine, "day") == [
        (str(first), 111, 23, {"USD": 7_500}),
        (str(first + 1), 100, 20, {"USD": 500, "EUR": 3}),
    ]
    assert await days(engine, "model", holder="anna", role="echo") == [("small", 200, 40, every)]
    assert await days(engine, "holder", since=first + 1) == [("anna", 100, 20, {"USD": 500, "EUR": 3})]
    assert await days(engine, "role", until=first, workspace="elsewhere") == [("echo", 100, 20, {"USD": 500})]
    assert await days(engine, since=first + 2) == []


async def test_groups_come_in_pages(engine: Engine) -> None:
    for at in range(5):
        await used(engine, await admitted(engine, Caller("default", f"h{at}")), Usage("m", at), Usage("n", 0, 0, at, "USD"))
    names, after = list[str](), None
    while page := await engine.usage.of_days(UsageQuery("default", ("role", "holder"), limit=2, after=after)):
        assert len(page) <= 2
        names += [group.names[1] for group in page]
        after = page[-1].names
    assert names == ["h0", "h1", "h2", "h3", "h4"]


async def test_old_days_are_forgotten(engine: Engine, clock: ManualClock) -> None:
    for at in range(250):
        await used(engine, await admitted(engine, Caller("default", f"h{at}")), SMALL)
    clock.advance(2 * DAY)
    await used(engine, await admitted(engine), LARGE)
    assert not await engine.usage.forget_days(after=timedelta(days=3))
    assert len(await days(engine, limit=1_000)) == 251
    while await engine.usage.forget_days(after=timedelta(days=1)):
        pass
    assert await days(engine) == [("echo", "anna", 10, 2, {"USD": 7_000})]


async def test_a_forgotten_holder_leaves_sums_that_name_nobody(store: Store, engine: Engine, clock: ManualClock) -> None:
    for _ in range(250):
        await used(engine, await admitted(engine, ANNA), SMALL)
        clock.advance(DAY)
    for holder in (BERT, OTHER_ANNA):
        await used(engine, await admitted(engine, holder), LARGE)
    while await engine.usage.forget_holder(ANNA):
        pass
    assert await days(engine, "holder") == [("", 25_000, 5_000, {"USD": 125_000}), ("bert", 10, 2, {"USD": 7_000})]
    assert await days(engine, "holder", workspace="elsewhere") == [("anna", 10, 2, {"USD": 7_000})]
    await used(engine, await admitted(engine, BERT), LARGE)
    while await engine.usage.forget_holder(BERT):
        pass
    engine = await store.open_again(engine)
    assert await engine.usage.of_days(UsageQuery("default", ("holder",))) == [
        UsageGroup(("",), 25_020, 5_004, {"USD": 139_000})
    ]
    assert not await engine.usage.forget_holder(Caller("default", ""))
