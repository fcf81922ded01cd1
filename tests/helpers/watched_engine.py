"""Wraps an engine so that a test can hold or fail each operation."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, cast

from hub.ports.state.engine import DiskRoom, Engine
from hub.ports.state.event_log import EventLog, LogEntry, OpenLog, UsageStore
from hub.ports.state.files import Files
from hub.ports.state.pushes import Pushes
from hub.ports.state.registry import Registry
from hub.ports.state.summaries import Summaries
from hub.ports.state.task_changes import TaskChanges, TaskFeed
from hub.ports.state.task_store import TaskStore
from rolecall.errors import HubError
from rolecall.model.ids import Cursor, TaskId
from rolecall.model.task import StoredFile
from tests.helpers.virtual_time import VirtualTimeLoop


@dataclass
class Hold:
    """A point at which a task waits: it sets `reached`, and continues after `release`."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    _go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def reach(self) -> None:
        self.reached.set()
        await self._go_on.wait()

    def release(self) -> None:
        self._go_on.set()


class WatchedEngine:
    """Operations are named by port and method: "events.append". Plain calls go directly to the engine."""

    def __init__(self, engine: Engine) -> None:
        self.done: Counter[str] = Counter()
        """How often each operation has returned."""
        self.asked: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        """Every operation that has begun, with its arguments."""
        self.room: DiskRoom | None = None
        """Of the disk, as tests set it."""
        self._engine = engine
        self._faults: dict[str, deque[Exception]] = {}
        self._before: dict[str, deque[Hold]] = {}
        self._after: dict[str, deque[Hold]] = {}
        self._calls: dict[str, deque[Callable[[], None]]] = {}
        self.registry = cast(Registry, _Part(self, "registry", engine.registry))
        self.tasks = cast(TaskStore, _Part(self, "tasks", engine.tasks))
        self.events = cast(EventLog, _Events(self, engine.events))
        self.pushes = cast(Pushes, _Part(self, "pushes", engine.pushes))
        self.files = cast(Files, _Files(self, "files", engine.files))
        self.usage = cast(UsageStore, _Part(self, "usage", engine.usage))
        self.summaries = cast(Summaries, _Part(self, "summaries", engine.summaries))
        self.task_changes = cast(TaskChanges, _TaskChanges(self, "task_changes", engine.task_changes))

    def fail(self, operation: str, error: Exception, *, times: int = 1) -> None:
        """The next `times` of that operation do nothing and raise."""
        self._faults.setdefault(operation, deque()).extend([error] * times)

    def before(self, operation: str, call: Callable[[], None], *, times: int = 1) -> None:
        """`call` is called just before the next `times` of that operation reach the engine."""
        self._calls.setdefault(operation, deque()).extend([call] * times)

    def hold(self, operation: str) -> Hold:
        """The next one waits before it reaches the engine."""
        return _added(self._before, operation)

    def hold_after(self, operation: str) -> Hold:
        """The next one waits when it is done, before it returns."""
        return _added(self._after, operation)

    def holds_after(self, operation: str) -> bool:
        return bool(self._after.get(operation))

    def arguments(self, operation: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        return [(args, kwargs) for name, args, kwargs in self.asked if name == operation]

    async def ping(self) -> None:
        await self.run("ping", self._engine.ping, (), {})

    def disk_room(self) -> DiskRoom | None:
        return self.room

    async def run(self, operation: str, work: Callable[..., Awaitable[Any]], args: Any, kwargs: Any) -> Any:
        self.asked.append((operation, args, kwargs))
        if waiting := self._before.get(operation):
            await waiting.popleft().reach()
        if faults := self._faults.get(operation):
            raise faults.popleft()
        if calls := self._calls.get(operation):
            calls.popleft()()
        loop = asyncio.get_running_loop()
        with loop.busy() if isinstance(loop, VirtualTimeLoop) else nullcontext():
            result = await work(*args, **kwargs)
        if waiting := self._after.get(operation):
            await waiting.popleft().reach()
        self.done[operation] += 1
        return result


class _Part:
    """One of an engine's ports."""

    def __init__(self, engine: WatchedEngine, name: str, part: Any) -> None:
        self._engine = engine
        self._name = name
        self._part = part

    def __len__(self) -> int:
        return len(self._part)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if not inspect.iscoroutinefunction(found):
            return found
        operation = f"{self._name}.{name}"

        def watched(*args: Any, **kwargs: Any) -> Awaitable[Any]:
            return self._engine.run(operation, found, args, kwargs)

        return watched


class _Files(_Part):
    """Uploads have the operations "upload.write" and "upload.close"."""

    def open(self, file: StoredFile) -> Any:
        return _Part(self._engine, "upload", self._part.open(file))


class _TaskChanges(_Part):
    """What its feeds read of the store is an operation: "feed.stored"."""

    def follow(self, *args: Any, **kwargs: Any) -> TaskFeed:
        return cast(TaskFeed, _Feed(self._engine, "feed", self._part.follow(*args, **kwargs)))


class _Feed(_Part):
    def live(self) -> Awaitable[Any]:
        live: Awaitable[Any] = self._part.live()
        return live


class _Events(_Part):
    """The event log. "events.append" has the arguments (task, entry)."""

    def __init__(self, engine: WatchedEngine, events: EventLog) -> None:
        super().__init__(engine, "events", events)

    def open(self, task: TaskId) -> _OpenLog:
        return _OpenLog(self._engine, task, self._part.open(task))


class _OpenLog:
    def __init__(self, engine: WatchedEngine, task: TaskId, open_log: OpenLog) -> None:
        self._engine = engine
        self._task = task
        self._open_log = open_log
        self._appends: set[asyncio.Task[None]] = set()

    def append(self, entry: LogEntry, *, after: Cursor, done: Callable[[HubError | None], None]) -> None:
        append = asyncio.create_task(self._append(entry, after, done), name=f"append to {self._task}")
        self._appends.add(append)
        append.add_done_callback(self._appends.discard)

    async def _append(self, entry: LogEntry, after: Cursor, done: Callable[[HubError | None], None]) -> None:
        """`done` is called within the engine's own call, unless the test holds it."""
        done_already = False

        async def to_engine(task: TaskId, entry: LogEntry) -> HubError | None:
            outcome: asyncio.Future[HubError | None] = asyncio.get_running_loop().create_future()

            def stored(error: HubError | None) -> None:
                nonlocal done_already
                done_already = not self._engine.holds_after("events.append")
                if done_already:
                    done(error)
                outcome.set_result(error)

            self._open_log.append(entry, after=after, done=stored)
            return await outcome

        try:
            result = await self._engine.run("events.append", to_engine, (self._task, entry), {})
        except HubError as error:
            result = error
        if not done_already:
            done(result)


async def appended(open_log: OpenLog, entry: LogEntry, *, after: Cursor) -> HubError | None:
    """The outcome of an append."""
    outcome: asyncio.Future[HubError | None] = asyncio.get_running_loop().create_future()
    open_log.append(entry, after=after, done=outcome.set_result)
    return await outcome


async def append_to(log: EventLog, task: TaskId, entry: LogEntry, *, after: Cursor) -> Cursor:
    """Append, and return the new end. Raises what the append failed with."""
    outcome = await appended(log.open(task), entry, after=after)
    if outcome is not None:
        raise outcome
    return Cursor(after + len(entry.events))


def _added(holds: dict[str, deque[Hold]], operation: str) -> Hold:
    hold = Hold()
    holds.setdefault(operation, deque()).append(hold)
    return hold
