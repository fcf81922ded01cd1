"""One HTTP/2 connection. Hypercorn speaks the protocol; what is here bounds it.

Bounded: connections, the time to the first request, idle time, the size of a head, streams, requests under way, unsent bytes
and how long they stay. Not bounded: the processor time that a client can take with frames that are no requests (PING,
SETTINGS, PRIORITY), which Hypercorn parses in Python.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol, cast

from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config

from hub.server.asgi import App, Receive, Scope, Send, with_send_timeout
from hub.server.tls import Certificate
from rolecall.errors import HubError

log = logging.getLogger(__name__)

NEVER = float("inf")
_MAX_UNDER_WAY = 200
"""Requests of one connection that the application answers, twice what may be open: a client that resets streams as soon as it
has opened them is cut off.
"""
_WRITE_BUFFER_LIMIT = 32 * 1024


class Http2Owner(Protocol):
    """The server that accepted the connection."""

    app: App
    certificate: Certificate | None
    config: Config
    context: WorkerContext
    head_timeout: float
    patience: float

    def opened(self, connection: Http2Connection) -> HubError | None: ...
    def closed(self, connection: Http2Connection) -> None: ...


class Http2Connection(asyncio.StreamReaderProtocol):
    write_deadline = NEVER
    """`send` has a timeout instead."""

    def __init__(self, owner: Http2Owner, loop: asyncio.AbstractEventLoop) -> None:
        self._reader = asyncio.StreamReader(loop=loop)
        super().__init__(self._reader, loop=loop)
        self.deadline = NEVER
        """For the first request; Hypercorn watches the time between requests."""
        self.task: asyncio.Task[None] | None = None
        self._owner = owner
        self._event_loop = loop
        self._connection: asyncio.Transport | None = None
        self._tls: dict[str, Any] = {}
        self._app = with_send_timeout(owner.app, owner.patience)
        self._under_way = 0

    # --- called by the owner

    def expire(self, now: float) -> None:
        self.abort()

    def close(self) -> None:
        """The owner has told Hypercorn: it takes no further request, and closes when the last is answered."""

    def abort(self) -> None:
        if self._connection is not None:
            self._connection.abort()

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        owner, loop = self._owner, self._event_loop
        connection = self._connection = cast(asyncio.Transport, transport)
        connection.set_write_buffer_limits(high=_WRITE_BUFFER_LIMIT)
        if owner.opened(self) is not None:
            self.abort()
            return
        if owner.certificate is not None:
            self._tls = owner.certificate.extension(connection.get_extra_info("ssl_object"))
        self.deadline = loop.time() + owner.head_timeout
        writer = asyncio.StreamWriter(connection, self, self._reader, loop)
        answer: Any = self._answer  # Hypercorn types each message
        server = TCPServer(answer, loop, owner.config, owner.context, {}, self._reader, writer)
        self.task = loop.create_task(server.run(), name="HTTP/2 connection")
        self.task.add_done_callback(self._ended)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.task is None:
            self._owner.closed(self)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, *_: object) -> None:
        """The application, called as Hypercorn calls it."""
        self.deadline = NEVER
        if self._under_way == _MAX_UNDER_WAY:
            self.abort()
            return
        scope["extensions"]["tls"] = self._tls
        self._under_way += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._under_way -= 1

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Only now is the connection closed for its owner, which waits for its task."""
        self._owner.closed(self)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            why = f"its data cannot be read: {_error_names(error)}"
            log.warning("connection cut", extra={"event": "line_cut", "why": why})
            self.abort()


def _error_names(error: BaseException) -> str:
    """The class names of an error, or of all errors in a group. Their texts may hold what a client sent."""
    if isinstance(error, BaseExceptionGroup):
        return ", ".join(sorted({_error_names(one) for one in error.exceptions}))
    return type(error).__name__
