"""A scarce thing that is held. Implements ports.shares.Share."""

from __future__ import annotations

import time
from collections.abc import Callable

from hub.core.observe import ShareUse
from rolecall.errors import Overloaded

SMALL = 64 * 1024
"""Bytes that cost little beside the rest of a call: so few are not counted."""
_COMES_BACK = 10.0
"""Seconds for which a refused workspace counts as waiting. It is told to try again after half of that."""


class WorkspaceShare:
    """`what`: its users, for people. `setting`: the field that limits the whole; with `_per_workspace` behind it, the cap."""

    def __init__(
        self,
        what: str,
        setting: str,
        limit: int,
        per_workspace_limit: int,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = what
        self._setting = setting
        self._limit = limit
        self._per_workspace_limit = per_workspace_limit
        self._monotonic = monotonic
        self._used = 0
        self._by_workspace: dict[str, int] = {}
        self._refused = 0
        self._waiting: dict[str, float] = {}
        """When each workspace was last refused because the whole was used up. The oldest comes first."""

    def take(self, workspace: str, amount: int = 1) -> None:
        held = self._by_workspace.get(workspace, 0) + amount
        if held > self._per_workspace_limit or self._used + amount > self._limit or self._waiting:
            self._check(workspace, held, amount)
            self._waiting.pop(workspace, None)
        self._used += amount
        self._by_workspace[workspace] = held

    def check(self, workspace: str) -> None:
        held = self._by_workspace.get(workspace, 0) + 1
        if held > self._per_workspace_limit or self._used >= self._limit or self._waiting:
            self._check(workspace, held, 1)

    def held(self, workspace: str) -> int:
        return self._by_workspace.get(workspace, 0)

    def by_workspace(self) -> dict[str, int]:
        """What each workspace holds now."""
        return dict(self._by_workspace)

    @property
    def cap(self) -> int:
        """How much of it one workspace may hold."""
        return min(self._per_workspace_limit, self._limit)

    def excess(self, workspace: str) -> Overloaded | None:
        """What was filled in is more than the workspace, or all together, may hold."""
        if self.held(workspace) > self._per_workspace_limit:
            return self._above_cap()
        return Overloaded(self._what, self._limit, self._setting) if self._used > self._limit else None

    def fill(self, workspace: str, amount: int = 1) -> None:
        self._used += amount
        self._by_workspace[workspace] = self._by_workspace.get(workspace, 0) + amount

    def give_back(self, workspace: str, amount: int = 1) -> None:
        self._used -= amount
        left = self._by_workspace[workspace] - amount
        if left:
            self._by_workspace[workspace] = left
        else:
            del self._by_workspace[workspace]

    def hold(self, workspace: str, amount: int = 1) -> HeldShare:
        """That much of it, within the block. Overloaded."""
        return HeldShare(self, workspace, amount)

    @property
    def use(self) -> ShareUse:
        self._forget_old_refusals()
        by = self._by_workspace
        largest = max(by.values(), default=0)
        return ShareUse(self._what, self._limit, self._used, largest, len(by), len(self._waiting), self._refused)

    def _check(self, workspace: str, held: int, amount: int) -> None:
        """Overloaded, if it may not hold so much. `held`: with the amount."""
        if held > self._per_workspace_limit:
            self._refused += 1
            raise self._above_cap()
        if self._used + amount > self._limit:
            self._refused += 1
            self._waiting.pop(workspace, None)
            self._waiting[workspace] = self._monotonic()
            raise Overloaded(self._what, self._limit, self._setting)
        self._forget_old_refusals()
        if not self._waiting.keys() - {workspace}:
            return
        workspaces = len(self._by_workspace.keys() | self._waiting.keys() | {workspace})
        share = max(1, self._limit // workspaces)
        if held > share:
            self._refused += 1
            raise Overloaded(self._what, share, self._setting, holder="Others wait, and this workspace")

    def _above_cap(self) -> Overloaded:
        setting = f"{self._setting}_per_workspace"
        return Overloaded(self._what, self._per_workspace_limit, setting, holder="This workspace")

    def _forget_old_refusals(self) -> None:
        since = self._monotonic() - _COMES_BACK
        while self._waiting:
            workspace, refused_at = next(iter(self._waiting.items()))
            if refused_at > since:
                return
            del self._waiting[workspace]


class HeldShare:
    """A class and not a generator, for speed: every call uses it. Of nothing it holds nothing."""

    __slots__ = ("_amount", "_share", "_workspace")

    def __init__(self, share: WorkspaceShare, workspace: str, amount: int) -> None:
        self._share = share
        self._workspace = workspace
        self._amount = amount

    def __enter__(self) -> None:
        if self._amount:
            self._share.take(self._workspace, self._amount)

    def __exit__(self, *exc: object) -> None:
        if self._amount:
            self._share.give_back(self._workspace, self._amount)
