"""What is sent: messages made of texts, models and files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote
from uuid import uuid4

from rolecall.model.a2a import JsonObject
from rolecall.model.ids import split_name
from worker_sdk.calling.dicts import as_part, is_message
from worker_sdk.files.file import File
from worker_sdk.files.parts import INLINE_TOGETHER, Files, part_of
from worker_sdk.handlers.models import is_model, write_model
from worker_sdk.words import Budget, Message

if TYPE_CHECKING:
    from pydantic import BaseModel

    Part: TypeAlias = str | BaseModel | File | Mapping[str, Any]
    MessageLike: TypeAlias = Part | Message | Sequence[Part]

FileLike: TypeAlias = File | str | os.PathLike[str]
"""A File, or the path of one."""


def message_document(
    message: MessageLike, *, files: Sequence[FileLike] = (), task_id: str | None = None, context_id: str | None = None
) -> JsonObject:
    """An A2A message. It gets a new id if it has none. Its Files become parts by `attach`. ValueError: a dict that may be data
    or A2A.
    """
    if isinstance(message, Message):
        document = dict(message.raw)
    elif isinstance(message, Mapping) and is_message(message):
        document = dict(message)
    else:
        parts = message if isinstance(message, Sequence) and not isinstance(message, str | bytes) else [message]
        document = {"parts": [_part_of(part) for part in parts]}
    if files:
        own = [file if isinstance(file, File) else File(path=file) for file in files]
        document["parts"] = [*(document.get("parts") or ()), *own]
    document = {"kind": "message", "role": "user", "messageId": str(uuid4()), **document}
    if task_id is not None:
        document["taskId"] = task_id
    if context_id is not None:
        document["contextId"] = context_id
    return document


async def attach(message: JsonObject, files: Files | None) -> None:
    """Replace the Files of a message by parts. RolecallError, OSError."""
    parts = message.get("parts")
    if not isinstance(parts, list) or not any(isinstance(part, File) for part in parts):
        return
    room, sent = INLINE_TOGETHER, list[Any]()
    for part in parts:
        sent.append(await part_of(part, files, room=room) if isinstance(part, File) else part)
        if isinstance(part, File):
            room -= len(sent[-1]["file"].get("bytes", "")) // 4 * 3
    message["parts"] = sent


def call_metadata(metadata: Mapping[str, Any] | None, skill: str | None = None, budget: Budget | None = None) -> JsonObject:
    """With the skill and the budget that the call names."""
    own = {} if skill is None else {"skill": skill}
    return {**(metadata or {})} | own | ({} if budget is None else budget.metadata())


def role_request(
    name: str,
    instance: str | None,
    message: MessageLike,
    task_id: str | None,
    context_id: str | None,
    metadata: Mapping[str, Any] | None,
    files: Sequence[FileLike] = (),
) -> tuple[str, JsonObject]:
    role, named = split_name(name)
    pinned = instance or named
    params: JsonObject = {"message": message_document(message, files=files, task_id=task_id, context_id=context_id)}
    sent_metadata = dict(metadata or {}) | ({"role": f"{role}:{pinned}"} if pinned else {})
    if sent_metadata:
        params["metadata"] = sent_metadata
    return f"/agents/{quote(role, safe='')}/", params


def _part_of(value: Part) -> Any:
    if isinstance(value, str):
        return {"kind": "text", "text": value}
    if isinstance(value, File):
        return value
    if isinstance(value, Mapping):
        return as_part(value)
    if is_model(type(value)):
        return {"kind": "data", "data": write_model(value)}
    raise TypeError(f"a message is made of texts, dicts, models of pydantic and Files, not of a {type(value).__name__}")
