"""Every method name that is in use, what it asks for, and which dialect it belongs to."""

from __future__ import annotations

from enum import StrEnum

from rolecall.errors import MethodNotFound, VersionNotSupported
from rolecall.protocol.dialect import CLASSIC, NEWEST, OLDEST


class Operation(StrEnum):
    """The canonical names: what metrics and logs call them, whatever dialect spelled them."""

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

# Three names mean the same in 0.1 and 0.3: there the task itself tells which is spoken.
_METHODS: dict[str, tuple[Operation, str | None]] = {
    "tasks/send": (Operation.SEND, OLDEST),
    "tasks/sendSubscribe": (Operation.STREAM, OLDEST),
    "tasks/pushNotification/set": (Operation.PUSH_SET, OLDEST),
    "tasks/pushNotification/get": (Operation.PUSH_GET, OLDEST),
    "tasks/get": (Operation.GET, None),
    "tasks/cancel": (Operation.CANCEL, None),
    "tasks/resubscribe": (Operation.SUBSCRIBE, None),
    "message/send": (Operation.SEND, CLASSIC),
    "message/stream": (Operation.STREAM, CLASSIC),
    "tasks/list": (Operation.LIST, CLASSIC),
    "tasks/pushNotificationConfig/set": (Operation.PUSH_SET, CLASSIC),
    "tasks/pushNotificationConfig/get": (Operation.PUSH_GET, CLASSIC),
    "tasks/pushNotificationConfig/list": (Operation.PUSH_LIST, CLASSIC),
    "tasks/pushNotificationConfig/delete": (Operation.PUSH_DELETE, CLASSIC),
    "agent/getAuthenticatedExtendedCard": (Operation.CARD, CLASSIC),
    "agent/authenticatedExtendedCard": (Operation.CARD, CLASSIC),
    "SendMessage": (Operation.SEND, NEWEST),
    "SendStreamingMessage": (Operation.STREAM, NEWEST),
    "GetTask": (Operation.GET, NEWEST),
    "ListTasks": (Operation.LIST, NEWEST),
    "CancelTask": (Operation.CANCEL, NEWEST),
    "SubscribeToTask": (Operation.SUBSCRIBE, NEWEST),
    "CreateTaskPushNotificationConfig": (Operation.PUSH_SET, NEWEST),
    "GetTaskPushNotificationConfig": (Operation.PUSH_GET, NEWEST),
    "ListTaskPushNotificationConfigs": (Operation.PUSH_LIST, NEWEST),
    "DeleteTaskPushNotificationConfig": (Operation.PUSH_DELETE, NEWEST),
    "GetExtendedAgentCard": (Operation.CARD, NEWEST),
}


def read_method(name: str, version: str | None) -> tuple[Operation, str | None]:
    """The name decides; a version that is said only picks where names are shared, and must be one that is spoken."""
    known = _METHODS.get(name)
    said = read_version(version)
    if known is None:
        raise MethodNotFound(name)
    operation, dialect = known
    return operation, dialect or (CLASSIC if said == CLASSIC else None)


def read_version(version: str | None) -> str | None:
    """None: nothing was said. Only the major counts from 1 on: 1.1 may add, but not change."""
    text = (version or "").strip()
    if not text:
        return None
    major, _, rest = text.partition(".")
    if major == "1":
        return NEWEST
    if major == "0":
        return OLDEST if rest.partition(".")[0] == "1" else CLASSIC
    raise VersionNotSupported(text)


def dialect_of(method: str) -> str | None:
    """For errors that come before anything else is known of a call."""
    known = _METHODS.get(method)
    return known[1] if known is not None else None
