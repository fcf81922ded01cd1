"""A hub with a bug in it, for the checker to find: `python -m tests.acceptance.faults.planted BUG`.

The bugs are wrappers around the hub's parts, handed in where the parts are composed. The product knows nothing of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hub.app import run
from hub.core.relay.context import Dependencies
from hub.ports.event_log import LogEntry, Subscription
from hub.ports.forwarder import Dispatch
from hub.settings.model import load
from rolecall.errors import TaskNotFound
from rolecall.model import value
from rolecall.model.a2a import Event, EventKind, Logged
from rolecall.model.ids import Cursor, TaskId
from rolecall.model.worker import Offer

EVERY = 7
"""A bug that always strikes is found by anybody."""


def unlucky(task: TaskId) -> bool:
    """Every second task, the same ones each time."""
    return int(task[-1], 16) % 2 == 0


class Wrapped:
    """Another part's methods, but for those that a bug replaces."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def strikes(self) -> bool:
        self._count += 1
        return self._count % EVERY == 0


class SpoiltLog(Wrapped):
    """Changes what is appended. The cursors stay contiguous, so that only contents can tell."""

    def __init__(self, inner: Any, spoil: Callable[[list[Event]], list[Event]]) -> None:
        super().__init__(inner)
        self._spoil = spoil

    async def append(self, task: TaskId, entry: LogEntry, *, after: Cursor) -> Cursor:
        events = list(entry.events)
        if any(event.kind is EventKind.ARTIFACT for event in events) and self.strikes():
            events = self._spoil(events)
        end: Cursor = await self._inner.append(task, value.replace(entry, events=events), after=after)
        return end


class HastyLog(Wrapped):
    """Never shows the last event of some tasks."""

    def follow(self, task: TaskId, *, after: Cursor, idle: timedelta) -> Subscription:
        inner = self._inner.follow(task, after=after, idle=idle)
        return SilentEnd(inner) if unlucky(task) else inner  # type: ignore[no-any-return]


class SilentEnd:
    def __init__(self, inner: Subscription) -> None:
        self._inner = inner

    def __aiter__(self) -> SilentEnd:
        return self

    async def __anext__(self) -> Sequence[Logged]:
        while True:
            batch = await self._inner.__anext__()
            if not batch or not batch[-1].event.ends:
                return batch

    def stop(self) -> None:
        self._inner.stop()


class ForgetfulTasks(Wrapped):
    """Does not know some tasks any more when their caller asks for them."""

    async def get(self, caller: Any, task: TaskId) -> Any:
        if unlucky(task):
            raise TaskNotFound
        return await self._inner.get(caller, task)


class RepeatingForwarder(Wrapped):
    """Sends some calls twice, as a client that retries what may have run."""

    def deliver(self, offer: Offer, dispatch: Dispatch) -> AbstractAsyncContextManager[Any]:
        return self._twice(offer, dispatch) if self.strikes() else self._inner.deliver(offer, dispatch)  # type: ignore[no-any-return]

    @asynccontextmanager
    async def _twice(self, offer: Offer, dispatch: Dispatch) -> Any:
        other = value.replace(dispatch, ids=value.replace(dispatch.ids, task=TaskId(dispatch.ids.task + "-again")))
        async with self._inner.deliver(offer, other), self._inner.deliver(offer, dispatch) as batches:
            yield batches


class Altered(Wrapped):
    """An engine with one part replaced."""

    def __init__(self, inner: Any, **parts: Any) -> None:
        super().__init__(inner)
        self.__dict__.update(parts)


def dropped(events: list[Event]) -> list[Event]:
    at = next(n for n, event in enumerate(events) if event.kind is EventKind.ARTIFACT)
    return events[:at] + events[at + 1 :]


def doubled(events: list[Event]) -> list[Event]:
    at = next(n for n, event in enumerate(events) if event.kind is EventKind.ARTIFACT)
    return [*events[: at + 1], events[at], *events[at + 1 :]]


class ReorderedLog(Wrapped):
    """Holds a chunk back until the one behind it is there."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._held: dict[TaskId, Event] = {}

    async def append(self, task: TaskId, entry: LogEntry, *, after: Cursor) -> Cursor:
        events = list(entry.events)
        if task in self._held:
            events.insert(1 if events and events[0].kind is EventKind.ARTIFACT else 0, self._held.pop(task))
        elif events and events[-1].kind is EventKind.ARTIFACT and self.strikes():
            self._held[task] = events.pop()
        end: Cursor = await self._inner.append(task, value.replace(entry, events=events), after=after)
        return end


def _engine(**wrappers: Callable[[Any], Any]) -> Callable[[Dependencies], Dependencies]:
    def alter(parts: Dependencies) -> Dependencies:
        replaced = {name: wrap(getattr(parts.engine, name)) for name, wrap in wrappers.items()}
        return replace(parts, engine=Altered(parts.engine, **replaced))

    return alter


BUGS: dict[str, Callable[[Dependencies], Dependencies]] = {
    "an event dropped": _engine(events=lambda log: SpoiltLog(log, dropped)),
    "an event doubled": _engine(events=lambda log: SpoiltLog(log, doubled)),
    "events reordered": _engine(events=ReorderedLog),
    "a call retried": lambda parts: replace(parts, forwarder=RepeatingForwarder(parts.forwarder)),
    "a silent end": _engine(events=HastyLog),
    "a task lost": _engine(tasks=ForgetfulTasks),
}

if __name__ == "__main__":
    run(load().settings, alter=BUGS[sys.argv[1]])
