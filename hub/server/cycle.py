"""One request and its answer on a connection: ASGI's `receive` and `send`, and the extension for streams."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Protocol

from hub.server.asgi import Drainable, Headers, Message, Scope

_STATUS = {status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode()) for status in HTTPStatus}
_NO_CONTENT = 204
_WITHOUT_BODY = frozenset({_NO_CONTENT, 304})
_DISCONNECT = {"type": "http.disconnect"}
_END = {"type": "http.response.body", "body": b"", "more_body": False}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
MAX_UNREAD = 64 * 1024
"""Bytes of request bodies that wait for the application to read them."""


class Transport(Drainable, Protocol):
    """The connection that a request arrived on."""

    write_paused: bool
    """The client has not taken enough of what was written."""

    @property
    def closes_after_answer(self) -> bool:
        """No further answer follows the current one."""

    def write(self, data: bytes) -> None: ...
    async def drain(self) -> None:
        """Waits until the client has taken enough that more may be written, or has disconnected."""

    def resume_reading(self) -> None:
        """The application has room for more of the body."""


class RequestCycle:
    """`keep_alive`: the client may send another request on this connection."""

    __slots__ = (
        "_body",
        "_body_ended",
        "_body_left",
        "_callbacks",
        "_chunked",
        "_expects_continue",
        "_head",
        "_loop",
        "_transport",
        "_waiter",
        "answered",
        "complete",
        "disconnected",
        "keep_alive",
        "scope",
        "started",
        "unread",
    )

    def __init__(
        self, transport: Transport, loop: asyncio.AbstractEventLoop, scope: Scope, *, keep_alive: bool, expects_continue: bool
    ) -> None:
        self.scope = scope
        self.keep_alive = keep_alive
        self.complete = False
        """The whole request has been received."""
        self.answered = False
        self.started = False
        """Part of the answer has been sent."""
        self.disconnected = False
        self.unread = 0
        self._transport = transport
        self._loop = loop
        self._expects_continue = expects_continue
        self._body = bytearray()
        self._body_ended = False
        self._head: Message | None = None
        self._chunked = False
        self._body_left: int | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._callbacks: list[Callable[[], None]] | None = None

    # --- called by the application

    async def receive(self) -> Message:
        if self._expects_continue:
            self._expects_continue = False
            if not (self.complete or self._body or self.started):
                self._transport.write(_CONTINUE)
        while not (self._body or (self.complete and not self._body_ended) or self.disconnected or self.answered):
            await self._wait_for_change()
        # A client that disconnects within its body has sent what has come: an upload goes on behind it.
        is_part = bool(self._body) and not self.complete
        if self.answered or (self.disconnected and not is_part) or (self._body_ended and not self._body):
            return await self._until_disconnected()
        body = bytes(self._body)
        self._body.clear()
        self._body_ended = self.complete
        if self.unread:
            self.unread = 0
            self._transport.resume_reading()
        return {"type": "http.request", "body": body, "more_body": not self.complete}

    async def send(self, message: Message) -> None:
        """After a disconnect this sends nothing and raises nothing: `receive` reports the disconnect."""
        if message["type"] == "http.response.start":
            self.begin(message)
            return
        if self.disconnected or self.answered:
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        self._write(body, more)
        if more:
            await self._transport.drain()
        else:
            self.answered = True
            self._wake()

    def take_body(self) -> bytes | None:
        """The whole body; the request must be `complete`. None: the client has disconnected. As one `receive`."""
        if self.disconnected or self.answered:
            return None
        body = bytes(self._body)
        self._body.clear()
        self._body_ended = True
        if self.unread:
            self.unread = 0
            self._transport.resume_reading()
        return body

    def answer(self, status: int, headers: Headers, body: bytes) -> None:
        """The whole answer. `headers` are without a Content-Length."""
        if self.disconnected or self.answered:
            return
        lines, keep_alive = [_STATUS[status]], self._may_keep_alive
        for header in headers:
            if header[0] != b"connection":
                lines.append(b"%b: %b\r\n" % header)
            elif header[1].lower() == b"close":
                keep_alive = False
        if status != _NO_CONTENT:
            lines.append(b"content-length: %d\r\n" % len(body))
        head = self._finish_head(lines, keep_alive=keep_alive)
        self._transport.write(head if self._is_bare(status) else head + body)
        self.answered = True
        self._wake()

    def begin(self, head: Message) -> None:
        self._head = head

    def try_write(self, data: bytes) -> bool:
        if self.disconnected or self.answered:
            return True
        if self._transport.write_paused:
            return False
        if self._head is None and self._chunked and data:
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        else:
            self._write(data, True)
        return True

    def on_drain(self, callback: Callable[[], None]) -> None:
        self._transport.on_drain(callback)

    async def end(self) -> None:
        await self.send(_END)

    # --- called by the connection

    @property
    def streams(self) -> bool:
        """An answer of unknown length is being sent."""
        return self.started and not self.answered and self._body_left is None

    def add_body(self, data: bytes) -> None:
        self._body += data
        self.unread += len(data)
        self._wake()

    def finish(self) -> None:
        self.complete = True
        self._wake()

    def disconnect(self) -> None:
        """The client has disconnected."""
        self.disconnected = True
        self._wake()
        callbacks, self._callbacks = self._callbacks or (), None
        for callback in callbacks:
            callback()

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """Calls at once if the client has disconnected already."""
        if self.disconnected:
            callback()
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    async def forget_callbacks(self) -> None:
        self._callbacks = None

    # --- pieces

    def _write(self, body: bytes, more: bool) -> None:
        if self._head is not None:
            head = self._open(self._head)
            self._head = None
            self._transport.write(head + self._frame(body, more))
        else:
            self._transport.write(self._frame(body, more))

    async def _until_disconnected(self) -> Message:
        while not (self.disconnected or self.answered):
            await self._wait_for_change()
        return _DISCONNECT

    async def _wait_for_change(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _open(self, message: Message) -> bytes:
        """The answer's head. A body without a Content-Length is sent in chunks, or (HTTP/1.0) ends with the connection."""
        status, scope = message["status"], self.scope
        bare = self._is_bare(status)
        self._body_left = 0 if bare else None
        lines = [_STATUS.get(status) or b"HTTP/1.1 %d \r\n" % status]
        keep_alive = self._may_keep_alive
        for name, value in message["headers"]:
            if name == b"content-length":
                if status == _NO_CONTENT:
                    continue
                self._body_left = 0 if bare else int(value)
            elif name == b"connection":
                keep_alive = keep_alive and value.lower() != b"close"
                continue
            lines.append(b"%b: %b\r\n" % (name, value))
        if self._body_left is None:
            self._chunked = scope["http_version"] == "1.1"
            if self._chunked:
                lines.append(b"transfer-encoding: chunked\r\n")
            else:
                keep_alive = False
        return self._finish_head(lines, keep_alive=keep_alive)

    def _is_bare(self, status: int) -> bool:
        """The answer has no body."""
        return self.scope["method"] == "HEAD" or status in _WITHOUT_BODY

    @property
    def _may_keep_alive(self) -> bool:
        """After an answer to an incomplete request the rest of it is not read."""
        return self.keep_alive and self.complete and not self._transport.closes_after_answer

    def _finish_head(self, lines: list[bytes], *, keep_alive: bool) -> bytes:
        if not keep_alive:
            lines.append(b"connection: close\r\n")
        elif self.scope["http_version"] == "1.0":
            lines.append(b"connection: keep-alive\r\n")
        head = b"".join(lines)
        if head.count(b"\n") != len(lines):
            raise ValueError("a header with a line break")
        self.keep_alive, self.started = keep_alive, True
        return b"%bdate: %b\r\n\r\n" % (head, _date())

    def _frame(self, body: bytes, more: bool) -> bytes:
        if self._chunked:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            return chunk if more else chunk + b"0\r\n\r\n"
        if self._body_left is None:
            return body
        body = body[: self._body_left]
        self._body_left -= len(body)
        if self._body_left and not more:
            self.keep_alive = False  # the body is shorter than announced: closing the connection shows it
        return body


_dated = (0, b"")


def _date() -> bytes:
    """The Date header's value, formatted once a second."""
    global _dated
    now = int(time.time())
    if _dated[0] != now:
        _dated = (now, formatdate(now, usegmt=True).encode())
    return _dated[1]


def closing_answer(status: int, body: bytes, headers: Headers = ()) -> bytes:
    """An answer after which the connection is closed."""
    lines = [_STATUS[status], b"content-type: application/problem+json\r\ncontent-length: %d\r\n" % len(body)]
    lines += [b"%b: %b\r\n" % header for header in headers]
    return b"%bconnection: close\r\ndate: %b\r\n\r\n%b" % (b"".join(lines), _date(), body)
