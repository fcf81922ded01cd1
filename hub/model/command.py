"""What a caller asks for, whatever the dialect said it in."""

from __future__ import annotations

from dataclasses import dataclass, field

from hub.model.a2a import JsonObject, TaskState
from hub.model.ids import Cursor, TaskId


@dataclass(frozen=True, slots=True)
class Target:
    """How a call names its role. The path is kept apart because it must agree with everything else."""

    path_role: str | None = None
    path_instance: str | None = None
    role: str | None = None
    instance: str | None = None
    skill: str | None = None


@dataclass(frozen=True, slots=True)
class Send:
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
    key: str | None = None
    """The caller's own name for this call, from `Idempotency-Key`."""
    trace: str | None = None
    """The caller's `traceparent`, the one header that is passed on."""


@dataclass(frozen=True, slots=True)
class GetTask:
    target: Target
    task_id: TaskId
    dialect: str
    history_length: int | None = None


@dataclass(frozen=True, slots=True)
class CancelTask:
    target: Target
    task_id: TaskId
    dialect: str


@dataclass(frozen=True, slots=True)
class Subscribe:
    """`after`: the cursor of the last event the reader has; None asks for the task as of now."""

    target: Target
    task_id: TaskId
    dialect: str
    after: Cursor | None = None


@dataclass(frozen=True, slots=True)
class TaskQuery:
    context_id: str | None = None
    role: str | None = None
    state: TaskState | None = None
    limit: int = 50
    before: str | None = None
    """Where the page before ended: opaque outside the store."""


@dataclass(frozen=True, slots=True)
class AgentQuery:
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
