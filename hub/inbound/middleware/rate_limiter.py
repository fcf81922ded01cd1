"""Limits per caller: a rate of calls, and a number of calls at once. The local caller is not limited. An HTTP request is one
call, a batch as many as it holds.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rolecall.errors import TooManyAtOnce, TooManyRequests
from rolecall.model.ids import Caller
from rolecall.model.principal import LOCAL, Principal

_MAX_CALLERS = 10_000


class RateLimiter:
    """`rate`: calls a second, and twice that in a burst. `at_once`: open calls, streams included. Zero: no limit."""

    def __init__(self, *, rate: float, at_once: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._at_once = at_once
        self._monotonic = monotonic
        self._buckets: dict[Caller, tuple[float, float]] = {}
        """How many calls the caller may make, and when that was computed."""
        self._active: dict[Caller, int] = {}

    def enter(self, caller: Caller) -> None:
        """Every successful call must be followed by `leave`. TooManyRequests, TooManyAtOnce."""
        active = self._active.get(caller, 0)
        if self._at_once and active >= self._at_once:
            raise TooManyAtOnce(self._at_once)
        if self._rate:
            self._take(caller)
        self._active[caller] = active + 1

    def _take(self, caller: Caller) -> None:
        now, capacity = self._monotonic(), 2 * self._rate
        allowed, updated = self._buckets.get(caller, (capacity, now))
        allowed = min(capacity, allowed + (now - updated) * self._rate)
        if allowed < 1:
            raise TooManyRequests(self._rate, (1 - allowed) / self._rate)
        if len(self._buckets) >= _MAX_CALLERS and caller not in self._buckets:
            self._buckets.clear()
        self._buckets[caller] = (allowed - 1, now)

    def leave(self, caller: Caller) -> None:
        left = self._active[caller] - 1
        if left:
            self._active[caller] = left
        else:
            del self._active[caller]


def counted_caller(principal: Principal | None) -> Caller | None:
    """The caller that the limits apply to. None: to nobody."""
    return principal.caller if principal is not None and principal is not LOCAL else None
