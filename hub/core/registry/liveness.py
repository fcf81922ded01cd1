"""When a worker is doubted, and when its lease may end. Pure: time comes in, verdicts go out.

ready → suspect after a missed beat (or a refused connection, which the relay sees); suspect → gone when the lease runs out.
But where too many of a role would go at once, the fault is more likely the hub's or the network's than theirs: those that
are too many are asked first, and stay while something accepts connections at their address.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_BEATS_MISSED = 1.5
_SHARE, _ALWAYS = 0.2, 3
LATELY = 120.0
"""Seconds in which no more than a fifth of a role goes unasked."""


def missed_a_beat(*, ttl: float, left: float, heartbeat: float) -> bool:
    """Half a heartbeat of slack: clocks and networks are not exact, and the interval that was handed out has jitter."""
    return ttl - left > _BEATS_MISSED * heartbeat


def about_to_end(*, ttl: float, left: float, look_every: float) -> bool:
    """Will it be over before it can be looked at again?"""
    return left <= min(2 * look_every, ttl / 4)


def next_look(*, ttl: float, left: float, heartbeat: float, look_every: float, ready: bool) -> float:
    """Seconds in which neither can become true, however often the worker beats meanwhile. One that is doubted already may
    beat, and be missed again.
    """
    doubt = left - ttl + _BEATS_MISSED * heartbeat if ready else _BEATS_MISSED * heartbeat
    return min(doubt, left - min(2 * look_every, ttl / 4))


def too_many(ending: Sequence[T], *, live: int, gone_lately: int) -> Sequence[T]:
    """Those of `ending` that must be asked before they go: all beyond a fifth of the role (but three may always go)."""
    may_go = max(_ALWAYS, int(_SHARE * (live + gone_lately))) - gone_lately
    return ending[max(may_go, 0) :]
