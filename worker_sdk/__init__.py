"""Write a worker in six lines, and call roles through a hub. Part of the base install; import it as `rolecall`.

A handler is a function under `@worker.on_message`, or under `@worker.skill("id")` for calls that name that skill. Its
parameters are filled by annotation: `str` (the message's text), a model of pydantic (its data part, validated), `File`,
`list[File]`, `Message`, `Task`. A plain function or a coroutine returns a str, a dict, a model, a File, an Artifact or None. An
async generator yields str (chunks of one text), Status, File, Artifact, dict or a model, and asks with
`reply = yield NeedInput("…")`. `raise Reject("why")` rejects the task, `raise UserError("text")` fails it with a text for the
caller; any other exception fails it with an error id.
"""

from __future__ import annotations

from rolecall.model.a2a import TaskState
from rolecall.model.usage import Usage
from worker_sdk.calling.client import HubClient
from worker_sdk.calling.reply import AgentInfo, Reply, StreamEvent
from worker_sdk.calling.stream import HubStream
from worker_sdk.context import Task
from worker_sdk.errors import (
    AuthError,
    BudgetSpent,
    Forbidden,
    HubBusy,
    HubUnreachable,
    InputRequired,
    InvalidRequest,
    InvalidResult,
    NoLiveWorker,
    RolecallError,
    RoleUnknown,
    SkillUnknown,
    StreamLost,
    TaskFailed,
    TaskNotFound,
    TaskRejected,
    TimedOut,
    WorkerBusy,
    WorkerLost,
)
from worker_sdk.files.file import File
from worker_sdk.lease import Lease, LeaseState
from worker_sdk.load import load_worker
from worker_sdk.words import Artifact, Budget, Message, NeedInput, Progress, Reject, Status, TooLarge, UserError
from worker_sdk.worker import Worker

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
]
