"""How a reader waits for what it reads to grow."""

from __future__ import annotations

import asyncio
from datetime import timedelta


class IdleWait:
    """One reader. It is woken by its source, by `stop`, or when nothing came for `idle`.

    The timer is armed once and moved on when it rings too early: an event costs no timer.
    """

    __slots__ = ("_deadline", "_idle", "_stopped", "_timer", "_waiter")

    def __init__(self, idle: timedelta) -> None:
        self._idle = idle.total_seconds()
        self._stopped = False
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._waiter: asyncio.Future[None] | None = None

    def stop(self) -> None:
        self._stopped = True
        self._disarm()
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _until_woken(self, readers: set[IdleWait]) -> bool:
        """False: the idle time ran out."""
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + self._idle
        if self._timer is None:
            self._timer = loop.call_at(self._deadline, self._ring, loop)
        self._waiter = loop.create_future()
        readers.add(self)
        try:
            await self._waiter
        finally:
            self._waiter = None
            readers.discard(self)
        return self._stopped or loop.time() < self._deadline

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._waiter is None:
            return
        if loop.time() < self._deadline:
            self._timer = loop.call_at(self._deadline, self._ring, loop)
        else:
            self.wake()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def wake_all(readers: set[IdleWait]) -> None:
    for reader in tuple(readers):
        reader.wake()
