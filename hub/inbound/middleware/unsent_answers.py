"""Counts large answers of the application below, as A2A's are counted: for their workspace, until the client has taken them."""

from __future__ import annotations

from hub.core.shares.answers import AnswerShare
from hub.core.shares.share import SMALL
from hub.server.asgi import Message, Send
from rolecall.errors import AnswerNotSent


class UnsentAnswer:
    """`send` for that application. A refused answer is dropped, its head too, and the refusal kept: raised through the
    application's frames it would keep the answer in memory until they are collected.
    """

    def __init__(self, send: Send, unsent: AnswerShare, workspace: str) -> None:
        self._send = send
        self._unsent = unsent
        self._workspace = workspace
        self._head: Message | None = None
        self._refusal: AnswerNotSent | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and not _streams(message):
            self._head = message
            return
        body: bytes = message.get("body", b"")
        if len(body) < SMALL:
            await self._pass_on(message)
            return
        try:
            self._unsent.take(self._workspace, len(body))
        except AnswerNotSent as error:
            self._refusal = error.copy()
            return
        try:
            for at in range(0, len(body), SMALL):
                await self._pass_on({**message, "body": body[at : at + SMALL], "more_body": True})
            await self._pass_on({**message, "body": b""})
        finally:
            self._unsent.give_back(self._workspace, len(body))

    def check(self) -> None:
        """When the application has returned. AnswerNotSent: nothing of its answer was sent."""
        if self._refusal is not None:
            raise self._refusal

    async def _pass_on(self, message: Message) -> None:
        if self._refusal is not None:
            return
        if (head := self._head) is not None:
            self._head = None
            await self._send(head)
        await self._send(message)


def _streams(start: Message) -> bool:
    """A stream's head is sent at once: its first event may come late."""
    return all(name.lower() != b"content-length" for name, _ in start["headers"])
