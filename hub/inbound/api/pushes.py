"""The API for dead letters of push notifications."""

from __future__ import annotations

from quart import Quart

from hub.core.push.configs import PushConfigs
from hub.inbound.api.answers import DeadLetterItem, DeadLetters, Redelivery
from hub.inbound.api.operation import operation
from hub.inbound.api.requests import DeadLetterQuery, Position, Segment
from hub.inbound.middleware.authentication import caller, may
from rolecall.errors import DeadLetterNotFound, TaskNotFound
from rolecall.model.ids import Cursor, TaskId
from rolecall.model.principal import Right
from rolecall.model.push import DeadLetter
from rolecall.protocol.text.timestamp import timestamp


def add_pushes(app: Quart, push: PushConfigs) -> None:
    @app.get("/registry/push/dead-letters")
    @operation("Push notifications that could not be delivered.")
    async def dead_letters(query: DeadLetterQuery) -> DeadLetters:
        page = await push.dead_letters(caller(), limit=query.limit, before=query.cursor, whole=may(Right.OPERATE))
        return DeadLetters(dead_letters=[_item(letter) for letter in page.letters], next_cursor=page.before)

    @app.post("/registry/push/dead-letters/<task>/<config>/<cursor>/redeliver")
    @operation("Send one of them again.", TaskNotFound, DeadLetterNotFound, right=Right.OPERATE, status=202)
    async def redeliver(task: Segment, config: Segment, cursor: Position) -> Redelivery:
        await push.redeliver(caller(), TaskId(task), config, Cursor(cursor))
        return Redelivery(task=task, config=config, cursor=cursor, redelivering=True)


def _item(letter: DeadLetter) -> DeadLetterItem:
    return DeadLetterItem(
        task=letter.task,
        config=letter.config,
        cursor=letter.cursor,
        url=letter.url,
        reason=letter.reason,
        at=timestamp(letter.at),
    )
