"""0.1 in one object."""

from __future__ import annotations

from rolecall import errors
from rolecall.protocol.dialect import Dialect
from rolecall.protocol.faults import DialectFaults, Row
from rolecall.protocol.methods import Operation
from rolecall.protocol.v0_1 import VERSION, answers, requests, shape, view
from rolecall.protocol.v0_3 import card, words

DIALECT = Dialect(
    version=VERSION,
    methods={
        "tasks/send": Operation.SEND,
        "tasks/sendSubscribe": Operation.STREAM,
        "tasks/pushNotification/set": Operation.PUSH_SET,
        "tasks/pushNotification/get": Operation.PUSH_GET,
        "tasks/get": Operation.GET,
        "tasks/cancel": Operation.CANCEL,
        "tasks/resubscribe": Operation.SUBSCRIBE,
    },
    shape=shape,
    words=words,  # no log is in 0.1
    requests=requests,
    answers=answers,
    write_card=card.write,
    faults=DialectFaults(
        {
            errors.TaskEnded: Row(-32002, 400, "TASK_ENDED"),
            errors.WebhookInsecure: Row(-32004, 400, "UNSUPPORTED_OPERATION"),
        }
    ),
    view=view,
    makes_tasks=True,
    events_only=True,
    token_is_bearer=True,
)
