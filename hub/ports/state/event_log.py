"""The event log port: the truth about every task, the only live source of its events, and the sums of what they report."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from rolecall.errors import HubError
from rolecall.model.a2a import Event, Ids, Logged
from rolecall.model.ids import START, Caller, Cursor, FileId, TaskId
from rolecall.model.usage import Spending, Usage, UsageGroup, UsageQuery
from rolecall.model.value import Value

Deliver = Callable[[Sequence[Logged]], bool]
"""Takes new events, at once. False: it has taken none of them."""


class Subscription(Protocol):
    """One reader of one task's log: stored, then live events, in order, no gap, no repeat.

    It reads pages until it has all events, then it is live: each commit calls it with the new events. Where it cannot keep up
    it reads pages again. It ends after an event that `is_last`, and after `stop`.
    """

    async def page(self) -> Sequence[Logged]:
        """The next stored events, at most a page. Empty: there are no more now, or it has ended. TaskNotFound."""

    def live(self, deliver: Deliver) -> Awaitable[bool]:
        """Call `deliver` with the new events of each commit, as long as it returns True; with none, when none came for `idle`.
        The events of a call reach to the end of the log as it is then, and are few.

        True: `page` has to be called, for example because `deliver` returned False: the next page begins with the same
        events. False: it has ended. What `deliver` raises is raised here.
        """

    def stop(self) -> None: ...


class LogEntry(Value, frozen=True):
    """What one append adds. `ids` is set if the worker's ids or the context have just become known. `files`: those that the
    task has from now on; one that `TaskStore.admit` would refuse is passed over. `usage`: what the events report.
    """

    events: Sequence[Event]
    position: str | None = None
    ids: Ids | None = None
    files: Sequence[FileId] = ()
    usage: Sequence[Usage] = ()


class OpenLog(Protocol):
    """The log of one task, open for its only writer."""

    def append(self, entry: LogEntry, *, after: Cursor, done: Callable[[HubError | None], None]) -> None:
        """Add events after `after`; the same transaction stores the worker's position, the ids, and the state that the task
        has after these events, and adds up what they report of usage. `done(None)`: they are durable, and visible to readers
        only now. LogMoved: the log does not end at `after`, or has ended. StoreUnavailable: nothing was added. `done` is
        called once, on the loop, and never within this call.
        """


class EventLog(Protocol):
    """The truth about every task, and the only live source of its events."""

    def open(self, task: TaskId) -> OpenLog: ...

    async def read(self, task: TaskId, *, after: Cursor = START, upto: Cursor | None = None) -> Sequence[Logged]:
        """Stored events after `after`, up to and including `upto`."""

    async def last_events(self, tasks: Sequence[TaskId], *, largest: int) -> Mapping[TaskId, Logged]:
        """The last events of these tasks, which have ended, as far as they have no more bytes than that. Whose tasks they are
        was checked. It may take long, and ends when it is cancelled, as `TaskStore.page`.
        """

    def follow(self, task: TaskId, *, after: Cursor, idle: timedelta) -> Subscription:
        """Wake-ups are hints: a lost one costs latency, never an event. A slow reader lags in storage, not in memory."""


class UsageStore(Protocol):
    """`OpenLog.append` adds each report once, in its transaction: to the sums of its task, to what is spent of the budgets
    above it, and to the sums of its day (of the engine's clock, in UTC) by workspace, role and holder. The first two go with
    their tasks, the last stay.
    """

    async def of_tasks(self, tasks: Sequence[TaskId]) -> Mapping[TaskId, Sequence[Usage]]:
        """By model and currency, of those tasks that have used something. Whose tasks they are was checked."""

    async def below(self, roots: Sequence[TaskId]) -> Mapping[TaskId, Sequence[Usage]]:
        """By model and currency, of all tasks below each root, where these have used something. Whose tasks they are was
        checked. It may take long, and ends when it is cancelled, as `of_days`.
        """

    async def spendings(self, task: TaskId) -> Sequence[Spending]:
        """Of the budgets that the task spends from, the outermost first. A budget lasts as long as any task that spends from
        it.
        """

    async def budgets(self, tasks: Sequence[TaskId]) -> Mapping[TaskId, Spending]:
        """Of those tasks that were called with one. Whose tasks they are was checked."""

    async def of_days(self, query: UsageQuery) -> Sequence[UsageGroup]:
        """In the order of their names. It may take long; whoever calls it limits how many run at once. When it is cancelled it
        ends.
        """

    async def forget_days(self, *, after: timedelta) -> bool:
        """Delete sums of days that ended that long ago: a bounded number; True: there are more."""

    async def forget_holder(self, holder: Caller) -> bool:
        """Take the holder's name out of the sums: they count for nobody then. A bounded number; True: there are more."""
