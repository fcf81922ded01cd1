"""Keeps what is not a call from crowding the loop: a call waits behind one or a few of them, however many there are."""

from __future__ import annotations

import asyncio
from collections import deque

_MANY = 250


class Pace:
    """One goes in each turn of the loop; between them every call takes a step. Of a long queue more go: turns are long where
    there are many calls, and nobody is to wait until his lease ends.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._turning = False

    async def turn(self) -> None:
        """One after the other, in the order in which they came; at once when there is no crowd."""
        loop = asyncio.get_running_loop()
        if not self._turning:
            self._turning = True
            loop.call_soon(self._next, loop)
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        room = 1 + len(self._waiting) // _MANY
        let_in = 0
        while self._waiting and let_in < room:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                let_in += 1
        self._turning = let_in > 0
        if self._turning:
            loop.call_soon(self._next, loop)
