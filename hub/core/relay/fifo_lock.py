"""One at a time, in the order in which they came. Costs next to nothing while nobody else wants in."""

from __future__ import annotations

import asyncio
from collections import deque


class FifoLock:
    """`if not single.enter(): await single.turn()`, and then `single.leave()` whatever happens."""

    __slots__ = ("_taken", "_waiting")

    def __init__(self) -> None:
        self._taken = False
        self._waiting: deque[asyncio.Future[None]] | None = None

    def enter(self) -> bool:
        """False: somebody is inside."""
        if self._taken:
            return False
        self._taken = True
        return True

    async def turn(self) -> None:
        """Until it is this one's turn. Whoever is cancelled as his turn comes passes it on."""
        if self._waiting is None:
            self._waiting = deque()
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self.leave()
            raise

    def leave(self) -> None:
        while self._waiting:
            following = self._waiting.popleft()
            if not following.done():
                following.set_result(None)
                return
        self._taken = False
