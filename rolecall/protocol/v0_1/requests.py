"""Parse calls in 0.1 into commands. The caller makes the task's id, and does not wait."""

from __future__ import annotations

from uuid import uuid4

from rolecall.errors import InvalidParams, MethodNotFound
from rolecall.model.a2a import JsonObject
from rolecall.model.command import ListTasks, NamePush, Send, SetPush, Target
from rolecall.model.ids import TaskId
from rolecall.model.push import PushConfig
from rolecall.protocol.callers import params as common
from rolecall.protocol.callers.usage import read_budget
from rolecall.protocol.v0_1 import VERSION
from rolecall.protocol.v0_1.shape import read_message
from rolecall.protocol.v0_3.requests import read_cancel, read_card, read_get, read_subscribe

__all__ = [
    "read_cancel",
    "read_card",
    "read_get",
    "read_list",
    "read_name_push",
    "read_send",
    "read_set_push",
    "read_subscribe",
]


def read_send(
    params: JsonObject,
    target: Target,
    *,
    trace: str | None = None,
    key: str | None = None,
    extensions: tuple[str, ...] = (),
) -> Send:
    message = params.get("message")
    if not isinstance(message, dict):
        raise InvalidParams('"params.message" must be an object.')
    common.check_ids(message)
    common.parts_of(message)
    alias, session = params.get("id"), params.get("sessionId")
    for name, value in (("id", alias), ("sessionId", session)):
        if value is not None and (not isinstance(value, str) or not 0 < len(value) <= common.LONGEST_ID):
            raise InvalidParams(f'"params.{name}" must be a string of 1 to {common.LONGEST_ID} characters.')
    metadata = common.metadata_of(message, params)
    common.checked_message(message, read_message)
    if alias is None and message.get("messageId") is None:
        message["messageId"] = str(uuid4())  # nothing else distinguishes it from another with the same text
    push = common.taken(params, "pushNotification", "params.pushNotification")
    return Send(
        target=common.named_target(target, metadata),
        params=params,
        dialect=VERSION,
        message_id=message.get("messageId") or str(uuid4()),
        context_id=session,
        blocking=False,
        history_length=common.history_length(params),
        wait=common.wait_seconds(metadata),
        budget=read_budget(metadata) if metadata else None,
        alias=alias or "",
        push=_push(push, TaskId("")) if push else None,
        key=key,
        trace=trace,
        extensions=extensions,
    )


def read_set_push(params: JsonObject, target: Target) -> SetPush:
    config = common.member(params, "pushNotificationConfig", "params.pushNotificationConfig")
    if not config:
        raise InvalidParams('"params.pushNotificationConfig" must be an object with a url.')
    return SetPush(target, _push(config, common.read_task_id(params)))


def read_list(params: JsonObject, target: Target) -> ListTasks:
    raise MethodNotFound("tasks/list")


def read_name_push(params: JsonObject, target: Target, *, required: bool = True) -> NamePush:
    return NamePush(target, common.read_task_id(params), None)


def _push(config: JsonObject, task: TaskId) -> PushConfig:
    where = "pushNotificationConfig"
    authentication = common.member(config, "authentication", f"{where}.authentication")
    return PushConfig(
        task=task,
        id="",
        url=common.webhook_url(config, where),
        dialect=VERSION,
        token=common.secret(config, "token", where),
        schemes=common.names(authentication, "schemes", f"{where}.authentication"),
        credentials=common.secret(authentication, "credentials", f"{where}.authentication"),
    )
