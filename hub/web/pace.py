"""Keeps what is not a call from crowding the loop: a call waits behind a few of them, however many there are."""

from __future__ import annotations

import asyncio
from collections import deque

_AT_A_TIME = 2
"""In one turn of the loop. Between them every call takes a step."""


class Pace:
    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._let_in = 0
        self._turning = False

    async def turn(self) -> None:
        """One after the other, in the order in which they came; at once when there is no crowd."""
        loop = asyncio.get_running_loop()
        if not self._turning:
            self._turning = True
            loop.call_soon(self._next, loop)
        if self._let_in < _AT_A_TIME and not self._waiting:
            self._let_in += 1
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        self._let_in = 0
        while self._waiting and self._let_in < _AT_A_TIME:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._let_in += 1
        self._turning = self._let_in > 0
        if self._turning:
            loop.call_soon(self._next, loop)
