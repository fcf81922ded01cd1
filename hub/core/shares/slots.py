"""A scarce thing that is given back at once. Implements ports.shares.Slots."""

from __future__ import annotations

import asyncio

from hub.core.observe import ShareUse
from hub.core.shares.rotation import Rotation
from rolecall.errors import Overloaded


class WorkspaceSlots:
    """`slots`: how many may be in use at once. `what`: its users, for people. `queue`: how many of one workspace may wait, 0:
    any number; `setting`: the field that this limit comes from. `per_workspace`: how many one may have in use, for slots that
    may not come back for a while; None: all.
    """

    def __init__(self, what: str, slots: int, *, queue: int, setting: str, per_workspace: int | None = None) -> None:
        self._per_workspace = per_workspace or slots
        self._what = what
        self._slots = slots
        self._queue = queue
        self._setting = setting
        self._used: dict[str, int] = {}
        self._free = slots
        self._refused = 0
        self._rotation = Rotation(what)

    def slot(self, workspace: str) -> Slot:
        return Slot(self, workspace)

    @property
    def use(self) -> ShareUse:
        used, largest = self._slots - self._free, max(self._used.values(), default=0)
        return ShareUse(self._what, self._slots, used, largest, len(self._used), len(self._rotation), self._refused)

    async def acquire(self, workspace: str) -> None:
        if self._free and self._take(workspace):
            self._free -= 1
        else:
            if 0 < self._queue <= self._rotation.waiting(workspace):
                self._refused += 1
                raise Overloaded(f"waiting {self._what}", self._queue, self._setting, holder="This workspace")
            waiter = self._rotation.add(workspace)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self.release(workspace)  # it was this one's turn just then
                raise

    def release(self, workspace: str) -> None:
        left = self._used[workspace] - 1
        if left:
            self._used[workspace] = left
        else:
            del self._used[workspace]
        self._pass_on()

    def _pass_on(self) -> None:
        """A slot goes from hand to hand as long as somebody waits, so that nobody who has just come gets in between."""
        if not self._rotation.wake_next(self._take):
            self._free += 1

    def _take(self, workspace: str) -> bool:
        """Count one more for the workspace, if it may have it."""
        used = self._used.get(workspace, 0)
        if used >= self._per_workspace:
            return False
        self._used[workspace] = used + 1
        return True


class Slot:
    __slots__ = ("_share", "_workspace")

    def __init__(self, share: WorkspaceSlots, workspace: str) -> None:
        self._share = share
        self._workspace = workspace

    async def __aenter__(self) -> None:
        await self._share.acquire(self._workspace)

    async def __aexit__(self, *exc: object) -> None:
        self._share.release(self._workspace)
