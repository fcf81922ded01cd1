"""One request and its answer, on a line of our own server: what ASGI calls receive and send."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Protocol

from hub.server.asgi import Headers, Message, Scope

_STATUS = {status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode()) for status in HTTPStatus}
_NO_CONTENT = 204
_WITHOUT_BODY = frozenset({_NO_CONTENT, 304})
_GONE = {"type": "http.disconnect"}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
MOST_UNREAD = 64 * 1024
"""Bytes of bodies that wait for somebody to want them."""


class Transport(Protocol):
    """The line that an exchange is on."""

    @property
    def peers(self) -> bool:
        """After this answer nothing will be said."""

    def write(self, data: bytes) -> None: ...
    async def drained(self) -> None:
        """Until the other end has taken so much that more may be written, or is gone."""

    def want_more(self) -> None:
        """What was held back of the body may come."""


class RequestCycle:
    """`keeps`: the caller would go on with another request on this line."""

    __slots__ = (
        "_body",
        "_chunked",
        "_expects",
        "_head",
        "_left",
        "_loop",
        "_tells",
        "_told",
        "_transport",
        "_waiter",
        "answered",
        "begun",
        "complete",
        "gone",
        "keeps",
        "scope",
        "unread",
    )

    def __init__(
        self, transport: Transport, loop: asyncio.AbstractEventLoop, scope: Scope, *, keeps: bool, expects: bool
    ) -> None:
        self.scope = scope
        self.keeps = keeps
        self.complete = False
        """All of the request is here."""
        self.answered = False
        self.begun = False
        """Something of the answer is on its way."""
        self.gone = False
        self.unread = 0
        self._transport = transport
        self._loop = loop
        self._expects = expects
        self._body = bytearray()
        self._told = False
        self._head: Message | None = None
        self._chunked = False
        self._left: int | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._tells: list[Callable[[], None]] | None = None

    # --- the application's side

    async def receive(self) -> Message:
        if self._expects:
            self._expects = False
            if not (self.complete or self._body or self.begun):
                self._transport.write(_CONTINUE)
        while not (self._body or (self.complete and not self._told) or self.gone or self.answered):
            await self._change()
        if self.gone or self.answered or (self._told and not self._body):
            return await self._until_gone()
        body = bytes(self._body)
        self._body.clear()
        self._told = self.complete
        if self.unread:
            self.unread = 0
            self._transport.want_more()
        return {"type": "http.request", "body": body, "more_body": not self.complete}

    async def send(self, message: Message) -> None:
        """To a caller who has gone, nothing is sent, and nobody is told: he has been told by `receive`."""
        if message["type"] == "http.response.start":
            self._head = message
            return
        if self.gone or self.answered:
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        if self._head is not None:
            head = self._open(self._head)
            self._head = None
            self._transport.write(head + self._framed(body, more))
        else:
            self._transport.write(self._framed(body, more))
        if more:
            await self._transport.drained()
        else:
            self.answered = True
            self._wake()

    # --- the line's side

    @property
    def streams(self) -> bool:
        """In the middle of an answer that did not say how long it is."""
        return self.begun and not self.answered and self._left is None

    def take(self, data: bytes) -> None:
        self._body += data
        self.unread += len(data)
        self._wake()

    def finish(self) -> None:
        self.complete = True
        self._wake()

    def leave(self) -> None:
        """The caller has gone."""
        self.gone = True
        self._wake()
        tells, self._tells = self._tells or (), None
        for tell in tells:
            tell()

    def when_gone(self, tell: Callable[[], None]) -> None:
        """At once, if he has."""
        if self.gone:
            tell()
        elif self._tells is None:
            self._tells = [tell]
        else:
            self._tells.append(tell)

    # --- pieces

    async def _until_gone(self) -> Message:
        while not (self.gone or self.answered):
            await self._change()
        return _GONE

    async def _change(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _open(self, said: Message) -> bytes:
        """The answer's head. A body whose length it does not say goes out in chunks, or ends with the line."""
        status, scope = said["status"], self.scope
        bare = scope["method"] == "HEAD" or status in _WITHOUT_BODY
        self._left = 0 if bare else None
        lines = [_STATUS.get(status) or b"HTTP/1.1 %d \r\n" % status]
        # Whoever is answered before he has said all is not listened to any longer.
        keeps = self.keeps and self.complete and not self._transport.peers
        for name, value in said["headers"]:
            if name == b"content-length":
                if status == _NO_CONTENT:
                    continue
                self._left = 0 if bare else int(value)
            elif name == b"connection":
                keeps = keeps and value.lower() != b"close"
                continue
            lines.append(b"%b: %b\r\n" % (name, value))
        if self._left is None:
            self._chunked = scope["http_version"] == "1.1"
            if self._chunked:
                lines.append(b"transfer-encoding: chunked\r\n")
            else:
                keeps = False
        if not keeps:
            lines.append(b"connection: close\r\n")
        elif scope["http_version"] == "1.0":
            lines.append(b"connection: keep-alive\r\n")
        head = b"".join(lines)
        if head.count(b"\n") != len(lines):
            raise ValueError("a header with a line break")
        self.keeps, self.begun = keeps, True
        return b"%bdate: %b\r\n\r\n" % (head, _date())

    def _framed(self, body: bytes, more: bool) -> bytes:
        if self._chunked:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            return chunk if more else chunk + b"0\r\n\r\n"
        if self._left is None:
            return body
        body = body[: self._left]
        self._left -= len(body)
        if self._left and not more:
            self.keeps = False  # less came than was said: the line's end has to tell
        return body


_dated = (0, b"")


def _date() -> bytes:
    """Now, as heads say it; made anew once a second."""
    global _dated
    now = int(time.time())
    if _dated[0] != now:
        _dated = (now, formatdate(now, usegmt=True).encode())
    return _dated[1]


def whole_answer(status: int, body: bytes, headers: Headers = ()) -> bytes:
    """An answer after which the line is closed."""
    lines = [_STATUS[status], b"content-type: application/problem+json\r\ncontent-length: %d\r\n" % len(body)]
    lines += [b"%b: %b\r\n" % header for header in headers]
    return b"%bconnection: close\r\ndate: %b\r\n\r\n%b" % (b"".join(lines), _date(), body)
