"""Dead letters of push notifications, for people and tools. docs/reference/http.md is their description."""

from __future__ import annotations

from quart import Quart, Response, request

from hub.core.pushes import Push
from hub.model.a2a import JsonObject
from hub.model.ids import Cursor, TaskId
from hub.model.principal import Right
from hub.model.push import DeadLetter
from hub.web.auth import caller
from hub.web.pages import reply, whole_number
from hub.wire.timestamp import timestamp

_MOST = 100


def add_pushes(app: Quart, push: Push) -> None:
    @app.get("/registry/push/dead-letters")
    async def dead_letters() -> Response:
        limit = whole_number(request.args.get("limit", "50"), "limit", 1, _MOST)
        page = await push.dead_letters(caller(), limit=limit, before=request.args.get("cursor"))
        return reply({"dead_letters": [_item(letter) for letter in page.letters], "next_cursor": page.before})

    @app.post("/registry/push/dead-letters/<task>/<config>/<cursor>/redeliver")
    async def redeliver(task: str, config: str, cursor: str) -> Response:
        event = Cursor(whole_number(cursor, "cursor", 1, 2**31))
        await push.redeliver(caller(Right.OPERATE), TaskId(task), config, event)
        return reply({"task": task, "config": config, "cursor": event, "redelivering": True}, 202)


def _item(letter: DeadLetter) -> JsonObject:
    return {
        "task": letter.task,
        "config": letter.config,
        "cursor": letter.cursor,
        "url": letter.url,
        "reason": letter.reason,
        "at": timestamp(letter.at),
    }
