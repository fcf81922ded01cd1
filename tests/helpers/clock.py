"""A clock that tests move."""

from __future__ import annotations


class MovableClock:
    """Starts at a moment that is neither zero nor now, so that nothing passes by mixing up clocks."""

    def __init__(self, monotonic: float = 1_000.0, wall: float = 1_700_000_000.0) -> None:
        self._monotonic = monotonic
        self._wall = wall

    def monotonic(self) -> float:
        return self._monotonic

    def wall(self) -> float:
        return self._wall

    def advance(self, seconds: float) -> None:
        self._monotonic += seconds
        self._wall += seconds

    def step_wall(self, seconds: float) -> None:
        """Somebody sets the machine's time; nothing has passed."""
        self._wall += seconds
