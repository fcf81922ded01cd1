"""1.0 in one object."""

from __future__ import annotations

from rolecall import errors
from rolecall.model.a2a import DialectRules
from rolecall.protocol.dialect import Dialect, WorkerSide
from rolecall.protocol.faults import DialectFaults, Row
from rolecall.protocol.methods import Operation
from rolecall.protocol.v1_0 import VERSION, answers, calls, card, events, requests, rest, shape, words

DIALECT = Dialect(
    version=VERSION,
    methods={
        "SendMessage": Operation.SEND,
        "SendStreamingMessage": Operation.STREAM,
        "GetTask": Operation.GET,
        "ListTasks": Operation.LIST,
        "CancelTask": Operation.CANCEL,
        "SubscribeToTask": Operation.SUBSCRIBE,
        "CreateTaskPushNotificationConfig": Operation.PUSH_SET,
        "GetTaskPushNotificationConfig": Operation.PUSH_GET,
        "ListTaskPushNotificationConfigs": Operation.PUSH_LIST,
        "DeleteTaskPushNotificationConfig": Operation.PUSH_DELETE,
        "GetExtendedAgentCard": Operation.CARD,
    },
    shape=shape,
    words=words,
    requests=requests,
    answers=answers,
    write_card=card.write,
    rules=DialectRules(ended_refused=True, answers_by_context=False),
    faults=DialectFaults(
        {
            # -32007 is for agents whose card promises an extended card and that have none; our cards do not promise one.
            errors.ExtendedCardNotConfigured: Row(-32004, 400, "UNSUPPORTED_OPERATION"),
            errors.PushConfigNotFound: Row(-32001, 404, "TASK_NOT_FOUND"),
            errors.TaskEnded: Row(-32004, 400, "UNSUPPORTED_OPERATION"),
        },
        lowest=-32009,
        explained=True,
    ),
    rest=rest,
    worker=WorkerSide(calls, events),
    push_media=b"application/a2a+json",
)
