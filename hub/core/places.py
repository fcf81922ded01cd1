"""Places that are limited in number: one is taken before what fills it is there, so that a flood cannot overtake the count."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from contextlib import contextmanager

from hub.errors import Overloaded


class Places:
    def __init__(self, filled: Sized, limit: int, what: str, setting: str) -> None:
        self._filled = filled
        self._limit = limit
        self._what = what
        self._setting = setting
        self._promised = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """For as long as it takes to fill it. Overloaded if there is none."""
        if len(self._filled) + self._promised >= self._limit:
            raise Overloaded(self._what, self._limit, self._setting)
        self._promised += 1
        try:
            yield
        finally:
            self._promised -= 1
