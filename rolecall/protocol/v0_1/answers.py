"""Answers in 0.1: every one is a task, also the refusal of a call that reaches no worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rolecall.errors import NoRoleNamed, RoleUnknown, RouteError, SkillAmbiguous
from rolecall.model.a2a import EventKind, JsonObject, TaskState
from rolecall.model.command import Send
from rolecall.model.content import Message, Part, PartKind, Role, Status, Task
from rolecall.model.ids import new_context_id
from rolecall.model.push import PushConfig
from rolecall.protocol.text.jsontext import dump, parse_stored
from rolecall.protocol.v0_1.shape import write, write_status
from rolecall.protocol.v0_3.answers import own_config

_NO_MATCH = "No matching skill for this request."
"""The text that 0.1 callers know. The reason and the hint follow it."""


def wrapped(kind: EventKind, body: bytes) -> bytes:
    return body


def refusal(send: Send, error: RouteError, at: str) -> bytes | None:
    """A failed task."""
    no_role_found = isinstance(error, RoleUnknown | NoRoleNamed | SkillAmbiguous)
    text = f"{_NO_MATCH} {error.message}" if no_role_found else error.message
    status = Status(TaskState.FAILED, Message("", Role.AGENT, (Part(PartKind.TEXT, text),)), at)
    task = write(Task(send.alias or send.message_id, send.context_id or new_context_id(), status))
    return dump({**task, "history": [write_status(status)]})


def notice(kind: EventKind, body: bytes) -> bytes:
    """One status or one artifact, from a frame of the stream."""
    event = parse_stored(body)
    metadata = {"metadata": event["metadata"]} if event.get("metadata") else {}
    if "artifact" in event:
        return dump({"taskId": event["id"], "eventType": "artifact", "artifact": event["artifact"], **metadata})
    status = event["status"]
    return dump(
        {
            "taskId": event["id"],
            "eventType": "status",
            "status": status,
            "timestamp": status.get("timestamp"),
            **({"artifacts": event["artifacts"]} if event.get("artifacts") else {}),
            **metadata,
        }
    )


def push_config(config: PushConfig) -> JsonObject:
    return {"id": config.task, "pushNotificationConfig": own_config(config)}


def push_configs(configs: Sequence[JsonObject]) -> Any:
    return configs
