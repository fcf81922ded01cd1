"""When a program that has ended starts again. A table of decisions: no process, no clock."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

AT_ONCE = 10.0
"""Seconds. A program that ran for less has failed at once."""
MOST_FAILURES = 5
"""How many times in a row it may fail at once before it is left stopped."""
LONG_RUN = 60.0
"""Seconds. A program that ran for so long has its earlier ends forgiven."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0


class Restart(StrEnum):
    ALWAYS = "always"
    ON_FAILURE = "on-failure"
    NEVER = "never"


class End(NamedTuple):
    """How a program ended. `code`: negative for a signal, as in subprocess; None: it could not be started, because of `why`."""

    code: int | None
    seconds: float
    why: str = ""

    def __str__(self) -> str:
        if self.code is None:
            return f"cannot be started: {self.why}"
        return f"ended with code {self.code}" if self.code >= 0 else f"was ended by {_signal_name(-self.code)}"


class Again(NamedTuple):
    """It starts again after `pause` seconds."""

    pause: float
    text: str


class Left(NamedTuple):
    """It stays stopped. `failed`: and that is not what was wanted."""

    failed: bool
    text: str


class RestartPolicy:
    """Of one program. `final`: exit codes after which another start would end alike, and why."""

    def __init__(self, restart: Restart, final: Mapping[int, str]) -> None:
        self._restart = restart
        self._final = final
        self._times = self._at_once = 0

    def after(self, end: End) -> Again | Left:
        if end.code is None:
            return Left(failed=True, text=f"{end}; it is left stopped")
        if end.code in self._final:
            return Left(failed=True, text=f"{end}: {self._final[end.code]}; it is left stopped")
        if self._restart is Restart.NEVER or (self._restart is Restart.ON_FAILURE and end.code == 0):
            return Left(failed=end.code != 0, text=str(end))
        if end.seconds >= LONG_RUN:
            self._times = 0
        self._at_once = self._at_once + 1 if end.seconds < AT_ONCE else 0
        if self._at_once >= MOST_FAILURES:
            return Left(failed=True, text=f"{end}, at once, for the {ordinal(self._at_once)} time in a row; it is left stopped")
        pause = min(FIRST_PAUSE * 2.0**self._times, LONGEST_PAUSE)
        self._times = min(self._times + 1, 1000)
        return Again(pause, f"{end}; starts again in {pause:g} s ({ordinal(self._times)} time)")


def ordinal(number: int) -> str:
    suffix = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
