"""The body of an upload, as it comes: never more of it in memory than the disk is about to take. Implements core's Body."""

from __future__ import annotations

import asyncio
from typing import Any

from hub.inbound.middleware.request import Request
from hub.server.asgi import Message
from rolecall.errors import BodyTooSlow, ClientDisconnected, HubError

_SILENCE = 10.0
"""Seconds without a byte after which the client is cut off. What has come is kept, so it may come back."""
_WINDOW, _PROGRESS = 30.0, 16 * 1024
"""In so many seconds of waiting for it, a client must send so many bytes."""


class UploadBody:
    """A server reads no more from the connection than this has taken, but for a buffer: so a slow disk holds up its client.
    Waiting for the disk is not the client's slowness.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._loop = asyncio.get_running_loop()
        self._stopped: asyncio.Future[Exception] = self._loop.create_future()
        self._waited = 0.0
        self._since = 0
        """Bytes that have come since the window began."""
        self.complete = False
        """The client has sent all of it."""
        request.on_token_end(lambda: self._stop(request.gone()))

    def stop(self, why: HubError) -> None:
        self._stop(why)

    async def read(self) -> bytes:
        while not self.complete:
            if self._stopped.done():
                raise self._stopped.result()
            data = self._taken(await self._next())
            if data:
                return data
        return b""

    def _stop(self, why: Exception) -> None:
        if not self._stopped.done():
            self._stopped.set_result(why)

    async def _next(self) -> Message:
        began = self._loop.time()
        receiving: asyncio.Future[Message] = asyncio.ensure_future(self._request.receive())
        both: set[asyncio.Future[Any]] = {receiving, self._stopped}
        try:
            await asyncio.wait(both, timeout=_SILENCE, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not receiving.done():
                receiving.cancel()
                await asyncio.wait([receiving])
        self._waited += self._loop.time() - began
        if receiving.cancelled():
            raise self._stopped.result() if self._stopped.done() else BodyTooSlow
        return receiving.result()

    def _taken(self, message: Message) -> bytes:
        """Its bytes. ClientDisconnected, BodyTooSlow."""
        if message["type"] != "http.request":
            raise ClientDisconnected
        data: bytes = message.get("body", b"")
        self.complete = not message.get("more_body", False)
        self._since += len(data)
        if self._waited > _WINDOW and not self.complete:
            if self._since < _PROGRESS:
                raise BodyTooSlow
            self._waited, self._since = 0.0, 0
        return data
