"""Limits how many requests other than A2A calls start per loop iteration, so that a burst of them does not delay calls."""

from __future__ import annotations

import asyncio

from hub.core.shares.rotation import Rotation

_ITERATIONS = 4
_INTERVAL = 0.002
_QUEUE_PER_START = 250


class FairScheduler:
    """While requests queue, one starts every `_ITERATIONS` iterations of the loop, or every `_INTERVAL` if iterations are long:
    a call takes a dozen iterations, and those between are short. Of a long queue several start at once, so that no heartbeat
    waits until its lease ends. Workspaces start in rotation.
    """

    def __init__(self, starts: Rotation) -> None:
        self._waiting = starts
        self._active = False
        self._iterations = 0
        self._last = 0.0

    async def turn(self, workspace: str) -> None:
        """Waits for the caller's turn; returns at once if there is no queue."""
        loop = asyncio.get_running_loop()
        if not self._active:
            self._active = True
            self._schedule_next(loop)
            return
        await self._waiting.add(workspace)

    def _schedule_next(self, loop: asyncio.AbstractEventLoop) -> None:
        self._iterations, self._last = 0, loop.time()
        loop.call_soon(self._next, loop)

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        self._iterations += 1
        if self._iterations < _ITERATIONS and loop.time() - self._last < _INTERVAL:
            loop.call_soon(self._next, loop)
            return
        batch_size = 1 + len(self._waiting) // _QUEUE_PER_START
        started = 0
        while started < batch_size and self._waiting.wake_next():
            started += 1
        self._active = started > 0
        if self._active:
            self._schedule_next(loop)
