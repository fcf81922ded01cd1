"""One HTTP/1.1 connection, and the answer that it receives.

The parser calls back while bytes are fed; a task that waits for the answer is woken once per feed, not once per callback.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol, cast

import httptools

from rolecall.errors import InvalidAnswer, WorkerBroke, WorkerError

_MAX_HEAD = 64 * 1024
_MAX_BUFFERED = 256 * 1024
_MAX_DISCARDED = 64 * 1024
_DISCARD_TIMEOUT = 1.0
_READ_HEADERS = frozenset(
    {b"content-type", b"content-encoding", b"content-length", b"transfer-encoding", b"x-not-processed", b"retry-after"}
)
_WITHOUT_BODY = frozenset({204, 304})


class Owner(Protocol):
    """The pool that owns a connection."""

    def opened(self, connection: ClientConnection) -> None: ...
    def release(self, connection: ClientConnection) -> None: ...
    def remove(self, connection: ClientConnection) -> None: ...


class Response:
    """One answer as it arrives. Once it is complete, its connection returns to the pool."""

    __slots__ = (
        "_chunks",
        "_connection",
        "_failure",
        "_waiter",
        "buffered",
        "complete",
        "discarded",
        "headers",
        "status",
        "worker",
    )

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.complete = False
        self.discarded = False
        self.buffered = 0
        self._chunks: list[bytes] = []
        self._failure: WorkerError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._connection: ClientConnection | None = None

    async def next_chunk(self) -> bytes:
        """All unread bytes, in one piece; empty at the proper end. After a cut, WorkerBroke follows the last bytes received."""
        while not self._chunks:
            if self.complete:
                return b""
            await self.wait()
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self.buffered = 0
        if self._connection is not None:
            self._connection.resume(self)
        return data

    async def read_all(self, limit: int) -> bytes:
        """The rest of the body. InvalidAnswer if it is longer than `limit`."""
        pieces: list[bytes] = []
        size = 0
        while chunk := await self.next_chunk():
            size += len(chunk)
            if size > limit:
                self.close()
                raise InvalidAnswer(self.worker, f"it is longer than {limit} bytes")
            pieces.append(chunk)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def wait(self) -> None:
        """Waits for any change. Raises the failure of the answer. WorkerError."""
        if self._failure is not None:
            raise self._failure
        if self._connection is None:
            raise WorkerBroke(self.worker, "the hub ended the call")
        self._waiter = self._connection.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def close(self) -> None:
        """Ends the call. If the answer is incomplete, its connection is closed."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.cancel(self)
        self.wake()

    def discard(self) -> None:
        """Ignores the rest. If it is short and arrives soon, the connection can be used again; otherwise this is `close`."""
        self.discarded = True
        self._chunks.clear()
        self.buffered = 0
        if self._connection is not None:
            self._connection.await_end(self)

    # --- called by the connection

    def begin(self, connection: ClientConnection) -> None:
        self._connection = connection

    def add_body(self, data: bytes) -> None:
        if not self.discarded:
            self._chunks.append(data)
        self.buffered += len(data)

    def fail(self, failure: WorkerError) -> None:
        self._failure = failure
        self._connection = None
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class ClientConnection(asyncio.Protocol):
    def __init__(self, loop: asyncio.AbstractEventLoop, owner: Owner) -> None:
        self.loop = loop
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._parser: Any = None
        self._response: Response | None = None
        self._discard_timer: asyncio.TimerHandle | None = None
        self._clear()

    def _clear(self) -> None:
        """The state before an answer's first byte."""
        self._started = False
        self._interim = False
        """The head being received is that of a 1xx answer; another one follows."""
        self._keep = False
        """The connection can be used again after this answer."""
        self._ends_with_connection = False
        """The answer has no length: it ends when the connection does."""
        self._surplus = False
        """Bytes followed the complete answer, so the connection is not used again."""
        self._head_size = 0
        self._bytes_without_progress = 0
        self._why = ""

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def blocked(self) -> bool:
        """Part of the request still waits in the write buffer."""
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    def send(self, request: bytes, response: Response) -> None:
        """The connection must be `usable`."""
        assert self._transport is not None
        self._clear()
        self._response = response
        response.begin(self)
        self._transport.write(request)

    def cancel(self, response: Response) -> None:
        """Stops receiving this answer."""
        if self._response is response:
            self._response = None
            self.abort()

    def await_end(self, response: Response) -> None:
        """Receives and discards the rest of this answer, within limits."""
        if self._response is response:
            self.resume(response)
            self._discard_timer = self.loop.call_later(_DISCARD_TIMEOUT, self.cancel, response)

    def resume(self, response: Response) -> None:
        """The consumer has read what was buffered."""
        if self._response is response and self._transport is not None and not self._transport.is_reading():
            self._transport.resume_reading()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # So that resume_writing is called when the whole request is sent: see `blocked`.
        self._transport.set_write_buffer_limits(high=0)
        self._parser = httptools.HttpResponseParser(self)
        self._owner.opened(self)

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None:
            # Unexpected bytes cannot belong to the next answer.
            self._owner.remove(self)
            self.abort()
            return
        self._started = True
        before = response.buffered
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not response.complete:
                self._refuse(response, self._why or "it is not proper HTTP/1.1")
                return
            self._surplus = True
        if response.complete:
            self._finish(response)
        elif response.buffered == before:
            # Heads, trailers and chunk extensions are no progress, so their size is limited.
            self._bytes_without_progress += len(data)
            if self._bytes_without_progress > _MAX_HEAD:
                self._refuse(response, "its head or trailer never ends")
                return
        else:
            self._bytes_without_progress = 0
            self._limit_buffer(response)
        if response.status:
            response.wake()

    def eof_received(self) -> bool:
        response = self._response
        self._owner.remove(self)
        if response is not None and response.status and self._ends_with_connection:
            response.complete = True
            self._response = None
            response.wake()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.remove(self)
        response, self._response = self._response, None
        if self._discard_timer is not None:
            self._discard_timer.cancel()
        # Parser and connection refer to each other: this breaks the cycle, so that no garbage collection is needed.
        self._parser = self._transport = None
        if response is None:
            return
        if not self._started:
            why = "it closed the connection without an answer"
        elif not response.status:
            why = "its answer was cut off in the head"
        else:
            why = "its answer was cut off"
        response.fail(WorkerBroke(response.worker, why))

    def resume_writing(self) -> None:
        if self._response is not None:
            self._response.wake()

    # --- httptools' callbacks

    def on_message_begin(self) -> None:
        if self._response is None or self._response.complete:
            self._surplus = True
        else:
            self._response.headers.clear()

    def on_header(self, name: bytes, value: bytes | None) -> None:
        self._head_size += len(name) + len(value or b"") + 4
        if self._head_size > _MAX_HEAD:
            self._fail(f"its head is longer than {_MAX_HEAD} bytes")
        response = self._response
        name = name.lower()
        if name in _READ_HEADERS and response is not None and not response.status and not response.complete:
            headers = response.headers
            headers[name] = headers[name] + b", " + (value or b"") if name in headers else value or b""

    def on_headers_complete(self) -> None:
        response = self._response
        if response is None or response.complete:
            return
        status = self._parser.get_status_code()
        if status < 200:
            self._interim = True
            if status == 101:
                self._fail("it switched to another protocol")
            return
        headers = response.headers
        if headers.get(b"content-encoding", b"identity").strip().lower() not in (b"identity", b""):
            self._fail("it is compressed, which the hub had ruled out")
        coding = headers.get(b"transfer-encoding")
        if coding is not None and coding.strip().lower() != b"chunked":
            self._fail("it has a transfer coding that the hub had not offered to take")
        self._ends_with_connection = coding is None and b"content-length" not in headers and status not in _WITHOUT_BODY
        self._keep = not self._ends_with_connection and self._parser.should_keep_alive()
        response.status = status

    def on_body(self, data: bytes) -> None:
        if self._response is not None and not self._surplus:
            self._response.add_body(data)

    def on_message_complete(self) -> None:
        response = self._response
        if self._interim:
            self._interim = False
        elif response is not None and response.status:
            response.complete = True

    # --- pieces

    def _limit_buffer(self, response: Response) -> None:
        if response.discarded:
            if response.buffered > _MAX_DISCARDED:
                self.cancel(response)
        elif response.buffered > _MAX_BUFFERED and self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def _fail(self, why: str) -> None:
        """Raises out of a callback, so that httptools stops parsing."""
        self._why = why
        raise ValueError(why)

    def _refuse(self, response: Response, why: str) -> None:
        self._response = None
        self._owner.remove(self)
        self.abort()
        response.fail(InvalidAnswer(response.worker, why))

    def _finish(self, response: Response) -> None:
        self._response = None
        if self._discard_timer is not None:
            self._discard_timer.cancel()
            self._discard_timer = None
        if self._keep and not self._surplus and self.usable and not self.blocked:
            if self._transport is not None and not self._transport.is_reading():
                self._transport.resume_reading()
            self._owner.release(self)
        else:
            self._owner.remove(self)
            # The rest of the request has no reader: a graceful close would wait for one.
            if self.blocked:
                self.abort()
            else:
                self.close()
