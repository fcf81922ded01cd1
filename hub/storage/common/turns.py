"""In which order deliveries are claimed: workspaces take turns, and within one its hosts do."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator

from hub.ports.state.pushes import DeliveryRoom

MOST_LOOKS = 500
"""How many hosts, and workspaces, one claim looks at. The next claim continues from there."""


class Turns:
    """Keeps where the last claim ended."""

    def __init__(self) -> None:
        self._workspace = ""
        self._hosts: dict[str, str] = {}

    def begin(
        self, next_workspace: Callable[[str], str | None], next_host: Callable[[str, str], str | None]
    ) -> Iterator[tuple[str, str]]:
        """Each workspace and host that is owed something, once. The callbacks return the one that follows in the order of
        names, or None.
        """
        waiting = deque(_round(next_workspace, self._workspace))
        self._hosts = {workspace: self._hosts.get(workspace, "") for workspace in waiting}
        first: dict[str, str] = {}
        for _ in range(MOST_LOOKS):
            host = None
            while waiting and host is None:
                workspace = waiting.popleft()
                host = next_host(workspace, self._hosts[workspace]) or next_host(workspace, "")
                if host == first.get(workspace):
                    host = None  # it has had them all
            if host is None:
                return
            first.setdefault(workspace, host)
            self._workspace, self._hosts[workspace] = workspace, host
            waiting.append(workspace)
            yield workspace, host


class RoomLeft:
    """How much of the room is left during one claim."""

    def __init__(self, room: DeliveryRoom) -> None:
        self.total = room.limit
        self._room = room
        self._used = Counter[str]()
        for (workspace, _), count in room.busy.items():
            self._used[workspace] += count

    def of(self, workspace: str, host: str) -> int:
        room = self._room
        of_workspace = room.per_workspace - self._used[workspace]
        return max(0, min(self.total, of_workspace, room.per_host - room.busy.get((workspace, host), 0)))

    def take(self, workspace: str, count: int) -> None:
        self.total -= count
        self._used[workspace] += count


def _round(next_one: Callable[[str], str | None], start: str) -> Iterator[str]:
    """All of them: those after `start`, then the others up to `start`."""
    name: str | None = start
    for _ in range(MOST_LOOKS):
        name = next_one(name) if name is not None else None
        if name is None:
            break
        yield name
    else:
        return
    name = ""
    for _ in range(MOST_LOOKS):
        name = next_one(name)
        if name is None or name > start:
            return
        yield name
