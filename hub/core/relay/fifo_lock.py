"""A lock for one task at a time, in order of arrival. Costs almost nothing without contention."""

from __future__ import annotations

import asyncio
from collections import deque


class FifoLock:
    """Use: `if not lock.enter(): await lock.turn()`, then `lock.leave()` in a `finally`."""

    __slots__ = ("_taken", "_waiting")

    def __init__(self) -> None:
        self._taken = False
        self._waiting: deque[asyncio.Future[None]] | None = None

    def enter(self) -> bool:
        """False: the lock is taken."""
        if self._taken:
            return False
        self._taken = True
        return True

    async def turn(self) -> None:
        """Wait for the lock. A waiter that is cancelled just as it gets the lock passes it on."""
        if self._waiting is None:
            self._waiting = deque()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.leave()
            raise

    def leave(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._taken = False
