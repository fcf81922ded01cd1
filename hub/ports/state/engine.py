"""The engine port: one store behind the ports of state."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from hub.ports.state.event_log import EventLog, UsageStore
from hub.ports.state.files import Files
from hub.ports.state.pushes import Pushes
from hub.ports.state.registry import Registry
from hub.ports.state.summaries import Summaries
from hub.ports.state.task_changes import TaskChanges
from hub.ports.state.task_store import TaskStore


class DiskRoom(NamedTuple):
    """Bytes of the disk that the state is on: those that are `free`, and the `reserve` that is to stay so. `low`: less than
    that is left, so that only ends of tasks and the like are stored.
    """

    free: int
    reserve: int
    low: bool


class Engine(Protocol):
    """State. An async context manager that opens everything or nothing; its exit writes the beats that are not stored yet."""

    @property
    def registry(self) -> Registry: ...
    @property
    def tasks(self) -> TaskStore: ...
    @property
    def events(self) -> EventLog: ...
    @property
    def task_changes(self) -> TaskChanges: ...
    @property
    def pushes(self) -> Pushes: ...
    @property
    def files(self) -> Files: ...
    @property
    def usage(self) -> UsageStore: ...
    @property
    def summaries(self) -> Summaries: ...

    async def __aenter__(self) -> Engine: ...
    async def __aexit__(self, *exc: object) -> None: ...

    async def ping(self) -> None:
        """StoreUnavailable if the store would not take a write; DiskLow if only for lack of room."""

    def disk_room(self) -> DiskRoom | None:
        """As of the last second. None: nothing is stored on a disk."""
