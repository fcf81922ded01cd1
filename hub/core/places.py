"""Places that are limited in number: one is taken before what fills it is there, so that a flood cannot overtake the count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager

from hub.errors import Overloaded, TooManyHeld
from hub.model.ids import Caller


class Places:
    """Entered for as long as it takes to fill a place. Overloaded if there is none."""

    def __init__(self, filled: Sized, limit: int, what: str, setting: str) -> None:
        self._filled = filled
        self._limit = limit
        self._what = what
        self._setting = setting
        self._promised = 0

    def __enter__(self) -> None:
        if len(self._filled) + self._promised >= self._limit:
            raise Overloaded(self._what, self._limit, self._setting)
        self._promised += 1

    def __exit__(self, *exc: object) -> None:
        self._promised -= 1


class Shares:
    """The same for what one holder of tokens may have registered. `held` counts what is there."""

    def __init__(self, held: Callable[[Caller], int], limit: int) -> None:
        self._held = held
        self._limit = limit
        self._promised: Counter[Caller] = Counter()

    @contextmanager
    def one(self, holder: Caller) -> Iterator[None]:
        """For as long as it takes to fill it. TooManyHeld if he has no more."""
        if self._held(holder) + self._promised[holder] >= self._limit:
            raise TooManyHeld(self._limit)
        self._promised[holder] += 1
        try:
            yield
        finally:
            self._promised[holder] -= 1
            if not self._promised[holder]:
                del self._promised[holder]
