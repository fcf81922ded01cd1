"""0.3 in one object."""

from __future__ import annotations

from rolecall.model.a2a import DialectRules
from rolecall.protocol.dialect import Dialect, WorkerSide
from rolecall.protocol.methods import Operation
from rolecall.protocol.v0_3 import VERSION, answers, calls, card, events, requests, rest, shape, words

DIALECT = Dialect(
    version=VERSION,
    methods={
        "message/send": Operation.SEND,
        "message/stream": Operation.STREAM,
        "tasks/get": Operation.GET,
        "tasks/list": Operation.LIST,
        "tasks/cancel": Operation.CANCEL,
        "tasks/resubscribe": Operation.SUBSCRIBE,
        "tasks/pushNotificationConfig/set": Operation.PUSH_SET,
        "tasks/pushNotificationConfig/get": Operation.PUSH_GET,
        "tasks/pushNotificationConfig/list": Operation.PUSH_LIST,
        "tasks/pushNotificationConfig/delete": Operation.PUSH_DELETE,
        "agent/getAuthenticatedExtendedCard": Operation.CARD,
        "agent/authenticatedExtendedCard": Operation.CARD,
    },
    shape=shape,
    words=words,
    requests=requests,
    answers=answers,
    write_card=card.write,
    rules=DialectRules(notice_is_task=True),
    rest=rest,
    worker=WorkerSide(calls, events),
    events_only=True,
    token_is_bearer=True,
)
