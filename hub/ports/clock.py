"""Time, so that tests can move it."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Time, so that tests can move it."""

    def monotonic(self) -> float: ...
    def wall(self) -> float: ...
