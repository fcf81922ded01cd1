"""What callers ask in 0.3, read into commands."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from rolecall.errors import InvalidParams
from rolecall.model.a2a import JsonObject
from rolecall.model.command import CancelTask, GetTask, NamePush, Send, SetPush, Subscribe, Target
from rolecall.model.content import Message
from rolecall.model.ids import Cursor, TaskId
from rolecall.model.push import PushConfig
from rolecall.protocol.callers import params as asked
from rolecall.protocol.callers.params import read_task_id
from rolecall.protocol.v0_3 import VERSION
from rolecall.protocol.v0_3.shape import read_message

_PART_KINDS = ("text", "file", "data")


def read_send(
    params: JsonObject,
    target: Target,
    *,
    trace: str | None = None,
    key: str | None = None,
    extensions: tuple[str, ...] = (),
) -> Send:
    """Takes over `params` and mends in place what careless callers leave out."""
    message = params.get("message")
    if not isinstance(message, dict):
        raise InvalidParams('"params.message" must be an object.')
    told = _mended(message)
    configuration = asked.member(params, "configuration", "params.configuration")
    metadata = asked.metadata_of(message, params)
    configured = _read_configuration(configuration) if configuration else asked.NOT_CONFIGURED
    return asked.send_of(told, params, VERSION, target, metadata, configured, trace=trace, key=key, extensions=extensions)


def read_get(params: JsonObject, target: Target, dialect: str | None = VERSION) -> GetTask:
    return GetTask(target, read_task_id(params), dialect, asked.history_length(params))


def read_cancel(params: JsonObject, target: Target, dialect: str | None = VERSION) -> CancelTask:
    return CancelTask(target, read_task_id(params), dialect)


def read_subscribe(params: JsonObject, target: Target, after: Cursor | None, dialect: str | None = VERSION) -> Subscribe:
    return Subscribe(target, read_task_id(params), dialect, after)


def read_set_push(params: JsonObject, target: Target) -> SetPush:
    """`taskId` with `pushNotificationConfig`; here, as in the others, `id` is the task's as well."""
    config = asked.member(params, "pushNotificationConfig", "params.pushNotificationConfig")
    if not config:
        raise InvalidParams('"params.pushNotificationConfig" must be an object with a url.')
    return SetPush(target, _push(config, read_task_id(params), "pushNotificationConfig"))


def read_name_push(params: JsonObject, target: Target) -> NamePush:
    named = asked.config_id(params.get("pushNotificationConfigId"), "params.pushNotificationConfigId")
    return NamePush(target, read_task_id(params), named or None)


def _push(config: JsonObject, task: TaskId, where: str) -> PushConfig:
    authentication = asked.member(config, "authentication", f"{where}.authentication")
    return PushConfig(
        task=task,
        id=asked.config_id(config.get("id"), f"{where}.id"),
        url=asked.webhook_url(config, where),
        dialect=VERSION,
        token=asked.secret(config, "token", where),
        schemes=asked.names(authentication, "schemes", f"{where}.authentication"),
        credentials=asked.secret(authentication, "credentials", f"{where}.authentication"),
    )


def _read_configuration(configuration: JsonObject) -> asked.Configuration:
    where = "configuration.pushNotificationConfig"
    push = asked.taken(configuration, "pushNotificationConfig", where)
    blocking = asked.flag(configuration, "blocking", "configuration.blocking", True)
    hook = _push(push, TaskId(""), where) if push else None
    return asked.Configuration(hook, blocking, asked.history_length(configuration))


def _mended(message: JsonObject) -> Message:
    message["kind"] = "message"
    if message.get("role") is None:
        message["role"] = "user"
    if message["role"] not in ("user", "agent"):
        raise InvalidParams('"message.role" must be "user" or "agent".')
    if message.get("messageId") is None:
        message["messageId"] = str(uuid4())
    asked.check_ids(message)
    if not message["messageId"]:
        raise InvalidParams('"message.messageId" must not be empty.')
    for at, part in enumerate(asked.parts_of(message)):
        _mend_part(part, at)
    return asked.checked_message(message, read_message)


def _mend_part(part: Any, at: int) -> None:
    if not isinstance(part, dict):
        raise InvalidParams(f'"message.parts[{at}]" must be an object.')
    kind = part.get("kind")
    if kind is None:
        kind = part.pop("type", None) or next((name for name in _PART_KINDS if name in part), None)
        part["kind"] = kind
    if kind not in _PART_KINDS:
        raise InvalidParams(f'"message.parts[{at}].kind" must be text, file or data.')
    if part.get(kind) is None and "content" in part:
        part[kind] = part.pop("content")
