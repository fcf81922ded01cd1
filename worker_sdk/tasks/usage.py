"""What a handler reports of usage, until an event of its task carries it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Lock

from rolecall.model.usage import Usage, UsageSums


class PendingUsage:
    """Reports add up until the next status of the task takes them. `send` is called soon after a report, on the loop: a handler
    that reports several things at once, or at its end, makes no event for each.
    """

    def __init__(self, send: Callable[[], None]) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._lock = Lock()
        self._sums = UsageSums()
        self._sending = False
        self.total = UsageSums()
        """Of all reports."""

    def add(self, usage: Usage) -> None:
        """On any thread."""
        with self._lock:
            self._sums.add(usage)
            self.total.add(usage)
            begins, self._sending = not self._sending, True
        if begins and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._begin)

    def give_back(self, taken: tuple[Usage, ...]) -> None:
        """The status that was to carry them was refused."""
        with self._lock:
            for usage in taken:
                self._sums.add(usage)

    def take(self) -> tuple[Usage, ...]:
        with self._lock:
            taken, self._sums = self._sums.sums, UsageSums()
        return taken

    def _begin(self) -> None:
        """One turn later, so that a handler that has ended ends its task before."""
        self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        with self._lock:
            self._sending = False
            waiting = len(self._sums) > 0
        if waiting:
            self._send()
