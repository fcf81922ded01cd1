"""Feeds that readers have open. One never ends by itself, so a hub that shuts down ends them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar


class OpenFeed(Protocol):
    def stop(self) -> None: ...


_Feed = TypeVar("_Feed", bound=OpenFeed)


class OpenFeeds:
    def __init__(self) -> None:
        self._open: set[OpenFeed] = set()
        self._ended = False

    @contextmanager
    def keep(self, feed: _Feed) -> Iterator[_Feed]:
        """It is stopped after the block."""
        if self._ended:
            feed.stop()
        self._open.add(feed)
        try:
            yield feed
        finally:
            self._open.discard(feed)
            feed.stop()

    def end(self) -> None:
        """End all, also future ones."""
        self._ended = True
        for feed in self._open:
            feed.stop()
