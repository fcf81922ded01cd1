"""The A2A types that the hub has to understand.

A task, message or event is kept as the JSON object that its sender wrote, so that unknown members survive. A small header
beside it has what decisions need.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from rolecall.model.ids import START, Cursor, TaskId
from rolecall.model.usage import Reports
from rolecall.model.value import Value

JsonObject = dict[str, Any]

OWN = "rolecall"
"""The member of `metadata` that the hub itself writes."""


class TaskState(StrEnum):
    """The states of A2A, in the spelling of 0.3. `unknown` is for what a worker sends."""

    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input-required"
    AUTH_REQUIRED = "auth-required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    REJECTED = "rejected"
    UNKNOWN = "unknown"

    @property
    def ends_a_stream(self) -> bool:
        """0.3's `final`: no event follows without a further message."""
        return self in TERMINAL or self in PAUSED


TERMINAL = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED})
PAUSED = frozenset({TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED})


class EventKind(StrEnum):
    TASK = "task"
    STATUS = "status-update"
    ARTIFACT = "artifact-update"
    MESSAGE = "message"


CONTENT = EventKind.ARTIFACT
"""The kind of most events. They do not change the task's state."""


class Event(Value, frozen=True):
    """One entry of a task's log: a header for decisions, and the bytes that readers get.

    `state` is the task's state after this event; None if the event does not carry one.
    `body` is the event's JSON in `dialect`, with the hub's ids. It is serialised once.
    """

    kind: EventKind
    state: TaskState | None
    dialect: str
    body: bytes

    @property
    def is_last(self) -> bool:
        """Nothing may follow: a terminal state, or a bare message, which is a whole answer."""
        return self.state in TERMINAL or self.kind is EventKind.MESSAGE

    @property
    def pauses(self) -> bool:
        return self.state in PAUSED


class Answer(Value, frozen=True):
    """An answer in one piece: a task or a bare message, in the caller's dialect, of this `task`, `at` this event."""

    kind: EventKind
    dialect: str
    body: bytes
    task: TaskId
    at: Cursor = START


class Logged(Value, frozen=True):
    """An event and its position. Cursors of a task are contiguous and start at 1."""

    cursor: Cursor
    event: Event


class WorkerEvent(Value, frozen=True):
    """One event as the worker sent it, with the worker's ids.

    `task` and `context` are the worker's ids, empty if it sent none. `position` is the worker's resume point after this
    event, if it replays. `usage`: what it reports of that; None: nothing.
    """

    kind: EventKind
    state: TaskState | None
    document: JsonObject
    dialect: str
    task: str = ""
    context: str = ""
    position: str | None = None
    usage: Reports | None = None


class Missing(Value, frozen=True):
    """What a log lacks of its worker's Task. `usage`: what the events report of that."""

    events: Sequence[Event]
    usage: Reports | None = None


class Ids(Value, frozen=True):
    """The ids of a task on both sides of the hub. Empty worker ids are not known yet. `log_dialect`: the dialect of the log and
    of the calls to the worker.
    """

    task: TaskId
    context: str
    worker_task: str = ""
    worker_context: str = ""
    log_dialect: str = "0.3"


class DialectRules(Value, frozen=True):
    """What decisions need to know of a dialect."""

    ended_refused: bool = False
    """A subscription to an ended task is an error; else it gets the task."""
    answers_by_context: bool = True
    """A context alone continues the one task that is paused in it; else it begins a new task."""
    notice_is_task: bool = False
    """A webhook gets the whole task, so the newest notice stands for all that are owed with it; else it gets every event."""
