"""A task in memory: its row, its turns and the end of its log. Both engines use it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hub.ports.state.event_log import LogEntry
from hub.storage.common.log_tail import LogTail
from rolecall.errors import InvalidParams, TaskNotFound
from rolecall.model.a2a import CONTENT, Event, EventKind, Ids, Logged, TaskState
from rolecall.model.ids import START, Caller, Cursor, TaskId
from rolecall.model.task import COUNTED, TaskChange, TaskPage, TaskRow, Turn
from rolecall.model.value import Value, replace


class Outcome(Value, frozen=True):
    """The effect of some events on a task. `state` is None if they carry none; `size` is the size of their bodies. `changes`:
    those that change the task, as in TaskChange.
    """

    state: TaskState | None
    terminal: bool
    hidden: bool
    size: int
    changes: Sequence[Logged]


def numbered(events: Sequence[Event], after: Cursor, before: TaskState) -> tuple[list[Logged], Outcome]:
    """The events with their cursors, and their effect on a task in the state `before`. A bare message completes its task, and
    the task is hidden.
    """
    logged: list[Logged] = []
    changes: Sequence[Logged] = ()
    state: TaskState | None = None
    terminal, hidden, size, at = False, False, 0, after
    for event in events:
        at = Cursor(at + 1)
        logged.append(Logged(at, event))
        size += len(event.body)
        if event.kind is CONTENT:
            continue
        terminal = terminal or event.is_last
        if event.kind is EventKind.MESSAGE:
            state, hidden = TaskState.COMPLETED, True
            changes = (*changes, logged[-1])
        elif event.state is not None:
            if event.state is not (state or before) or event.pauses:
                changes = (*changes, logged[-1])
            state = event.state
    return logged, Outcome(state, terminal, hidden, size, changes)


class CachedTask(LogTail):
    """`turns` is None if they must be read from the store. `key` is the store's key of the task. `stored_end` is the last event
    that the stored row includes. `pushes`: the task has had push configs. `parent`: the task that has started it.
    """

    __slots__ = (
        "_row",
        "_state",
        "_updated",
        "hidden",
        "kept_size",
        "kept_weight",
        "key",
        "logged",
        "parent",
        "position",
        "pushes",
        "stored_end",
        "task",
        "turns",
        "workspace",
    )

    def __init__(
        self,
        row: TaskRow,
        turns: list[Turn] | None,
        *,
        key: int = 0,
        hidden: bool = False,
        pushes: bool = False,
        parent: TaskId | None = None,
        whole: bool = False,
    ) -> None:
        super().__init__(row.at, closed=row.ended or hidden, whole=whole)
        self._row = row
        self._state = row.state
        self._updated = row.updated
        self.logged = row.size
        """Bytes in the log."""
        self.position = row.position
        self.turns = turns
        self.key = key
        self.stored_end = row.at
        self.hidden = hidden
        self.pushes = pushes
        self.parent = parent
        self.task = row.id
        self.workspace = row.caller.workspace
        self.kept_size = 0
        """Its size when it was kept in memory last."""
        self.kept_weight = 0
        """Its weight then."""

    @property
    def weight(self) -> int:
        """Approximate bytes in memory."""
        size = 1_000 + self.size
        if self.turns is not None:
            for turn in self.turns:
                size += len(turn.params)
        return size

    def drop_contents(self) -> None:
        super().drop_contents()
        self.turns = None

    @property
    def caller(self) -> Caller:
        return self._row.caller

    @property
    def state(self) -> TaskState:
        return self._state

    def change(self, revision: int, logged: Logged) -> TaskChange:
        """The change that one of its events is."""
        event = logged.event
        gone = event.kind is EventKind.MESSAGE
        state = event.state if event.state is not None else TaskState.COMPLETED
        return change_of(self._row, self.parent, revision, state=state, at=logged.cursor, gone=gone)

    @property
    def row(self) -> TaskRow:
        """Built on demand: most appends need no row."""
        if self._row.at != self.end:
            self._row = replace(
                self._row, state=self._state, at=self.end, position=self.position, size=self.logged, updated=self._updated
            )
        return self._row

    def advance(self, entry: LogEntry, logged: Sequence[Logged], effect: Outcome, updated: float) -> None:
        """Apply a committed append. An append that is already included is ignored."""
        if logged and logged[-1].cursor <= self.end:
            return
        if effect.state is not None:
            self._state, self._updated = effect.state, updated
        self.logged += effect.size
        self.position = entry.position if entry.position is not None else self.position
        self.hidden = self.hidden or effect.hidden
        self.closed = self.closed or effect.terminal
        if not logged:
            self._row = replace(self.row, position=self.position)
        if entry.ids is not None:
            self._row = with_ids(self._row, entry.ids)
        self.extend(logged)

    def replace_row(self, row: TaskRow) -> None:
        """Replace the row by one with the same log."""
        self._row = row

    def touch(self, updated: float) -> None:
        """The caller has sent a turn. A task that has ended does not change."""
        if not self.closed:
            self._updated = updated
            self._row = replace(self.row, updated=updated)

    def seen_by(self, caller: Caller) -> TaskRow:
        if self.hidden or self._row.caller != caller:
            raise TaskNotFound
        return self.row


def change_of(
    row: TaskRow, parent: TaskId | None, revision: int, *, state: TaskState, at: Cursor = START, gone: bool = False
) -> TaskChange:
    return TaskChange(
        revision=revision,
        caller=row.caller,
        id=row.id,
        role=row.role,
        worker=row.worker,
        context=row.context,
        parent=parent,
        created=row.created,
        state=state,
        at=at,
        gone=gone,
    )


def with_ids(row: TaskRow, ids: Ids) -> TaskRow:
    """An empty id does not replace a known one."""
    return replace(
        row,
        context=ids.context or row.context,
        worker_task=ids.worker_task or row.worker_task,
        worker_context=ids.worker_context or row.worker_context,
    )


def merged(parts: Sequence[TaskPage], limit: int) -> TaskPage:
    """One page of those lists together, of which each page is the beginning with at most that limit."""
    rows = sorted((row for page in parts for row in page.rows), key=lambda row: (row.updated, row.id), reverse=True)
    shown = rows[:limit]
    more = len(rows) > len(shown) > 0 or any(page.before is not None for page in parts)
    total = min(sum(page.total for page in parts), COUNTED)
    return TaskPage(shown, total, str(PageMark(shown[-1].updated, shown[-1].id)) if more else None)


class PageMark(NamedTuple):
    """Where a page of tasks ended. The id orders tasks that changed at the same moment."""

    updated: float
    task: str

    def __str__(self) -> str:
        return f"{self.updated!r}/{self.task}"

    @classmethod
    def parse(cls, text: str) -> PageMark:
        updated, separator, task = text.partition("/")
        try:
            if not separator:
                raise ValueError(text)
            return cls(float(updated), task)
        except ValueError as error:
            raise InvalidParams("The page token is not one that this hub issued. Start again without it.") from error
