"""The order in which those who wait are served: workspaces in rotation, and within one first come, first served."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable

from hub.core.observe import ShareUse


class Rotation:
    """`what`: who waits, for people."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self.count = 0
        """How many wait."""

    def __len__(self) -> int:
        return self.count

    def waiting(self, workspace: str) -> int:
        queue = self._queues.get(workspace)
        return len(queue) if queue is not None else 0

    @property
    def use(self) -> ShareUse:
        return ShareUse(self._what, 0, 0, 0, len(self._queues), self.count, 0)

    def add(self, workspace: str) -> asyncio.Future[None]:
        """To be awaited at once. Whoever is cancelled meanwhile cancels it."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = self._queues.get(workspace)
        if queue is None:
            queue = self._queues[workspace] = deque()
        queue.append(waiter)
        self.count += 1
        return waiter

    def wake_next(self, may_run: Callable[[str], bool] | None = None) -> bool:
        """False: nobody waits, or nobody that `may_run`. It is asked of each workspace, and whoever it admits is woken."""
        passed = 0
        while passed < len(self._queues):
            workspace, queue = next(iter(self._queues.items()))
            self._queues.move_to_end(workspace)
            while queue and queue[0].done():  # cancelled
                queue.popleft()
                self.count -= 1
            if not queue:
                del self._queues[workspace]
            elif may_run is not None and not may_run(workspace):
                passed += 1
            else:
                queue.popleft().set_result(None)
                self.count -= 1
                if not queue:
                    del self._queues[workspace]
                return True
        return False
