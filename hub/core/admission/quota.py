"""Places that are limited in number: one is taken before what fills it is there, so that a flood cannot overtake the count."""

from __future__ import annotations

from rolecall.errors import Overloaded


class WorkspaceQuota:
    """Places of the whole hub, of which each workspace may have so many. Whoever fills one says so, and when he leaves it:
    nothing is looked through.
    """

    def __init__(self, most: int, each: int, what: str, setting: str) -> None:
        self._most = most
        self._each = each
        self._what = what
        self._setting = setting
        self._filled = 0
        self._of: dict[str, int] = {}

    def check(self, workspace: str) -> None:
        """Overloaded if there is none, or none for that workspace."""
        if self._of.get(workspace, 0) >= self._each:
            raise Overloaded(self._what, self._each, f"{self._setting}_per_workspace", holder="This workspace")
        if self._filled >= self._most:
            raise Overloaded(self._what, self._most, self._setting)

    def fill(self, workspace: str) -> None:
        """Also beyond the limit: what is there is there."""
        self._filled += 1
        self._of[workspace] = self._of.get(workspace, 0) + 1

    def leave(self, workspace: str) -> None:
        self._filled -= 1
        left = self._of[workspace] - 1
        if left:
            self._of[workspace] = left
        else:
            del self._of[workspace]

    def one(self, workspace: str) -> Reservation:
        """For as long as it takes to fill one. Overloaded."""
        return Reservation(self, workspace)


class Reservation:
    """No generator: every call comes through here."""

    __slots__ = ("_places", "_workspace")

    def __init__(self, places: WorkspaceQuota, workspace: str) -> None:
        self._places = places
        self._workspace = workspace

    def __enter__(self) -> None:
        self._places.check(self._workspace)
        self._places.fill(self._workspace)

    def __exit__(self, *exc: object) -> None:
        self._places.leave(self._workspace)
