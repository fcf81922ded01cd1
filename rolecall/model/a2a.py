"""A2A's own words, as far as the hub has to understand them.

A task, message or event is kept as the JSON object its sender wrote, so that members we do not know survive; beside it stands
a small header with what decisions need.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from rolecall.model.ids import Cursor, TaskId
from rolecall.model.value import Value

JsonObject = dict[str, Any]


class TaskState(StrEnum):
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
        """0.3's `final`: nothing comes without a further message."""
        return self in TERMINAL or self in PAUSED


TERMINAL = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED})
PAUSED = frozenset({TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED})


class EventKind(StrEnum):
    TASK = "task"
    STATUS = "status-update"
    ARTIFACT = "artifact-update"
    MESSAGE = "message"


CONTENT = EventKind.ARTIFACT
"""What most events are: they say nothing of the task's state."""


class Event(Value, frozen=True):
    """One entry of a task's log: a header that the core decides on, and the bytes that readers get.

    `state` is the task's state after this event, None where the event says nothing of it.
    `body` is the event's JSON in `dialect`, with the hub's ids in it. It is serialised once, here.
    """

    kind: EventKind
    state: TaskState | None
    dialect: str
    body: bytes

    @property
    def ends(self) -> bool:
        """Nothing may follow: a terminal state, or a bare message, which is a whole answer."""
        return self.state in TERMINAL or self.kind is EventKind.MESSAGE

    @property
    def pauses(self) -> bool:
        return self.state in PAUSED


class Answer(Value, frozen=True):
    """What a caller gets in one piece: a task or a bare message, in the dialect that he is spoken to in."""

    kind: EventKind
    dialect: str
    body: bytes


class Logged(Value, frozen=True):
    """An event and its place. Cursors of a task are contiguous and start at 1."""

    cursor: Cursor
    event: Event


class WorkerEvent(Value, frozen=True):
    """One event as a worker said it, its ids still the worker's.

    `task` and `context` are what the worker calls them, empty where it did not say. `position` is the worker's own resume
    point behind this event, where it replays.
    """

    kind: EventKind
    state: TaskState | None
    document: JsonObject
    dialect: str
    task: str = ""
    context: str = ""
    position: str | None = None


class Ids(Value, frozen=True):
    """What a task is called on either side of the hub. Empty worker ids: not known yet. `spoken`: the dialect that its worker
    is spoken to in, and its log is kept in.
    """

    task: TaskId
    context: str
    worker_task: str = ""
    worker_context: str = ""
    log_dialect: str = "0.3"
