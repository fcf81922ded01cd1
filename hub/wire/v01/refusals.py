"""Under the oldest names a call that reaches nobody is a task that failed."""

from __future__ import annotations

from hub.errors import NoRoleNamed, RoleUnknown, RouteError, SkillAmbiguous
from hub.model.a2a import TaskState
from hub.model.command import Send
from hub.model.content import Message, Part, PartKind, Role, Status, Task
from hub.model.ids import new_context_id
from hub.wire.jsontext import dump
from hub.wire.v01.shape import write, write_status

_NO_MATCH = "No matching skill for this request."
"""The words that its callers know. Why, and what to do, follows them."""


def failed_task(send: Send, error: RouteError, at: str) -> bytes:
    nobody_meant = isinstance(error, RoleUnknown | NoRoleNamed | SkillAmbiguous)
    text = f"{_NO_MATCH} {error.message}" if nobody_meant else error.message
    status = Status(TaskState.FAILED, Message("", Role.AGENT, (Part(PartKind.TEXT, text),)), at)
    task = write(Task(send.alias or send.message_id, send.context_id or new_context_id(), status))
    return dump({**task, "history": [write_status(status)]})
