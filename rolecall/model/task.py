"""Rows: what is known of a task without its log, and of a file without its bytes."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from rolecall.model.a2a import TERMINAL, Ids, TaskState
from rolecall.model.ids import START, Caller, Cursor, FileId, TaskId, WorkerId
from rolecall.model.value import Value

COUNTED = 10_000
"""Lists are counted up to here: as a total it means that there are at least so many."""


ROW_SIZE = 1_000
"""Bytes on disk that a task counts beside its messages and its log."""
SUMMARY_SIZE = 300
"""Bytes on disk that a summary counts."""


class Turn(Value, frozen=True):
    """One message of the caller to a task, unchanged. It is stored before it is sent to the worker.

    `after` is the cursor of the log at that time: the fold puts the message into the history after it.
    """

    after: Cursor
    message_id: str
    dialect: str
    params: bytes


class TaskRow(Value, frozen=True):
    """`state` is the fold of the log up to the cursor `at`. Times are seconds of the wall clock."""

    id: TaskId
    caller: Caller
    role: str
    worker: WorkerId | None
    epoch: int
    context: str
    worker_task: str
    worker_context: str
    dialect: str
    """The dialect of the caller that created it."""
    log_dialect: str
    """The dialect of the calls to its worker, and of its log."""
    alias: str
    """The caller's own task id, in a dialect in which callers choose it; else empty."""
    state: TaskState
    at: Cursor
    position: str | None
    size: int
    """Bytes in its log."""
    created: float
    updated: float
    """When its worker last reported a state, or its caller last sent a message. Content does not count."""

    @property
    def ids(self) -> Ids:
        return Ids(self.id, self.context, self.worker_task, self.worker_context, self.log_dialect)

    @property
    def ended(self) -> bool:
        return self.state in TERMINAL

    def has_open_answer(self, turns: Sequence[Turn]) -> bool:
        """The worker has sent nothing since the caller's last message."""
        return len(turns) > 1 and turns[-1].after == self.at


class Holder(NamedTuple):
    """A worker with certain tasks, and the epoch of the lease under which it got them."""

    workspace: str
    worker: WorkerId
    epoch: int


class TaskPage(Value, frozen=True):
    rows: Sequence[TaskRow]
    total: int
    """At most COUNTED."""
    before: str | None
    """Pass it to get the next page; None on the last."""


class Summary(Value, frozen=True):
    """What is kept of a task whose log has been deleted: nothing of its content. `at`: the number of its events."""

    id: TaskId
    caller: Caller
    role: str
    worker: WorkerId | None
    context: str
    state: TaskState
    at: Cursor
    created: float
    updated: float


class SummaryPage(Value, frozen=True):
    summaries: Sequence[Summary]
    before: str | None
    """As in TaskPage."""


class Conversation(Value, frozen=True):
    """The worker that holds a context, and the worker's id for it."""

    worker: WorkerId
    worker_context: str


class Branch(Value, frozen=True):
    """Where a child stands in its tree. `roles`: those above it, the root's first. `deadline`: of the wall clock. `goes_on`:
    its parent's end does not end it.
    """

    parent: TaskId
    root: TaskId
    roles: tuple[str, ...]
    deadline: float | None = None
    goes_on: bool = False

    @property
    def depth(self) -> int:
        return len(self.roles)


class Question(NamedTuple):
    """What a paused task asks its caller, in words; `child`: the one whose question it is, if a child of it asks."""

    words: str
    child: TaskId | None = None


class Excerpt(NamedTuple):
    """What a list says of a task. `asked`: the beginning of its first message. Of one that has failed, or was rejected or
    canceled: `detail`, what its last status says, and `reason`, the code, if the hub itself has ended it. Empty: not known.
    """

    asked: str = ""
    detail: str = ""
    reason: str = ""


class AskedFor(NamedTuple):
    """The child whose question a paused task asks its caller, and the event of the child that asked it; None: not known."""

    child: TaskId
    event: Cursor | None


class Child(NamedTuple):
    row: TaskRow
    branch: Branch


class TaskChangeKind(StrEnum):
    """GONE: it is no task, because its answer was a bare message or no worker took the call."""

    ADMITTED = "admitted"
    CHANGED = "changed"
    ENDED = "ended"
    GONE = "gone"


class TaskChange(Value, frozen=True):
    """A change of a task's state, and the task as of then. A pause counts also if the task was paused before: it may ask
    something else. Of a stored change the worker is the one that has the task now.
    """

    revision: int
    """Rises with each change of any task. It is the time of the change in microseconds, so it tells nothing of other tasks."""
    caller: Caller
    id: TaskId
    role: str
    worker: WorkerId | None
    context: str
    parent: TaskId | None
    """The task that has started it."""
    created: float
    state: TaskState
    at: Cursor
    """The event that changed it; START: its admission, or that no worker took the call."""
    gone: bool = False

    @property
    def updated(self) -> float:
        return self.revision / 1e6

    @property
    def kind(self) -> TaskChangeKind:
        if self.gone:
            return TaskChangeKind.GONE
        if self.at == START:
            return TaskChangeKind.ADMITTED
        return TaskChangeKind.ENDED if self.state in TERMINAL else TaskChangeKind.CHANGED


# --- files

FILE_SIZE = 16 * 1024
"""Bytes on disk that a file counts beside its own: file systems have an inode for about so many."""


class StoredFile(Value, frozen=True):
    """`name` and `media_type` are what its sender wrote. Times are seconds of the wall clock."""

    id: FileId
    owner: Caller
    name: str
    media_type: str
    length: int | None
    """Of the whole file; None: not known yet."""
    offset: int
    """How many bytes are stored."""
    sha256: str
    """Of a complete file, in hex; else empty."""
    changed: float
    """When bytes of it last came."""
    bound: bool = False
    """A task has it."""
    lost: bool = False
    """Its bytes are missing."""

    @property
    def complete(self) -> bool:
        return bool(self.sha256)

    @property
    def counted(self) -> int:
        """Bytes on disk that it counts."""
        return FILE_SIZE + max(self.offset, self.length or 0)
