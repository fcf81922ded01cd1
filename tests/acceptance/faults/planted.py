"""A hub with a planted bug, to test the checker: `python -m tests.acceptance.faults.planted BUG`.

The bugs are wrappers around the hub's parts, passed in where the parts are composed. The product does not contain them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hub.core.relay.context import Dependencies
from hub.ports.forwarder import AnswerListener, Dispatch, OpenCall
from hub.ports.state.event_log import Deliver, LogEntry, OpenLog, Subscription
from hub.run import run
from hub.settings.model import load
from rolecall.errors import HubError, TaskNotFound
from rolecall.model import value
from rolecall.model.a2a import Event, EventKind, Logged, WorkerEvent
from rolecall.model.ids import Cursor, TaskId
from rolecall.model.worker import Offer

EVERY = 7
"""A bug acts on every seventh call: one that always acts would be too easy to find."""


def is_selected(task: TaskId) -> bool:
    """True for half of the tasks, always the same ones."""
    return int(task[-1], 16) % 2 == 0


class Wrapped:
    """Forwards to another part, except for the methods that a bug replaces."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def should_trigger(self) -> bool:
        self._count += 1
        return self._count % EVERY == 0


class ChangingLog(Wrapped):
    """Changes appended events. The cursors stay contiguous, so that only the contents show the bug."""

    def __init__(self, inner: Any, change: Callable[[list[Event]], list[Event]]) -> None:
        super().__init__(inner)
        self._change = change

    def open(self, task: TaskId) -> ChangingOpenLog:
        return ChangingOpenLog(self._inner.open(task), self._changed)

    def _changed(self, events: list[Event]) -> list[Event]:
        has_content = any(event.kind is EventKind.ARTIFACT for event in events)
        return self._change(events) if has_content and self.should_trigger() else events


class ChangingOpenLog:
    """Its writer does not notice: it believes in the cursors of what it wrote."""

    def __init__(self, inner: OpenLog, change: Callable[[list[Event]], list[Event]]) -> None:
        self._inner = inner
        self._change = change
        self._ahead = 0

    def append(self, entry: LogEntry, *, after: Cursor, done: Callable[[HubError | None], None]) -> None:
        events, real = self._change(list(entry.events)), Cursor(after + self._ahead)
        self._ahead += len(events) - len(entry.events)
        self._inner.append(value.replace(entry, events=events), after=real, done=done)


class SilentLog(Wrapped):
    """Never returns the last event of some tasks."""

    def follow(self, task: TaskId, *, after: Cursor, idle: timedelta) -> Subscription:
        inner = self._inner.follow(task, after=after, idle=idle)
        return SilentEnd(inner) if is_selected(task) else inner  # type: ignore[no-any-return]


class SilentEnd:
    def __init__(self, inner: Subscription) -> None:
        self._inner = inner

    async def page(self) -> Sequence[Logged]:
        page = await self._inner.page()
        return () if page and page[-1].event.is_last else page

    async def live(self, deliver: Deliver) -> bool:
        return await self._inner.live(lambda events: bool(events and events[-1].event.is_last) or deliver(events))

    def stop(self) -> None:
        self._inner.stop()


class MissingTasks(Wrapped):
    """Reports some existing tasks as unknown."""

    async def get(self, caller: Any, task: TaskId) -> Any:
        if is_selected(task):
            raise TaskNotFound
        return await self._inner.get(caller, task)


class RetryForwarder(Wrapped):
    """Sends some calls twice, like a client that retries calls that may have run."""

    def deliver(self, workspace: str, offer: Offer, dispatch: Dispatch, listener: AnswerListener) -> OpenCall:
        if self.should_trigger():
            other = value.replace(dispatch, ids=value.replace(dispatch.ids, task=TaskId(dispatch.ids.task + "-again")))
            self._inner.deliver(workspace, offer, other, NullListener())
        call: OpenCall = self._inner.deliver(workspace, offer, dispatch, listener)
        return call


class NullListener:
    """A listener that nobody asks."""

    def received(self, batch: Sequence[WorkerEvent]) -> None: ...

    def closed(self, error: HubError | None) -> None: ...


class ChangedEngine(Wrapped):
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


class SwapLog(Wrapped):
    """Swaps a chunk with the next one."""

    def open(self, task: TaskId) -> ChangingOpenLog:
        waiting: list[Event] = []

        def swapped(events: list[Event]) -> list[Event]:
            if waiting:
                events.insert(1 if events and events[0].kind is EventKind.ARTIFACT else 0, waiting.pop())
            elif events and events[-1].kind is EventKind.ARTIFACT and self.should_trigger():
                waiting.append(events.pop())
            return events

        return ChangingOpenLog(self._inner.open(task), swapped)


def _engine(**wrappers: Callable[[Any], Any]) -> Callable[[Dependencies], Dependencies]:
    def replace_parts(parts: Dependencies) -> Dependencies:
        replaced = {name: wrap(getattr(parts.engine, name)) for name, wrap in wrappers.items()}
        return replace(parts, engine=ChangedEngine(parts.engine, **replaced))

    return replace_parts


BUG_BY_NAME: dict[str, Callable[[Dependencies], Dependencies]] = {
    "an event dropped": _engine(events=lambda log: ChangingLog(log, dropped)),
    "an event doubled": _engine(events=lambda log: ChangingLog(log, doubled)),
    "events reordered": _engine(events=SwapLog),
    "a call retried": lambda parts: replace(parts, forwarder=RetryForwarder(parts.forwarder)),
    "a silent end": _engine(events=SilentLog),
    "a task lost": _engine(tasks=MissingTasks),
}

if __name__ == "__main__":
    run(load().settings, wrap=BUG_BY_NAME[sys.argv[1]])
