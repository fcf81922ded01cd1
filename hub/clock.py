"""The hub's clock: time in which the hub was awake."""

from __future__ import annotations

import time
from collections.abc import Callable

TICK = 0.25
"""How often somebody has to look at the clock while the hub is awake."""
_ASLEEP = 1.0


class WakingClock:
    """Monotonic time without the spans in which this process stood still: stopped, suspended, or starved.

    Nobody could renew a lease or say a word to a hub that did not listen. Without this, everybody's lease would be over
    and every worker silent in the moment in which it wakes. A span of more than a second without a look counts as sleep;
    `pauses` tells how much that was. A step of the wall clock changes nothing here.
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

    def wall(self) -> float:
        return time.time()
