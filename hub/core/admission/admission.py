"""Admits messages: each is routed and stored before its worker is called, so that every task that may run can be found again.

A message begins a task, or it answers a paused one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

from hub.core.admission.idempotency import Call, CallNames, Find, Idempotency, names_of
from hub.core.files.files import Files
from hub.core.push.configs import PushConfigs
from hub.core.relay.context import Dependencies
from hub.core.relay.relay import Relay, message_memory
from hub.core.relay.relays import Relays
from hub.core.routing.history import RoutingHistory
from hub.core.routing.router import Route
from hub.core.supervisor import Supervisor
from hub.core.tasks.lookup import TaskLookup
from hub.core.tasks.questions import Questions
from hub.core.tasks.reader import OnDisconnect
from hub.core.tasks.trees import Trees
from rolecall.errors import (
    DiskLow,
    FileError,
    FileNotFound,
    HubDraining,
    HubError,
    InvalidParams,
    NoLiveWorker,
    Quarantined,
    RoleUnknown,
    RouteError,
    StoreUnavailable,
    TaskEnded,
    TaskNotFound,
    WorkerBusy,
)
from rolecall.model.a2a import PAUSED, TaskState
from rolecall.model.command import ParentCall, Send, Target
from rolecall.model.ids import START, Caller, TaskId, new_context_id, new_task_id
from rolecall.model.push import PushConfig
from rolecall.model.task import TaskRow, Turn
from rolecall.model.value import Value

_AT_WORK = "The task is working and takes no message now. Wait until it asks for input, or cancel it."
_TRY_AGAIN = 0.1


class NewMessage(Value, frozen=True):
    """A message that is being admitted. `turn`: as it is stored where it begins a task."""

    caller: Caller
    send: Send
    turn: Turn
    names: CallNames
    on_disconnect: OnDisconnect | None


class Admission:
    def __init__(
        self,
        deps: Dependencies,
        supervisor: Supervisor,
        relays: Relays,
        trees: Trees,
        questions: Questions,
        lookup: TaskLookup,
        files: Files,
        push: PushConfigs,
        being_answered: set[TaskId],
        *,
        same_message: timedelta,
        quarantined: bool,
    ) -> None:
        """`being_answered`: tasks whose caller's answer is being accepted; others read it. `same_message`: how long after its
        call has ended a repeated message is still recognised.
        """
        self._deps = deps
        self._tasks = deps.engine.tasks
        self._supervisor = supervisor
        self._relays = relays
        self._trees = trees
        self._questions = questions
        self._lookup = lookup
        self._files = files
        self._push = push
        self._being_answered = being_answered
        self._same_message = same_message
        self._open_tasks = deps.shares.open_tasks
        self._messages = deps.shares.messages
        self._connections = deps.shares.worker_connections
        self._idempotency = Idempotency(deps.engine.tasks, relays, lookup, deps.clock, same_message)
        self._closed: type[HubError] | None = Quarantined if quarantined else None
        self.decisions = RoutingHistory()

    @property
    def closed(self) -> bool:
        return self._closed is not None

    def close(self) -> None:
        """The hub shuts down: it takes no new message, and none waits for a worker any longer."""
        self._closed = self._closed or HubDraining
        self._deps.waiting.stop()

    def begin(self, caller: Caller, send: Send, on_disconnect: OnDisconnect | None) -> Awaitable[Call]:
        """Return the call of a repeated message, or admit a new one."""
        if self._closed is not None:
            raise self._closed
        turn = self._deps.codec.record(send, after=START)
        send = self._deps.codec.with_files(send, turn)
        names = names_of(caller, send, turn)
        admit = partial(self._admit, NewMessage(caller, send, turn, names, on_disconnect))
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

    async def _admit(self, message: NewMessage, find: Find) -> Call | None:
        """None: an earlier call has one of the names."""
        workspace = message.caller.workspace
        self._open_tasks.take(workspace)
        try:
            if memory := message_memory((message.turn,)):
                with self._messages.hold(workspace, memory):
                    relay = await self._begin_or_answer(message, find)
            else:
                relay = await self._begin_or_answer(message, find)
        finally:
            self._open_tasks.give_back(workspace)
        if relay is None:
            return None
        if self.closed:
            self._relays.drain()
        return Call(relay.row.id, relay.row.role, relay.began, relay)

    async def _begin_or_answer(self, message: NewMessage, find: Find) -> Relay | None:
        caller, send = message.caller, message.send
        if send.parent is not None:
            row = await self._find_child(caller, send, send.parent)
        else:
            row = await self._find_answered(caller, send) if send.task_id or send.alias or send.context_id else None
        references = await self._references(caller, send) if send.references else {}
        if row is None:
            route = await self._route(message, find)
            return await self._begin_task(message, route, references) if route is not None else None
        if send.budget is not None:
            raise InvalidParams("A budget comes with the message that begins a task, and this one goes on with a task.")
        return await self._continue(message, row, references)

    # --- which task it is about

    async def _find_child(self, caller: Caller, send: Send, parent: ParentCall) -> TaskRow | None:
        """Within a task only its own children can be answered, or referred to. TaskNotFound."""
        for task in (*send.references, *((send.task_id,) if send.task_id is not None else ())):
            await self._trees.check_child(parent, TaskId(task))
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
        paused = await self._tasks.paused(caller, send.context_id, role)
        return await self._tasks.get(caller, paused[0]) if len(paused) == 1 else None

    async def _references(self, caller: Caller, send: Send) -> dict[str, str]:
        """Map the ids of the tasks that the message refers to, to the worker's ids. TaskNotFound if one is not the caller's."""
        rows = [await self._tasks.get(caller, TaskId(task)) for task in send.references]
        return {row.id: row.worker_task for row in rows}

    # --- a message that begins a task

    async def _route(self, message: NewMessage, find: Find) -> Route | None:
        """Choose a worker, at once or within the time that the caller accepts to wait. None: it would wait, and need not,
        because an earlier call has its name. ClientDisconnected, DiskLow.
        """
        send, workspace = message.send, message.caller.workspace
        choose = partial(self._deps.router.choose, message.caller, send)
        try:
            try:
                return await choose()
            except (RoleUnknown, NoLiveWorker, WorkerBusy) as error:
                if not send.wait or self.closed or _cannot_agree(send.target):
                    raise
                refusal = error.copy()  # it is kept as long as the call waits
            with self._deps.shares.waiting.hold(workspace):
                return await self._deps.waiting.place(
                    workspace, refusal, choose, find, within=send.wait, on_disconnect=message.on_disconnect
                )
        except RouteError as error:
            role = send.target.path_role or send.target.role or ""
            self._deps.observer.routed(role, "role", type(error).__name__)
            if isinstance(error, RoleUnknown | NoLiveWorker):
                self._check_room(error)
            raise

    def _check_room(self, missing: RouteError) -> None:
        """On a full disk no worker can enrol, and the call would be refused if there were one. DiskLow."""
        room = self._deps.engine.disk_room()
        if room is not None and room.low:
            raise DiskLow(room.reserve) from missing

    async def _begin_task(self, message: NewMessage, route: Route, references: dict[str, str]) -> Relay | None:
        caller, send, turn = message.caller, message.send, message.turn
        self._connections.check(caller.workspace)  # before anything is stored: most of those refused end here
        # The place is taken from now on, and not only when the call is stored.
        chosen, relay, branch = route.registration, None, None
        chosen.in_flight += 1
        try:
            if send.parent is not None:
                branch = await self._trees.grow(send.parent, chosen.worker.role)
            row = self._new_row(caller, send, route)
            push_config = await self._push.prepare(caller, send.push.of(row.id)) if send.push is not None else None
            try:
                stored = await self._tasks.admit(
                    row,
                    turn,
                    names=message.names.of_task,
                    remembered=self._same_message,
                    push=push_config,
                    branch=branch,
                    files=send.files,
                    budget=send.budget,
                )
            except FileNotFound:
                raise await self._refuse_files(caller, send, turn) from None
            except asyncio.CancelledError:
                await self._take_back(row.id, lambda: self._tasks.discard(row.id))
                raise
            if stored:
                self._note_decision(row.id, route)
                due = None if branch is None else self._trees.due(branch)
                relay = self._relays.start(row, (turn,), route=route, send=send, references=references, due=due)
                if branch is not None:
                    self._trees.began(row, branch)
            return relay
        finally:
            if branch is not None and relay is None:
                self._trees.refused(branch.root)
            chosen.in_flight -= 1
            if relay is None and not chosen.full:
                self._deps.waiting.wake(chosen.workspace, chosen.worker)

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

    # --- a message that answers a paused task

    async def _continue(self, message: NewMessage, row: TaskRow, references: dict[str, str]) -> Relay | None:
        """One answer at a time: a second one is refused, since the task is working."""
        if row.id in self._being_answered:
            raise InvalidParams(_AT_WORK)
        self._being_answered.add(row.id)
        try:
            row = await self._tasks.get(message.caller, row.id)
            if self._trees.holds(row.id):
                return await self._answer_in_tree(message, row, references)
            return await self._answer(message, row, references)
        finally:
            self._being_answered.discard(row.id)

    async def _answer_in_tree(self, message: NewMessage, row: TaskRow, references: dict[str, str]) -> Relay | None:
        by_parent, relay = message.send.parent is not None, None
        answer = await self._questions.accept(row, by_parent=by_parent)
        try:
            relay = await self._answer(message, row, references)
            return relay
        finally:
            if relay is not None:
                self._questions.accepted(answer, relay, by_parent=by_parent)
            else:
                self._questions.refused(answer)

    async def _answer(self, message: NewMessage, row: TaskRow, references: dict[str, str]) -> Relay | None:
        caller, send, task = message.caller, message.send, row.id
        if row.ended:
            raise TaskEnded
        running = self._relays.of(task)
        if running is not None and row.state in PAUSED:
            await running.caught_up()  # the pause is in the log, and the relay may not have seen it yet
        if running is not None and not running.rests and not running.over:
            raise InvalidParams(_AT_WORK)
        route = self._deps.router.to_owner(caller, row, send.target)
        if send.context_id is not None and send.context_id != row.context:
            raise InvalidParams('"message.contextId" is not the context of that task.')
        await self._relays.let_go(task)
        running = self._relays.of(task)
        if running is not None and not running.over:
            raise InvalidParams(_AT_WORK)
        row = await self._tasks.get(caller, task)
        if row.ended:
            raise TaskEnded
        self._connections.check(caller.workspace)
        turn = self._deps.codec.record(send, after=row.at)
        if send.push is not None:
            await self._push.set(caller, send.push.of(task))
        turns = [*await self._tasks.turns(task), turn]
        try:
            stored = await self._tasks.add_turn(
                task, turn, names=message.names.of_answer, remembered=self._same_message, files=send.files
            )
        except FileNotFound:
            raise await self._refuse_files(caller, send, turn) from None
        except asyncio.CancelledError:
            await self._take_back(task, lambda: self._tasks.drop_turn(task, turn))
            raise
        if not stored:
            return None
        self._note_decision(task, route)
        due = self._trees.due_of(task)
        return self._relays.start(row, turns, route=route, send=send, references=references, due=due)

    # --- both

    async def _refuse_files(self, caller: Caller, send: Send, turn: Turn) -> InvalidParams:
        """Why the store did not take a message. What the caller may not know of is as if it did not exist."""
        named = self._deps.codec.files_sent(send, turn)
        wrong = named[0]
        for file in named:
            try:
                complete = (await self._files.of_caller(caller, file.id)).complete
            except FileError:
                complete = False
            if not complete:
                wrong = file
                break
        return InvalidParams(f'"{wrong.path}" names a file that the hub does not have, or has not whole. Upload it first.')

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

    def _note_decision(self, task: TaskId, route: Route) -> None:
        self.decisions.note(task, route, self._deps.clock.wall())
        self._deps.observer.routed(route.registration.worker.role, route.rule, "ok")


def _cannot_agree(target: Target) -> bool:
    """The message names another role than the path: no worker could change that."""
    return target.role is not None and target.path_role not in (None, target.role)
