"""The operations of A2A, independent of how a dialect names its methods."""

from __future__ import annotations

from enum import StrEnum


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
