"""Counts things that are limited in number. A slot is reserved before its user exists, so a flood cannot exceed the limit."""

from __future__ import annotations

from rolecall.errors import Overloaded


class WorkspaceQuota:
    """A limit for the whole hub, and one per workspace. Each user calls `fill` when it takes a slot and `leave` when it
    frees it, so a check needs no search.
    """

    def __init__(self, limit: int, per_workspace_limit: int, what: str, setting: str) -> None:
        self._limit = limit
        self._per_workspace_limit = per_workspace_limit
        self._what = what
        self._setting = setting
        self._filled = 0
        self._by_workspace: dict[str, int] = {}

    def check(self, workspace: str) -> None:
        """Overloaded if the hub or that workspace has no free slot."""
        if self._by_workspace.get(workspace, 0) >= self._per_workspace_limit:
            raise Overloaded(self._what, self._per_workspace_limit, f"{self._setting}_per_workspace", holder="This workspace")
        if self._filled >= self._limit:
            raise Overloaded(self._what, self._limit, self._setting)

    def fill(self, workspace: str) -> None:
        """Counts even above the limit: what exists is counted."""
        self._filled += 1
        self._by_workspace[workspace] = self._by_workspace.get(workspace, 0) + 1

    def leave(self, workspace: str) -> None:
        self._filled -= 1
        left = self._by_workspace[workspace] - 1
        if left:
            self._by_workspace[workspace] = left
        else:
            del self._by_workspace[workspace]

    def one(self, workspace: str) -> Reservation:
        """Hold a slot until its user has called `fill`. Overloaded."""
        return Reservation(self, workspace)


class Reservation:
    """A class and not a generator, for speed: every call uses it."""

    __slots__ = ("_quota", "_workspace")

    def __init__(self, quota: WorkspaceQuota, workspace: str) -> None:
        self._quota = quota
        self._workspace = workspace

    def __enter__(self) -> None:
        self._quota.check(self._workspace)
        self._quota.fill(self._workspace)

    def __exit__(self, *exc: object) -> None:
        self._quota.leave(self._workspace)
