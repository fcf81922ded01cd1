"""Tells whoever delivers that something may have become due."""

from __future__ import annotations

from collections.abc import Callable


class Notifier:
    """Passed on to one listener, if there is any."""

    def __init__(self) -> None:
        self._wake: Callable[[], None] | None = None

    def listen(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def give(self) -> None:
        if self._wake is not None:
            self._wake()
