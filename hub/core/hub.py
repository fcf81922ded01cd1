"""One method per operation: the story of a request. Web, bridges and the command line speak to this alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from hub.core.admission.idempotency import Call, Idempotency, content_of, names_after_restart, names_of
from hub.core.admission.quota import WorkspaceQuota
from hub.core.push.configs import PushConfigs
from hub.core.relay.cancel import cancel
from hub.core.relay.context import Dependencies
from hub.core.relay.relay import Relay
from hub.core.relay.relays import Relays
from hub.core.routing.history import RoutingHistory
from hub.core.routing.router import Route, Router
from hub.core.supervisor import Supervisor
from hub.core.tasks.lookup import TaskLookup, alias_key
from hub.core.tasks.reader import TaskReader, TaskView, answered_in, readable
from hub.core.tasks.stream import TaskStream
from hub.ports.event_log import Subscription
from rolecall.errors import (
    ClientGone,
    HubDraining,
    InvalidParams,
    KeyConflict,
    LogMoved,
    NoLiveWorker,
    RoleUnknown,
    RouteError,
    TaskEnded,
    TaskNotCancelable,
    TaskOver,
    WorkerBusy,
)
from rolecall.model.a2a import PAUSED, Answer, Logged, TaskState
from rolecall.model.command import CancelTask, GetTask, ListTasks, Send, Subscribe, Target, TaskQuery
from rolecall.model.ids import START, Caller, Cursor, TaskId, new_task_id
from rolecall.model.task import TaskPage, TaskRow, Turn
from rolecall.model.value import replace

_REVEAL_AFTER = 1.0
"""A caller who does not want to wait gets the task as it stands after this long."""
_AT_WORK = "The task is at work and takes no message now. Wait until it asks, or cancel it."
_LOOK_AGAIN = 0.1
_SINCE_1_0 = frozenset({"1.0"})
"""Where nobody subscribes to what has ended, and a context alone continues no task."""


@dataclass(frozen=True, slots=True)
class HubLimits:
    """Bounds that a caller can meet. Durations in seconds."""

    open_tasks: int = 100_000
    open_tasks_each: int = 50_000
    """Of one workspace; so below."""
    streams: int = 10_000
    streams_each: int = 5_000
    keep_alive: timedelta = timedelta(seconds=15)
    retention: timedelta = timedelta(hours=24)
    paused: timedelta = timedelta(days=7)
    same_message: timedelta = timedelta(seconds=60)


OnDisconnect = Callable[[Callable[[], None]], None]
"""Calls what it is given when the caller has left; at once, if he has."""


class TaskList(NamedTuple):
    tasks: Sequence[bytes]
    total: int
    next_page: str | None


class Hub:
    def __init__(self, deps: Dependencies, supervisor: Supervisor, limits: HubLimits, push: PushConfigs) -> None:
        self._deps = deps
        self._engine = deps.engine
        self._router: Router = deps.router
        self._views = TaskReader(deps)
        self._limits = limits
        self._push = push
        self._supervisor = supervisor
        self._task_streams: set[TaskStream] = set()
        self._waiting: set[Subscription] = set()
        self._being_answered: set[TaskId] = set()
        self._repeats = Idempotency(deps.clock, limits.same_message)
        self._open_tasks = WorkspaceQuota(limits.open_tasks, limits.open_tasks_each, "open tasks", "max_open_tasks")
        self.relays = Relays(deps, supervisor, self._open_tasks)
        self._names = TaskLookup(deps, self.relays, limits.same_message)
        self._streams = WorkspaceQuota(limits.streams, limits.streams_each, "open streams", "max_streams")
        self.decisions = RoutingHistory()
        self.draining = False

    # --- messages

    async def send(self, caller: Caller, send: Send, on_disconnect: OnDisconnect | None = None) -> Answer:
        """The answer to a message: a Task, or the worker's bare Message. ClientGone."""
        call = await self._begin(caller, send)
        if not send.blocking:
            await self._started_or_shown(call)
            return await self._views.now(call.task, TaskView(send.dialect, send.history_length, send.alias))
        await call.started()
        log = await self._engine.events.read(call.task)
        if not _rests(log, call.began):
            await self._until_rest(call.task, call.began, on_disconnect)
            log = await self._engine.events.read(call.task)
        return await self._views.of(call.task, log, TaskView(send.dialect, send.history_length, send.alias))

    async def stream(self, caller: Caller, send: Send) -> TaskStream:
        """The answer to a message as a stream. Returns once the worker has begun to answer."""
        with self._streams.one(caller.workspace):
            return await self._stream(caller, send)

    async def _stream(self, caller: Caller, send: Send) -> TaskStream:
        call = await self._begin(caller, send)
        await call.started()
        if call.began == START:
            return self._task_stream(caller, call.task, call.role, send.dialect, send.alias, after=START, first=None)
        # The answer to a paused task opens with the task as it went on, not as it waited.
        first = await self._views.as_of(call.task, Cursor(call.began + 1))
        return self._task_stream(caller, call.task, call.role, send.dialect, send.alias, after=first.cursor, first=first)

    async def subscribe(self, caller: Caller, command: Subscribe) -> TaskStream:
        """Come back to a task: as of the reader's cursor, or as of now, and then what follows."""
        with self._streams.one(caller.workspace):
            return await self._subscribe(caller, command)

    async def _subscribe(self, caller: Caller, command: Subscribe) -> TaskStream:
        row = await self._names.find(caller, command.task_id, command.target)
        dialect = answered_in(command.dialect, row)
        at = row.at if command.after is None else command.after
        if at > row.at:
            raise InvalidParams(f"Last-Event-ID {at} lies behind the task's last event, {row.at}.")
        if row.ended and at == row.at and dialect in _SINCE_1_0:
            raise TaskOver
        if row.at == START:
            return self._task_stream(caller, row.id, row.role, dialect, row.alias, after=START, first=None)
        first = await self._views.as_of(row.id, at) if at > START else None
        return self._task_stream(caller, row.id, row.role, dialect, row.alias, after=at, first=first)

    # --- tasks

    async def get(self, caller: Caller, command: GetTask) -> Answer:
        row = await self._names.find(caller, command.task_id, command.target)
        return await self._views.now(row.id, TaskView(answered_in(command.dialect, row), command.history_length, row.alias))

    async def cancel(self, caller: Caller, command: CancelTask) -> Answer:
        row = await self._names.find(caller, command.task_id, command.target)
        if row.ended:
            raise TaskNotCancelable
        await cancel(self._deps, self.relays, row)
        return await self._views.now(row.id, TaskView(answered_in(command.dialect, row), None, row.alias))

    async def list(self, caller: Caller, command: ListTasks) -> TaskList:
        page = await self._engine.tasks.page(caller, command.query)
        fitting = readable(page.rows)
        if fitting < len(page.rows):
            page = await self._engine.tasks.page(caller, replace(command.query, limit=fitting))
        view = TaskView(command.dialect, command.history_length, artifacts=command.artifacts)
        return TaskList(await self._views.each(page.rows, view), page.total, page.before)

    async def task(self, caller: Caller, task: TaskId, target: Target) -> TaskRow:
        """Under any of its names. TaskNotFound."""
        return await self._names.find(caller, task, target)

    async def page(self, caller: Caller, query: TaskQuery) -> TaskPage:
        return await self._engine.tasks.page(caller, query)

    # --- how a call begins

    async def _begin(self, caller: Caller, send: Send) -> Call:
        """The same message is the same call; a new one is admitted."""
        if self.draining:
            raise HubDraining
        turn = self._deps.codec.record(send, after=START)
        content = content_of(turn)

        async def start() -> Call:
            if not send.alias and send.key is None:
                return await self._admit(caller, send, turn, content)
            async with self._names.alone(caller, send.alias):
                return await self._known(caller, send, content) or await self._admit(caller, send, turn, content)

        return await self._repeats.once(names_of(caller, send, content), content, start)

    async def _known(self, caller: Caller, send: Send, content: bytes) -> Call | None:
        """A call that is remembered by its task alone: by the task's name, or by an Idempotency-Key."""
        if send.alias:
            return await self._names.said_again(caller, send, content)
        task = await self._engine.tasks.keyed(caller, send.key) if send.key is not None else None
        if task is None:
            return None
        turns = await self._engine.tasks.turns(task)
        if not turns:
            return None  # it has just been forgotten
        if content_of(turns[0]) != content:
            raise KeyConflict
        return Call(task, send.target.path_role or "", START, content, self.relays.of(task))

    async def _admit(self, caller: Caller, send: Send, turn: Turn, content: bytes) -> Call:
        """Route, store, and only then call: what may run can be found again."""
        with self._open_tasks.one(caller.workspace):
            relay = await self._admit_one(caller, send, turn)
        if self.draining:
            self.relays.show_all()
        return Call(relay.log_writer.ids.task, relay.role, relay.began, content, relay)

    async def _admit_one(self, caller: Caller, send: Send, turn: Turn) -> Relay:
        row = await self._continued(caller, send) if send.task_id or send.alias or send.context_id else None
        references = await self._references(caller, send) if send.references else {}
        if row is not None:
            return await self._go_on(caller, row, send, references)
        route = await self._route(caller, send)
        row = self._new_row(caller, send, route)
        hook = await self._push.examine(send.push.of(row.id)) if send.push is not None else None
        self._decided(row.id, route)
        key = alias_key(send.alias) if send.alias else send.key
        await self._engine.tasks.admit(row, turn, key=key, push=hook)
        return self.relays.start(row, (turn,), route=route, send=send, references=references)

    async def _route(self, caller: Caller, send: Send) -> Route:
        """A worker, at once or within the time that the caller would wait for one."""
        give_up = self._deps.clock.monotonic() + send.wait
        while True:
            try:
                return await self._router.choose(caller, send)
            except RouteError as error:
                worth_it = isinstance(error, RoleUnknown | NoLiveWorker | WorkerBusy) and not self.draining
                if not worth_it or self._deps.clock.monotonic() >= give_up:
                    role = send.target.path_role or send.target.role or ""
                    self._deps.observer.routed(role, "role", type(error).__name__)
                    raise
            await asyncio.sleep(_LOOK_AGAIN)

    async def _go_on(self, caller: Caller, row: TaskRow, send: Send, references: dict[str, str]) -> Relay:
        """One answer at a time: who comes second finds the task at work."""
        if row.id in self._being_answered:
            raise InvalidParams(_AT_WORK)
        self._being_answered.add(row.id)
        try:
            return await self._answer(caller, await self._engine.tasks.get(caller, row.id), send, references)
        finally:
            self._being_answered.discard(row.id)

    async def _answer(self, caller: Caller, row: TaskRow, send: Send, references: dict[str, str]) -> Relay:
        if row.ended:
            raise TaskEnded
        running = self.relays.of(row.id)
        if running is not None and row.state in PAUSED:
            await running.log_writer.idle()  # the question is in the log, and its relay may not know that yet
        if running is not None and not running.rests and not running.over:
            raise InvalidParams(_AT_WORK)
        route = self._router.to_owner(caller, row, send.target)
        if send.context_id is not None and send.context_id != row.context:
            raise InvalidParams('"message.contextId" is not the context of that task.')
        await self.relays.clear(row.id)
        running = self.relays.of(row.id)
        if running is not None and not running.over:
            raise InvalidParams(_AT_WORK)
        row = await self._engine.tasks.get(caller, row.id)
        if row.ended:
            raise TaskEnded
        turn = self._deps.codec.record(send, after=row.at)
        if send.push is not None:
            await self._push.set(caller, send.push.of(row.id))
        self._decided(row.id, route)
        await self._engine.tasks.add_turn(row.id, turn)
        turns = await self._engine.tasks.turns(row.id)
        return self.relays.start(row, turns, route=route, send=send, references=references)

    async def _continued(self, caller: Caller, send: Send) -> TaskRow | None:
        """The task that the message answers: named, or the one paused task of its context."""
        if send.task_id is not None:
            return await self._names.find(caller, send.task_id, send.target)
        if send.alias:
            return await self._names.known(caller, send.alias)
        if send.context_id is None or send.dialect in _SINCE_1_0:
            return None
        role = send.target.path_role or send.target.role
        paused = await self._engine.tasks.paused(caller, send.context_id, role)
        return await self._engine.tasks.get(caller, paused[0]) if len(paused) == 1 else None

    async def _references(self, caller: Caller, send: Send) -> dict[str, str]:
        """What the worker calls the tasks that the message refers to. Not the caller's: not found."""
        rows = [await self._engine.tasks.get(caller, TaskId(task)) for task in send.references]
        return {row.id: row.worker_task for row in rows}

    def _new_row(self, caller: Caller, send: Send, route: Route) -> TaskRow:
        worker, now = route.registration.worker, self._deps.clock.wall()
        return TaskRow(
            id=new_task_id(),
            caller=caller,
            role=worker.role,
            worker=worker,
            epoch=route.registration.epoch,
            context=send.context_id or "",
            worker_task="",
            worker_context=route.conversation.worker_context if route.conversation else "",
            dialect=send.dialect,
            log_dialect=route.registration.offer.preferred_dialect(send.dialect),
            alias=send.alias,
            state=TaskState.SUBMITTED,
            at=START,
            position=None,
            size=0,
            created=now,
            updated=now,
        )

    def _decided(self, task: TaskId, route: Route) -> None:
        self.decisions.note(task, route, self._deps.clock.wall())
        self._deps.observer.routed(route.registration.worker.role, route.rule, "ok")

    # --- how a call ends

    async def _until_rest(self, task: TaskId, after: Cursor, on_disconnect: OnDisconnect | None) -> None:
        """Follow until an end or a pause."""
        following = self._engine.events.follow(task, after=after, idle=self._limits.keep_alive)
        self._waiting.add(following)
        gone = False

        def left() -> None:
            nonlocal gone
            gone = True
            following.stop()

        if on_disconnect is not None:
            on_disconnect(left)
        try:
            if self.draining:
                following.stop()
            async for batch in following:
                if _rests(batch, after):
                    break
        finally:
            following.stop()
            self._waiting.discard(following)
        if gone:
            raise ClientGone

    async def _started_or_shown(self, call: Call) -> None:
        relay = call.relay
        if relay is None:
            return
        if await relay.started.within(_REVEAL_AFTER):
            await relay.started.wait()
            return
        try:
            await relay.log_writer.reveal()
        except LogMoved:
            await relay.started.wait()  # taken back at this moment: its error says why
            raise

    def _task_stream(
        self, caller: Caller, task: TaskId, role: str, dialect: str, alias: str, *, after: Cursor, first: Logged | None
    ) -> TaskStream:
        async def rests_at(cursor: Cursor) -> bool:
            log = await self._engine.events.read(task, after=cursor)
            return not log

        events: Subscription = self._engine.events.follow(task, after=after, idle=self._limits.keep_alive)
        task_stream = TaskStream(
            events,
            first=first,
            rests_at=rests_at,
            observer=self._deps.observer,
            workspace=caller.workspace,
            role=role,
            dialect=dialect,
            alias=alias,
            on_close=self._closed,
        )
        self._task_streams.add(task_stream)
        self._streams.fill(caller.workspace)
        if self.draining:
            task_stream.break_off()
        return task_stream

    def _closed(self, task_stream: TaskStream) -> None:
        self._task_streams.discard(task_stream)
        self._streams.leave(task_stream.workspace)

    # --- coming up

    async def settle(self) -> None:
        """Take up the tasks that an earlier hub left open, and recognise the messages that it had taken on."""
        tasks = self._engine.tasks
        for row in await tasks.recent(ended_within=self._limits.same_message):
            turns = await tasks.turns(row.id)
            relay = self.relays.settle(row, turns)
            content = content_of(turns[0])
            call = Call(row.id, row.role, START, content, relay)
            self._repeats.remember(call, names_after_restart(row.caller, row.role, content))

    # --- going down

    def drain(self) -> None:
        """Take no new calls; let every waiting caller go with what there is. The tasks themselves go on in the log."""
        self.draining = True
        self.relays.show_all()
        for task_stream in tuple(self._task_streams):
            task_stream.break_off()
        for following in tuple(self._waiting):
            following.stop()

    async def forget(self) -> None:
        """Drop what ended long ago, piece by piece and half of the time, so that nobody waits for the broom."""
        clock = self._deps.clock
        while True:
            began = clock.monotonic()
            if not await self._engine.tasks.forget(ended_for=self._limits.retention, paused_for=self._limits.paused):
                return
            await asyncio.sleep(clock.monotonic() - began)


def _rests(log: Sequence[Logged], after: Cursor) -> bool:
    """Its last event is behind `after`, and nothing comes without a further message."""
    return bool(log) and log[-1].cursor > after and (log[-1].event.ends or log[-1].event.pauses)
