"""A task's row: what can be known without reading its log."""

from __future__ import annotations

from collections.abc import Sequence

from rolecall.model.a2a import TERMINAL, Ids, TaskState
from rolecall.model.ids import Caller, Cursor, TaskId, WorkerId
from rolecall.model.value import Value


class Turn(Value, frozen=True):
    """One message of the caller to a task, as it was said. It is stored before the worker hears of it.

    `after` is the cursor that the log stood at: the fold puts the message into history behind it.
    """

    after: Cursor
    message_id: str
    dialect: str
    params: bytes


class TaskRow(Value, frozen=True):
    """`at` names the prefix of the log that `state` is the fold of. Times are the wall clock's, in seconds."""

    id: TaskId
    caller: Caller
    role: str
    worker: WorkerId | None
    epoch: int
    context: str
    worker_task: str
    worker_context: str
    dialect: str
    """The caller's, who began it."""
    log_dialect: str
    """The one that its worker is spoken to in, and its log is kept in."""
    alias: str
    """What its caller calls it, where a dialect lets callers choose: empty elsewhere."""
    state: TaskState
    at: Cursor
    position: str | None
    size: int
    """Bytes in its log."""
    created: float
    updated: float
    """When its worker last told its state, or its caller last said something: content does not count."""

    @property
    def ids(self) -> Ids:
        return Ids(self.id, self.context, self.worker_task, self.worker_context, self.log_dialect)

    @property
    def ended(self) -> bool:
        return self.state in TERMINAL

    def has_open_answer(self, turns: Sequence[Turn]) -> bool:
        """The caller's last message is behind everything that the worker has said."""
        return len(turns) > 1 and turns[-1].after == self.at


class TaskPage(Value, frozen=True):
    rows: Sequence[TaskRow]
    total: int
    before: str | None
    """Give this back to get the next page; None on the last."""


class Conversation(Value, frozen=True):
    """Who holds a context, and what that worker calls it."""

    worker: WorkerId
    worker_context: str
