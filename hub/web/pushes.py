"""Dead letters of push notifications, for people and tools."""

from __future__ import annotations

from quart import Quart, Response, request

from hub.core.pushes import Push
from hub.errors import DeadLetterNotFound, InvalidParams, TaskNotFound
from hub.model.ids import Cursor, TaskId
from hub.model.principal import Right
from hub.model.push import DeadLetter
from hub.web.auth import caller, may
from hub.web.described import told
from hub.web.pages import reply, whole_number
from hub.web.shapes import ADeadLetter, DeadLetters, LetterPage, Redelivering
from hub.wire.timestamp import timestamp

_MOST = 100


def add_pushes(app: Quart, push: Push) -> None:
    @app.get("/registry/push/dead-letters")
    @told("Push notifications that were given up.", {200: DeadLetters}, InvalidParams, query=LetterPage)
    async def dead_letters() -> Response:
        limit = whole_number(request.args.get("limit", "50"), "limit", 1, _MOST)
        page = await push.dead_letters(
            caller(), limit=limit, before=request.args.get("cursor") or None, whole=may(Right.OPERATE)
        )
        letters: DeadLetters = {"dead_letters": [_item(letter) for letter in page.letters], "next_cursor": page.before}
        return reply(letters)

    @app.post("/registry/push/dead-letters/<task>/<config>/<cursor>/redeliver")
    @told("Send one of them again.", {202: Redelivering}, InvalidParams, TaskNotFound, DeadLetterNotFound)
    async def redeliver(task: str, config: str, cursor: str) -> Response:
        event = Cursor(whole_number(cursor, "cursor", 1, 2**31))
        await push.redeliver(caller(Right.OPERATE), TaskId(task), config, event)
        begun: Redelivering = {"task": task, "config": config, "cursor": event, "redelivering": True}
        return reply(begun, 202)


def _item(letter: DeadLetter) -> ADeadLetter:
    return {
        "task": letter.task,
        "config": letter.config,
        "cursor": letter.cursor,
        "url": letter.url,
        "reason": letter.reason,
        "at": timestamp(letter.at),
    }
