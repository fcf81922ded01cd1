"""Parse calls in 1.0 into commands. ProtoJSON allows snake_case too, so we accept it."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

from rolecall.errors import InvalidParams, RoleUnknown
from rolecall.model.a2a import JsonObject, TaskState
from rolecall.model.command import CancelTask, GetTask, ListTasks, NamePush, Send, SetPush, Subscribe, Target, TaskQuery
from rolecall.model.content import Message, PartKind, Role
from rolecall.model.ids import Cursor, TaskId
from rolecall.model.push import PushConfig
from rolecall.model.value import replace
from rolecall.protocol.callers import params as common
from rolecall.protocol.callers.params import read_task_id
from rolecall.protocol.text.timestamp import moment
from rolecall.protocol.v1_0 import VERSION
from rolecall.protocol.v1_0.shape import contents_of, read_message, read_role, read_state, role_name

_MAX_PER_PAGE = 100
_NAMES = (
    "messageId",
    "taskId",
    "contextId",
    "referenceTaskIds",
    "mediaType",
    "historyLength",
    "returnImmediately",
    "acceptedOutputModes",
    "taskPushNotificationConfig",
    "pageSize",
    "pageToken",
    "statusTimestampAfter",
    "includeArtifacts",
)
_SNAKE = {re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name): name for name in _NAMES}


def read_send(
    params: JsonObject,
    target: Target,
    *,
    trace: str | None = None,
    key: str | None = None,
    extensions: tuple[str, ...] = (),
) -> Send:
    """Changes `params` and keeps it: members that callers leave out are added."""
    _camel(params)
    message = params.get("message")
    if not isinstance(message, dict):
        raise InvalidParams('"message" must be an object.')
    parsed = _mended(message)
    configuration = common.member(params, "configuration", "configuration")
    metadata = common.metadata_of(message, params)
    configured = _read_configuration(configuration) if configuration else common.NOT_CONFIGURED
    return common.send_of(
        parsed, params, VERSION, with_tenant(target, params), metadata, configured, trace=trace, key=key, extensions=extensions
    )


def read_get(params: JsonObject, target: Target, dialects: tuple[str, ...]) -> GetTask:
    _camel(params)
    return GetTask(with_tenant(target, params), read_task_id(params), dialects, common.history_length(params))


def read_cancel(params: JsonObject, target: Target, dialects: tuple[str, ...]) -> CancelTask:
    return CancelTask(with_tenant(target, params), read_task_id(params), dialects)


def read_subscribe(params: JsonObject, target: Target, after: Cursor | None, dialects: tuple[str, ...]) -> Subscribe:
    return Subscribe(with_tenant(target, params), read_task_id(params), dialects, after)


def read_list(params: JsonObject, target: Target) -> ListTasks:
    _camel(params)
    role = _role(target, params)
    size = params.get("pageSize")
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= _MAX_PER_PAGE):
        raise InvalidParams(f'"pageSize" must be a whole number from 1 to {_MAX_PER_PAGE}.')
    query = TaskQuery(
        context_id=_text(params, "contextId"),
        role=role,
        states=_states(params.get("status")),
        since=_since(params.get("statusTimestampAfter")),
        limit=size or 50,
        before=_text(params, "pageToken"),
    )
    artifacts = common.flag(params, "includeArtifacts", "includeArtifacts", False)
    return ListTasks(query, VERSION, common.history_length(params), artifacts)


def read_set_push(params: JsonObject, target: Target) -> SetPush:
    """Flat: `id` names the config, `taskId` the task."""
    _camel(params)
    return SetPush(with_tenant(target, params), _push(params, _task_of(params), "params"))


def read_name_push(params: JsonObject, target: Target, *, required: bool = True) -> NamePush:
    _camel(params)
    named = common.config_id(params.get("id"), "id")
    if required and not named:
        raise InvalidParams('"id" must name a push notification config.')
    return NamePush(with_tenant(target, params), _task_of(params), named or None)


def read_card(params: JsonObject, target: Target) -> str | None:
    return _role(target, params)


def with_tenant(target: Target, params: JsonObject) -> Target:
    """The tenant names the agent behind an endpoint; in the hub that is a role."""
    tenant = params.get("tenant")
    if tenant is None or tenant == "":
        return target
    role, instance = common.read_role(tenant, "tenant")
    return replace(target, role=role, instance=instance)


def _role(target: Target, params: JsonObject) -> str | None:
    """The role that the address and the tenant name. RoleUnknown if they differ."""
    target = with_tenant(target, params)
    if target.path_role is not None and target.role not in (None, target.path_role):
        raise RoleUnknown(target.role or "", [target.path_role])
    return target.path_role or target.role


def _push(config: JsonObject, task: TaskId, where: str) -> PushConfig:
    _camel(config)
    authentication = common.member(config, "authentication", f"{where}.authentication")
    scheme = common.secret(authentication, "scheme", f"{where}.authentication")
    return PushConfig(
        task=task,
        id=common.config_id(config.get("id"), f"{where}.id"),
        url=common.webhook_url(config, where),
        dialect=VERSION,
        token=common.secret(config, "token", where),
        schemes=(scheme,) if scheme else (),
        credentials=common.secret(authentication, "credentials", f"{where}.authentication"),
    )


def _task_of(params: JsonObject) -> TaskId:
    return read_task_id({"taskId": params.get("taskId")})


def _read_configuration(configuration: JsonObject) -> common.Configuration:
    _camel(configuration)
    where = "configuration.taskPushNotificationConfig"
    push = common.taken(configuration, "taskPushNotificationConfig", where)
    at_once = common.flag(configuration, "returnImmediately", "configuration.returnImmediately", False)
    hook = _push(push, TaskId(""), where) if push else None
    return common.Configuration(hook, not at_once, common.history_length(configuration))


def _mended(message: JsonObject) -> Message:
    _camel(message)
    message.pop("kind", None)
    role = message.get("role")
    known = Role.USER if role is None else read_role(role)
    if known is None:
        raise InvalidParams('"message.role" must be ROLE_USER or ROLE_AGENT.')
    message["role"] = role_name(known)
    if not message.get("messageId"):
        if "messageId" in message and message["messageId"] is not None:
            raise InvalidParams('"message.messageId" must not be empty.')
        message["messageId"] = str(uuid4())
    common.check_ids(message)
    for at, part in enumerate(common.parts_of(message)):
        _mend_part(part, at)
    return common.checked_message(message, read_message)


def _mend_part(part: Any, at: int) -> None:
    if not isinstance(part, dict):
        raise InvalidParams(f'"message.parts[{at}]" must be an object.')
    _camel(part)
    kind = part.pop("kind", None)
    if len(contents_of(part)) != 1:
        hint = " This looks like 0.3: its method is message/send." if kind == "file" or "file" in part else ""
        raise InvalidParams(f'"message.parts[{at}]" must have exactly one of {", ".join(PartKind)}.{hint}')


def _camel(holder: JsonObject) -> None:
    """Rename known members from snake_case. A member under both names must have one value."""
    for name in [name for name in holder if name in _SNAKE]:
        camel, value = _SNAKE[name], holder.pop(name)
        if holder.get(camel) is None:
            holder[camel] = value
        elif value is not None and value != holder[camel]:
            raise InvalidParams(f'"{camel}" and "{name}" are two spellings of one member, and differ.')


def _text(params: JsonObject, name: str) -> str | None:
    value = params.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or len(value) > 1024:
        raise InvalidParams(f'"{name}" must be a string of at most 1024 characters.')
    return value


def _states(value: Any) -> tuple[TaskState, ...]:
    # The official JavaScript SDK writes the last one for a filter that its user has left out.
    if value is None or value in ("", "TASK_STATE_UNSPECIFIED", 0, "UNRECOGNIZED"):
        return ()
    state = read_state(value) if isinstance(value, str | int) and not isinstance(value, bool) else None
    if state is None or state is TaskState.UNKNOWN:
        raise InvalidParams('"status" must be the name of a task state, such as TASK_STATE_WORKING.')
    return (state,)


def _since(value: Any) -> float | None:
    if value is None or value == "":
        return None
    found = moment(value) if isinstance(value, str) else None
    if found is None:
        raise InvalidParams('"statusTimestampAfter" must be a time such as 2026-01-31T12:00:00Z.')
    return found
