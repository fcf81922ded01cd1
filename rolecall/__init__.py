"""Rolecall: write a worker in six lines, and call roles through a hub.

    from rolecall import Worker

The names in `__all__` are public; the docstring of `worker_sdk` is their guide. A name is imported when it is first used, so
that `rolecall.model` and `rolecall.protocol`, which the hub shares, load neither the SDK nor an HTTP client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rolecall import testing as testing
    from worker_sdk import (
        AgentInfo,
        Artifact,
        AuthError,
        Budget,
        BudgetSpent,
        File,
        Forbidden,
        HubBusy,
        HubClient,
        HubStream,
        HubUnreachable,
        InputRequired,
        InvalidRequest,
        InvalidResult,
        Lease,
        LeaseState,
        Message,
        NeedInput,
        NoLiveWorker,
        Progress,
        Reject,
        Reply,
        RolecallError,
        RoleUnknown,
        SkillUnknown,
        Status,
        StreamEvent,
        StreamLost,
        Task,
        TaskFailed,
        TaskNotFound,
        TaskRejected,
        TaskState,
        TimedOut,
        TooLarge,
        Usage,
        UserError,
        Worker,
        WorkerBusy,
        WorkerLost,
        load_worker,
    )

__version__ = "0.1.0"

__all__ = [
    "AgentInfo",
    "Artifact",
    "AuthError",
    "Budget",
    "BudgetSpent",
    "File",
    "Forbidden",
    "HubBusy",
    "HubClient",
    "HubStream",
    "HubUnreachable",
    "InputRequired",
    "InvalidRequest",
    "InvalidResult",
    "Lease",
    "LeaseState",
    "Message",
    "NeedInput",
    "NoLiveWorker",
    "Progress",
    "Reject",
    "Reply",
    "RoleUnknown",
    "RolecallError",
    "SkillUnknown",
    "Status",
    "StreamEvent",
    "StreamLost",
    "Task",
    "TaskFailed",
    "TaskNotFound",
    "TaskRejected",
    "TaskState",
    "TimedOut",
    "TooLarge",
    "Usage",
    "UserError",
    "Worker",
    "WorkerBusy",
    "WorkerLost",
    "load_worker",
    "testing",
]


def __getattr__(name: str) -> Any:
    if name == "testing":
        return import_module("rolecall.testing")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module("worker_sdk"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
