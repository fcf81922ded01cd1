"""Runs the handler of one task: its output goes into the log, its end decides the task's state."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import secrets
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from rolecall.log import SCOPE, scope_of
from rolecall.model.a2a import EventKind, JsonObject, TaskState
from rolecall.model.command import Send
from rolecall.model.usage import Usage
from rolecall.protocol.text.timestamp import timestamp
from worker_sdk.context import FilesWithin, HubAccess, LinkWithin, Task
from worker_sdk.errors import InputRequired, RolecallError, TaskFailed, TaskRejected
from worker_sdk.files.content import AtHub
from worker_sdk.files.file import File
from worker_sdk.files.parts import fetch, part_of
from worker_sdk.handlers.handler import Form, Handler
from worker_sdk.handlers.models import is_model, write_model
from worker_sdk.tasks.log import TaskLog
from worker_sdk.tasks.usage import PendingUsage
from worker_sdk.words import Artifact, Message, NeedInput, Reject, Status, TooLarge, UserError, usage_metadata

if TYPE_CHECKING:
    from worker_sdk.calling.child import ChildQuestion

log = logging.getLogger("worker_sdk")

GoneOn = Callable[[], Awaitable[bool]]
_MAX_TEXT = 128 * 1024
_MAX_REASON = 4_000
_ENVELOPE = 8 * 1024
"""Bytes of an event with a file, beside its content."""
_NO_MESSAGE = Message({})
_FAILED = {"event": "task_failed"}


class Slots:
    """Counts the running handlers up to a limit. A handler that is a plain function keeps its slot, even if it is cancelled,
    until its thread ends.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.busy = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def full(self) -> bool:
        return self.limit is not None and self.busy >= self.limit

    def take(self) -> None:
        self.busy += 1
        self._idle.clear()

    def release(self) -> None:
        self.busy -= 1
        if not self.busy:
            self._idle.set()

    async def idle(self) -> None:
        await self._idle.wait()


class Execution:
    """Runs one handler through the turns of one task. The caller takes a slot for each turn.

    InvalidParams: the message does not match the handler's parameters, so there is no task.
    """

    def __init__(
        self,
        task_log: TaskLog,
        handler: Handler,
        slots: Slots,
        send: Send,
        on_end: Callable[[Execution], None],
        *,
        hub_task: str = "",
        link: LinkWithin | None = None,
        files: FilesWithin | None = None,
        remaining: float | None = None,
        worker: str = "",
    ) -> None:
        """`hub_task`: the hub's id of the task; `link`: the way to call through the hub; `files`: to its files; `remaining`:
        seconds for this turn; `worker`: whose log has its failure.
        """
        self._worker = worker
        self._known_as = hub_task or task_log.task_id
        """Its id in logs: callers and the hub's own log know no other."""
        self.log = task_log
        self._handler = handler
        self._slots = slots
        self._holds_slot = True
        self._question_lock = asyncio.Lock()
        self._usage = PendingUsage(self._send_usage)
        self._access = HubAccess(hub_task, link, self._ask, self._usage.add, files)
        self._task = Task(task_log.task_id, task_log.context_id, send, self._access, remaining)
        self._message = self._task.message.with_raw(self._addressed(self._task.message.raw))
        self._arguments = handler.arguments(self._message, self._task)
        self._on_end = on_end
        self._reply: asyncio.Future[Message | None] | None = None
        self._gone_on: GoneOn | None = None
        """Of the child whose question is asked."""
        self._looks = False
        self._text_id: str | None = None
        self._stop_outcome: tuple[TaskState, str] | None = None
        self._stop_metadata: JsonObject | None = None
        self._left = False
        self._job: asyncio.Task[None] | None = None
        self.ended_at = 0.0

    @property
    def used(self) -> Sequence[Usage]:
        return self._usage.total.sums

    @property
    def stopping(self) -> bool:
        return self._stop_outcome is not None

    @property
    def remaining(self) -> float | None:
        """Seconds that the task may still take."""
        return self._task.remaining

    @property
    def waits(self) -> bool:
        """The handler has asked its caller something."""
        return self._reply is not None and not self._reply.done()

    def start(self) -> None:
        self.log.append(
            EventKind.TASK,
            {
                "kind": "task",
                "id": self.log.task_id,
                "contextId": self.log.context_id,
                "status": {"state": TaskState.WORKING.value, "timestamp": _now()},
                "history": [self._message.raw],
            },
            TaskState.WORKING,
        )
        context = contextvars.copy_context()
        context.run(SCOPE.set, self._scope)
        self._job = asyncio.create_task(self._run(), name=f"handler of task {self._known_as}", context=context)
        self._job.add_done_callback(self._on_job_end, context=context)

    @property
    def _scope(self) -> Mapping[str, str]:
        """Of the handler's own log lines, too."""
        own = {"worker_task": self.log.task_id} if self._known_as != self.log.task_id else {}
        return {**scope_of(self._worker), "task": self._known_as, **own}

    @property
    def _named(self) -> str:
        """Its id, and the worker's own where that differs."""
        own = self.log.task_id
        return self._known_as if self._known_as == own else f"{self._known_as} (here {own})"

    def resume(self, send: Send, remaining: float | None = None) -> None:
        """Answer the question that the handler waits for. The caller has taken the slot."""
        assert self._reply is not None
        self._holds_slot = True
        self._task.turn(send, remaining)
        message = self._task.message.with_raw(self._addressed(self._task.message.raw))
        self.log.add_turn(message.raw)
        self._put_status(TaskState.WORKING)
        self._reply.set_result(message)

    def stop(self, state: TaskState, text: str, metadata: JsonObject | None = None) -> None:
        """Raise CancelledError in the handler. The task is in `state` once the handler has ended, whatever it returned."""
        if self._stop_outcome is None:
            self._stop_outcome, self._stop_metadata = (state, text), metadata
        if self._job is not None:
            self._job.cancel()

    def leave(self) -> None:
        """End the handler, which waits for its caller, and leave the task as it is: the hub ends it with the lease."""
        self._left = True
        if self._job is not None:
            self._job.cancel()

    async def wait_ended(self) -> None:
        """Wait until the handler has ended. Cancelling the wait does not cancel the handler."""
        if self._job is not None:
            await asyncio.wait([self._job])

    # --- the handler

    async def _run(self) -> None:
        arguments, message, self._arguments, self._message = self._arguments, self._message, {}, _NO_MESSAGE
        if message.by_reference:
            await _fetch(message)
        if self._handler.form is Form.GENERATOR:
            await self._run_generator(self._handler.call(arguments))
            self._close_text()
            return
        if self._handler.form is Form.COROUTINE:
            result = await self._handler.call(arguments)
        else:
            result = await self._in_thread(lambda: self._handler.call(arguments))
        if result is not None and self._stop_outcome is None:
            await self._put_artifact(_as_artifact(result))

    async def _run_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        step: Awaitable[Any] = generator.__anext__()
        while True:
            try:
                item = await step
            except StopAsyncIteration:
                return
            if self.stopping and isinstance(item, NeedInput):
                # A stopped task asks no questions.
                await generator.aclose()
                return
            try:
                answer = await self._handle_item(item)
            except (asyncio.CancelledError, TypeError, TooLarge, RolecallError, OSError) as error:
                # The handler is suspended at its yield: raise the error there.
                step = generator.athrow(error)
            else:
                step = generator.asend(answer)

    async def _handle_item(self, item: Any) -> Message | None:
        if not isinstance(item, NeedInput):
            await self.log.wait_for_space()
        if isinstance(item, str):
            self._put_text(item)
        elif isinstance(item, Status):
            self._put_status(TaskState.WORKING, item.message())
        elif isinstance(item, Artifact | File | dict) or is_model(type(item)):
            await self._put_artifact(_as_artifact(item))
        elif isinstance(item, NeedInput):
            answer = await self._pause_for_input(item.text)
            await fetch(answer.by_reference if answer is not None else ())
            return answer
        else:
            taken = "str, dict, a model, Status, Artifact, File or NeedInput"
            raise TypeError(f"a handler yields {taken}, not {type(item).__name__}")
        return None

    async def _ask(self, question: ChildQuestion) -> Message | None:
        """A question of a child. None: it has gone on without this answer."""
        event = {"event": int(question.event)} if question.event and question.event.isdigit() else {}
        return await self._pause_for_input(question.text, {"child": question.child, **event}, question.gone_on)

    async def _pause_for_input(
        self, text: str, metadata: JsonObject | None = None, gone_on: GoneOn | None = None
    ) -> Message | None:
        """Several questions are asked one after the other."""
        waits = self._question_lock.locked()
        async with self._question_lock:
            if waits and gone_on is not None and await gone_on():
                return None
            self._close_text()
            self._reply, self._gone_on = asyncio.get_running_loop().create_future(), gone_on
            self._release_slot()
            self._put_status(TaskState.INPUT_REQUIRED, _of_text(text), metadata)
            try:
                return await self._reply
            except asyncio.CancelledError:
                if not (self.stopping or self._left or self.log.ended):
                    self._go_on()  # the handler has given the question up
                raise
            finally:
                self._gone_on = None

    async def look(self) -> None:
        """Go on, if the child whose question this task asks has gone on, and there is a slot."""
        gone_on, reply = self._gone_on, self._reply
        if gone_on is None or reply is None or self._looks:
            return
        self._looks = True
        try:
            gone = await gone_on()
        finally:
            self._looks = False
        if gone and not reply.done() and not self.stopping and not self._slots.full:
            self._go_on()
            reply.set_result(None)

    def _go_on(self) -> None:
        self._slots.take()
        self._holds_slot = True
        self._put_status(TaskState.WORKING)

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        """Run in a new daemon thread, so that calls never queue behind each other and none delays the exit of the process."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        context = contextvars.copy_context()

        def work() -> None:
            try:
                future.set_result(context.run(call))
            except BaseException as error:  # noqa: BLE001 - passed to the task, which handles it
                future.set_exception(error)

        threading.Thread(target=work, name=f"handler of task {self._known_as}", daemon=True).start()
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if not future.done():
                # A thread cannot be stopped from outside: its slot is released when it ends.
                self._holds_slot = False
                loop = asyncio.get_running_loop()
                future.add_done_callback(lambda _: _call_if_open(loop, self._slots.release))
            raise

    # --- the end

    def _on_job_end(self, job: asyncio.Task[None]) -> None:
        error = None if job.cancelled() else job.exception()
        if self._left:
            self._release_slot()
            return
        state, text = self._stop_outcome or self._outcome_of(job.cancelled(), error)
        self._put_status(state, _of_text(text), self._stop_metadata)
        self._release_slot()
        self._on_end(self)

    def _outcome_of(self, cancelled: bool, error: BaseException | None) -> tuple[TaskState, str]:
        if isinstance(error, TooLarge):
            log.error("task %s failed: %s", self._named, error, extra=_FAILED)
            return TaskState.FAILED, str(error)
        if isinstance(error, Reject):
            return TaskState.REJECTED, str(error)
        if isinstance(error, UserError):
            return TaskState.FAILED, str(error)
        if error is None and not cancelled:
            return TaskState.COMPLETED, ""
        call = _failed_call(error)
        if call is not None:
            text = f"Its call to {call.called} failed: {_line_of(call)} ({_code_of(call)})"
            log.error("task %s failed: %s", self._named, text, exc_info=error, extra=_FAILED)
            return TaskState.FAILED, text
        error_id = secrets.token_hex(2)
        log.error(
            "task %s failed (error id %s)",
            self._named,
            error_id,
            exc_info=error or asyncio.CancelledError("raised by the handler itself"),
            extra=_FAILED,
        )
        where = f": the log of {self._worker} says why" if self._worker else ""
        return TaskState.FAILED, f"Agent failed (error id {error_id}){where}"

    def _release_slot(self) -> None:
        if self._holds_slot:
            self._holds_slot = False
            self._slots.release()

    # --- into the log

    def _put_status(self, state: TaskState, message: JsonObject | None = None, metadata: JsonObject | None = None) -> None:
        """`message`: the members of the status message that are its own."""
        status: JsonObject = {"state": state.value, "timestamp": _now()}
        if message:
            status["message"] = self._addressed({"kind": "message", "role": "agent", "messageId": str(uuid4()), **message})
        final = state not in (TaskState.SUBMITTED, TaskState.WORKING)
        usage = self._usage.take()
        metadata = (metadata or {}) | usage_metadata(usage)
        members = {"metadata": metadata} if metadata else {}
        try:
            self._append(EventKind.STATUS, {"status": status, "final": final, **members}, state)
        except TooLarge:
            self._usage.give_back(usage)
            raise

    def _send_usage(self) -> None:
        """A status alone. While the task waits, for its caller or for space, the next status takes it along."""
        if self.log.ended:
            log.warning(
                "task %s has ended, and its handler reports usage: that is lost", self._named, extra={"event": "usage_lost"}
            )
        elif not self.log.resting and not self.log.full:
            self._put_status(TaskState.WORKING)

    def _put_text(self, text: str) -> None:
        for piece in _pieces(text) if text else ():
            append = self._text_id is not None
            self._text_id = self._text_id or str(uuid4())
            self._update({"artifactId": self._text_id, "parts": [{"kind": "text", "text": piece}]}, append=append, last=False)

    def _close_text(self) -> None:
        """The last chunk is only known when none follows, so it has no text: holding back each chunk would add latency. It has
        a part all the same, as A2A demands, and common clients read it.
        """
        if self._text_id is not None:
            self._update({"artifactId": self._text_id, "parts": [{"kind": "text", "text": ""}]}, append=True, last=True)
            self._text_id = None

    async def _put_artifact(self, artifact: Artifact | File) -> None:
        """TooLarge, RolecallError, OSError: a file could not be read, or the hub did not take it."""
        head: JsonObject = {"artifactId": str(uuid4())}
        head |= {"name": artifact.name} if artifact.name else {}
        if isinstance(artifact, Artifact):
            head |= {"description": artifact.description} if artifact.description else {}
        file = _file_in(artifact)
        parts = [await self._part_of(file)] if file is not None else _parts_of(artifact)
        for at, part in enumerate(parts):
            self._update({**head, "parts": [part]}, append=at > 0, last=at == len(parts) - 1)

    async def _part_of(self, file: File) -> JsonObject:
        """By reference, if it is large and the hub stores files. TooLarge, RolecallError, OSError."""
        files, room = self._access.files, self.log.max_event // 4 * 3 - _ENVELOPE  # base64 makes four bytes of three
        if files is None or not (files.stores or isinstance(file.content, AtHub)):
            size = await file.content.measure()
            if size > room:  # before it is in memory
                raise TooLarge(f"{file}", size // 3 * 4, self.log.max_event)
        return await part_of(file, files, room=room)

    def _update(self, artifact: JsonObject, *, append: bool, last: bool) -> None:
        self._append(EventKind.ARTIFACT, {"artifact": artifact, "append": append, "lastChunk": last})

    def _append(self, kind: EventKind, members: JsonObject, state: TaskState | None = None) -> None:
        own = {"kind": kind.value, "taskId": self.log.task_id, "contextId": self.log.context_id}
        self.log.append(kind, {**own, **members}, state)

    def _addressed(self, message: JsonObject) -> JsonObject:
        """The message with the ids of this task and its context."""
        return {**message, "taskId": self.log.task_id, "contextId": self.log.context_id}


def _pieces(text: str) -> list[str]:
    """Split a long text into several events. Readers limit an event, commonly to 1 MiB, and a character can take six bytes."""
    return [text[at : at + _MAX_TEXT] for at in range(0, len(text), _MAX_TEXT)] or [""]


def _of_text(text: str) -> JsonObject | None:
    return {"parts": [{"kind": "text", "text": text}]} if text else None


def _file_in(artifact: Artifact | File) -> File | None:
    if isinstance(artifact, File):
        return artifact
    return File(artifact.name, artifact.media_type, artifact.raw) if artifact.raw is not None else None


def _parts_of(artifact: Artifact | File) -> list[JsonObject]:
    """One, or several that are one text."""
    assert isinstance(artifact, Artifact)
    part = artifact.part()
    return [part] if artifact.text is None else [{**part, "text": piece} for piece in _pieces(artifact.text)]


async def _fetch(message: Message) -> None:
    """UserError: the task cannot be done."""
    try:
        await fetch(message.by_reference)
    except RolecallError as error:
        raise UserError(f"A file of the message could not be read: {error}") from error


def _as_artifact(result: Any) -> Artifact | File:
    if isinstance(result, Artifact | File):
        return result
    if isinstance(result, str):
        return Artifact(text=result)
    if isinstance(result, dict):
        return Artifact(data=result)
    if is_model(type(result)):
        return Artifact(data=write_model(result))
    raise TypeError(f"a handler returns str, dict, a model, Artifact, File or None, not {type(result).__name__}")


def _failed_call(error: BaseException | None) -> RolecallError | None:
    """What a child says, or the hub's refusal of a call: those are for the caller of the task, whose tasks they are. Of calls
    that are made at once, in a task group, the first that has failed.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if not isinstance(error, RolecallError) or not error.called:
        return None
    for_caller = error.code is not None or isinstance(error, TaskFailed | TaskRejected | InputRequired)
    return error if for_caller else None


def _code_of(error: RolecallError) -> str:
    return f"{error.reason}, task {error.task_id}" if error.task_id else error.reason


def _line_of(error: RolecallError) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= _MAX_REASON else f"{text[:_MAX_REASON]}…"


def _call_if_open(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(function)


def _now() -> str:
    return timestamp(time.time())
