"""What an engine holds of a task in memory: its row, its turns and the end of its log. Both engines, one set of rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hub.ports.event_log import LogEntry
from hub.storage.common.log_tail import LogTail
from rolecall.errors import InvalidParams, TaskNotFound
from rolecall.model.a2a import CONTENT, Event, EventKind, Ids, Logged, TaskState
from rolecall.model.ids import Caller, Cursor, TaskId
from rolecall.model.task import TaskRow, Turn
from rolecall.model.value import Value, replace


class Outcome(Value, frozen=True):
    """What some events leave a task in. `state` is None where they say nothing of it; `size` is that of their bodies."""

    state: TaskState | None
    ends: bool
    hidden: bool
    size: int


def outcome(events: Sequence[Event]) -> Outcome:
    """A bare message completes its task, which nobody is to see as one."""
    state: TaskState | None = None
    ends, hidden, size = False, False, 0
    for event in events:
        size += len(event.body)
        if event.kind is CONTENT:
            continue
        ends = ends or event.ends
        if event.kind is EventKind.MESSAGE:
            state, hidden = TaskState.COMPLETED, True
        elif event.state is not None:
            state = event.state
    return Outcome(state, ends, hidden, size)


def numbered(events: Sequence[Event], after: Cursor) -> list[Logged]:
    return [Logged(Cursor(at), event) for at, event in enumerate(events, after + 1)]


class CachedTask(LogTail):
    """`turns` is None where they have to be read from the store. `key` is the store's own name for the task, `named` the event
    up to which its row there goes. `pushes`: it has had push configs.
    """

    __slots__ = ("_row", "_state", "_updated", "hidden", "key", "logged", "named", "position", "pushes", "turns")

    def __init__(
        self,
        row: TaskRow,
        turns: list[Turn] | None,
        *,
        key: int = 0,
        hidden: bool = False,
        pushes: bool = False,
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
        self.named = row.at
        self.hidden = hidden
        self.pushes = pushes

    @property
    def task(self) -> TaskId:
        return self._row.id

    @property
    def weight(self) -> int:
        """What it takes of memory, about."""
        size = 1_000 + self.size
        if self.turns is not None:
            for turn in self.turns:
                size += len(turn.params)
        return size

    def shed(self) -> None:
        super().shed()
        self.turns = None

    @property
    def row(self) -> TaskRow:
        """Built when asked for: most events are appended without anybody looking at the row."""
        if self._row.at != self.end:
            self._row = replace(
                self._row, state=self._state, at=self.end, position=self.position, size=self.logged, updated=self._updated
            )
        return self._row

    def advance(self, entry: LogEntry, logged: Sequence[Logged], verdict: Outcome, updated: float) -> None:
        """Take over an append that has been committed, once."""
        if logged and logged[-1].cursor <= self.end:
            return
        if verdict.state is not None:
            self._state, self._updated = verdict.state, updated
        self.logged += verdict.size
        self.position = entry.position if entry.position is not None else self.position
        self.hidden = self.hidden or verdict.hidden
        self.closed = self.closed or verdict.ends
        self.extend(logged)
        if not logged:
            self._row = replace(self.row, position=self.position)
        if entry.ids is not None:
            self._row = with_ids(self._row, entry.ids)

    def change(self, row: TaskRow) -> None:
        """Take over a row that differs in other things than its log."""
        self._row = row

    def touch(self, updated: float) -> None:
        """The caller has said something more; to a task that has ended it says nothing."""
        if not self.closed:
            self._updated = updated
            self._row = replace(self.row, updated=updated)

    def seen_by(self, caller: Caller) -> TaskRow:
        if self.hidden or self._row.caller != caller:
            raise TaskNotFound
        return self.row


def with_ids(row: TaskRow, ids: Ids) -> TaskRow:
    """An id that is still unknown takes nothing away."""
    return replace(
        row,
        context=ids.context or row.context,
        worker_task=ids.worker_task or row.worker_task,
        worker_context=ids.worker_context or row.worker_context,
    )


class PageMark(NamedTuple):
    """Where a page of tasks ended. The id tells apart what changed at the same moment."""

    updated: float
    task: str

    def __str__(self) -> str:
        return f"{self.updated!r}/{self.task}"

    @classmethod
    def parse(cls, text: str) -> PageMark:
        updated, slash, task = text.partition("/")
        try:
            if not slash:
                raise ValueError(text)
            return cls(float(updated), task)
        except ValueError as error:
            raise InvalidParams("The page token is not one that this hub gave. Start again without it.") from error
