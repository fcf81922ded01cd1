"""The calls of callers, independent of the dialect."""

from __future__ import annotations

from msgspec import field

from rolecall.model.a2a import JsonObject, TaskState
from rolecall.model.ids import Cursor, FileId, TaskId, WorkerId
from rolecall.model.push import PushConfig
from rolecall.model.usage import Budget
from rolecall.model.value import Value


class Target(Value, frozen=True, kw_only=True):
    """How a call names its role. The path is separate because the other names have to agree with it."""

    path_role: str | None = None
    path_instance: str | None = None
    role: str | None = None
    instance: str | None = None
    skill: str | None = None


MAX_HOPS = 8
"""So many hubs may a call pass."""


class ParentCall(Value, frozen=True):
    """A call that a worker makes in one of its tasks. `within`: seconds that the child may take. `again`: a role that is in the
    chain may be called. `resumed`: the task that was paused goes on by itself.
    """

    task: TaskId
    worker: WorkerId
    epoch: int
    secret: str
    within: float | None = None
    goes_on: bool = False
    again: bool = False
    resumed: bool = False


class Send(Value, frozen=True):
    """A message to a role or to a task. `params` is the request as the caller sent it. No code changes it, but the
    relay empties a large one when it has been delivered: by then it is stored.
    """

    target: Target
    params: JsonObject
    dialect: str
    message_id: str
    task_id: TaskId | None = None
    context_id: str | None = None
    references: tuple[str, ...] = ()
    blocking: bool = True
    history_length: int | None = None
    wait: float = 0.0
    """How many seconds the caller waits for a free worker, or for the first worker."""
    alias: str = ""
    """The caller's own task id, in a dialect in which callers choose it."""
    push: PushConfig | None = None
    """Where to send the task's events; the config's task is not known yet."""
    key: str | None = None
    """The call's `Idempotency-Key`."""
    trace: str | None = None
    """The caller's `traceparent`, if it is valid."""
    trace_state: str | None = None
    """The caller's `tracestate`, to go with it."""
    extensions: tuple[str, ...] = ()
    """The requested extensions, from `A2A-Extensions`. The hub forwards those that are not its own, and the trace, and no other
    header.
    """
    hops: int = 0
    """How many hubs the call has passed, from `A2A-Hop`."""
    parent: ParentCall | None = None
    """The task in which a worker makes this call."""
    files: tuple[FileId, ...] = ()
    """Those of the hub that the message names, in its order."""
    budget: Budget | None = None
    """What the task may use with all that it starts."""


class GetTask(Value, frozen=True):
    """`dialects`, here and below: the answer is in the dialect that the task was begun in, if it is one of these, else in the
    last of them. Empty: all of them.
    """

    target: Target
    task_id: TaskId
    dialects: tuple[str, ...]
    history_length: int | None = None
    at: Cursor | None = None
    """As of this event; None: as of now."""


class CancelTask(Value, frozen=True):
    target: Target
    task_id: TaskId
    dialects: tuple[str, ...]


class Subscribe(Value, frozen=True):
    """`after`: the cursor of the last event that the reader has; None: start with the current task."""

    target: Target
    task_id: TaskId
    dialects: tuple[str, ...]
    after: Cursor | None = None


class TaskQuery(Value, frozen=True):
    context_id: str | None = None
    role: str | None = None
    states: tuple[TaskState, ...] = ()
    """In one of these, each named once; none: in any."""
    since: float | None = None
    """Changed at that time of the wall clock, or later."""
    limit: int = 50
    before: str | None = None
    """The end of the previous page; opaque outside the store."""


class ListTasks(Value, frozen=True):
    query: TaskQuery
    dialect: str
    history_length: int | None = None
    artifacts: bool = False


class SetPush(Value, frozen=True):
    target: Target
    config: PushConfig


class NamePush(Value, frozen=True):
    """One push config of a task, or all if `id` is None."""

    target: Target
    task_id: TaskId
    id: str | None


class AgentQuery(Value, frozen=True):
    role: str | None = None
    skill: str | None = None
    tag: str | None = None
    capability: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    text: str | None = None
    state: str | None = None
    limit: int = 1000
    after: str | None = None
    """The name of the last agent on the previous page."""
