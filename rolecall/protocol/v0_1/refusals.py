"""In 0.1 a call that reaches no worker is answered with a failed task."""

from __future__ import annotations

from rolecall.errors import NoRoleNamed, RoleUnknown, RouteError, SkillAmbiguous
from rolecall.model.a2a import TaskState
from rolecall.model.command import Send
from rolecall.model.content import Message, Part, PartKind, Role, Status, Task
from rolecall.model.ids import new_context_id
from rolecall.protocol.text.jsontext import dump
from rolecall.protocol.v0_1.shape import write, write_status

_NO_MATCH = "No matching skill for this request."
"""The text that 0.1 callers know. The reason and the hint follow it."""


def failed_task(send: Send, error: RouteError, at: str) -> bytes:
    no_role_found = isinstance(error, RoleUnknown | NoRoleNamed | SkillAmbiguous)
    text = f"{_NO_MATCH} {error.message}" if no_role_found else error.message
    status = Status(TaskState.FAILED, Message("", Role.AGENT, (Part(PartKind.TEXT, text),)), at)
    task = write(Task(send.alias or send.message_id, send.context_id or new_context_id(), status))
    return dump({**task, "history": [write_status(status)]})
