"""How fast workspaces fill a share, from what they held in the last day."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from hub.core.shares.share import WorkspaceShare
from hub.ports.clock import Clock

EVERY = 3600.0
"""Seconds between two looks."""
_DAY = 86_400.0


class Growth(NamedTuple):
    """`per_day`: negative if it shrinks. `full_in_days`: None if it does not grow."""

    per_day: float
    full_in_days: float | None


class GrowthWatch:
    def __init__(self, share: WorkspaceShare, clock: Clock) -> None:
        self._share = share
        self._clock = clock
        self._looks: deque[tuple[float, Mapping[str, int]]] = deque(maxlen=round(_DAY / EVERY) + 1)
        """The time of each, and what every workspace held then."""

    async def look(self) -> None:
        self._looks.append((self._clock.monotonic(), self._share.by_workspace()))

    def of(self, workspace: str) -> Growth | None:
        """None: it has not been watched for an hour yet."""
        if not self._looks:
            return None
        then, held = self._looks[0]
        passed = self._clock.monotonic() - then
        if passed < EVERY:
            return None
        now = self._share.held(workspace)
        per_day = (now - held.get(workspace, 0)) * _DAY / passed
        return Growth(per_day, max(0, self._share.cap - now) / per_day if per_day > 0 else None)
