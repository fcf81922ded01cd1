"""Under the oldest names a call that reaches nobody is a task that failed."""

from __future__ import annotations

from hub.errors import RouteError
from hub.model.a2a import TaskState
from hub.model.command import Send
from hub.model.content import Message, Part, PartKind, Role, Status, Task
from hub.wire.jsontext import dump
from hub.wire.v01.shape import write


def failed_task(send: Send, error: RouteError) -> bytes:
    said = Message("", Role.AGENT, (Part(PartKind.TEXT, error.message),))
    return dump(write(Task(send.alias or send.message_id, send.context_id or "", Status(TaskState.FAILED, said))))
