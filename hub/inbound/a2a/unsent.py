"""Sends an answer. A large one counts for its workspace until the client has taken it."""

from __future__ import annotations

from collections.abc import Awaitable

from hub.core.shares.answers import AnswerShare
from hub.core.shares.share import SMALL
from hub.inbound.middleware.request import Request
from hub.server.asgi import Headers


def send_answer(request: Request, body: bytes, unsent: AnswerShare, workspace: str, headers: Headers = ()) -> Awaitable[None]:
    """AnswerNotSent."""
    if len(body) < SMALL:
        return request.answer(body, headers=headers)
    return _send_large(request, body, unsent, workspace, headers)


async def _send_large(request: Request, body: bytes, unsent: AnswerShare, workspace: str, headers: Headers) -> None:
    with unsent.hold(workspace, len(body)):
        await request.answer_in_pieces(body, headers=headers)
