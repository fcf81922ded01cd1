"""Parameters that the calls of every dialect share: task, role, wait, push configs. Lenient in what they accept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rolecall.errors import InvalidParams
from rolecall.model.a2a import JsonObject
from rolecall.model.command import Send, Target
from rolecall.model.content import Message
from rolecall.model.ids import TaskId, is_instance, split_name
from rolecall.model.push import PushConfig
from rolecall.model.value import Value, replace
from rolecall.protocol.callers.usage import read_budget
from rolecall.protocol.untranslatable import Untranslatable

LONGEST_ID = 256
_LONGEST_WAIT = 300
_LONGEST_URL, _LONGEST_SECRET = 2048, 4096
_IDS = ("messageId", "taskId", "contextId")


class Configuration(Value, frozen=True):
    """How the caller wants the answer."""

    push: PushConfig | None
    blocking: bool
    history_length: int | None


NOT_CONFIGURED = Configuration(None, True, None)
"""No push, blocking, the whole history."""


def read_task_id(params: JsonObject) -> TaskId:
    """From `id` or another spelling in use. InvalidParams if two of them differ."""
    found = [params[name] for name in ("id", "taskId", "task_id") if params.get(name) is not None]
    name = params.get("name")
    if isinstance(name, str) and name.startswith("tasks/"):
        found.append(name.removeprefix("tasks/").partition("/")[0])
    if not found:
        raise InvalidParams('"params.id" must name a task.')
    if not all(isinstance(value, str) and 0 < len(value) <= LONGEST_ID for value in found):
        raise InvalidParams(f'"params.id" must be a string of 1 to {LONGEST_ID} characters.')
    if len(set(found)) > 1:
        raise InvalidParams('"params.id" and its other spellings name different tasks.')
    return TaskId(found[0])


def named_target(target: Target, metadata: Sequence[JsonObject]) -> Target:
    """The target with the role from the metadata, unless it already names one."""
    if not metadata:
        return target
    role, instance = target.role, target.instance
    skill = target.skill
    for document in metadata:
        if role is None and document.get("role") is not None:
            role, instance = read_role(document["role"], "metadata.role")
        if skill is None:
            skill = document.get("skill", document.get("skillId"))
    if skill is not None and not isinstance(skill, str):
        raise InvalidParams('"metadata.skill" must be a string.')
    return replace(target, role=role, instance=instance, skill=skill)


def read_role(value: Any, where: str) -> tuple[str, str | None]:
    if not isinstance(value, str) or not value or len(value) > 200:
        raise InvalidParams(f'"{where}" must be a role, or role:instance.')
    role, instance = split_name(value)
    if instance is not None and not is_instance(instance):
        raise InvalidParams(f'"{where}" names an instance that cannot exist.')
    return role, instance


def wait_seconds(metadata: Sequence[JsonObject]) -> float:
    if not metadata:
        return 0.0
    value: Any = next((document["waitSeconds"] for document in metadata if document.get("waitSeconds") is not None), 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LONGEST_WAIT:
        raise InvalidParams(f'"metadata.waitSeconds" must be a number from 0 to {_LONGEST_WAIT}.')
    return float(value)


def check_ids(message: JsonObject) -> None:
    """The ids in a message must be strings of a sensible length. Null members are removed."""
    for name in _IDS:
        if name not in message:
            continue
        value = message[name]
        if value is None:
            del message[name]
        elif not isinstance(value, str) or len(value) > LONGEST_ID:
            raise InvalidParams(f'"message.{name}" must be a string of at most {LONGEST_ID} characters.')


def metadata_of(message: JsonObject, params: JsonObject) -> Sequence[JsonObject]:
    """The metadata of the message and of the call, without empty ones."""
    if message.get("metadata") is None and params.get("metadata") is None:
        return ()
    found = (member(message, "metadata", "message.metadata"), member(params, "metadata", "metadata"))
    return [document for document in found if document]


def checked_message(message: JsonObject, read: Callable[[JsonObject], Message]) -> Message:
    """Refuse, before it is stored, a message that its own dialect cannot read. InvalidParams."""
    try:
        return read(message)
    except Untranslatable as error:
        raise InvalidParams(str(error)) from error


def send_of(
    message: Message,
    params: JsonObject,
    dialect: str,
    target: Target,
    metadata: Sequence[JsonObject],
    configuration: Configuration,
    *,
    trace: str | None,
    key: str | None,
    extensions: tuple[str, ...],
) -> Send:
    """The command for a message, in a dialect in which the hub makes the task's id. Changes `params`: a configuration that held
    only a push config goes, because the message is the same one with and without it.
    """
    if not params.get("configuration", True):
        del params["configuration"]
    return Send(
        target=named_target(target, metadata),
        params=params,
        dialect=dialect,
        message_id=message.message_id,
        task_id=TaskId(message.task_id) if message.task_id else None,
        context_id=message.context_id,
        references=message.references,
        blocking=configuration.blocking,
        history_length=configuration.history_length,
        wait=wait_seconds(metadata),
        budget=read_budget(metadata) if metadata else None,
        push=configuration.push,
        key=key,
        trace=trace,
        extensions=extensions,
    )


def parts_of(message: JsonObject) -> list[Any]:
    parts = message.get("parts")
    if not isinstance(parts, list) or not parts:
        raise InvalidParams('"message.parts" must be a list with at least one part.')
    return parts


def member(holder: JsonObject, name: str, where: str) -> JsonObject:
    """An object; empty if it is absent."""
    value = holder.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidParams(f'"{where}" must be an object.')
    return value


def taken(holder: JsonObject, name: str, where: str) -> JsonObject:
    """An object, removed from `holder`: it contains secrets, and the rest is stored and forwarded."""
    found = member(holder, name, where)
    holder.pop(name, None)
    return found


def flag(holder: JsonObject, name: str, where: str, default: bool) -> bool:
    value = holder.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise InvalidParams(f'"{where}" must be true or false.')
    return value


def history_length(holder: JsonObject) -> int | None:
    value = holder.get("historyLength")
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidParams('"historyLength" must be a whole number, 0 or more.')
    return value


def webhook_url(config: JsonObject, where: str) -> str:
    url = config.get("url")
    if not isinstance(url, str) or not url or len(url) > _LONGEST_URL:
        raise InvalidParams(f'"{where}.url" must be a URL of at most {_LONGEST_URL} characters.')
    return url


def secret(holder: JsonObject, name: str, where: str) -> str | None:
    value = holder.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or len(value) > _LONGEST_SECRET or not value.isprintable():
        raise InvalidParams(f'"{where}.{name}" must be one line of at most {_LONGEST_SECRET} characters.')
    return value


def names(holder: JsonObject, name: str, where: str) -> tuple[str, ...]:
    value = holder.get(name) or []
    if not isinstance(value, list) or not all(isinstance(item, str) and item.isprintable() for item in value):
        raise InvalidParams(f'"{where}.{name}" must be a list of names.')
    return tuple(value)


def config_id(value: Any, where: str) -> str:
    """Empty: no id. Clients that are made from the Protocol Buffers send an empty one for none."""
    if value is None or value == "":
        return ""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_ID:
        raise InvalidParams(f'"{where}" must be a string of 1 to {LONGEST_ID} characters.')
    return value
