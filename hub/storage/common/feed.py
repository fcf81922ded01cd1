"""The registry feed: the newest changes, and readers that wait for more."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from operator import attrgetter

from hub.storage.common.waiting import IdleWait, wake_all
from rolecall.model.worker import RegistryChange

KEPT = 10_000


class _Changes:
    """The newest changes of one workspace, and those who wait for more."""

    __slots__ = ("kept", "readers", "revision")

    def __init__(self) -> None:
        self.kept: list[RegistryChange] = []
        self.readers: set[FeedReader] = set()
        self.revision = 0


class Feed:
    def __init__(self) -> None:
        self.count = 0
        """How many changes of all workspaces were published."""
        self._kept: deque[RegistryChange] = deque()
        self._readers: set[FeedReader] = set()
        """Those of all workspaces."""
        self._workspaces: dict[str, _Changes] = {}

    def publish(self, change: RegistryChange) -> RegistryChange | None:
        """Returns the change that was dropped to make room, if any."""
        own = self._of(change.workspace)
        own.revision = change.revision
        own.kept.append(change)
        self._kept.append(change)
        self.count += 1
        wake_all(own.readers)
        wake_all(self._readers)
        if len(self._kept) <= KEPT:
            return None
        dropped = self._kept.popleft()
        del self._of(dropped.workspace).kept[0]
        return dropped

    def revision(self, workspace: str) -> int:
        """The newest one of the workspace."""
        own = self._workspaces.get(workspace)
        return own.revision if own is not None else 0

    def end(self, workspace: str | None) -> int:
        """Where a reader is that has everything: a revision of the workspace; None: a count of all changes."""
        return self.count if workspace is None else self.revision(workspace)

    def since(self, workspace: str | None, after: int) -> Sequence[RegistryChange]:
        if workspace is None:
            new = min(self.count - after, len(self._kept))
            return [self._kept[at] for at in range(-new, 0)]
        own = self._workspaces.get(workspace)
        return own.kept[bisect_right(own.kept, after, key=attrgetter("revision")) :] if own is not None else ()

    def readers(self, workspace: str | None) -> set[FeedReader]:
        return self._readers if workspace is None else self._of(workspace).readers

    def _of(self, workspace: str) -> _Changes:
        return self._workspaces.setdefault(workspace, _Changes())


class FeedReader(IdleWait):
    """Reads the changes of one workspace; None: of all."""

    __slots__ = ("_after", "_feed", "_workspace")

    def __init__(self, feed: Feed, workspace: str | None, *, after: int | None, idle: timedelta) -> None:
        super().__init__(idle)
        self._feed = feed
        self._workspace = workspace
        # A revision from the future came from another database: start from now.
        end = feed.end(workspace)
        self._after = end if after is None else min(after, end)

    @property
    def revision(self) -> int:
        return self._after

    def __aiter__(self) -> FeedReader:
        return self

    async def __anext__(self) -> Sequence[RegistryChange]:
        readers = self._feed.readers(self._workspace)
        while not self._stopped:
            batch = self._feed.since(self._workspace, self._after)
            self._after = self._feed.end(self._workspace)
            if batch:
                return batch
            readers.add(self)
            try:
                await self._start_wait()
            finally:
                readers.discard(self)
            if not self._stopped and self._loop.time() >= self._deadline:
                return ()
        raise StopAsyncIteration
