"""Write a worker in six lines, and call roles through a hub. The base install has all of this."""

from __future__ import annotations

from worker_sdk.context import Task
from worker_sdk.presence import Lease, LeaseState
from worker_sdk.words import Artifact, Message, NeedInput, Reject, Status, UserError
from worker_sdk.worker import Worker

__all__ = ["Artifact", "Lease", "LeaseState", "Message", "NeedInput", "Reject", "Status", "Task", "UserError", "Worker"]
