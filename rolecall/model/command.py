"""What a caller asks for, whatever the dialect said it in."""

from __future__ import annotations

from msgspec import field

from rolecall.model.a2a import JsonObject, TaskState
from rolecall.model.ids import Cursor, TaskId
from rolecall.model.push import PushConfig
from rolecall.model.value import Value


class Target(Value, frozen=True, kw_only=True):
    """How a call names its role. The path is kept apart because it must agree with everything else."""

    path_role: str | None = None
    path_instance: str | None = None
    role: str | None = None
    instance: str | None = None
    skill: str | None = None


class Send(Value, frozen=True):
    """A message to a role or to a task. `params` is the request as the caller spelled it; nobody changes it."""

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
    """How many seconds the caller would wait for a worker that is free, or for the first one."""
    alias: str = ""
    """What the caller wants to call the task, in a dialect that lets callers choose."""
    push: PushConfig | None = None
    """Where the task's events are to be sent; its task is not known yet."""
    key: str | None = None
    """The caller's own name for this call, from `Idempotency-Key`."""
    trace: str | None = None
    """The caller's `traceparent`."""
    extensions: tuple[str, ...] = ()
    """The extensions that the caller asks for, from `A2A-Extensions`. With `traceparent` all that is passed on of headers."""
    hops: int = 0
    """Through how many hubs it has come, from `A2A-Hop`."""


ITS_OWN = "its own"
"""In place of a dialect: the one that the task was begun in."""


class GetTask(Value, frozen=True):
    """`dialect` None, here and below: asked under a name that 0.1 and 0.3 share; ITS_OWN: under one that all share."""

    target: Target
    task_id: TaskId
    dialect: str | None
    history_length: int | None = None


class CancelTask(Value, frozen=True):
    target: Target
    task_id: TaskId
    dialect: str | None


class Subscribe(Value, frozen=True):
    """`after`: the cursor of the last event the reader has; None asks for the task as of now."""

    target: Target
    task_id: TaskId
    dialect: str | None
    after: Cursor | None = None


class TaskQuery(Value, frozen=True):
    context_id: str | None = None
    role: str | None = None
    state: TaskState | None = None
    since: float | None = None
    """Changed at that moment of the wall clock, or later."""
    limit: int = 50
    before: str | None = None
    """Where the page before ended: opaque outside the store."""


class ListTasks(Value, frozen=True):
    query: TaskQuery
    dialect: str
    history_length: int | None = None
    artifacts: bool = False


class SetPush(Value, frozen=True):
    target: Target
    config: PushConfig


class NamePush(Value, frozen=True):
    """Of a task's push configs one, or all where no id is given."""

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
    """Name of the last agent of the page before."""
