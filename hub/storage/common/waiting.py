"""How a reader waits for new entries."""

from __future__ import annotations

import asyncio
from datetime import timedelta


class IdleWait:
    """One reader. Its source, `stop`, or `idle` without a new entry wakes it.

    One timer is started; if it fires too early it is started again. So an entry costs no timer.
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
        self._cancel_timer()
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait_for_wake(self, readers: set[IdleWait]) -> bool:
        """False: the idle time ran out."""
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + self._idle
        if self._timer is None:
            self._timer = loop.call_at(self._deadline, self._on_timer, loop)
        self._waiter = loop.create_future()
        readers.add(self)
        try:
            await self._waiter
        finally:
            self._waiter = None
            readers.discard(self)
        return self._stopped or loop.time() < self._deadline

    def _on_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._waiter is None:
            return
        if loop.time() < self._deadline:
            self._timer = loop.call_at(self._deadline, self._on_timer, loop)
        else:
            self.wake()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def wake_all(readers: set[IdleWait]) -> None:
    for reader in tuple(readers):
        reader.wake()
