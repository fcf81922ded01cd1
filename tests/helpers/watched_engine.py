"""Wraps an engine so that a test can hold or fail each operation."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, cast

from hub.ports.engine import Engine
from hub.ports.event_log import EventLog
from hub.ports.pushes import Pushes
from hub.ports.registry import Registry
from hub.ports.task_store import TaskStore
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
        self._engine = engine
        self._faults: dict[str, deque[Exception]] = {}
        self._before: dict[str, deque[Hold]] = {}
        self._after: dict[str, deque[Hold]] = {}
        self._calls: dict[str, deque[Callable[[], None]]] = {}
        self.registry = cast(Registry, _Part(self, "registry", engine.registry))
        self.tasks = cast(TaskStore, _Part(self, "tasks", engine.tasks))
        self.events = cast(EventLog, _Part(self, "events", engine.events))
        self.pushes = cast(Pushes, _Part(self, "pushes", engine.pushes))

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

    def arguments(self, operation: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        return [(args, kwargs) for name, args, kwargs in self.asked if name == operation]

    async def ping(self) -> None:
        await self._engine.ping()

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


def _added(holds: dict[str, deque[Hold]], operation: str) -> Hold:
    hold = Hold()
    holds.setdefault(operation, deque()).append(hold)
    return hold
