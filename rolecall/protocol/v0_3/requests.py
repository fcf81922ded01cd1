"""Parse calls in 0.3 into commands."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from rolecall.errors import InvalidParams
from rolecall.model.a2a import JsonObject
from rolecall.model.command import CancelTask, GetTask, ListTasks, NamePush, Send, SetPush, Subscribe, Target
from rolecall.model.content import Message
from rolecall.model.ids import Cursor, TaskId
from rolecall.model.push import PushConfig
from rolecall.model.value import replace
from rolecall.protocol.callers import params as common
from rolecall.protocol.callers.params import read_task_id
from rolecall.protocol.v0_3 import VERSION
from rolecall.protocol.v0_3.parts import KINDS, find_kind
from rolecall.protocol.v0_3.shape import read_message
from rolecall.protocol.v1_0 import requests as requests10


def read_send(
    params: JsonObject,
    target: Target,
    *,
    trace: str | None = None,
    key: str | None = None,
    extensions: tuple[str, ...] = (),
) -> Send:
    """Changes `params` and keeps it: members that callers leave out are added."""
    message = params.get("message")
    if not isinstance(message, dict):
        raise InvalidParams('"params.message" must be an object.')
    parsed = _mended(message)
    configuration = common.member(params, "configuration", "params.configuration")
    metadata = common.metadata_of(message, params)
    configured = _read_configuration(configuration) if configuration else common.NOT_CONFIGURED
    return common.send_of(parsed, params, VERSION, target, metadata, configured, trace=trace, key=key, extensions=extensions)


def read_get(params: JsonObject, target: Target, dialects: tuple[str, ...]) -> GetTask:
    return GetTask(target, read_task_id(params), dialects, common.history_length(params))


def read_cancel(params: JsonObject, target: Target, dialects: tuple[str, ...]) -> CancelTask:
    return CancelTask(target, read_task_id(params), dialects)


def read_subscribe(params: JsonObject, target: Target, after: Cursor | None, dialects: tuple[str, ...]) -> Subscribe:
    return Subscribe(target, read_task_id(params), dialects, after)


def read_set_push(params: JsonObject, target: Target) -> SetPush:
    """`taskId` with `pushNotificationConfig`; here, as in the other calls, `id` also names the task."""
    config = common.member(params, "pushNotificationConfig", "params.pushNotificationConfig")
    if not config:
        raise InvalidParams('"params.pushNotificationConfig" must be an object with a url.')
    return SetPush(target, _push(config, read_task_id(params), "pushNotificationConfig"))


def read_list(params: JsonObject, target: Target) -> ListTasks:
    """Only REST has it, without a specified form: its parameters are those of 1.0."""
    return replace(requests10.read_list(params, target), dialect=VERSION)


def read_card(params: JsonObject, target: Target) -> str | None:
    """Only the address names the role."""
    return target.path_role


def read_name_push(params: JsonObject, target: Target, *, required: bool = True) -> NamePush:
    """Without its id, the config is the task's own."""
    named = common.config_id(params.get("pushNotificationConfigId"), "params.pushNotificationConfigId")
    return NamePush(target, read_task_id(params), named or None)


def _push(config: JsonObject, task: TaskId, where: str) -> PushConfig:
    authentication = common.member(config, "authentication", f"{where}.authentication")
    return PushConfig(
        task=task,
        id=common.config_id(config.get("id"), f"{where}.id"),
        url=common.webhook_url(config, where),
        dialect=VERSION,
        token=common.secret(config, "token", where),
        schemes=common.names(authentication, "schemes", f"{where}.authentication"),
        credentials=common.secret(authentication, "credentials", f"{where}.authentication"),
    )


def _read_configuration(configuration: JsonObject) -> common.Configuration:
    where = "configuration.pushNotificationConfig"
    push = common.taken(configuration, "pushNotificationConfig", where)
    blocking = common.flag(configuration, "blocking", "configuration.blocking", True)
    hook = _push(push, TaskId(""), where) if push else None
    return common.Configuration(hook, blocking, common.history_length(configuration))


def _mended(message: JsonObject) -> Message:
    """With the members that old forms leave out. A message that says its kind is in the current form, which requires its id."""
    if message.get("kind") == "message" and message.get("messageId") is None:
        raise InvalidParams('"message.messageId" is required.')
    message["kind"] = "message"
    if message.get("role") is None:
        message["role"] = "user"
    if message["role"] not in ("user", "agent"):
        raise InvalidParams('"message.role" must be "user" or "agent".')
    if message.get("messageId") is None:
        message["messageId"] = str(uuid4())
    common.check_ids(message)
    if not message["messageId"]:
        raise InvalidParams('"message.messageId" must not be empty.')
    for at, part in enumerate(common.parts_of(message)):
        _mend_part(part, at)
    return common.checked_message(message, read_message)


def _mend_part(part: Any, at: int) -> None:
    if not isinstance(part, dict):
        raise InvalidParams(f'"message.parts[{at}]" must be an object.')
    kind = part.get("kind")
    if kind is None:
        kind = part["kind"] = find_kind(part)
    if kind not in KINDS:
        raise InvalidParams(f'"message.parts[{at}].kind" must be text, file or data.')
    if part.get(kind) is None and "content" in part:
        part[kind] = part.pop("content")
