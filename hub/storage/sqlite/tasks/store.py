"""The task store of the SQLite engine."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import timedelta

from hub.ports.clock import Clock
from hub.ports.shares import Share
from hub.storage.common.cached_task import CachedTask, PageMark, change_of, merged
from hub.storage.common.reserve import Reserve
from hub.storage.sqlite.cache import Cache
from hub.storage.sqlite.connections.readers import ListReaders, SqliteReader
from hub.storage.sqlite.connections.writer import Writer
from hub.storage.sqlite.contents import as_value, is_large, write_large
from hub.storage.sqlite.files import bind, can_bind
from hub.storage.sqlite.pushes import SqlitePushes
from hub.storage.sqlite.tasks.call_names import ENDED, FIND_CALL, add_names, forget_names, free_names, joined
from hub.storage.sqlite.tasks.changes import (
    DROP_DISCARDED,
    OLD_DISCARDED,
    SqliteChanges,
    feed_of,
    forget_discarded,
    keep_discarded,
)
from hub.storage.sqlite.tasks.counts import TaskCounts
from hub.storage.sqlite.tasks.deletion import (
    EXPIRED,
    FORGET_TASKS,
    delete,
    erase_piece,
    is_short,
    replace_by_summary,
    still_expired,
    within_limit,
)
from hub.storage.sqlite.tasks.lists import list_count, list_page, where_of
from hub.storage.sqlite.tasks.rows import BRANCH, MEMBERS, PAUSED_STATE, branch_of, branch_values, child_of, row_of, values_of
from hub.storage.sqlite.usage import add_budget, spend_as_parent
from rolecall.errors import FileNotFound, TaskNotFound
from rolecall.model.a2a import PAUSED, TaskState
from rolecall.model.call import CallName, StoredCall
from rolecall.model.command import TaskQuery
from rolecall.model.ids import START, Caller, FileId, TaskId, WorkerId
from rolecall.model.push import SealedConfig
from rolecall.model.task import (
    ROW_SIZE,
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
# Two searches with a union: for one search with an "or" SQLite would scan all tasks.
_UNFINISHED = f"select {MEMBERS} from task_now where idle_since is null order by key"
_ADD_BRANCH = f"insert into branch (task, {BRANCH}) values (?, ?, ?, ?, ?, ?)"
_BRANCH_OF = f"select {BRANCH} from branch where task = (select key from task where id = ?)"
_CHILDREN = f"select {BRANCH}, {MEMBERS} from branch join task_now on task_now.key = branch.task"
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
_NO_TASK = (-1, "")
_NO_FILE = -2
_FORGOTTEN = "calls forgotten"
"""In the table meta: the `idle_since` up to which names have been deleted."""
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
        first = (turn.after, turn.message_id, turn.dialect, as_value(turn.params), joined(names))
        values = (*values_of(row), *first, feed_of(row.caller))
        parent = branch.parent if branch is not None else None
        free_before = self._clock.wall() - remembered.total_seconds()
        counts = self._counts
        set_config = self._pushes.config_work(row.caller, push, limit=1) if push is not None else None

        def write(db: sqlite3.Connection) -> tuple[int, int] | None:
            """The task's key, or _NO_FILE, and the revision. None: an earlier call has one of the names."""
            revision = self._changes.next_revision()
            place = db.execute(_ADMIT, (*values, revision)).lastrowid or 0
            counts.add(row.caller, row.role, 1)
            if not add_names(db, place, START, names, free_before):
                delete(db, counts, place, free_before)
                return None
            if files:
                if not can_bind(db, place, files):
                    delete(db, counts, place, row.created)
                    return _NO_FILE, revision
                bind(db, place, files)
            if is_large(turn.params):
                added = db.execute(_ADD_FIRST_TURN, (place, turn.after, turn.message_id, turn.dialect))
                write_large(db, "turn", "params", added.lastrowid or 0, turn.params)
            if set_config is not None:
                set_config(db)
            if branch is not None:
                db.execute(_ADD_BRANCH, (place, *branch_values(branch)))
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
        rows = await self._reader.rows(FIND_CALL, (name, self._clock.wall() - remembered.total_seconds()))
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
        values = (turn.after, turn.message_id, turn.dialect, as_value(turn.params), joined(names))
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
            if not add_names(db, key, turn.after, names, free_before):
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
            free_names(db, key, names)
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
            """As from `delete`, and the change, if its admission was one."""
            found = db.execute(_DISCARDED, (task,)).fetchone()
            if found is None:
                return None
            key, parent, *members = found
            revision = self._changes.next_revision()
            gone = change_of(row_of(members), parent, revision, state=TaskState.SUBMITTED, gone=True)
            known = keep_discarded(db, key, revision)
            return delete(db, self._counts, key, now), gone if known else None

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
        where, values = where_of(caller, context, None)
        if ended_by is not None:
            where += " and updated <= ? and idle_since is not null"
            values.append(ended_by)
        sql = f"select {MEMBERS} from task_now where {where} and created <= ? limit ?"
        return [row_of(members) for members in await self._lists.rows(sql, [*values, admitted_by, limit])]

    async def erase(self, task: TaskId) -> bool:
        def write(db: sqlite3.Connection) -> tuple[bool, tuple[str, int] | None]:
            """Whether it was there, and as from `erase_piece`."""
            found = db.execute("select key, hidden and idle_since = 0 from task where id = ?", (task,)).fetchone()
            return found is not None, erase_piece(db, self._counts, *found) if found is not None else None

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
        where, values = where_of(caller, context, role)
        rows = await self._reader.rows(
            f"select worker, worker_context from task where {where} and not hidden and worker is not null "
            "order by key desc limit 1",
            values,
        )
        return Conversation(WorkerId.of(rows[0][0]), rows[0][1]) if rows else None

    async def paused(self, caller: Caller, context: str, role: str | None) -> Sequence[TaskId]:
        where, values = where_of(caller, context, role)
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
        return branch_of(rows[0]) if rows else None

    async def tree(self, root: TaskId, *, limit: int) -> Sequence[Child]:
        return [child_of(row) for row in await self._reader.rows(_TREE, (root, limit))]

    async def open_children(self) -> Sequence[Child]:
        return [child_of(row) for row in await self._reader.rows(_OPEN_CHILDREN, ())]

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
        expired = within_limit(await self._reader.rows(EXPIRED, (*before, FORGET_TASKS)))
        discarded = await self._reader.rows(OLD_DISCARDED, (before[0], FORGET_TASKS))
        short = is_short(expired)

        def write(db: sqlite3.Connection) -> list[tuple[TaskId, str, int]]:
            db.executemany(DROP_DISCARDED, discarded)
            gone = [(key, task) for key, task, _ in expired if still_expired(db, before, key, task)]
            return [(task, *replace_by_summary(db, self._counts, key, summary_since)) for key, task in gone]

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
        upto, count = (await self._reader.rows(ENDED, (after, before, FORGET_CALLS)))[0]

        def write(db: sqlite3.Connection) -> None:
            forget_names(db, after, upto)
            db.execute("insert or replace into meta (name, value) values (?, ?)", (_FORGOTTEN, upto))

        if count:
            await self._writer.submit(write, short=True)
            self._calls_forgotten = upto
        return int(count)
