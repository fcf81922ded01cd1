"""The API for dead letters of push notifications."""

from __future__ import annotations

from quart import Quart, Response, request

from hub.core.push.configs import PushConfigs
from hub.inbound.api.application import reply, whole_number
from hub.inbound.api.operation_doc import documented
from hub.inbound.api.shapes import DeadLetterItem, DeadLetterQuery, DeadLetters, Redelivery
from hub.inbound.middleware.authentication import caller, may
from rolecall.errors import DeadLetterNotFound, InvalidParams, TaskNotFound
from rolecall.model.ids import Cursor, TaskId
from rolecall.model.principal import Right
from rolecall.model.push import DeadLetter
from rolecall.protocol.text.timestamp import timestamp

_MAX_PAGE = 100


def add_pushes(app: Quart, push: PushConfigs) -> None:
    @app.get("/registry/push/dead-letters")
    @documented("Push notifications that could not be delivered.", {200: DeadLetters}, InvalidParams, query=DeadLetterQuery)
    async def dead_letters() -> Response:
        limit = whole_number(request.args.get("limit", "50"), "limit", 1, _MAX_PAGE)
        page = await push.dead_letters(
            caller(), limit=limit, before=request.args.get("cursor") or None, whole=may(Right.OPERATE)
        )
        letters: DeadLetters = {"dead_letters": [_item(letter) for letter in page.letters], "next_cursor": page.before}
        return reply(letters)

    @app.post("/registry/push/dead-letters/<task>/<config>/<cursor>/redeliver")
    @documented("Send one of them again.", {202: Redelivery}, InvalidParams, TaskNotFound, DeadLetterNotFound)
    async def redeliver(task: str, config: str, cursor: str) -> Response:
        event = Cursor(whole_number(cursor, "cursor", 1, 2**31))
        await push.redeliver(caller(Right.OPERATE), TaskId(task), config, event)
        started: Redelivery = {"task": task, "config": config, "cursor": event, "redelivering": True}
        return reply(started, 202)


def _item(letter: DeadLetter) -> DeadLetterItem:
    return {
        "task": letter.task,
        "config": letter.config,
        "cursor": letter.cursor,
        "url": letter.url,
        "reason": letter.reason,
        "at": timestamp(letter.at),
    }
