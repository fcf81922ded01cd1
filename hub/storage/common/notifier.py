"""Wakes the push deliverer when a delivery may have become due."""

from __future__ import annotations

from collections.abc import Callable


class Notifier:
    """Calls one listener, if there is one."""

    def __init__(self) -> None:
        self._wake: Callable[[], None] | None = None

    def listen(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def notify(self) -> None:
        if self._wake is not None:
            self._wake()
