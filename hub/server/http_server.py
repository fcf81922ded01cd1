"""The hub's HTTP server: accepts a limited number of connections, enforces timeouts, and closes gracefully."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config

from hub.server.accepting import ONE_BY_ONE, accept_plain
from hub.server.asgi import App, Refusal
from hub.server.connection import ServerConnection
from hub.server.handshake import Handshake, accept_secure
from hub.server.http2 import Http2Connection
from hub.server.tls import HTTP_2, Certificate
from rolecall.errors import HubError, Overloaded

_ABORT_TIMEOUT = 1.0
_MAX_REQUESTS = 1_000_000
"""Requests of one HTTP/2 connection, before the client must open another."""

Connection = ServerConnection | Handshake | Http2Connection


class Counters(Protocol):
    """What the server reports as it happens."""

    def connections(self, count: int) -> None:
        """The number of connections that are open and served."""

    def refused(self, reason: str) -> None:
        """A request or connection was refused before it became a call."""


class HttpServer:
    """Serves `limit` connections at a time. `refused_at_once` further ones get a 503; beyond that a connection is aborted.
    `patience`: a client that takes no data for this many seconds is cut off. `max_head`: bytes of a request's headers. The
    server reads up to twice as much, because the application refuses the excess with a better error. With a `certificate` every
    connection is TLS.
    """

    check_interval = 1.0
    head_timeout = 5.0
    idle_timeout = 75.0
    """Longer than the keep-alive of common proxies: otherwise the hub could close a connection just as a proxy reuses it."""

    def __init__(
        self,
        app: App,
        counters: Counters,
        refusal_of: Callable[[Exception], Refusal],
        *,
        limit: int,
        refused_at_once: int,
        patience: float,
        max_head: int,
        certificate: Certificate | None = None,
    ) -> None:
        self.app = app
        self.max_head = 2 * max_head
        self.patience = patience
        self.certificate = certificate
        self.config = Config()
        """Hypercorn's, for HTTP/2."""
        self.context = WorkerContext(max_requests=None)
        self._counters = counters
        self._refusal_of = refusal_of
        self._limit = limit
        self._refused_at_once = refused_at_once
        self._connections: set[Connection] = set()
        self._refused: set[Connection] = set()
        """The part of `_connections` that gets a refusal."""
        self._server: asyncio.Server | None = None
        self._accept_task: asyncio.Task[None] | None = None
        self._listener: socket.socket | None = None
        self._empty = asyncio.Event()
        self._closing = False

    def __len__(self) -> int:
        return len(self._connections)

    async def open(self, listener: socket.socket, *, backlog: int) -> None:
        self._listener = listener
        loop = asyncio.get_running_loop()
        if self.certificate is not None:
            self.config = _config(self.max_head, self.idle_timeout)
            self._accept(accept_secure(self, listener), listener, backlog)
        elif ONE_BY_ONE:
            self._accept(accept_plain(listener, lambda: ServerConnection(self, loop)), listener, backlog)
        else:
            self._server = await loop.create_server(lambda: ServerConnection(self, loop), sock=listener, backlog=backlog)

    def _accept(self, work: Coroutine[Any, Any, None], listener: socket.socket, backlog: int) -> None:
        listener.listen(backlog)
        self._accept_task = asyncio.create_task(work, name="accepting")
        self._accept_task.add_done_callback(_report)

    async def keep_time(self) -> None:
        """Closes connections whose deadline has passed. Runs until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.check_interval)
            self._expire(loop.time())

    def _expire(self, now: float) -> None:
        for connection in [one for one in self._connections if one.deadline <= now or one.write_deadline <= now]:
            connection.expire(now)

    async def close(self, within: float) -> None:
        """Stops accepting, answers the pending requests, and aborts what is left after `within` seconds."""
        self._closing = True
        if self._server is not None:
            self._server.close()
        if self._accept_task is not None:
            self._accept_task.cancel()
            await asyncio.wait([self._accept_task])
        if self._listener is not None:
            self._listener.close()
        await self.context.terminated.set()  # HTTP/2 connections close when their requests are answered
        for connection in tuple(self._connections):
            connection.close()
        await self._until_empty(within)
        tasks = [connection.task for connection in self._connections if connection.task is not None]
        for connection in tuple(self._connections):
            connection.abort()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._until_empty(_ABORT_TIMEOUT)

    async def _until_empty(self, within: float) -> None:
        self._empty.clear()
        if self._connections:
            try:
                async with asyncio.timeout(within):
                    await self._empty.wait()
            except TimeoutError:
                pass

    # --- called by connections

    def protocol_for(self, alpn: str) -> ServerConnection | Http2Connection:
        """What speaks the protocol that the client has chosen."""
        loop = asyncio.get_running_loop()
        return Http2Connection(self, loop) if alpn == HTTP_2 else ServerConnection(self, loop)

    def opened(self, connection: Connection) -> HubError | None:
        served = len(self._connections) - len(self._refused)
        self._connections.add(connection)
        if self._closing:  # the kernel had accepted it before the listener closed
            connection.abort()
            return None
        if served < self._limit:
            self._counters.connections(served + 1)
            return None
        self._refused.add(connection)
        if len(self._refused) > self._refused_at_once:
            connection.abort()
        return Overloaded("connections", self._limit, "max_connections")

    def refuse(self, error: Exception) -> Refusal:
        refusal = self._refusal_of(error)
        if refusal.reason:
            self._counters.refused(refusal.reason)
        return refusal

    def closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._refused.discard(connection)
        self._counters.connections(len(self._connections) - len(self._refused))
        if not self._connections:
            self._empty.set()


def _report(accept_task: asyncio.Task[None]) -> None:
    """It runs until it is cancelled; a server that no longer accepts must not be silent about it."""
    if not accept_task.cancelled():
        context = {"message": "the server no longer accepts connections", "exception": accept_task.exception()}
        accept_task.get_loop().call_exception_handler(context)


def _config(max_head: int, idle_timeout: float) -> Config:
    config = Config()
    config.h2_max_header_list_size = max_head
    config.keep_alive_timeout = idle_timeout
    config.keep_alive_max_requests = _MAX_REQUESTS
    config.accesslog = config.errorlog = None
    config.include_server_header = False
    return config
