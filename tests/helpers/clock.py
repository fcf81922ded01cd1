"""A clock that tests move."""

from __future__ import annotations


class ManualClock:
    """Starts neither at zero nor at the real time, so that a mix-up of clocks is seen."""

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
        """The time of the machine is set; no time has passed."""
        self._wall += seconds
