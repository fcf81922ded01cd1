"""One client's connection: reads HTTP/1.1 and passes one request after another to the application.

Malformed or ambiguous input is refused, and the connection closed.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import Any, Protocol, cast

from hub.server.asgi import STREAM, App, Refusal, Scope, drained
from hub.server.cycle import MAX_UNREAD, RequestCycle, closing_answer
from hub.server.parser import RequestParser
from hub.server.tls import Certificate
from rolecall.errors import HubError

if sys.platform != "win32":
    import fcntl
    import termios

log = logging.getLogger(__name__)

NEVER = float("inf")
_MAX_WAITING = 16
"""Pipelined requests that wait for the answer to an earlier one."""
_PARSE_CHUNK = 4 * 1024
"""Bytes that are parsed between two checks of how many requests wait: a request can be as short as 20 bytes."""
_WRITE_BUFFER_LIMIT = 32 * 1024
"""Bytes of an answer that the client has not taken yet; above this the application waits."""
_MIN_PROGRESS = 16 * 1024
"""Bytes that a client must take within the owner's `patience`. Fewer count as none."""
_DISCARD_TIMEOUT = 1.0
"""Seconds for which input is read and discarded after the last answer. Closing with unread bytes would reset the connection,
and the answer would be lost.
"""


class ConnectionOwner(Protocol):
    """The server that accepted the connection. Times are in seconds. `max_head`: bytes of a head, request line included."""

    app: App
    certificate: Certificate | None
    max_head: int
    head_timeout: float
    idle_timeout: float
    patience: float

    def opened(self, connection: ServerConnection) -> HubError | None:
        """Returns the error if there are too many connections."""

    def refuse(self, error: Exception) -> Refusal:
        """The answer to unparsable input or to a refused connection. The refusal is counted."""

    def closed(self, connection: ServerConnection) -> None: ...


class ServerConnection(asyncio.Protocol):
    def __init__(self, owner: ConnectionOwner, loop: asyncio.AbstractEventLoop) -> None:
        self.deadline = NEVER
        """For the client's next input, on the loop's clock. The owner checks it periodically."""
        self.write_deadline = NEVER
        """For the client's progress in taking what was written."""
        self.write_paused = False
        self.task: asyncio.Task[None] | None = None
        self._owner = owner
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser: RequestParser | None = None
        self._waiting: list[RequestCycle] = []
        """A list, because it is short, and an empty deque takes 600 bytes."""
        self._current: RequestCycle | None = None
        self._new_request: asyncio.Future[None] | None = None
        self._on_drain: list[Callable[[], None]] = []
        self._read_paused = False
        self._unsent_before = 0
        self._pending_input = b""
        """Input that is not parsed yet, because enough requests wait."""
        self._parse_error: HubError | None = None
        """Why no more input can be parsed. Sent after the answers to all earlier requests."""
        self._closing = False
        """No further request is read."""
        self._ignore_input = False
        """Input is discarded."""
        self._finished = False
        """The last answer has been written."""

    # --- called by the owner

    def expire(self, now: float) -> None:
        """A deadline has passed."""
        if self.deadline <= now:
            self._close_transport()
        elif self._unsent_before - self._unsent_bytes() >= _MIN_PROGRESS:
            self._watch_writing()
        else:
            log.info("connection cut", extra={"event": "line_cut", "why": "the client took no data for too long"})
            self.abort()

    def close(self) -> None:
        """Reads no further request. Pending requests are answered."""
        self._closing = True
        if self._current is None and not self._waiting and not self._finished:
            self._close_transport()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # --- called by the request cycle

    @property
    def closes_after_answer(self) -> bool:
        return self._closing and not self._waiting and self._parse_error is None

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def on_drain(self, callback: Callable[[], None]) -> None:
        if self.write_paused:
            self._on_drain.append(callback)
        else:
            self._loop.call_soon(callback)

    async def drain(self) -> None:
        while self.write_paused:
            await drained(self)

    def resume_reading(self) -> None:
        waits = self._pending_input or self._read_paused
        if not waits or self._ignore_input or self._input_full():
            return
        if self._pending_input:
            self._loop.call_soon(self._parse_pending)
        else:
            self._resume_transport()

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_LIMIT)
        peers = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        self._parser = RequestParser(self._on_request, peers, max_head=self._owner.max_head, tls=self._tls_extension())
        self.deadline = self._loop.time() + self._owner.head_timeout
        error = self._owner.opened(self)
        if error is not None:
            self._refuse(error)

    def data_received(self, data: bytes) -> None:
        if not self._ignore_input:
            self._parse(data)

    def eof_received(self) -> bool:
        """A half-closed client may still read its answer; it may take as long as one that takes no data. In the middle of
        a stream, EOF counts as a disconnect: otherwise it would be noticed only when the next event is written.
        """
        self._closing = True
        self._drop_body()
        self.deadline = self._loop.time() + self._owner.patience
        if self._current is not None and self._current.streams:
            self._current.disconnect()
        if self._owner.certificate is not None:
            return False  # TLS has no half-closed connections here
        return bool(self._waiting) or (self._current is not None and not self._current.disconnected)

    def pause_writing(self) -> None:
        self.write_paused = True
        self._watch_writing()

    def resume_writing(self) -> None:
        self.write_paused = False
        if self._transport is None or not self._transport.is_closing():
            self.write_deadline = NEVER
        callbacks, self._on_drain = self._on_drain, []
        for callback in callbacks:
            callback()

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.closed(self)
        self._closing = self._ignore_input = self._finished = True
        self.deadline = self.write_deadline = NEVER
        # Parser and connection refer to each other: this breaks the cycle, so that no garbage collection is needed.
        if self._parser is not None:
            self._parser.close()
        self._parser = self._transport = None
        self._waiting.clear()
        self._pending_input = b""
        if self._current is not None:
            self._current.disconnect()
        self.resume_writing()
        self._wake_up()

    def _tls_extension(self) -> dict[str, Any] | None:
        certificate, transport = self._owner.certificate, self._transport
        if certificate is None or transport is None:
            return None
        return certificate.extension(transport.get_extra_info("ssl_object"))

    # --- reading

    def _on_request(self, scope: Scope, *, keep_alive: bool, expects_continue: bool) -> RequestCycle:
        cycle = RequestCycle(self, self._loop, scope, keep_alive=keep_alive, expects_continue=expects_continue)
        self._waiting.append(cycle)
        self.deadline = NEVER
        if self.task is None:
            self.task = self._loop.create_task(self._serve(), name="connection")
        else:
            self._wake_up()
        return cycle

    def _parse(self, data: bytes) -> None:
        """Parses until enough requests wait; the rest is parsed when there is room again."""
        parser = self._parser
        if parser is None:
            return
        was_in_head, at, full = parser.in_head, 0, self._input_full()
        while at < len(data) and not full:
            error = parser.feed(data[at : at + _PARSE_CHUNK])
            if error is not None:
                self._on_parse_error(error)
                return
            at += _PARSE_CHUNK
            full = self._input_full()
        self._pending_input = data[at:]
        if full:
            self._pause_transport()
        elif self._read_paused:
            self._resume_transport()
        if parser.in_head and not was_in_head and self._current is None and not self._waiting:
            self.deadline = self._loop.time() + self._owner.head_timeout

    def _parse_pending(self) -> None:
        """Parses pending input in a loop iteration of its own, so that other connections are served in between."""
        data, self._pending_input = self._pending_input, b""
        if data and not self._ignore_input:
            self._parse(data)

    def _input_full(self) -> bool:
        """Enough input waits. The current request counts only while its body is being received."""
        if self._waiting:
            return len(self._waiting) >= _MAX_WAITING or sum([cycle.unread for cycle in self._waiting]) > MAX_UNREAD
        reading = self._parser.reading if self._parser is not None else None
        return reading is not None and reading.unread > MAX_UNREAD

    def _in_head(self) -> bool:
        return self._parser is not None and self._parser.in_head

    def _pause_transport(self) -> None:
        if not self._read_paused and self._transport is not None and not self._transport.is_closing():
            self._read_paused = True
            self._transport.pause_reading()

    def _resume_transport(self) -> None:
        if self._read_paused and self._transport is not None and not self._transport.is_closing():
            self._read_paused = False
            self._transport.resume_reading()

    def _on_parse_error(self, error: HubError) -> None:
        """Earlier requests are still answered."""
        self._closing = self._ignore_input = True
        self._parse_error = error
        self._drop_body()
        self._resume_transport()
        if self._current is None and not self._waiting:
            self._finish()

    def _drop_body(self) -> None:
        """The body being received will never be complete."""
        cycle = self._parser.reading if self._parser is not None else None
        if cycle is not None and not cycle.disconnected:
            cycle.disconnect()
            if self._waiting and self._waiting[-1] is cycle:
                self._waiting.pop()

    # --- serving

    async def _serve(self) -> None:
        """Serves one request after another until the connection closes."""
        try:
            while await self._next_request():
                await self._answer(self._waiting.pop(0))
                if self.write_paused:
                    await self.drain()
        finally:
            if self._current is not None:
                self.abort()

    async def _next_request(self) -> bool:
        while not self._waiting:
            if self._closing:
                self._finish()
                return False
            self.deadline = self._loop.time() + (self._owner.head_timeout if self._in_head() else self._owner.idle_timeout)
            self._new_request = self._loop.create_future()
            try:
                await self._new_request
            finally:
                self._new_request = None
        return True

    async def _answer(self, cycle: RequestCycle) -> None:
        self._current = cycle
        extensions = cycle.scope["extensions"]
        extensions[STREAM] = cycle
        failed = False
        try:
            await self._owner.app(cycle.scope, cycle.receive, cycle.send)
        except Exception:
            failed = True
            log.exception("request failed", extra={"event": "request_failed", "path": cycle.scope["path"][:200]})
        # Cycle and scope refer to each other: this breaks the circle, so that no garbage collection is needed.
        del extensions[STREAM]
        self._current = None
        if cycle.answered and cycle.keep_alive and cycle.complete:
            self.resume_reading()
        else:
            self._close_after(cycle, failed=failed)

    def _close_after(self, cycle: RequestCycle, *, failed: bool) -> None:
        """No answer can follow this one, so further requests must not be executed."""
        self._closing = self._ignore_input = True
        self._pending_input = b""
        self._waiting.clear()
        if cycle.answered:
            self._parse_error = None
            if self._read_paused or not cycle.complete:  # more input is coming
                self._discard_input()
        elif cycle.started:
            self._finished = True
            self.abort()  # the client must see that the answer is incomplete
        elif failed:
            self._refuse(RuntimeError())

    def _finish(self) -> None:
        if self._finished:
            return
        if self._parse_error is not None:
            self._refuse(self._parse_error)
        else:
            self._close_transport()

    def _refuse(self, error: Exception) -> None:
        """Writes the last answer."""
        refusal = self._owner.refuse(error)
        self.write(closing_answer(refusal.status, refusal.body, refusal.headers))
        self._discard_input()

    def _discard_input(self) -> None:
        """Closes the sending side and discards input for a moment: see `_DISCARD_TIMEOUT`."""
        self._closing = self._ignore_input = self._finished = True
        self._pending_input = b""
        self.deadline = self._loop.time() + _DISCARD_TIMEOUT
        if self._transport is not None and not self._transport.is_closing():
            if self._transport.can_write_eof():
                self._transport.write_eof()
            self._resume_transport()

    def _close_transport(self) -> None:
        """What is left of an answer is still sent, as long as the client takes it."""
        self._closing = self._finished = True
        self.deadline = NEVER
        if self._transport is not None:
            self._watch_writing()
            self._transport.close()

    def _watch_writing(self) -> None:
        self._unsent_before = self._unsent_bytes()
        self.write_deadline = self._loop.time() + self._owner.patience

    def _unsent_bytes(self) -> int:
        """Includes the kernel's send buffer: it takes megabytes, and asks for more only when a large part has been sent."""
        if self._transport is None:
            return 0
        return self._transport.get_write_buffer_size() + _unsent_in_kernel(self._transport)

    def _wake_up(self) -> None:
        if self._new_request is not None and not self._new_request.done():
            self._new_request.set_result(None)


def _unsent_in_kernel(transport: asyncio.Transport) -> int:
    """0 where the system does not say."""
    if sys.platform != "win32":
        try:
            size = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
        except OSError:
            return 0
        return int.from_bytes(size, sys.byteorder)
    return 0
