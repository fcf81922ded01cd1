"""How a reader waits for new entries."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta


class IdleWait:
    """One reader. Its source or `stop` wakes it, and so does `idle` without a new entry.

    One timer is started; if it fires too early it is started again. So an entry costs no timer.
    """

    __slots__ = ("_deadline", "_idle", "_loop", "_stopped", "_timer", "_waiter")

    _loop: asyncio.AbstractEventLoop
    """Of the last wait."""

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

    def _start_wait(self) -> asyncio.Future[None]:
        """To be awaited until the reader is woken."""
        loop = self._loop = asyncio.get_running_loop()
        self._deadline = loop.time() + self._idle
        if self._timer is None:
            self._timer = loop.call_at(self._deadline, self._on_timer)
        self._waiter = loop.create_future()
        return self._waiter

    def _is_waiting(self) -> bool:
        return self._waiter is not None and not self._waiter.done()

    def _on_idle(self) -> None:
        self.wake()

    def _on_timer(self) -> None:
        self._timer = None
        if self._is_waiting() and self._loop.time() >= self._deadline:
            self._on_idle()
        if self._is_waiting():
            self._timer = self._loop.call_at(self._deadline, self._on_timer)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def wake_all(readers: Iterable[IdleWait]) -> None:
    for reader in tuple(readers):
        reader.wake()
