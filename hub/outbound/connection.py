"""One HTTP/1.1 connection, and the answer that it receives.

The parser calls back while bytes are fed; the answer is told once per feed, not once per callback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol, cast

import httptools

from rolecall.errors import HubError, InvalidAnswer, WorkerBroke

_MAX_HEAD = 64 * 1024
_MAX_BUFFERED = 256 * 1024
_MAX_DISCARDED = 64 * 1024
_DISCARD_TIMEOUT = 1.0
_READ_HEADERS = frozenset(
    {
        b"content-type",
        b"content-encoding",
        b"content-length",
        b"transfer-encoding",
        b"x-not-processed",
        b"retry-after",
        b"etag",
    }
)
_WITHOUT_BODY = frozenset({204, 304})
_LARGE_BODY = 64 * 1024
"""A larger one is written by itself, not copied behind its head."""
Request = tuple[bytes, bytes]
"""Head and body."""
NO_HEADERS: Mapping[bytes, bytes] = {}


class Owner(Protocol):
    """The pool that owns a connection."""

    def release(self, connection: ClientConnection) -> None: ...
    def remove(self, connection: ClientConnection) -> None: ...


class Response:
    """One answer as it arrives. Once it is complete, its connection returns to the pool.

    `worker`: who is called, for the text of errors. `chunks`: bytes of the body that the subclass has not taken; `buffered`:
    their size. A `failure` comes after the bytes that were received before it.
    """

    __slots__ = (
        "_connecting",
        "_connection",
        "buffered",
        "chunks",
        "complete",
        "discarded",
        "failure",
        "headers",
        "status",
        "worker",
    )

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.status = 0
        self.headers = NO_HEADERS
        self.chunks: list[bytes] = []
        self.buffered = 0
        self.complete = False
        self.discarded = False
        self.failure: HubError | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._connection: ClientConnection | None = None

    def changed(self) -> None:
        """The head, a part of the body, the proper end or the failure has come. Never called from within the parser."""
        raise NotImplementedError

    def take(self, limit: int) -> bytes:
        """The next bytes of the body, at most `limit`; empty if there are none."""
        chunks = self.chunks
        if not chunks:
            return b""
        taken = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        if len(taken) > limit:
            chunks.append(taken[limit:])
            taken = taken[:limit]
        self.buffered -= len(taken)
        if not self.buffered and self._connection is not None and self._connection.paused:
            self._connection.resume(self)
        return taken

    def limit(self, seconds: float, why: str) -> None:
        """WorkerBroke if the answer is not complete by then. Replaces an earlier limit."""
        if self._connection is not None:
            self._connection.limit(self, seconds, why)

    def close(self) -> None:
        """Ends the call. If the answer is incomplete, its connection is closed."""
        if self._connecting is not None:
            self._connecting.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.cancel(self)

    def discard(self) -> None:
        """Ignores the rest. If it is short and arrives soon, the connection can be used again; otherwise this is `close`."""
        self.discarded = True
        self.chunks.clear()
        self.buffered = 0
        if self._connection is not None:
            self._connection.resume(self)
            self._connection.limit(self, _DISCARD_TIMEOUT, "its answer does not end")

    def fail_soon(self, failure: HubError) -> None:
        """For a failure that is known while the call is being made."""
        asyncio.get_running_loop().call_soon(self.fail, failure.copy())

    # --- called by the client and the connection

    def connect(self, connecting: asyncio.Task[None]) -> None:
        self._connecting = connecting

    def begin(self, connection: ClientConnection) -> None:
        self._connecting = None
        self._connection = connection

    def fail(self, failure: HubError) -> None:
        self.failure = failure
        self._connecting = self._connection = None
        self.changed()


class ClientConnection(asyncio.Protocol):
    __slots__ = (
        "_bytes_without_progress",
        "_ends_with_connection",
        "_head_size",
        "_headers",
        "_interim",
        "_keep",
        "_owner",
        "_parser",
        "_response",
        "_started",
        "_surplus",
        "_timer",
        "_transport",
        "_why",
        "loop",
        "paused",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, owner: Owner) -> None:
        self.loop = loop
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._parser: Any = None
        self._response: Response | None = None
        self._timer: asyncio.TimerHandle | None = None
        """Until the head has come it limits how long the request is written, later what `Response.limit` asked for."""
        self.paused = False
        """Reading is paused, because the answer is not used."""
        self._clear()

    def _clear(self) -> None:
        """The state before an answer's first byte."""
        self._headers: dict[bytes, bytes] = {}
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

    def send(self, request: Request, response: Response, within: float) -> None:
        """The connection must be `usable`. `within`: seconds in which the worker must have taken the request."""
        assert self._transport is not None
        self._clear()
        self._response = response
        response.begin(self)
        head, body = request
        if len(body) < _LARGE_BODY:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)
        if self._transport.get_write_buffer_size():
            self.limit(response, within, f"it has not taken the call within {within:g} s")

    def limit(self, response: Response, seconds: float, why: str) -> None:
        if self._response is response:
            self._stop_timer()
            self._timer = self.loop.call_later(seconds, self._expire, why)

    def cancel(self, response: Response) -> None:
        """Stops receiving this answer."""
        if self._response is response:
            self._response = None
            self.abort()

    def resume(self, response: Response) -> None:
        """What was buffered has been used."""
        if self.paused and self._response is response and self._transport is not None:
            self.paused = False
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
            # The lower of the two bounds, so that most feeds need no call.
            if response.buffered > _MAX_DISCARDED:
                self._limit_buffer(response)
        if response.status:
            response.changed()

    def eof_received(self) -> bool:
        response = self._response
        self._owner.remove(self)
        if response is not None and response.status and self._ends_with_connection:
            response.complete = True
            self._response = None
            response.changed()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.remove(self)
        self._stop_timer()
        response, self._response = self._response, None
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
        if self._response is not None and not self._response.status:
            self._stop_timer()

    # --- httptools' callbacks

    def on_message_begin(self) -> None:
        if self._response is None or self._response.complete:
            self._surplus = True
        else:
            self._headers.clear()

    def on_header(self, name: bytes, value: bytes | None) -> None:
        value = value or b""
        self._head_size += len(name) + len(value) + 4
        if self._head_size > _MAX_HEAD:
            self._fail(f"its head is longer than {_MAX_HEAD} bytes")
        name = name.lower()
        if name not in _READ_HEADERS:
            return
        response, headers = self._response, self._headers
        if response is not None and not response.status and not response.complete:
            headers[name] = headers[name] + b", " + value if name in headers else value

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
        headers = self._headers
        if headers.get(b"content-encoding", b"identity").strip().lower() not in (b"identity", b""):
            self._fail("it is compressed, which the hub had ruled out")
        coding = headers.get(b"transfer-encoding")
        if coding is not None and coding.strip().lower() != b"chunked":
            self._fail("it has a transfer coding that the hub had not offered to take")
        self._ends_with_connection = coding is None and b"content-length" not in headers and status not in _WITHOUT_BODY
        self._keep = not self._ends_with_connection and self._parser.should_keep_alive()
        response.status, response.headers = status, headers
        # Only the response keeps them, as long as it needs them.
        self._headers = {}
        if self._timer is not None:
            self._stop_timer()

    def on_body(self, data: bytes) -> None:
        response = self._response
        if response is not None and not self._surplus:
            response.buffered += len(data)
            if not response.discarded:
                response.chunks.append(data)

    def on_message_complete(self) -> None:
        response = self._response
        if self._interim:
            self._interim = False
        elif response is not None and response.status:
            response.complete = True

    # --- pieces

    def _limit_buffer(self, response: Response) -> None:
        if response.discarded:
            self.cancel(response)
        elif response.buffered > _MAX_BUFFERED and not self.paused and self._transport is not None:
            self.paused = True
            self._transport.pause_reading()

    def _fail(self, why: str) -> None:
        """Raises out of a callback, so that httptools stops parsing."""
        self._why = why
        raise ValueError(why)

    def _refuse(self, response: Response, why: str) -> None:
        self._give_up()
        response.fail(InvalidAnswer(response.worker, why))

    def _expire(self, why: str) -> None:
        response = self._response
        self._give_up()
        if response is not None:
            response.fail(WorkerBroke(response.worker, why))

    def _give_up(self) -> None:
        self._response = None
        self._owner.remove(self)
        self.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _finish(self, response: Response) -> None:
        self._response = None
        if self._timer is not None:
            self._stop_timer()
        transport = self._transport
        assert transport is not None
        blocked = transport.get_write_buffer_size() > 0
        if self._keep and not self._surplus and not blocked and not transport.is_closing():
            if self.paused:
                self.paused = False
                transport.resume_reading()
            self._owner.release(self)
        else:
            self._owner.remove(self)
            # The rest of the request has no reader: a graceful close would wait for one.
            if blocked:
                transport.abort()
            else:
                transport.close()
