"""Our own HTTP/1.1 server: lets callers in, up to a number; keeps time; and closes without cutting anybody off."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

from hub.server.asgi import App, Refusal
from hub.server.connection import ServerConnection
from rolecall.errors import HubError, Overloaded

_LETTING_GO = 1.0


class Counters(Protocol):
    """What the server reports, as it happens."""

    def connections(self, count: int) -> None:
        """So many are open now and served."""

    def refused(self, reason: str) -> None:
        """A request, or a connection, was turned away before it became a call."""


class HttpServer:
    """`most` lines at a time. Who comes then is told so, as long as those who are told are not as many again; beyond that a
    line is cut at once. `patience`: who takes nothing for this long is cut off. `max_head`: bytes of a request's headers. The
    application refuses what is beyond, and says it better: here is where reading ends.
    """

    look_every = 1.0
    head_within = 5.0
    idle_for = 75.0
    """Longer than proxies keep theirs, so that it is not the hub that closes a line just as they use it."""

    def __init__(
        self,
        app: App,
        counters: Counters,
        refusal_of: Callable[[Exception], Refusal],
        *,
        most: int,
        patience: float,
        max_head: int,
    ) -> None:
        self.app = app
        self.max_head = 2 * max_head
        self.patience = patience
        self._counters = counters
        self._refusal_of = refusal_of
        self._most = most
        self._lines: set[ServerConnection] = set()
        self._refused: set[ServerConnection] = set()
        """Those of them that nobody serves."""
        self._server: asyncio.Server | None = None
        self._empty = asyncio.Event()
        self._closing = False

    def __len__(self) -> int:
        return len(self._lines)

    async def open(self, listener: socket.socket, *, backlog: int) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: ServerConnection(self, loop), sock=listener, backlog=backlog)

    async def keep_time(self) -> None:
        """Forever: close the lines whose callers have had their time."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.look_every)
            now = loop.time()
            for line in [line for line in self._lines if line.due <= now]:
                line.expire()

    async def close(self, within: float) -> None:
        """Let nobody in any more; answer what has been asked; after `within` seconds cut off whoever is left."""
        self._closing = True
        if self._server is not None:
            self._server.close()
        for line in tuple(self._lines):
            line.close()
        await self._until_empty(within)
        tasks = [line.task for line in self._lines if line.task is not None]
        for line in tuple(self._lines):
            line.abort()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._until_empty(_LETTING_GO)

    async def _until_empty(self, within: float) -> None:
        self._empty.clear()
        if self._lines:
            try:
                async with asyncio.timeout(within):
                    await self._empty.wait()
            except TimeoutError:
                pass

    # --- the lines' side

    def opened(self, line: ServerConnection) -> HubError | None:
        served = len(self._lines) - len(self._refused)
        self._lines.add(line)
        if self._closing:  # the system had let him in before it heard
            line.abort()
            return None
        if served < self._most:
            self._counters.connections(served + 1)
            return None
        self._refused.add(line)
        if len(self._refused) > self._most:
            line.abort()
        return Overloaded("connections", self._most, "max_connections")

    def refuse(self, error: Exception) -> Refusal:
        refusal = self._refusal_of(error)
        if refusal.reason:
            self._counters.refused(refusal.reason)
        return refusal

    def closed(self, line: ServerConnection) -> None:
        self._lines.discard(line)
        self._refused.discard(line)
        self._counters.connections(len(self._lines) - len(self._refused))
        if not self._lines:
            self._empty.set()
