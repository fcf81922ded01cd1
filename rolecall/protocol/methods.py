"""Every method name in use, with its operation and its dialect."""

from __future__ import annotations

from enum import StrEnum

from rolecall.errors import MethodNotFound, VersionNotSupported
from rolecall.protocol.dialect import V0_1, V0_3, V1_0


class Operation(StrEnum):
    """The operations, by the canonical names that metrics and logs use for every dialect."""

    SEND = "message/send"
    STREAM = "message/stream"
    GET = "tasks/get"
    LIST = "tasks/list"
    CANCEL = "tasks/cancel"
    SUBSCRIBE = "tasks/resubscribe"
    PUSH_SET = "tasks/pushNotificationConfig/set"
    PUSH_GET = "tasks/pushNotificationConfig/get"
    PUSH_LIST = "tasks/pushNotificationConfig/list"
    PUSH_DELETE = "tasks/pushNotificationConfig/delete"
    CARD = "agent/getAuthenticatedExtendedCard"


STREAMING = frozenset({Operation.STREAM, Operation.SUBSCRIBE})

# 0.1 and 0.3 share three names: there the task decides on the dialect.
_METHODS: dict[str, tuple[Operation, str | None]] = {
    "tasks/send": (Operation.SEND, V0_1),
    "tasks/sendSubscribe": (Operation.STREAM, V0_1),
    "tasks/pushNotification/set": (Operation.PUSH_SET, V0_1),
    "tasks/pushNotification/get": (Operation.PUSH_GET, V0_1),
    "tasks/get": (Operation.GET, None),
    "tasks/cancel": (Operation.CANCEL, None),
    "tasks/resubscribe": (Operation.SUBSCRIBE, None),
    "message/send": (Operation.SEND, V0_3),
    "message/stream": (Operation.STREAM, V0_3),
    "tasks/list": (Operation.LIST, V0_3),
    "tasks/pushNotificationConfig/set": (Operation.PUSH_SET, V0_3),
    "tasks/pushNotificationConfig/get": (Operation.PUSH_GET, V0_3),
    "tasks/pushNotificationConfig/list": (Operation.PUSH_LIST, V0_3),
    "tasks/pushNotificationConfig/delete": (Operation.PUSH_DELETE, V0_3),
    "agent/getAuthenticatedExtendedCard": (Operation.CARD, V0_3),
    "agent/authenticatedExtendedCard": (Operation.CARD, V0_3),
    "SendMessage": (Operation.SEND, V1_0),
    "SendStreamingMessage": (Operation.STREAM, V1_0),
    "GetTask": (Operation.GET, V1_0),
    "ListTasks": (Operation.LIST, V1_0),
    "CancelTask": (Operation.CANCEL, V1_0),
    "SubscribeToTask": (Operation.SUBSCRIBE, V1_0),
    "CreateTaskPushNotificationConfig": (Operation.PUSH_SET, V1_0),
    "GetTaskPushNotificationConfig": (Operation.PUSH_GET, V1_0),
    "ListTaskPushNotificationConfigs": (Operation.PUSH_LIST, V1_0),
    "DeleteTaskPushNotificationConfig": (Operation.PUSH_DELETE, V1_0),
    "GetExtendedAgentCard": (Operation.CARD, V1_0),
}

METHOD_NAMES = frozenset(_METHODS)


def read_method(name: str, version: str | None) -> tuple[Operation, str | None]:
    """The name decides. A requested version matters only for shared names, but it must be a supported one."""
    known = _METHODS.get(name)
    requested = read_version(version) if version else None
    if known is None:
        raise MethodNotFound(name)
    operation, dialect = known
    return operation, dialect or (V0_3 if requested == V0_3 else None)


def read_version(version: str | None) -> str | None:
    """None: no version was requested. From 1 on only the major number counts: 1.1 may add, but not change."""
    text = (version or "").strip()
    if not text:
        return None
    major, _, rest = text.partition(".")
    if major == "1":
        return V1_0
    if major == "0":
        return V0_1 if rest.partition(".")[0] == "1" else V0_3
    raise VersionNotSupported(text)


def dialect_of(method: str) -> str | None:
    """For errors that occur before the call is parsed."""
    known = _METHODS.get(method)
    return known[1] if known is not None else None
