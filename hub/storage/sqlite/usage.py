"""Sums of usage in the SQLite engine."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from hub.ports.clock import Clock
from hub.storage.sqlite.connections.readers import ListReaders, SqliteReader
from hub.storage.sqlite.connections.writer import Writer
from rolecall.model.ids import Caller, TaskId
from rolecall.model.task import TaskRow
from rolecall.model.usage import DAY, MOST_SUMMED, NANOS, Budget, Spending, Usage, UsageGroup, UsageQuery, UsageSums, kept_as

_PIECE = 200
"""Tasks of a read, or sums of a write."""
_SUM_NAMES = ("input_tokens", "output_tokens", "nanos")
_SUMS = ", ".join(_SUM_NAMES)
_ADDED = ", ".join(f"{name} = min({name} + excluded.{name}, {MOST_SUMMED})" for name in _SUM_NAMES)
_OF_TASK = "select model, currency from task_usage where task = ?"
_ADD_TO_TASK = f"""
insert into task_usage (task, model, currency, {_SUMS}) values (?, ?, ?, ?, ?, ?) on conflict do update set {_ADDED}
"""
_OF_TASKS = f"select id, model, {_SUMS}, currency from task join task_usage on task_usage.task = task.key"
_OF_DAY = "select model, currency from day_usage where workspace = ? and day = ? and role = ? and holder = ?"
_ADD_TO_DAY = f"""
insert into day_usage (workspace, day, role, holder, model, currency, {_SUMS}) values (?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict do update set {_ADDED}
"""
_SPEND = f"""
update budget set tokens = min(tokens + ?2, {MOST_SUMMED}), nanos = min(nanos + iif(currency = ?4, ?3, 0), {MOST_SUMMED})
where number in (select budget from spender where task = ?1)
"""
_ADD_BUDGET = "insert into budget (task, max_tokens, max_nanos, currency) values (?, ?, ?, ?)"
_ADD_SPENDER = "insert into spender (task, budget) values (?, ?)"
_SPEND_AS_PARENT = "insert into spender select ?, budget from spender where task = (select key from task where id = ?)"
_BUDGETS = "select task, max_tokens, max_nanos, currency, tokens, nanos from budget"
_SPENDINGS = f"""
{_BUDGETS} where number in (select budget from spender where task = (select key from task where id = ?)) order by number
"""
_OF_HOLDER = f"""
select day, role, model, currency, {_SUMS} from day_usage where workspace = ? and holder = ? limit {_PIECE}
"""
_DELETE_SUM = """
delete from day_usage
where workspace = ? and day = ? and role = ? and holder = ? and model = ? and currency = ?
"""
_OLD_DAYS = f"""
select workspace, day, role, holder, model, currency from day_usage where day < ? order by day limit {_PIECE}
"""
# SQLite adds numbers of 64 bits, and a sum may take more: it is in two pieces.
_PIECES = ", ".join(f"sum({name} / {NANOS}) as {name}_high, sum({name} % {NANOS}) as {name}_low" for name in _SUM_NAMES)
_BELOW = f"""
select root, model, currency, {_PIECES} from branch join task_usage on task_usage.task = branch.task
where root in (%s) group by root, model, currency order by root, model, currency
"""
_TOTALS = (
    "sum(input_tokens_high), sum(input_tokens_low), sum(output_tokens_high), sum(output_tokens_low), "
    "group_concat(currency || ' ' || nanos_high || ' ' || nanos_low)"
)
_COLUMNS = {"role": "role", "holder": "holder", "model": "model", "day": "cast(day as text)"}


def add_usage(db: sqlite3.Connection, key: int, row: TaskRow, usage: Iterable[Usage], now: float) -> None:
    """Within the transaction of the append that reports it. `key`: of the task."""
    for one in usage:
        kept = kept_as(one, db.execute(_OF_TASK, (key,)).fetchall())
        db.execute(_ADD_TO_TASK, (key, *kept.key, *_sums(kept)))
        _add_to_day(db, row.caller, int(now // DAY), row.role, one)
        db.execute(_SPEND, (key, one.tokens, one.nanos, one.currency))


def add_budget(db: sqlite3.Connection, key: int, task: TaskId, budget: Budget) -> None:
    """The budget that a new task was called with. It spends from it, too."""
    values = (task, budget.tokens, budget.nanos, budget.currency)
    db.execute(_ADD_SPENDER, (key, db.execute(_ADD_BUDGET, values).lastrowid))


def spend_as_parent(db: sqlite3.Connection, key: int, parent: TaskId) -> None:
    """A new child spends from all that its parent spends from."""
    db.execute(_SPEND_AS_PARENT, (key, parent))


class SqliteUsage:
    def __init__(self, writer: Writer, reader: SqliteReader, lists: ListReaders, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._lists = lists
        self._clock = clock

    async def of_tasks(self, tasks: Sequence[TaskId]) -> Mapping[TaskId, Sequence[Usage]]:
        found: dict[TaskId, list[Usage]] = {}
        for task, *members in await _in_pieces(
            self._reader, f"{_OF_TASKS} where id in (%s) order by id, model, currency", tasks
        ):
            found.setdefault(TaskId(task), []).append(Usage(*members))
        return found

    async def below(self, roots: Sequence[TaskId]) -> Mapping[TaskId, Sequence[Usage]]:
        found: defaultdict[TaskId, UsageSums] = defaultdict(UsageSums)
        for row in await _in_pieces(self._lists, _BELOW, roots):
            root, model, currency, *pieces = row
            tokens_in, tokens_out, nanos = (_whole(high, low) for high, low in zip(pieces[::2], pieces[1::2], strict=True))
            found[TaskId(root)].add(Usage(model, tokens_in, tokens_out, nanos, currency))
        return {root: sums.sums for root, sums in found.items()}

    async def spendings(self, task: TaskId) -> Sequence[Spending]:
        return [_spending(row) for row in await self._reader.rows(_SPENDINGS, (task,))]

    async def budgets(self, tasks: Sequence[TaskId]) -> Mapping[TaskId, Spending]:
        found = [_spending(row) for row in await _in_pieces(self._reader, f"{_BUDGETS} where task in (%s)", tasks)]
        return {spending.task: spending for spending in found}

    async def of_days(self, query: UsageQuery) -> Sequence[UsageGroup]:
        return [_group(row) for row in await self._lists.rows(*_days(query))]

    async def forget_days(self, *, after: timedelta) -> bool:
        oldest = int((self._clock.wall() - after.total_seconds()) // DAY)
        rows = await self._reader.rows(_OLD_DAYS, (oldest,))
        if rows:
            await self._writer.submit(lambda db: db.executemany(_DELETE_SUM, rows))
        return len(rows) == _PIECE

    async def forget_holder(self, holder: Caller) -> bool:
        nobody = Caller(holder.workspace, "")

        def write(db: sqlite3.Connection) -> int:
            rows = db.execute(_OF_HOLDER, holder).fetchall()
            for day, role, model, currency, tokens_in, tokens_out, nanos in rows:
                db.execute(_DELETE_SUM, (holder.workspace, day, role, holder.name, model, currency))
                _add_to_day(db, nobody, day, role, Usage(model, tokens_in, tokens_out, nanos, currency))
            return len(rows)

        return bool(holder.name) and await self._writer.submit(write) == _PIECE


async def _in_pieces(reader: SqliteReader | ListReaders, sql: str, tasks: Sequence[TaskId]) -> Sequence[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for start in range(0, len(tasks), _PIECE):
        piece = tasks[start : start + _PIECE]
        found += await reader.rows(sql.replace("%s", ", ".join("?" * len(piece))), piece)
    return found


def _add_to_day(db: sqlite3.Connection, owner: Caller, day: int, role: str, usage: Usage) -> None:
    place = (owner.workspace, day, role, owner.name)
    kept = kept_as(usage, db.execute(_OF_DAY, place).fetchall())
    db.execute(_ADD_TO_DAY, (*place, *kept.key, *_sums(kept)))


def _spending(row: tuple[Any, ...]) -> Spending:
    owner, max_tokens, max_nanos, currency, tokens, nanos = row
    return Spending(TaskId(owner), Budget(max_tokens, max_nanos, currency), tokens, nanos)


def _sums(usage: Usage) -> tuple[int, int, int]:
    return usage.input_tokens, usage.output_tokens, usage.nanos


def _days(query: UsageQuery) -> tuple[str, list[Any]]:
    """The statement that reads the groups, and its values."""
    where, values = "workspace = ?", list[Any]((query.workspace,))
    for term, value in (
        ("holder = ?", query.holder),
        ("role = ?", query.role),
        ("day >= ?", query.since),
        ("day <= ?", query.until),
    ):
        if value is not None:
            where += f" and {term}"
            values.append(value)
    names = [_COLUMNS[name] for name in query.by]
    if query.after is not None:
        where += f" and ({', '.join(names)}) > ({', '.join('?' * len(names))})"
        values.extend(query.after)
    found, own = ", ".join(f"{name} as n{at}" for at, name in enumerate(names)), ", ".join(f"n{at}" for at in range(len(names)))
    sql = f"""
    select {_TOTALS}, {own} from (
      select {found}, currency, {_PIECES} from day_usage where {where} group by {own}, currency
    ) group by {own} order by {own} limit ?
    """
    return sql, [*values, query.limit]


def _group(row: tuple[Any, ...]) -> UsageGroup:
    in_high, in_low, out_high, out_low, costs, *names = row
    found = {}
    for cost in costs.split(","):
        currency, high, low = cost.split(" ")
        if currency:
            found[currency] = _whole(int(high), int(low))
    return UsageGroup(tuple(names), _whole(in_high, in_low), _whole(out_high, out_low), found)


def _whole(high: int, low: int) -> int:
    return min(high * NANOS + low, MOST_SUMMED)
