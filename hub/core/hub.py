"""The façade of core: one method per operation. Inbound rooms call only this."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from hub.core.admission.idempotency import Call, CallNames, Find, Idempotency, names_of
from hub.core.files.files import FILE_LIMITS, FileLimits, Files
from hub.core.push.configs import PushConfigs
from hub.core.relay.cancel import cancel
from hub.core.relay.context import Dependencies
from hub.core.relay.paused import PausedTasks
from hub.core.relay.relay import Relay, message_memory
from hub.core.relay.relays import Relays
from hub.core.routing.history import RoutingHistory
from hub.core.routing.router import Route, Router
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
    DiskLow,
    FileError,
    FileNotFound,
    HubDraining,
    InvalidParams,
    NoLiveWorker,
    Quarantined,
    RoleUnknown,
    RouteError,
    StoreUnavailable,
    TaskEnded,
    TaskNotCancelable,
    TaskNotFound,
    TaskOver,
    WorkerBusy,
)
from rolecall.model.a2a import PAUSED, Answer, Logged, TaskState
from rolecall.model.command import CancelTask, GetTask, ListTasks, ParentCall, Send, Subscribe, Target, TaskQuery
from rolecall.model.content import Download
from rolecall.model.ids import START, Caller, Cursor, TaskId, new_context_id, new_task_id
from rolecall.model.push import PushConfig
from rolecall.model.task import Excerpt, StoredFile, Summary, SummaryPage, TaskRow, Turn
from rolecall.model.usage import Spending, Usage, UsageGroup, UsageQuery

_REVEAL_AFTER = 1.0
"""A caller that does not block gets the current task after this many seconds."""
_AT_WORK = "The task is working and takes no message now. Wait until it asks for input, or cancel it."
_TRY_AGAIN = 0.1


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
        self._router: Router = deps.router
        self._reader = TaskReader(deps)
        self._lists = TaskLists(deps, self._reader)
        self.task_feeds = TaskFeeds(deps, self._reader)
        self._limits = limits
        self._push = push
        self._supervisor = supervisor
        self._task_streams: set[TaskStream] = set()
        self._waiting: set[Subscription] = set()
        self._being_answered: set[TaskId] = set()
        self._open_tasks = deps.shares.open_tasks
        self._streams = deps.shares.streams
        self._messages = deps.shares.messages
        self._connections = deps.shares.worker_connections
        self.inline = deps.inline_files()
        self.relays = Relays(deps, supervisor)
        self.trees = Trees(deps, self.relays, supervisor, limits.tree, may_call)
        self._questions = Questions(deps, self.relays, supervisor, self.trees, self._reader, self._being_answered)
        self.paused_tasks = PausedTasks(deps, self.relays, supervisor, self._being_answered, self.trees.assigned)
        self._lookup = TaskLookup(self._engine.tasks)
        self.log_pages = LogPages(deps, self._lookup)
        self.files = Files(deps, supervisor, limits.files)
        self.erasure = Erasure(deps, self.relays, self._lookup, push, self.files)
        self._idempotency = Idempotency(self._engine.tasks, self.relays, self._lookup, deps.clock, limits.same_message)
        self.decisions = RoutingHistory()
        self.draining = self._quarantined = quarantined

    # --- messages

    async def send(self, caller: Caller, send: Send, on_disconnect: OnDisconnect | None = None) -> Answer:
        """The answer to a message: a Task, or the worker's bare Message. ClientDisconnected."""
        call = await self._begin(caller, send, on_disconnect)
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
            call = await self._begin(caller, send, on_disconnect)
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

    # --- how a call begins

    def _begin(self, caller: Caller, send: Send, on_disconnect: OnDisconnect | None) -> Awaitable[Call]:
        """Return the call of a repeated message, or admit a new one."""
        if self.draining:
            raise Quarantined if self._quarantined else HubDraining
        turn = self._deps.codec.record(send, after=START)
        send = self._deps.codec.with_files(send, turn)
        names = names_of(caller, send, turn)
        admit = partial(self._admit, caller, send, turn, names, on_disconnect)
        call = self._idempotency.once(caller, send, names, admit, on_disconnect)
        return call if send.push is None else self._set_again(caller, send.push, call)

    async def _set_again(self, caller: Caller, config: PushConfig, started: Awaitable[Call]) -> Call:
        """A repeat sets its push config again. What a call starts with is stored with it."""
        call = await started
        if call.repeated:
            try:
                await self._push.set(caller, config.of(call.task), newest=True)
            except TaskNotFound:
                pass  # the answer is a bare message, or the call has been taken back
        return call

    async def _admit(
        self, caller: Caller, send: Send, turn: Turn, names: CallNames, on_disconnect: OnDisconnect | None, find: Find
    ) -> Call | None:
        """Route, store, and only then call the worker, so that every task that may run can be found again. None: an earlier
        call has one of the names.
        """
        self._open_tasks.take(caller.workspace)
        try:
            if memory := message_memory((turn,)):
                with self._messages.hold(caller.workspace, memory):
                    relay = await self._admit_one(caller, send, turn, names, on_disconnect, find)
            else:
                relay = await self._admit_one(caller, send, turn, names, on_disconnect, find)
        finally:
            self._open_tasks.give_back(caller.workspace)
        if relay is None:
            return None
        if self.draining:
            self.relays.drain()
        return Call(relay.row.id, relay.row.role, relay.began, relay)

    async def _admit_one(
        self, caller: Caller, send: Send, turn: Turn, names: CallNames, on_disconnect: OnDisconnect | None, find: Find
    ) -> Relay | None:
        if send.parent is not None:
            row = await self._find_child(caller, send, send.parent)
        else:
            row = await self._find_answered(caller, send) if send.task_id or send.alias or send.context_id else None
        references = await self._references(caller, send) if send.references else {}
        if row is not None:
            if send.budget is not None:
                raise InvalidParams("A budget comes with the message that begins a task, and this one goes on with a task.")
            return await self._continue(caller, row, send, references, names)
        route = await self._route(caller, send, on_disconnect, find)
        if route is None:
            return None
        self._connections.check(caller.workspace)  # before anything is stored: most of those refused end here
        # The place is taken from now on, and not only when the call is stored.
        chosen, relay, branch = route.registration, None, None
        chosen.in_flight += 1
        try:
            if send.parent is not None:
                branch = await self.trees.grow(send.parent, chosen.worker.role)
            row = self._new_row(caller, send, route)
            push_config = await self._push.prepare(caller, send.push.of(row.id)) if send.push is not None else None
            tasks, window = self._engine.tasks, self._limits.same_message
            try:
                stored = await tasks.admit(
                    row,
                    turn,
                    names=names.of_task,
                    remembered=window,
                    push=push_config,
                    branch=branch,
                    files=send.files,
                    budget=send.budget,
                )
            except FileNotFound:
                raise await self._refuse_files(caller, send, turn) from None
            except asyncio.CancelledError:
                await self._take_back(row.id, lambda: tasks.discard(row.id))
                raise
            if stored:
                self._note_decision(row.id, route)
                due = None if branch is None else self.trees.due(branch)
                relay = self.relays.start(row, (turn,), route=route, send=send, references=references, due=due)
                if branch is not None:
                    self.trees.began(row, branch)
            return relay
        finally:
            if branch is not None and relay is None:
                self.trees.refused(branch.root)
            chosen.in_flight -= 1
            if relay is None and not chosen.full:
                self._deps.waiting.wake(chosen.workspace, chosen.worker)

    async def _take_back(self, task: TaskId, write: Callable[[], Awaitable[None]]) -> None:
        """The caller was cancelled while its message was being stored. Nothing will run, so the names must be free again
        before a repeat is admitted.
        """

        async def retry() -> None:
            while True:
                try:
                    await write()
                    return
                except StoreUnavailable:
                    await asyncio.sleep(_TRY_AGAIN)

        await asyncio.wait([self._supervisor.run_once(f"taking back {task}", retry())])

    async def _route(self, caller: Caller, send: Send, on_disconnect: OnDisconnect | None, find: Find) -> Route | None:
        """Choose a worker, at once or within the time that the caller accepts to wait. None: it would wait, and need not,
        because an earlier call has its name. ClientDisconnected, DiskLow.
        """
        try:
            try:
                return await self._router.choose(caller, send)
            except (RoleUnknown, NoLiveWorker, WorkerBusy) as error:
                if not send.wait or self.draining or _cannot_agree(send.target):
                    raise
                refusal = error.copy()  # it is kept as long as the call waits
            choose = partial(self._router.choose, caller, send)
            with self._deps.shares.waiting.hold(caller.workspace):
                return await self._deps.waiting.place(
                    caller.workspace, refusal, choose, find, within=send.wait, on_disconnect=on_disconnect
                )
        except RouteError as error:
            role = send.target.path_role or send.target.role or ""
            self._deps.observer.routed(role, "role", type(error).__name__)
            if isinstance(error, RoleUnknown | NoLiveWorker):
                self._check_room(error)
            raise

    def _check_room(self, missing: RouteError) -> None:
        """On a full disk no worker can enrol, and the call would be refused if there were one. DiskLow."""
        room = self._engine.disk_room()
        if room is not None and room.low:
            raise DiskLow(room.reserve) from missing

    async def _continue(
        self, caller: Caller, row: TaskRow, send: Send, references: dict[str, str], names: CallNames
    ) -> Relay | None:
        """One answer at a time: a second one is refused, since the task is working."""
        if row.id in self._being_answered:
            raise InvalidParams(_AT_WORK)
        self._being_answered.add(row.id)
        try:
            row = await self._engine.tasks.get(caller, row.id)
            if self.trees.holds(row.id):
                return await self._answer_in_tree(caller, row, send, references, names)
            return await self._answer(caller, row, send, references, names)
        finally:
            self._being_answered.discard(row.id)

    async def _answer_in_tree(
        self, caller: Caller, row: TaskRow, send: Send, references: dict[str, str], names: CallNames
    ) -> Relay | None:
        by_parent, relay = send.parent is not None, None
        answer = await self._questions.accept(row, by_parent=by_parent)
        try:
            relay = await self._answer(caller, row, send, references, names)
            return relay
        finally:
            if relay is not None:
                self._questions.accepted(answer, relay, by_parent=by_parent)
            else:
                self._questions.refused(answer)

    async def _answer(
        self, caller: Caller, row: TaskRow, send: Send, references: dict[str, str], names: CallNames
    ) -> Relay | None:
        if row.ended:
            raise TaskEnded
        running = self.relays.of(row.id)
        if running is not None and row.state in PAUSED:
            await running.caught_up()  # the pause is in the log, and the relay may not have seen it yet
        if running is not None and not running.rests and not running.over:
            raise InvalidParams(_AT_WORK)
        route = self._router.to_owner(caller, row, send.target)
        if send.context_id is not None and send.context_id != row.context:
            raise InvalidParams('"message.contextId" is not the context of that task.')
        await self.relays.let_go(row.id)
        running = self.relays.of(row.id)
        if running is not None and not running.over:
            raise InvalidParams(_AT_WORK)
        row = await self._engine.tasks.get(caller, row.id)
        if row.ended:
            raise TaskEnded
        self._connections.check(caller.workspace)
        turn = self._deps.codec.record(send, after=row.at)
        if send.push is not None:
            await self._push.set(caller, send.push.of(row.id))
        tasks, task = self._engine.tasks, row.id
        turns = [*await tasks.turns(task), turn]
        try:
            stored = await tasks.add_turn(
                task, turn, names=names.of_answer, remembered=self._limits.same_message, files=send.files
            )
        except FileNotFound:
            raise await self._refuse_files(caller, send, turn) from None
        except asyncio.CancelledError:
            await self._take_back(task, lambda: tasks.drop_turn(task, turn))
            raise
        if not stored:
            return None
        self._note_decision(task, route)
        due = self.trees.due_of(task)
        return self.relays.start(row, turns, route=route, send=send, references=references, due=due)

    async def _find_child(self, caller: Caller, send: Send, parent: ParentCall) -> TaskRow | None:
        """Within a task only its own children can be answered, or referred to. TaskNotFound."""
        for task in (*send.references, *((send.task_id,) if send.task_id is not None else ())):
            await self.trees.check_child(parent, TaskId(task))
        return await self._lookup.find(caller, send.task_id, send.target) if send.task_id is not None else None

    async def _find_answered(self, caller: Caller, send: Send) -> TaskRow | None:
        """The task that the message answers: named by its id, or the only paused task of its context."""
        if send.task_id is not None:
            return await self._lookup.find(caller, send.task_id, send.target)
        if send.alias:
            return await self._lookup.known(caller, send.alias)
        if send.context_id is None or not self._deps.codec.rules(send.dialect).answers_by_context:
            return None
        role = send.target.path_role or send.target.role
        paused = await self._engine.tasks.paused(caller, send.context_id, role)
        return await self._engine.tasks.get(caller, paused[0]) if len(paused) == 1 else None

    async def _refuse_files(self, caller: Caller, send: Send, turn: Turn) -> InvalidParams:
        """Why the store did not take a message. What the caller may not know of is as if it did not exist."""
        named = self._deps.codec.files_sent(send, turn)
        wrong = named[0]
        for file in named:
            try:
                complete = (await self.files.of_caller(caller, file.id)).complete
            except FileError:
                complete = False
            if not complete:
                wrong = file
                break
        return InvalidParams(f'"{wrong.path}" names a file that the hub does not have, or has not whole. Upload it first.')

    async def _references(self, caller: Caller, send: Send) -> dict[str, str]:
        """Map the ids of the tasks that the message refers to, to the worker's ids. TaskNotFound if one is not the caller's."""
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
            context=send.context_id or new_context_id(),
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

    def _note_decision(self, task: TaskId, route: Route) -> None:
        self.decisions.note(task, route, self._deps.clock.wall())
        self._deps.observer.routed(route.registration.worker.role, route.rule, "ok")

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
        self.draining = True
        self.task_feeds.end()
        self.relays.drain()
        self.files.drain()
        for task_stream in tuple(self._task_streams):
            task_stream.break_off()
        for subscription in tuple(self._waiting):
            subscription.stop()
        self._deps.waiting.stop()

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


def _cannot_agree(target: Target) -> bool:
    """The message names another role than the path: no worker could change that."""
    return target.role is not None and target.path_role not in (None, target.role)


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
