"""The façade of core: one method per operation. Inbound rooms call only this."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from hub.core.admission.admission import Admission
from hub.core.admission.idempotency import Call
from hub.core.files.files import FILE_LIMITS, FileLimits, Files
from hub.core.push.configs import PushConfigs
from hub.core.relay.cancel import cancel
from hub.core.relay.context import Dependencies
from hub.core.relay.paused import PausedTasks
from hub.core.relay.relays import Relays
from hub.core.supervisor import Supervisor
from hub.core.tasks.erasure import Erasure
from hub.core.tasks.feeds import TaskFeeds
from hub.core.tasks.lists import RowList, TaskList, TaskLists
from hub.core.tasks.log_pages import LogPages
from hub.core.tasks.lookup import TaskLookup
from hub.core.tasks.questions import Questions
from hub.core.tasks.reader import OnDisconnect, TaskReader, TaskView, answered_in
from hub.core.tasks.stream import TaskStream
from hub.core.tasks.trees import TREE_LIMITS, TreeLimits, Trees
from hub.ports.state.event_log import Subscription
from rolecall.errors import (
    ClientDisconnected,
    InvalidParams,
    Quarantined,
    TaskNotCancelable,
    TaskOver,
)
from rolecall.model.a2a import Answer, Logged
from rolecall.model.command import CancelTask, GetTask, ListTasks, Send, Subscribe, Target, TaskQuery
from rolecall.model.content import Download
from rolecall.model.ids import START, Caller, Cursor, TaskId
from rolecall.model.task import Excerpt, StoredFile, Summary, SummaryPage, TaskRow
from rolecall.model.usage import Spending, Usage, UsageGroup, UsageQuery

_REVEAL_AFTER = 1.0
"""A caller that does not block gets the current task after this many seconds."""


@dataclass(frozen=True, slots=True)
class HubLimits:
    """Limits that a caller can reach. The settings hold their defaults."""

    keep_alive: timedelta
    """How long a reader waits for an event before it gets an empty batch."""
    retention: timedelta
    max_pause: timedelta
    same_message: timedelta
    """How long after its call has ended a repeated message is still recognised."""
    keep_usage: timedelta
    """How long the sums of a day's usage are kept."""
    tree: TreeLimits = TREE_LIMITS
    keep_summaries: timedelta = timedelta()
    """How long after its end a task has a summary, if that is longer than its retention."""
    files: FileLimits = FILE_LIMITS


class Hub:
    def __init__(
        self,
        deps: Dependencies,
        supervisor: Supervisor,
        limits: HubLimits,
        push: PushConfigs,
        may_call: Callable[[Caller], bool] = lambda caller: True,
        *,
        quarantined: bool = False,
    ) -> None:
        """`may_call`: whether a caller has the right to make calls. `quarantined`: its tasks can be read, and nothing else."""
        self._deps = deps
        self._engine = deps.engine
        self._reader = TaskReader(deps)
        self._lists = TaskLists(deps, self._reader)
        self.task_feeds = TaskFeeds(deps, self._reader)
        self._limits = limits
        self._task_streams: set[TaskStream] = set()
        self._waiting: set[Subscription] = set()
        self._streams = deps.shares.streams
        self.inline = deps.inline_files()
        self.relays = Relays(deps, supervisor)
        self.trees = Trees(deps, self.relays, supervisor, limits.tree, may_call)
        being_answered = set[TaskId]()
        self._questions = Questions(deps, self.relays, supervisor, self.trees, self._reader, being_answered)
        self.paused_tasks = PausedTasks(deps, self.relays, supervisor, being_answered, self.trees.assigned)
        self._lookup = TaskLookup(self._engine.tasks)
        self.log_pages = LogPages(deps, self._lookup)
        self.files = Files(deps, supervisor, limits.files)
        self.erasure = Erasure(deps, self.relays, self._lookup, push, self.files)
        self._quarantined = quarantined
        self._admission = Admission(
            deps,
            supervisor,
            self.relays,
            self.trees,
            self._questions,
            self._lookup,
            self.files,
            push,
            being_answered,
            same_message=limits.same_message,
            quarantined=quarantined,
        )
        self.decisions = self._admission.decisions

    @property
    def draining(self) -> bool:
        """It takes no new calls."""
        return self._admission.closed

    # --- messages

    async def send(self, caller: Caller, send: Send, on_disconnect: OnDisconnect | None = None) -> Answer:
        """The answer to a message: a Task, or the worker's bare Message. ClientDisconnected."""
        call = await self._admission.begin(caller, send, on_disconnect)
        if not send.blocking:
            await self._started_or_shown(call)
        else:
            await call.started(on_disconnect)
        log = await self._engine.events.read(call.task)
        if send.blocking and not _rests(log, call.began):
            seen, log = max(call.began, log[-1].cursor) if log else call.began, ()  # it may be large
            await self._until_rest(call.task, seen, on_disconnect)
            log = await self._engine.events.read(call.task)
        view = TaskView(send.dialect, send.history_length, send.alias)
        answer, log = self._reader.of(caller, call.task, log, view), ()  # from here on only the reader has it
        return await answer

    async def stream(
        self,
        caller: Caller,
        send: Send,
        on_disconnect: OnDisconnect | None = None,
        admitted: Callable[[TaskId], None] | None = None,
    ) -> TaskStream:
        """The answer to a message as a stream. Returns once the worker has begun to answer. ClientDisconnected: before there
        was a worker. `admitted` is called as soon as the message is stored.
        """
        self._streams.take(caller.workspace)
        try:
            call = await self._admission.begin(caller, send, on_disconnect)
            if admitted is not None and not send.alias:
                admitted(call.task)
            await call.started()
            # The first frame of an answer shows the task after it was answered, not while it was paused.
            first = await self._reader.as_of(caller, call.task, Cursor(call.began + 1)) if call.began > START else None
            after = first.cursor if first is not None else START
            return self._task_stream(caller, call.task, call.role, send.dialect, send.alias, after=after, first=first)
        finally:
            self._streams.give_back(caller.workspace)

    async def subscribe(self, caller: Caller, command: Subscribe) -> TaskStream:
        """Resume a task's stream: the task as of the reader's cursor, or as of now, then the events that follow."""
        with self._streams.hold(caller.workspace):
            return await self._subscribe(caller, command)

    async def _subscribe(self, caller: Caller, command: Subscribe) -> TaskStream:
        row = await self._lookup.find(caller, command.task_id, command.target)
        dialect = answered_in(command.dialects, row)
        at = row.at if command.after is None else command.after
        if at > row.at:
            raise InvalidParams(f"Last-Event-ID {at} is after the task's last event, {row.at}.")
        if row.ended and at == row.at and self._deps.codec.rules(dialect).ended_refused:
            raise TaskOver(row.at)
        if row.at == START:
            return self._task_stream(caller, row.id, row.role, dialect, row.alias, after=START, first=None)
        first = await self._reader.as_of(caller, row.id, at) if at > START else None
        return self._task_stream(caller, row.id, row.role, dialect, row.alias, after=at, first=first)

    # --- tasks

    async def get(self, caller: Caller, command: GetTask, on_disconnect: OnDisconnect | None = None) -> Answer:
        """ClientDisconnected: while a long task was folded; InvalidParams: it has no such event."""
        row = await self._lookup.find(caller, command.task_id, command.target)
        view = TaskView(answered_in(command.dialects, row), command.history_length, row.alias)
        if command.at is not None and not START < command.at <= row.at:
            raise InvalidParams(f"The task has no event {command.at}: its events are 1 to {row.at}.")
        return await self._reader.now(caller, row, view, on_disconnect, upto=command.at)

    async def download(
        self, caller: Caller, task: TaskId, number: int, part: int | None
    ) -> tuple[Download | StoredFile, Cursor]:
        """An artifact as a file, or the file of the hub that it names, and the event as of which it is so. TaskNotFound,
        ArtifactNotFound, ArtifactUnreadable, InvalidParams.
        """
        row = await self._lookup.find(caller, task, Target())
        found = await self._reader.download(caller, row, number, part)
        stored = await self.inline.find(row.id, found.file) if found.file is not None else None
        return stored or found, row.at

    async def cancel(self, caller: Caller, command: CancelTask) -> Answer:
        if self._quarantined:
            raise Quarantined
        row = await self._lookup.find(caller, command.task_id, command.target)
        if row.ended:
            raise TaskNotCancelable
        await cancel(self._deps, self.relays, row)
        log = await self._engine.events.read(row.id)
        return await self._reader.of(caller, row.id, log, TaskView(answered_in(command.dialects, row), None, row.alias))

    def list(self, caller: Caller, command: ListTasks, on_disconnect: OnDisconnect | None = None) -> Awaitable[TaskList]:
        """ListTooSlow, ClientDisconnected."""
        return self._lists.documents(caller, command, on_disconnect)

    async def task(self, caller: Caller, task: TaskId, target: Target) -> TaskRow:
        """The task under its id or its caller's alias. TaskNotFound."""
        return await self._lookup.find(caller, task, target)

    def page(self, caller: Caller, query: TaskQuery) -> Awaitable[RowList]:
        """The rows of a list, what they are about, what those that are paused ask, and what they have used. ListTooSlow."""
        return self._lists.rows(caller, query)

    def page_of_workspace(self, workspace: str, query: TaskQuery) -> Awaitable[RowList]:
        """The rows of a list of all callers in it. ListTooSlow."""
        return self._lists.rows_of_workspace(workspace, query)

    def caller_of(self, workspace: str, task: TaskId) -> Awaitable[Caller]:
        """Whose task it is, under its id. TaskNotFound."""
        return self._engine.tasks.caller_of(workspace, task)

    def summaries(self, caller: Caller, query: TaskQuery) -> Awaitable[SummaryPage]:
        """Of the tasks whose logs have been deleted. ListTooSlow."""
        return self._lists.summaries(caller, query)

    def summary(self, caller: Caller, task: TaskId) -> Awaitable[Summary]:
        """TaskNotFound."""
        return self._lists.summary(caller, task)

    def excerpts(self, caller: Caller, rows: Sequence[TaskRow]) -> Awaitable[Mapping[TaskId, Excerpt]]:
        """Of tasks of the caller."""
        return self._reader.excerpts(caller, rows)

    def usage_of(self, tasks: Sequence[TaskId]) -> Awaitable[Mapping[TaskId, Sequence[Usage]]]:
        """Of tasks that the caller may read."""
        return self._engine.usage.of_tasks(tasks)

    def budgets(self, tasks: Sequence[TaskId]) -> Awaitable[Mapping[TaskId, Spending]]:
        """Of tasks that the caller may read, and that were called with one."""
        return self._engine.usage.budgets(tasks)

    def usage(self, query: UsageQuery) -> Awaitable[Sequence[UsageGroup]]:
        """Sums of days. ListTooSlow."""
        return self._lists.usage(query)

    # --- how a call ends

    async def _until_rest(self, task: TaskId, after: Cursor, on_disconnect: OnDisconnect | None) -> None:
        """Follow the log until the task ends or pauses. ClientDisconnected."""
        subscription = self._engine.events.follow(task, after=after, idle=self._limits.keep_alive)
        self._waiting.add(subscription)
        client_gone = False

        def disconnected() -> None:
            nonlocal client_gone
            client_gone = True
            subscription.stop()

        if on_disconnect is not None:
            on_disconnect(disconnected)
        try:
            if self.draining:
                subscription.stop()
            await _read_to_rest(subscription, after)
        finally:
            subscription.stop()
            self._waiting.discard(subscription)
        if client_gone:
            raise ClientDisconnected

    async def _started_or_shown(self, call: Call) -> None:
        relay = call.relay
        if relay is None:
            return
        if await relay.started.within(_REVEAL_AFTER):
            await relay.started.wait()
            return
        await relay.show()
        if relay.over:
            await relay.started.wait()  # it may have just been taken back; raises the reason

    def _task_stream(
        self, caller: Caller, task: TaskId, role: str, dialect: str, alias: str, *, after: Cursor, first: Logged | None
    ) -> TaskStream:
        task_stream = TaskStream(
            self._engine.events,
            task,
            after=after,
            idle=self._limits.keep_alive,
            first=first,
            observer=self._deps.observer,
            workspace=caller.workspace,
            role=role,
            dialect=dialect,
            alias=alias,
            on_close=self._on_stream_closed,
        )
        self._task_streams.add(task_stream)
        self._streams.fill(caller.workspace)
        if self.draining:
            task_stream.break_off()
        return task_stream

    def _on_stream_closed(self, task_stream: TaskStream) -> None:
        self._task_streams.discard(task_stream)
        self._streams.give_back(task_stream.workspace)

    # --- start

    async def settle(self) -> None:
        """Continue the tasks that an earlier hub left open."""
        for row in await self._engine.tasks.unfinished():
            self.relays.settle(row, await self._engine.tasks.turns(row.id))
        await self.trees.settle()
        await self._questions.settle()

    # --- shutdown

    def drain(self) -> None:
        """Take no new calls, and answer every waiting caller with its task as it stands. The tasks continue in the log."""
        self._admission.close()
        self.task_feeds.end()
        self.relays.drain()
        self.files.drain()
        for task_stream in tuple(self._task_streams):
            task_stream.break_off()
        for subscription in tuple(self._waiting):
            subscription.stop()

    async def forget(self) -> None:
        """Delete tasks, summaries and sums of long ago, files that nobody needs, and the names of calls that are no longer
        recognised, a piece at a time. Sleep as long as each piece took, so that calls can run.
        """
        clock, engine, limits = self._deps.clock, self._engine, self._limits
        while True:
            began = clock.monotonic()
            forgotten = await engine.tasks.forget_calls(remembered=limits.same_message)
            forgotten += await engine.tasks.forget(
                ended_for=limits.retention, paused_for=limits.max_pause, summaries_for=limits.keep_summaries
            )
            forgotten += await engine.usage.forget_days(after=limits.keep_usage)
            forgotten += await engine.summaries.forget(ended_for=limits.keep_summaries)
            if not forgotten:
                break
            await asyncio.sleep(clock.monotonic() - began)
        await self.files.sweep()


async def _read_to_rest(subscription: Subscription, after: Cursor) -> None:
    more = True
    while more:
        while page := await subscription.page():
            if _rests(page, after):
                return
        more = await subscription.live(lambda events: not _rests(events, after))


def _rests(log: Sequence[Logged], after: Cursor) -> bool:
    """The log has an event after `after` behind which no more was expected without a further message. Content may follow a
    pause all the same.
    """
    for logged in reversed(log):
        if logged.cursor <= after:
            return False
        if logged.event.is_last or logged.event.pauses:
            return True
    return False
