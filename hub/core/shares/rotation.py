"""The order in which those who wait are served: workspaces in rotation, and within one first come, first served."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque

from rolecall.model.share import ShareUse


class Rotation:
    """`what`: who waits, for people."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def waiting(self, workspace: str) -> int:
        queue = self._queues.get(workspace)
        return len(queue) if queue is not None else 0

    @property
    def use(self) -> ShareUse:
        return ShareUse(self._what, 0, 0, 0, len(self._queues), self._count, 0)

    def add(self, workspace: str) -> asyncio.Future[None]:
        """To be awaited at once. Whoever is cancelled meanwhile cancels it."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = self._queues.get(workspace)
        if queue is None:
            queue = self._queues[workspace] = deque()
        queue.append(waiter)
        self._count += 1
        return waiter

    def wake_next(self) -> bool:
        """False: nobody waits."""
        while self._queues:
            workspace, queue = next(iter(self._queues.items()))
            waiter = queue.popleft()
            self._count -= 1
            if queue:
                self._queues.move_to_end(workspace)
            else:
                del self._queues[workspace]
            if not waiter.done():
                waiter.set_result(None)
                return True
        return False
