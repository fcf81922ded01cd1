"""Keeps what is not a call from crowding the loop: a call waits behind one or a few of them, however many there are."""

from __future__ import annotations

import asyncio
from collections import deque

_TURNS = 4
_MOMENT = 0.002
_MANY = 250


class FairScheduler:
    """In a crowd one goes every few turns of the loop, or every moment where turns are long: a call takes a dozen turns, and
    those between are short. Of a long queue more go at once, so that nobody waits until his lease ends.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._turning = False
        self._turns = 0
        self._last = 0.0

    async def turn(self) -> None:
        """One after the other, in the order in which they came; at once when there is no crowd."""
        loop = asyncio.get_running_loop()
        if not self._turning:
            self._turning = True
            self._rest(loop)
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _rest(self, loop: asyncio.AbstractEventLoop) -> None:
        self._turns, self._last = 0, loop.time()
        loop.call_soon(self._next, loop)

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        self._turns += 1
        if self._turns < _TURNS and loop.time() - self._last < _MOMENT:
            loop.call_soon(self._next, loop)
            return
        room = 1 + len(self._waiting) // _MANY
        let_in = 0
        while self._waiting and let_in < room:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                let_in += 1
        self._turning = let_in > 0
        if self._turning:
            self._rest(loop)
