"""The registry feed: the newest changes, and readers that wait for more."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from hub.storage.common.waiting import IdleWait, wake_all
from rolecall.model.worker import RegistryChange

KEPT = 10_000


class Feed:
    """Revisions are contiguous, so a change is found by its offset from the end."""

    def __init__(self) -> None:
        self.revision = 0
        self.readers: set[FeedReader] = set()
        self._kept: list[RegistryChange] = []

    def publish(self, change: RegistryChange) -> RegistryChange | None:
        """Returns the change that was dropped to make room, if any."""
        self.revision = change.revision
        self._kept.append(change)
        wake_all(self.readers)
        return self._kept.pop(0) if len(self._kept) > KEPT else None

    def since(self, after: int) -> Sequence[RegistryChange]:
        new = self.revision - after
        return self._kept[-new:] if new > 0 else ()


class FeedReader(IdleWait):
    """Reads the changes of one workspace; None: of all."""

    __slots__ = ("_after", "_feed", "_workspace")

    def __init__(self, feed: Feed, workspace: str | None, *, after: int | None, idle: timedelta) -> None:
        super().__init__(idle)
        self._feed = feed
        self._workspace = workspace
        # A revision from the future came from another database: start from now.
        self._after = feed.revision if after is None else min(after, feed.revision)

    def __aiter__(self) -> FeedReader:
        return self

    async def __anext__(self) -> Sequence[RegistryChange]:
        while not self._stopped:
            batch = [change for change in self._feed.since(self._after) if self._workspace in (None, change.workspace)]
            self._after = max(self._after, self._feed.revision)
            if batch:
                return batch
            self._feed.readers.add(self)
            try:
                await self._start_wait()
            finally:
                self._feed.readers.discard(self)
            if not self._stopped and self._loop.time() >= self._deadline:
                return ()
        raise StopAsyncIteration
