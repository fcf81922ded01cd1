"""A signal that several tasks wait for. It comes once, either plain or as an error. Cancelling one wait affects no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rolecall.errors import ClientDisconnected, HubError


class StartSignal:
    __slots__ = ("_error", "_waiters", "come")

    def __init__(self) -> None:
        self.come = False
        self._error: HubError | None = None
        self._waiters: list[asyncio.Future[None]] = []

    def happen(self, error: HubError | None = None) -> None:
        """Only the first call has an effect."""
        if self.come:
            return
        self.come = True
        self._error = error.copy() if error is not None else None
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    async def wait(self, on_disconnect: Callable[[Callable[[], None]], None] | None = None) -> None:
        """Raises the error, if it came as one. ClientDisconnected."""
        if not self.come:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            if on_disconnect is not None:
                on_disconnect(lambda: None if waiter.done() else waiter.set_result(None))
            await waiter
            if not self.come:
                raise ClientDisconnected
        if self._error is not None:
            raise self._error.copy()

    async def within(self, seconds: float) -> bool:
        """Whether it has come within that time, also as an error."""
        try:
            async with asyncio.timeout(seconds):
                await self.wait()
        except (TimeoutError, HubError):
            pass
        return self.come
