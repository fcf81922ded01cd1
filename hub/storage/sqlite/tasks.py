"""The task rows of the SQLite engine."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from hub.ports.clock import Clock
from hub.ports.shares import Share
from hub.storage.common.cached_task import CachedTask, PageMark, change_of, merged
from hub.storage.common.reserve import Reserve
from hub.storage.sqlite.cache import Cache
from hub.storage.sqlite.connections.readers import ListReaders, SqliteReader
from hub.storage.sqlite.connections.writer import Writer
from hub.storage.sqlite.contents import as_value, is_large, write_large
from hub.storage.sqlite.files import bind, can_bind, unbind
from hub.storage.sqlite.pushes import SqlitePushes
from hub.storage.sqlite.summaries import keep_summary
from hub.storage.sqlite.task_changes import (
    DROP_DISCARDED,
    OLD_DISCARDED,
    SqliteChanges,
    feed_of,
    forget_discarded,
    keep_discarded,
)
from hub.storage.sqlite.task_counts import TaskCounts
from hub.storage.sqlite.usage import add_budget, spend_as_parent
from rolecall.errors import FileNotFound, TaskNotFound
from rolecall.model.a2a import PAUSED, TaskState
from rolecall.model.call import CallName, StoredCall
from rolecall.model.command import TaskQuery
from rolecall.model.ids import START, Caller, Cursor, FileId, TaskId, WorkerId
from rolecall.model.push import SealedConfig
from rolecall.model.task import (
    COUNTED,
    ROW_SIZE,
    SUMMARY_SIZE,
    Branch,
    Child,
    Conversation,
    Holder,
    TaskChange,
    TaskPage,
    TaskRow,
    Turn,
)
from rolecall.model.usage import Budget
from rolecall.model.value import replace

MEMBERS = (
    "id, workspace, caller, role, worker, epoch, context, worker_task, worker_context, dialect, spoken, alias, "
    "state, last, position, size, created, updated"
)
_ADMIT = f"""
insert into task ({MEMBERS}, turn_after, turn_message, turn_dialect, turn_params, names, feed, admitted)
values ({", ".join("?" * 25)})
"""
_TURNS = """
select turn_after, turn_message, turn_dialect, turn_params, -1 as seq from task where id = ?1 and length(turn_params)
union all
select after, message, dialect, params, seq from turn where task = (select key from task where id = ?1)
order by seq
"""
# A large one is not in its row.
_FIRST_TURNS = """
select id, turn_after, turn_message, turn_dialect, turn_params from task
where id in (%s) and length(turn_params) between 1 and ?
"""
_ADD_TURN = """
insert into turn (task, seq, after, message, dialect, params, names)
values (?1, (select count(*) from turn where task = ?1 and seq >= 0), ?2, ?3, ?4, ?5, ?6)
returning seq, rowid
"""
# A large first message is not in its task's row, which is written again with each change of the state.
_ADD_FIRST_TURN = """
insert into turn (task, seq, after, message, dialect, params, names) values (?, -1, ?, ?, ?, x'', x'')
"""
_DROP_TURN = """
delete from turn where task = (select key from task where id = ?1) and after = ?2 and message = ?3
and seq = (select max(seq) from turn where task = (select key from task where id = ?1))
returning seq, task, names
"""
PAUSED_STATE = "state in ({})".format(", ".join(f"'{state}'" for state in sorted(PAUSED)))
"""In the words of the index task_paused, or SQLite does not use it."""
_FIRST_AFTER = f"(select key from task where {PAUSED_STATE} and %s order by workspace, worker, epoch limit 1)"
# Jumps from worker to worker in the index. "select distinct" would read the entries of all paused tasks, and a comparison of
# three columns at once those of the workspace.
HOLDERS = f"""
with recursive one (key, workspace, worker, epoch) as (
  select key, workspace, worker, epoch from task where key = {_FIRST_AFTER % "worker is not null"}
  union all
  select task.key, task.workspace, task.worker, task.epoch from one join task on task.key = coalesce(
    {_FIRST_AFTER % "workspace = one.workspace and worker = one.worker and epoch > one.epoch"},
    {_FIRST_AFTER % "workspace = one.workspace and worker > one.worker"},
    {_FIRST_AFTER % "workspace > one.workspace and worker is not null"})
)
select workspace, worker, epoch from one
"""
PAUSED_AT = f"""
select {MEMBERS} from task_now
where {PAUSED_STATE} and workspace = ? and worker = ? and epoch = ? and id > ? order by id limit ?
"""
# Takes the name if it is free. A call without a task, or whose task ended before ?5, has no right to it any more.
_ADD_CALL = """
insert into call (name, task, began, content) values (?1, ?2, ?3, ?4)
on conflict (name) do update set task = excluded.task, began = excluded.began, content = excluded.content
where call.content = x'' and not exists (
  select 1 from task where key = call.task and (idle_since is null or updated > ?5)
)
"""
_FIND_CALL = """
select task.id, task.role, call.began, call.content from call join task on task.key = call.task
where name = ?1 and (call.content <> x'' or idle_since is null or updated > ?2)
"""
# A name that was free may be a later task's by now.
_FREE_NAME = "delete from call where name = ? and task = ?"
_NAMES = "select names from task where key = ?1 union all select names from turn where task = ?1"
_NAME_BYTES = 16
# The last of a piece of the tasks that ended in that time, by idle_since, and their number.
_ENDED = """
select max(idle_since), count(*) from (
  select idle_since from task where idle_since > ?1 and idle_since <= ?2 order by idle_since limit ?3
)
"""
_NAMES_OF_ENDED = """
select key, names from task where idle_since > ?1 and idle_since <= ?2
union all
select key, turn.names from task join turn on turn.task = task.key where idle_since > ?1 and idle_since <= ?2
"""
_FORGET_NAME = f"{_FREE_NAME} and content = x''"
_FORGOTTEN = "calls forgotten"
"""In the table meta: the `idle_since` up to which names have been deleted."""
_EXPIRED = f"""
select key, id, last from (select key, id, last, idle_since from task where idle_since < ?1 order by idle_since limit ?3)
union all
select key, id, last from (
  select key, id, last from task
  where idle_since is null and updated < ?2 and {PAUSED_STATE} limit ?3
)
limit ?3
"""
# Two searches with a union: for one search with an "or" SQLite would scan all tasks.
_UNFINISHED = f"select {MEMBERS} from task_now where idle_since is null order by key"
_BRANCH = "parent, root, roles, deadline, goes_on"
_ADD_BRANCH = f"insert into branch (task, {_BRANCH}) values (?, ?, ?, ?, ?, ?)"
_BRANCH_OF = f"select {_BRANCH} from branch where task = (select key from task where id = ?)"
_CHILDREN = f"select {_BRANCH}, {MEMBERS} from branch join task_now on task_now.key = branch.task"
_TREE = f"{_CHILDREN} where root = ? and not hidden order by branch.task limit ?"
_OPEN_CHILDREN = f"{_CHILDREN} where idle_since is null order by branch.task"
# By its tree: there is no index by parent.
_PAUSED_PARENTS = f"""
select {MEMBERS} from task_now where {PAUSED_STATE} and exists (
  select 1 from branch where parent = task_now.id
  and root = coalesce((select root from branch where task = task_now.key), task_now.id)
)
"""
_DISCARDED = f"select key, (select parent from branch where branch.task = key), {MEMBERS} from task where id = ?"
_SIZE = f"""
select workspace, {ROW_SIZE} + (select size from task_now where key = ?1) + length(turn_params)
  + (select coalesce(sum(length(params)), 0) from turn where task = ?1)
from task where key = ?1
"""
# The row of an open task may be behind its log: the second part adds that.
_ALL_SIZES = f"""
select workspace, sum(size) from (
  select workspace, {ROW_SIZE} + size + length(turn_params) as size from task
  union all
  select task.workspace, task_now.size - task.size from task join task_now on task_now.key = task.key
  where task.idle_since is null
  union all
  select workspace, length(params) from turn join task on task.key = turn.task
) group by workspace
"""
# Not even `forget` waits for the rest of it. The row of an open task may be behind its log.
_BEGIN_ERASURE = """
update task set hidden = 1, state = 'completed', idle_since = 0,
  last = (select last from task_now where key = ?1), size = (select size from task_now where key = ?1)
where key = ?1
"""
# From the end, so that a reader that lags has no gap.
_NEWEST_EVENTS = """
select min(place), count(*) from (
  select place, sum(bytes) over (order by place desc) - bytes as before from (
    select place, length(body) as bytes from event
    where place > (?1 << 24) and place < ((?1 + 1) << 24) order by place desc limit ?2
  )
) where before < ?3
"""
_NEWEST_FIRST = "order by updated desc, id desc limit ?"
_NO_TASK = (-1, "")
_NO_FILE = -2
_STILL_EXPIRED = f"""
select 1 from task where key = ?3 and id = ?4 and (
  idle_since < ?1 or idle_since is null and updated < ?2 and {PAUSED_STATE}
)
"""
# Limits of one call of `forget`, because other writes wait for it. A task with more events is deleted alone.
FORGET_TASKS = 50
FORGET_EVENTS = 2_000
FORGET_BYTES = 1024 * 1024
"""Of events of a task that is erased."""
FORGET_CALLS = 100
"""Tasks whose names one call of `forget_calls` deletes."""


class SqliteTasks:
    def __init__(
        self,
        writer: Writer,
        reader: SqliteReader,
        lists: ListReaders,
        cache: Cache,
        clock: Clock,
        pushes: SqlitePushes,
        reserve: Reserve,
        disk: Share,
        changes: SqliteChanges,
        counts: TaskCounts,
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._lists = lists
        self._cache = cache
        self._clock = clock
        self._pushes = pushes
        self._reserve = reserve
        self._disk = disk
        self._changes = changes
        self._counts = counts
        self._calls_forgotten: float | None = None

    async def admit(
        self,
        row: TaskRow,
        turn: Turn,
        *,
        names: Sequence[CallName] = (),
        remembered: timedelta = timedelta(),
        push: SealedConfig | None = None,
        branch: Branch | None = None,
        files: Sequence[FileId] = (),
        budget: Budget | None = None,
    ) -> bool:
        self._reserve.check()
        self._disk.check(row.caller.workspace)
        first = (turn.after, turn.message_id, turn.dialect, as_value(turn.params), _joined(names))
        values = (*_values(row), *first, feed_of(row.caller))
        parent = branch.parent if branch is not None else None
        free_before = self._clock.wall() - remembered.total_seconds()
        counts = self._counts
        set_config = self._pushes.config_work(row.caller, push, limit=1) if push is not None else None

        def write(db: sqlite3.Connection) -> tuple[int, int] | None:
            """The task's key, or _NO_FILE, and the revision. None: an earlier call has one of the names."""
            revision = self._changes.next_revision()
            place = db.execute(_ADMIT, (*values, revision)).lastrowid or 0
            counts.add(row.caller, row.role, 1)
            if not _add_calls(db, place, START, names, free_before):
                _delete(db, counts, place, free_before)
                return None
            if files:
                if not can_bind(db, place, files):
                    _delete(db, counts, place, row.created)
                    return _NO_FILE, revision
                bind(db, place, files)
            if is_large(turn.params):
                added = db.execute(_ADD_FIRST_TURN, (place, turn.after, turn.message_id, turn.dialect))
                write_large(db, "turn", "params", added.lastrowid or 0, turn.params)
            if set_config is not None:
                set_config(db)
            if branch is not None:
                db.execute(_ADD_BRANCH, (place, *_branch_values(branch)))
                spend_as_parent(db, place, branch.parent)
            if budget is not None:
                add_budget(db, place, row.id, budget)
            return place, revision

        def publish(stored: tuple[int, int] | None) -> None:
            if stored is not None and stored[0] != _NO_FILE:
                place, revision = stored
                self._cache.keep(row.id, CachedTask(row, [turn], key=place, pushes=push is not None, parent=parent))
                self._disk.fill(row.caller.workspace, ROW_SIZE + len(turn.params))
                self._changes.publish_admission(row, parent, revision)

        stored = await self._writer.submit(
            write, publish, short=True, size=len(turn.params), task=row.id, workspace=row.caller.workspace
        )
        if stored is not None and stored[0] == _NO_FILE:
            raise FileNotFound
        return stored is not None

    async def find_call(self, name: bytes, *, remembered: timedelta) -> StoredCall | None:
        rows = await self._reader.rows(_FIND_CALL, (name, self._clock.wall() - remembered.total_seconds()))
        return StoredCall(*rows[0]) if rows else None

    async def add_turn(
        self,
        task: TaskId,
        turn: Turn,
        *,
        names: Sequence[CallName] = (),
        remembered: timedelta = timedelta(),
        files: Sequence[FileId] = (),
    ) -> bool:
        self._reserve.check()
        values = (turn.after, turn.message_id, turn.dialect, as_value(turn.params), _joined(names))
        now = self._clock.wall()
        free_before = now - remembered.total_seconds()

        def write(db: sqlite3.Connection) -> tuple[int, str] | None:
            """The number of the turn, or _NO_FILE, and the workspace. None: an earlier call has one of the names."""
            found = db.execute("select key, workspace from task where id = ?", (task,)).fetchone()
            if found is None:
                return _NO_TASK
            key, workspace = found
            if not can_bind(db, key, files):
                return _NO_FILE, ""
            if not _add_calls(db, key, turn.after, names, free_before):
                return None
            bind(db, key, files)
            seq, row_id = db.execute(_ADD_TURN, (key, *values)).fetchone()
            if is_large(turn.params):
                write_large(db, "turn", "params", row_id, turn.params)
            db.execute("update task set updated = ? where id = ? and idle_since is null", (now, task))
            return seq, workspace

        def publish(added: tuple[int, str] | None) -> None:
            if added is None or added[0] < 0:
                return
            seq, workspace = added
            self._disk.fill(workspace, len(turn.params))
            cached = self._cache.on_write(task)
            if cached is not None:
                cached.touch(now)
            if cached is not None and cached.turns is not None and len(cached.turns) == seq + 1:
                cached.turns = [*cached.turns, turn]
                self._cache.keep(task, cached)

        added = await self._writer.submit(write, publish, short=True, size=len(turn.params), task=task)
        if added == _NO_TASK:
            raise TaskNotFound
        if added is not None and added[0] == _NO_FILE:
            raise FileNotFound
        return added is not None

    async def drop_turn(self, task: TaskId, turn: Turn) -> None:
        def write(db: sqlite3.Connection) -> tuple[int, str] | None:
            found = db.execute(_DROP_TURN, (task, turn.after, turn.message_id)).fetchone()
            if found is None:
                return None
            seq, key, names = found
            db.executemany(_FREE_NAME, _split(key, names))
            return int(seq), db.execute("select workspace from task where key = ?", (key,)).fetchone()[0]

        def publish(dropped: tuple[int, str] | None) -> None:
            if dropped is None:
                return
            seq, workspace = dropped
            self._disk.give_back(workspace, len(turn.params))
            cached = self._cache.on_write(task)
            # The first turn has no seq.
            if cached is not None and cached.turns is not None and len(cached.turns) == seq + 2:
                cached.turns = cached.turns[:-1]
                self._cache.keep(task, cached)

        await self._writer.submit(write, publish, short=True, task=task)

    async def assign(self, task: TaskId, worker: WorkerId, epoch: int, log_dialect: str) -> None:
        def write(db: sqlite3.Connection) -> bool:
            sql = "update task set worker = ?, epoch = ?, spoken = ? where id = ?"
            return db.execute(sql, (str(worker), epoch, log_dialect, task)).rowcount == 1

        def publish(known: bool) -> None:
            cached = self._cache.on_write(task) if known else None
            if cached is not None:
                cached.replace_row(replace(cached.row, worker=worker, epoch=epoch, log_dialect=log_dialect))

        if not await self._writer.submit(write, publish, short=True, task=task):
            raise TaskNotFound

    async def discard(self, task: TaskId) -> None:
        now = self._clock.wall()

        def write(db: sqlite3.Connection) -> tuple[tuple[str, int], TaskChange | None] | None:
            """As from `_delete`, and the change, if its admission was one."""
            found = db.execute(_DISCARDED, (task,)).fetchone()
            if found is None:
                return None
            key, parent, *members = found
            revision = self._changes.next_revision()
            gone = change_of(row_of(members), parent, revision, state=TaskState.SUBMITTED, gone=True)
            known = keep_discarded(db, key, revision)
            return _delete(db, self._counts, key, now), gone if known else None

        def publish(discarded: tuple[tuple[str, int], TaskChange | None] | None) -> None:
            self._cache.drop(task)
            if discarded is not None:
                freed, gone = discarded
                self._disk.give_back(*freed)
                if gone is not None:
                    self._changes.publish(gone)

        await self._writer.submit(write, publish, task=task)

    async def all_of(
        self, caller: Caller, *, context: str | None, admitted_by: float, ended_by: float | None = None, limit: int
    ) -> Sequence[TaskRow]:
        where, values = _filter(caller, context, None)
        if ended_by is not None:
            where += " and updated <= ? and idle_since is not null"
            values.append(ended_by)
        sql = f"select {MEMBERS} from task_now where {where} and created <= ? limit ?"
        return [row_of(members) for members in await self._lists.rows(sql, [*values, admitted_by, limit])]

    async def erase(self, task: TaskId) -> bool:
        def write(db: sqlite3.Connection) -> tuple[bool, tuple[str, int] | None]:
            """Whether it was there, and as from `_erase_piece`."""
            found = db.execute("select key, hidden and idle_since = 0 from task where id = ?", (task,)).fetchone()
            return found is not None, _erase_piece(db, self._counts, *found) if found is not None else None

        def publish(erased: tuple[bool, tuple[str, int] | None]) -> None:
            self._cache.drop(task)
            self._changes.forget((task,))
            if (freed := erased[1]) is not None:
                self._disk.give_back(*freed)

        known, freed = await self._writer.submit(write, publish, task=task)
        return known and freed is None

    async def get(self, caller: Caller, task: TaskId) -> TaskRow:
        cached = self._cache.find(task)
        if cached is not None and cached.row.caller == caller:
            return cached.seen_by(caller)
        # Another caller's task takes the same path as an unknown one, with as many statements.
        rows = await self._reader.rows(
            f"select {MEMBERS} from task_now where id = ? and workspace = ? and caller = ? and not hidden", (task, *caller)
        )
        if not rows:
            raise TaskNotFound
        return row_of(rows[0])

    async def caller_of(self, workspace: str, task: TaskId) -> Caller:
        cached = self._cache.find(task)
        if cached is not None and cached.workspace == workspace:
            return cached.seen_by(cached.row.caller).caller
        rows = await self._reader.rows(
            "select caller from task where id = ? and workspace = ? and not hidden", (task, workspace)
        )
        if not rows:
            raise TaskNotFound
        return Caller(workspace, rows[0][0])

    async def turns(self, task: TaskId) -> Sequence[Turn]:
        cached = self._cache.find(task)
        if cached is not None and cached.turns is not None:
            return cached.turns
        return [Turn(*members) for *members, _ in await self._reader.rows(_TURNS, (task,))]

    async def first_turns(self, tasks: Sequence[TaskId], *, largest: int) -> Mapping[TaskId, Turn]:
        rows = await self._lists.rows(_FIRST_TURNS % ", ".join("?" * len(tasks)), [*tasks, largest])
        return {TaskId(task): Turn(*members) for task, *members in rows}

    async def page(self, caller: Caller, query: TaskQuery) -> TaskPage:
        page = list_page(caller, query)
        ((total,),) = await self._lists.rows(*list_count(caller, query))
        found = await self._lists.rows(*page) if total else ()
        rows = [row_of(members) for members in found[: query.limit]]
        more = len(found) > len(rows) > 0
        return TaskPage(rows, total, str(PageMark(rows[-1].updated, rows[-1].id)) if more else None)

    async def page_of_workspace(self, workspace: str, query: TaskQuery) -> TaskPage:
        names = await self._lists.rows("select distinct caller from tally where workspace = ?", (workspace,))
        return merged([await self.page(Caller(workspace, name), query) for (name,) in names], query.limit)

    async def load(self) -> None:
        """Count the bytes of all tasks that an earlier hub has stored."""
        for workspace, size in await self._lists.rows(_ALL_SIZES):
            self._disk.fill(workspace, size)

    async def conversation(self, caller: Caller, context: str, role: str | None) -> Conversation | None:
        where, values = _filter(caller, context, role)
        rows = await self._reader.rows(
            f"select worker, worker_context from task where {where} and not hidden and worker is not null "
            "order by key desc limit 1",
            values,
        )
        return Conversation(WorkerId.of(rows[0][0]), rows[0][1]) if rows else None

    async def paused(self, caller: Caller, context: str, role: str | None) -> Sequence[TaskId]:
        where, values = _filter(caller, context, role)
        states = sorted(PAUSED)
        sql = f"select id from task where {where} and not hidden and state in ({', '.join('?' * len(states))}) order by key"
        return [TaskId(task) for (task,) in await self._reader.rows(sql, [*values, *states])]

    async def holders(self) -> Sequence[Holder]:
        rows = await self._reader.rows(HOLDERS)
        return [Holder(workspace, WorkerId.of(worker), epoch) for workspace, worker, epoch in rows]

    async def paused_at(self, holder: Holder, *, after: TaskId | None, limit: int) -> Sequence[TaskRow]:
        values = (holder.workspace, str(holder.worker), holder.epoch, after or "", limit)
        return [row_of(members) for members in await self._reader.rows(PAUSED_AT, values)]

    async def branch_of(self, task: TaskId) -> Branch | None:
        rows = await self._reader.rows(_BRANCH_OF, (task,))
        return _branch_of(rows[0]) if rows else None

    async def tree(self, root: TaskId, *, limit: int) -> Sequence[Child]:
        return [_child_of(row) for row in await self._reader.rows(_TREE, (root, limit))]

    async def open_children(self) -> Sequence[Child]:
        return [_child_of(row) for row in await self._reader.rows(_OPEN_CHILDREN, ())]

    async def paused_task(self, workspace: str, task: TaskId) -> TaskRow | None:
        sql = f"select {MEMBERS} from task_now where id = ? and workspace = ? and {PAUSED_STATE}"
        rows = await self._reader.rows(sql, (task, workspace))
        return row_of(rows[0]) if rows else None

    async def paused_parents(self) -> Sequence[TaskRow]:
        return [row_of(members) for members in await self._reader.rows(_PAUSED_PARENTS)]

    async def unfinished(self) -> Sequence[TaskRow]:
        return [row_of(members) for members in await self._reader.rows(_UNFINISHED)]

    async def forget_discarded(self, caller: Caller, *, context: str | None) -> None:
        await self._writer.submit(lambda db: forget_discarded(db, caller, context), short=True)

    async def forget(self, *, ended_for: timedelta, paused_for: timedelta, summaries_for: timedelta = timedelta()) -> int:
        now = self._clock.wall()
        before = (now - ended_for.total_seconds(), now - paused_for.total_seconds())
        summary_since = now - summaries_for.total_seconds()
        expired = _within_limit(await self._reader.rows(_EXPIRED, (*before, FORGET_TASKS)))
        discarded = await self._reader.rows(OLD_DISCARDED, (before[0], FORGET_TASKS))
        short = sum(last for _, _, last in expired) <= FORGET_EVENTS

        def write(db: sqlite3.Connection) -> list[tuple[TaskId, str, int]]:
            db.executemany(DROP_DISCARDED, discarded)
            gone = [(key, task) for key, task, _ in expired if db.execute(_STILL_EXPIRED, (*before, key, task)).fetchone()]
            return [(task, *_replace_by_summary(db, self._counts, key, summary_since)) for key, task in gone]

        def publish(gone: list[tuple[TaskId, str, int]]) -> None:
            for task, workspace, size in gone:
                self._cache.drop(task)
                self._disk.give_back(workspace, size)
            self._changes.forget({task for task, *_ in gone})

        if not expired and not discarded:
            return 0
        await self._writer.submit(write, publish, short=short)
        return len(expired) + len(discarded)

    async def forget_calls(self, *, remembered: timedelta) -> int:
        """Goes through the tasks in the order of their ends, from where the last call stopped, also that of an earlier hub."""
        if self._calls_forgotten is None:
            rows = await self._reader.rows("select value from meta where name = ?", (_FORGOTTEN,))
            self._calls_forgotten = float(rows[0][0]) if rows else 0.0
        after, before = self._calls_forgotten, self._clock.wall() - remembered.total_seconds()
        upto, count = (await self._reader.rows(_ENDED, (after, before, FORGET_CALLS)))[0]

        def write(db: sqlite3.Connection) -> None:
            for key, names in db.execute(_NAMES_OF_ENDED, (after, upto)).fetchall():
                db.executemany(_FORGET_NAME, _split(key, names))
            db.execute("insert or replace into meta (name, value) values (?, ?)", (_FORGOTTEN, upto))

        if count:
            await self._writer.submit(write, short=True)
            self._calls_forgotten = upto
        return int(count)


def list_count(caller: Caller, query: TaskQuery) -> tuple[str, list[Any]]:
    """The statement that counts a list, and its values."""
    if query.context_id is None and not query.states and query.since is None:
        where, values = _filter(caller, None, query.role)
        return f"select min(coalesce(sum(tasks), 0), {COUNTED}) from tally where {where}", values
    filters = _list_filters(caller, query)
    counts = [f"(select count(*) from (select 1 from task where {where} limit {COUNTED}))" for where, _ in filters]
    return f"select min({' + '.join(counts)}, {COUNTED})", [value for _, values in filters for value in values]


def list_page(caller: Caller, query: TaskQuery) -> tuple[str, list[Any]]:
    """The statement that reads one row more than the page. It reads as many of each state, because an index has a state's tasks
    in order, and not those of several.
    """
    pieces, found = list[str](), list[Any]()
    for where, values in _list_filters(caller, query):
        if query.before is not None:
            where += " and (updated, id) < (?, ?)"
            values.extend(PageMark.parse(query.before))
        pieces.append(f"select {MEMBERS} from task_now where {where} {_NEWEST_FIRST}")
        found += [*values, query.limit + 1]
    if len(pieces) == 1:
        return pieces[0], found
    together = " union all ".join(f"select * from ({piece})" for piece in pieces)
    return f"select * from ({together}) {_NEWEST_FIRST}", [*found, query.limit + 1]


def _list_filters(caller: Caller, query: TaskQuery) -> list[tuple[str, list[Any]]]:
    """One for each state."""
    return [_list_filter(caller, query, state) for state in query.states or (None,)]


def _list_filter(caller: Caller, query: TaskQuery, state: TaskState | None) -> tuple[str, list[Any]]:
    where, values = _filter(caller, query.context_id, query.role)
    if state in (None, TaskState.COMPLETED):
        where += " and not hidden"  # a hidden task is completed
    elif state == TaskState.SUBMITTED:
        where = where.replace("workspace =", "+workspace =") + " and idle_since is null"  # no other index but task_idle
    else:
        where += " and state not in ('completed', 'submitted')"  # needed to use the partial index
    if state is not None:
        where += " and state = ?"
        values.append(state)
    if query.since is not None:
        where += " and updated >= ?"
        values.append(query.since)
    return where, values


def _within_limit(expired: Sequence[tuple[int, TaskId, int]]) -> Sequence[tuple[int, TaskId, int]]:
    events = 0
    for count, (_, _, last) in enumerate(expired):
        events += last
        if count and events > FORGET_EVENTS:
            return expired[:count]
    return expired


def row_of(members: Sequence[Any]) -> TaskRow:
    (task, workspace, caller, role, worker, epoch, context, worker_task, worker_context, *rest) = members
    dialect, log_dialect, alias, state, last, position, size, created, updated = rest
    return TaskRow(
        id=TaskId(task),
        caller=Caller(workspace, caller),
        role=role,
        worker=WorkerId.of(worker) if worker is not None else None,
        epoch=epoch,
        context=context,
        worker_task=worker_task,
        worker_context=worker_context,
        dialect=dialect,
        log_dialect=log_dialect,
        alias=alias,
        state=TaskState(state),
        at=Cursor(last),
        position=position or None,
        size=size,
        created=created,
        updated=updated,
    )


def _values(row: TaskRow) -> tuple[Any, ...]:
    """Missing texts are stored as empty strings: see `_KIND_TEXT` in events.py."""
    worker = str(row.worker) if row.worker is not None else None
    names = (row.id, *row.caller, row.role, worker, row.epoch, row.context, row.worker_task, row.worker_context, row.dialect)
    return (*names, row.log_dialect, row.alias, str(row.state), row.at, row.position or "", row.size, row.created, row.updated)


def _branch_values(branch: Branch) -> tuple[Any, ...]:
    return branch.parent, branch.root, " ".join(branch.roles), branch.deadline, branch.goes_on


def _branch_of(members: Sequence[Any]) -> Branch:
    parent, root, roles, deadline, goes_on = members
    return Branch(TaskId(parent), TaskId(root), tuple(roles.split()), deadline, bool(goes_on))


def _child_of(members: Sequence[Any]) -> Child:
    return Child(row_of(members[5:]), _branch_of(members[:5]))


def _filter(caller: Caller, context: str | None, role: str | None) -> tuple[str, list[Any]]:
    where, values = "workspace = ? and caller = ?", list[Any](caller)
    for term, value in (("context = ? and context <> ''", context), ("role = ?", role)):  # needed to use the partial index
        if value is not None:
            where += f" and {term}"
            values.append(value)
    return where, values


def _add_calls(db: sqlite3.Connection, key: int, began: Cursor, names: Sequence[CallName], free_before: float) -> bool:
    """Store all names, or none. False: one of them is an earlier call's."""
    for at, name in enumerate(names):
        # As byte arrays: see `_KIND_TEXT` in events.py.
        if db.execute(_ADD_CALL, (bytearray(name.digest), key, began, bytearray(name.content), free_before)).rowcount != 1:
            db.executemany(_FREE_NAME, [(added.digest, key) for added in names[:at]])
            return False
    return True


def _joined(names: Sequence[CallName]) -> bytearray:
    """As they are stored with their message, by which they are found when it goes: an index by task would cost a page."""
    return bytearray().join([name.digest for name in names])


def _split(key: int, joined: bytes) -> list[tuple[bytes, int]]:
    return [(joined[at : at + _NAME_BYTES], key) for at in range(0, len(joined), _NAME_BYTES)]


def _erase_piece(db: sqlite3.Connection, counts: TaskCounts, key: int, begun: bool) -> tuple[str, int] | None:
    """As from `_delete`; None: there are more events."""
    if not begun:
        _count_as_gone(db, counts, key)
        db.execute(_BEGIN_ERASURE, (key,))
        for table in ("push_config", "delivery", "dead_letter"):
            db.execute(f"delete from {table} where task = ?", (key,))
        for (names,) in db.execute(_NAMES, (key,)).fetchall():
            db.executemany(_FREE_NAME, _split(key, names))
    lowest, count = db.execute(_NEWEST_EVENTS, (key, FORGET_EVENTS, FORGET_BYTES)).fetchone()
    if count:
        db.execute("delete from event where place >= ? and place < ((? + 1) << 24)", (lowest, key))
    more = db.execute("select 1 from event where place > (?1 << 24) and place < ((?1 + 1) << 24) limit 1", (key,)).fetchone()
    return None if more else _delete(db, counts, key)


def _replace_by_summary(db: sqlite3.Connection, counts: TaskCounts, key: int, since: float) -> tuple[str, int]:
    """As from `_delete`, less the bytes of the summary, if one is kept."""
    kept = keep_summary(db, key, since)
    workspace, size = _delete(db, counts, key)
    return workspace, size - SUMMARY_SIZE * kept


def _delete(db: sqlite3.Connection, counts: TaskCounts, key: int, files_unused_since: float = 0.0) -> tuple[str, int]:
    """The workspace of the task, and how many bytes it counted."""
    workspace, size = db.execute(_SIZE, (key,)).fetchone()
    for (names,) in db.execute(_NAMES, (key,)).fetchall():
        db.executemany(_FREE_NAME, _split(key, names))
    db.execute("delete from event where place > (?1 << 24) and place < ((?1 + 1) << 24)", (key,))
    db.execute("delete from turn where task = ?", (key,))
    unbind(db, key, files_unused_since)
    _count_as_gone(db, counts, key)
    db.execute("delete from task where key = ?", (key,))
    return workspace, size


def _count_as_gone(db: sqlite3.Connection, counts: TaskCounts, key: int) -> None:
    """The task is about to be hidden or deleted. A hidden one is not counted."""
    found = db.execute("select workspace, caller, role from task where key = ? and not hidden", (key,)).fetchone()
    if found is not None:
        workspace, name, role = found
        counts.add(Caller(workspace, name), role, -1)
