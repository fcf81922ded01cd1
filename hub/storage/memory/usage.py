"""Sums of usage in the memory engine."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from hub.ports.clock import Clock
from rolecall.model.ids import Caller, TaskId
from rolecall.model.task import Branch, TaskRow
from rolecall.model.usage import DAY, MOST_SUMMED, Budget, Spending, Usage, UsageGroup, UsageQuery, UsageSums

_PIECE = 500
"""Sums of a list that are looked at together."""
_Place = tuple[str, int, str, str]
"""Workspace, day, role and holder."""


class MemoryUsage:
    def __init__(self, clock: Clock, branches: Mapping[TaskId, Branch]) -> None:
        self._clock = clock
        self._branches = branches
        self._tasks: defaultdict[TaskId, UsageSums] = defaultdict(UsageSums)
        self._days: defaultdict[_Place, UsageSums] = defaultdict(UsageSums)
        self._spendings: dict[TaskId, Spending] = {}
        self._spenders: dict[TaskId, list[TaskId]] = {}
        """The budgets, by the tasks that spend from them."""

    # --- for tasks and logs

    def add(self, row: TaskRow, usage: Sequence[Usage]) -> None:
        place = (row.caller.workspace, int(self._clock.wall() // DAY), row.role, row.caller.name)
        for one in usage:
            self._tasks[row.id].add(one)
            self._days[place].add(one)
            for budget in self._spenders.get(row.id, ()):
                self._spendings[budget] = self._spendings[budget].plus(one)

    def add_budget(self, task: TaskId, budget: Budget) -> None:
        self._spendings[task] = Spending(task, budget)
        self._spenders.setdefault(task, []).append(task)

    def spend_as_parent(self, task: TaskId, parent: TaskId) -> None:
        if budgets := self._spenders.get(parent):
            self._spenders[task] = [*budgets]

    def forget_task(self, task: TaskId) -> None:
        self._tasks.pop(task, None)
        for budget in self._spenders.pop(task, ()):
            if not any(budget in others for others in self._spenders.values()):
                del self._spendings[budget]

    # --- the port

    async def of_tasks(self, tasks: Sequence[TaskId]) -> Mapping[TaskId, Sequence[Usage]]:
        found = [task for task in tasks if task in self._tasks]
        return {task: sorted(self._tasks[task].sums, key=lambda one: one.key) for task in found}

    async def below(self, roots: Sequence[TaskId]) -> Mapping[TaskId, Sequence[Usage]]:
        wanted = set(roots)
        found: defaultdict[TaskId, UsageSums] = defaultdict(UsageSums)
        for number, (task, sums) in enumerate(list(self._tasks.items())):
            if number % _PIECE == 0:
                await asyncio.sleep(0)  # others run meanwhile
            branch = self._branches.get(task)
            if branch is not None and branch.root in wanted:
                for usage in sums.sums:
                    found[branch.root].add(usage)
        return {root: sorted(sums.sums, key=lambda one: one.key) for root, sums in found.items()}

    async def spendings(self, task: TaskId) -> Sequence[Spending]:
        return [self._spendings[budget] for budget in self._spenders.get(task, ())]

    async def budgets(self, tasks: Sequence[TaskId]) -> Mapping[TaskId, Spending]:
        return {task: self._spendings[task] for task in tasks if task in self._spendings}

    async def of_days(self, query: UsageQuery) -> Sequence[UsageGroup]:
        found: defaultdict[tuple[str, ...], list[Usage]] = defaultdict(list)
        for number, (place, sums) in enumerate(list(self._days.items())):
            if number % _PIECE == 0:
                await asyncio.sleep(0)  # others run meanwhile
            for names, usage in _named(query, place, sums):
                found[names].append(usage)
        return [_group(names, found[names]) for names in sorted(found)[: query.limit]]

    async def forget_days(self, *, after: timedelta) -> bool:
        oldest = (self._clock.wall() - after.total_seconds()) // DAY
        for place in [place for place in self._days if place[1] < oldest]:
            del self._days[place]
        return False

    async def forget_holder(self, holder: Caller) -> bool:
        for workspace, day, role, name in list(self._days):
            if (workspace, name) == holder and name:
                for usage in self._days.pop((workspace, day, role, name)).sums:
                    self._days[workspace, day, role, ""].add(usage)
        return False


def _named(query: UsageQuery, place: _Place, sums: UsageSums) -> Iterator[tuple[tuple[str, ...], Usage]]:
    """What the query finds at that place, each with the names of its group."""
    workspace, day, role, holder = place
    if (
        workspace != query.workspace
        or query.role not in (None, role)
        or query.holder not in (None, holder)
        or (query.since is not None and day < query.since)
        or (query.until is not None and day > query.until)
    ):
        return
    for usage in sums.sums:
        every = {"role": role, "holder": holder, "model": usage.model, "day": str(day)}
        names = tuple(every[name] for name in query.by)
        if query.after is None or names > query.after:
            yield names, usage


def _group(names: tuple[str, ...], usage: Sequence[Usage]) -> UsageGroup:
    costs: defaultdict[str, int] = defaultdict(int)
    for one in usage:
        if one.currency:
            costs[one.currency] += one.nanos
    return UsageGroup(
        names,
        min(sum(one.input_tokens for one in usage), MOST_SUMMED),
        min(sum(one.output_tokens for one in usage), MOST_SUMMED),
        {currency: min(nanos, MOST_SUMMED) for currency, nanos in costs.items()},
    )
