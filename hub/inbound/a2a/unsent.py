"""Sends an answer. A large one counts for its workspace until the client has taken it."""

from __future__ import annotations

from hub.core.shares.answers import AnswerShare
from hub.core.shares.share import SMALL
from hub.inbound.middleware.request import Request
from hub.server.asgi import Headers


async def send_answer(request: Request, body: bytes, unsent: AnswerShare, workspace: str, headers: Headers = ()) -> None:
    """AnswerNotSent."""
    if len(body) < SMALL:
        await request.answer(body, headers=headers)
        return
    with unsent.hold(workspace, len(body)):
        await request.answer_in_pieces(body, headers=headers)
