"""Decides when a worker becomes suspect, and when its lease may end. Pure functions of time.

ready → suspect after a missed beat (or a refused connection, which the relay sees); suspect → gone when the lease runs out.
If too many leases of a role would end at once, the fault is more likely in the hub or the network than in the workers: those
above the limit are probed first, and stay while something accepts connections at their address.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_BEATS_MISSED = 1.5
_SHARE, _ALWAYS_ALLOWED = 0.2, 3
RECENT = 120.0
"""Seconds in which at most a fifth of a role ends without a probe."""


def missed_a_beat(*, ttl: float, left: float, heartbeat: float) -> bool:
    """Allows half a heartbeat of slack: clocks and networks are not exact, and the granted interval has jitter."""
    return ttl - left > _BEATS_MISSED * heartbeat


def about_to_end(*, ttl: float, left: float, look_every: float) -> bool:
    """Whether the lease will end before the next look."""
    return left <= min(2 * look_every, ttl / 4)


def next_look(*, ttl: float, left: float, heartbeat: float, look_every: float, ready: bool) -> float:
    """Seconds in which neither of the two above can become true, however often the worker beats. A suspect worker may beat,
    and then miss a beat again.
    """
    doubt = left - ttl + _BEATS_MISSED * heartbeat if ready else _BEATS_MISSED * heartbeat
    return min(doubt, left - min(2 * look_every, ttl / 4))


def too_many(ending: Sequence[T], *, live: int, recent_count: int) -> Sequence[T]:
    """Those of `ending` that must be probed first: all above a fifth of the role. Three may always go."""
    may_go = max(_ALWAYS_ALLOWED, int(_SHARE * (live + recent_count))) - recent_count
    return ending[max(may_go, 0) :]
