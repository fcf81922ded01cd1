"""How much one holder of tokens may ask at a time: a rate, and a number under way. The local caller is not counted."""

from __future__ import annotations

import time
from collections.abc import Callable

from rolecall.errors import TooManyAtOnce, TooManyRequests
from rolecall.model.ids import Caller

_MOST_REMEMBERED = 10_000


class RateLimiter:
    """`rate` in requests a second, with twice that in a burst; `at_once` under way, streams included. Zero: no limit."""

    def __init__(self, *, rate: float, at_once: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._at_once = at_once
        self._monotonic = monotonic
        self._drops: dict[Caller, tuple[float, float]] = {}
        self._inside: dict[Caller, int] = {}

    def enter(self, caller: Caller) -> None:
        """Whoever gets in has to `leave`. TooManyRequests, TooManyAtOnce."""
        inside = self._inside.get(caller, 0)
        if self._at_once and inside >= self._at_once:
            raise TooManyAtOnce(self._at_once)
        if self._rate:
            self._take(caller)
        self._inside[caller] = inside + 1

    def _take(self, caller: Caller) -> None:
        now, most = self._monotonic(), 2 * self._rate
        left, at = self._drops.get(caller, (most, now))
        left = min(most, left + (now - at) * self._rate)
        if left < 1:
            raise TooManyRequests(self._rate, (1 - left) / self._rate)
        if len(self._drops) >= _MOST_REMEMBERED and caller not in self._drops:
            self._drops.clear()
        self._drops[caller] = (left - 1, now)

    def leave(self, caller: Caller) -> None:
        left = self._inside[caller] - 1
        if left:
            self._inside[caller] = left
        else:
            del self._inside[caller]
