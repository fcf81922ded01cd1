"""Limits how many A2A calls start in one iteration of the loop, so that many calls of one workspace do not delay another's."""

from __future__ import annotations

import asyncio

from hub.core.shares.rotation import Rotation

_AT_ONCE = 32
"""A call takes a dozen iterations. The fewer start in one, the shorter the iterations of the others are; and the fewer messages
are stored together.
"""


class CallTurns:
    """`starts`: the calls that wait; workspaces start in rotation. While few calls come, none waits."""

    def __init__(self, starts: Rotation) -> None:
        self._waiting = starts
        self._free = _AT_ONCE
        self._counts = False
        """Calls have started in this iteration."""

    def take(self, workspace: str) -> asyncio.Future[None] | None:
        """None: it is the caller's turn now. Otherwise it is when the future is done, which is to be awaited at once."""
        if not self._counts:
            self._counts = True
            asyncio.get_running_loop().call_soon(self._next)
        if self._free:
            self._free -= 1
            return None
        return self._waiting.add(workspace)

    def _next(self) -> None:
        """Called in each iteration after one in which calls started."""
        self._free = _AT_ONCE
        while self._free and self._waiting.count and self._waiting.wake_next():
            self._free -= 1
        self._counts = self._free < _AT_ONCE
        if self._counts:
            asyncio.get_running_loop().call_soon(self._next)
