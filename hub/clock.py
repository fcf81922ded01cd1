"""The hub's clock counts only the time in which the hub was awake."""

from __future__ import annotations

import time
from collections.abc import Callable

TICK = 0.25
"""Seconds. The clock must be read at least this often while the hub is awake."""
_ASLEEP = 1.0


class WakingClock:
    """Monotonic time without the spans in which this process did not run: stopped, suspended, or starved.

    No worker can renew a lease or send an event while the hub does not run. With plain monotonic time, every lease would be
    expired and every worker silent when the hub wakes. A span of more than a second without a read counts as sleep;
    `pauses` is the sum of them. A step of the wall clock has no effect.
    """

    def __init__(self, source: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._looked = source()
        self.pauses = 0.0

    def monotonic(self) -> float:
        now = self._source()
        asleep = now - self._looked
        if asleep > _ASLEEP:
            self.pauses += asleep
        self._looked = now
        return now - self.pauses

    wall = staticmethod(time.time)
