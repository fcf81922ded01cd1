"""Reads a task from its log, as of now or as of an event, as callers see it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from hub.core.relay.context import Dependencies
from hub.core.tasks.folding import FoldingThread
from hub.ports.codec import LogFold
from rolecall.errors import ArtifactNotFound, ClientDisconnected, InvalidAnswer, TaskNotFound
from rolecall.model.a2a import Answer, Event, EventKind, Logged, TaskState
from rolecall.model.content import Download
from rolecall.model.ids import START, Caller, Cursor, TaskId
from rolecall.model.task import AskedFor, Excerpt, Question, TaskChange, TaskRow, Turn
from rolecall.model.value import Value

_READ_AT_ONCE = 8 * 1024 * 1024
"""Bytes of log that are read for one page of a list."""
_FOLDED_ON_LOOP = 200
"""Events, or KiB of log, that are folded on the loop; a longer log is folded in a thread."""
_PAGE = 250
"""Events of a long log that are folded at a time: others take turns in between."""
_BEHIND_A_PAUSE = 16
"""So many events behind it are passed over when a pause is looked for. Usually there is none."""
_LARGEST_READ = 32 * 1024
"""Bytes of a message, or of an event, that is read for a line of a list."""
_LONGEST_DETAIL = 500
"""Characters."""
_Read = TypeVar("_Read")
OnDisconnect = Callable[[Callable[[], None]], None]
"""Registers a callback for the disconnection of the caller; calls it at once if the caller has disconnected already."""


class TaskView(Value, frozen=True):
    """How a caller wants to see a task. `alias`: the caller's name for it."""

    dialect: str
    history_length: int | None = None
    alias: str = ""
    artifacts: bool = True


class TaskReader:
    def __init__(self, deps: Dependencies) -> None:
        self._engine = deps.engine
        self._codec = deps.codec
        self._folding = FoldingThread(deps.shares.folding)
        self._unsent = deps.shares.unsent

    async def now(
        self,
        caller: Caller,
        row: TaskRow,
        view: TaskView,
        on_disconnect: OnDisconnect | None = None,
        *,
        upto: Cursor | None = None,
    ) -> Answer:
        """The task as of now, or as of an event. A long log is read and folded page by page, as long as its caller is there.
        TaskNotFound: it is gone; ClientDisconnected, AnswerNotSent.
        """
        if _is_short(row):
            log = await self._engine.events.read(row.id, upto=upto)
            if not log and row.at == START:
                log = await self._before_its_log(row)
            return await self.of(caller, row.id, log, view)
        gone = asyncio.Event()
        if on_disconnect is not None:
            on_disconnect(gone.set)
        async with self._folding.turn(caller):
            with self._unsent.hold(caller.workspace, row.size):
                return await self._folded(caller, row, view, gone, upto)

    async def _before_its_log(self, row: TaskRow) -> Sequence[Logged]:
        """What a task is whose worker has sent nothing yet, for a caller that knows its id. The log stays empty, so that the
        call can still go to another worker.
        """
        turns = await self._engine.tasks.turns(row.id)
        return [Logged(START, self._codec.opening(row.ids, turns[0]))] if turns else ()

    async def _folded(
        self, caller: Caller, row: TaskRow, view: TaskView, gone: asyncio.Event, upto: Cursor | None = None
    ) -> Answer:
        """A task with a long log. ClientDisconnected."""
        fold = await self._long_fold(caller, row, view.dialect, gone, upto)
        body = await self._folding.run(caller, _snapshot, fold, view)
        return Answer(EventKind.TASK, view.dialect, body, row.id, fold.at)

    async def _long_fold(
        self, caller: Caller, row: TaskRow, dialect: str, gone: asyncio.Event, upto: Cursor | None = None
    ) -> LogFold:
        """ClientDisconnected."""
        fold = self._codec.fold(await self._engine.tasks.turns(row.id), dialect=dialect)
        full = True
        while full:
            if gone.is_set():
                raise ClientDisconnected
            end = fold.at + _PAGE if upto is None else min(fold.at + _PAGE, upto)
            page = await self._engine.events.read(row.id, after=fold.at, upto=Cursor(end))
            await self._folding.run(caller, fold.add, page)
            full = len(page) == _PAGE
        return fold

    async def of(self, caller: Caller, task: TaskId, log: Sequence[Logged], view: TaskView) -> Answer:
        """The task as of the end of `log`, or the bare message if that is the answer. TaskNotFound: it is not revealed yet;
        AnswerNotSent.
        """
        if not log:
            raise TaskNotFound
        if log[0].event.kind is EventKind.MESSAGE:
            body = self._codec.spelled(log[0].event, view.dialect)
            return Answer(EventKind.MESSAGE, view.dialect, body, task, log[0].cursor)
        turns = await self._engine.tasks.turns(task)
        if not _is_long(log):
            body = self._codec.snapshot(
                turns,
                log,
                dialect=view.dialect,
                history_length=view.history_length,
                alias=view.alias,
                artifacts=view.artifacts,
            )
            return Answer(EventKind.TASK, view.dialect, body, task, log[-1].cursor)
        with self._unsent.hold(caller.workspace, _size(log)):
            async with self._folding.turn(caller):
                fold = self._codec.fold(turns, dialect=view.dialect)
                while log:
                    count = _page_of(log)
                    page, log = log[:count], log[count:]  # what is folded is not kept
                    await self._folding.run(caller, fold.add, page)
                body = await self._folding.run(caller, _snapshot, fold, view)
                return Answer(EventKind.TASK, view.dialect, body, task, fold.at)

    async def documents(self, caller: Caller, rows: Sequence[TaskRow], view: TaskView) -> Sequence[Answer]:
        """The tasks of a list. One that its dialect cannot express does not hide the others: it is a marked outline.
        AnswerNotSent.
        """
        with self._unsent.hold(caller.workspace, sum([row.size for row in rows])):
            return [answer for row in rows if (answer := await self._document(caller, row, view)) is not None]

    async def _document(self, caller: Caller, row: TaskRow, view: TaskView) -> Answer | None:
        """Its memory is held. None: it is admitted, but not revealed yet."""
        try:
            if _is_short(row):
                return await self.of(caller, row.id, await self._engine.events.read(row.id), view)
            async with self._folding.turn(caller):
                return await self._folded(caller, row, view, asyncio.Event())
        except TaskNotFound:
            return None
        except InvalidAnswer:
            return Answer(EventKind.TASK, view.dialect, self._codec.outline(row, view.dialect), row.id, row.at)

    async def download(self, caller: Caller, row: TaskRow, number: int, part: int | None) -> Download:
        """An artifact of the task as of the row, as a file. ArtifactNotFound, ArtifactUnreadable, InvalidParams,
        AnswerNotSent.
        """
        if row.at == START:
            raise ArtifactNotFound(number, 0)
        if _is_short(row):
            fold = self._codec.fold(await self._engine.tasks.turns(row.id))
            fold.add(await self._engine.events.read(row.id, upto=row.at))
            return fold.download(number, part)
        async with self._folding.turn(caller):
            with self._unsent.hold(caller.workspace, row.size):
                fold = await self._long_fold(caller, row, "", asyncio.Event(), row.at)
                return await self._folding.run(caller, fold.download, number, part)

    async def question(self, row: TaskRow) -> Question:
        """Of a paused task. Its words are empty if it has no text, or the task is gone."""
        logged = await self.last_state(row)
        return Question("") if logged is None else await self._of_event(row.caller, self._question_in, logged)

    def _question_in(self, event: Event) -> Question:
        asked = self._codec.asked_for(event)
        return Question(self._codec.words(event), asked.child if asked is not None else None)

    async def excerpts(self, caller: Caller, rows: Sequence[TaskRow]) -> Mapping[TaskId, Excerpt]:
        """Of the rows of a page, which are the caller's: two reads for all of them. What is large is passed over."""
        if not rows:
            return {}
        turns = await self._engine.tasks.first_turns([row.id for row in rows], largest=_LARGEST_READ)
        failed = [row.id for row in rows if row.ended and row.state is not TaskState.COMPLETED]
        last = await self._engine.events.last_events(failed, largest=_LARGEST_READ) if failed else {}
        size = sum([len(turn.params) for turn in turns.values()]) + _size(tuple(last.values()))
        job = partial(self._excerpts, turns, last)
        return await self._folding.run(caller, job, rows) if size > _FOLDED_ON_LOOP * 1024 else job(rows)

    def _excerpts(
        self, turns: Mapping[TaskId, Turn], last: Mapping[TaskId, Logged], rows: Sequence[TaskRow]
    ) -> Mapping[TaskId, Excerpt]:
        found = {}
        for row in rows:
            turn, end = turns.get(row.id), last.get(row.id)
            asked = self._codec.asked(turn) if turn is not None else ""
            detail, reason = (self._codec.words(end.event), self._codec.reason(end.event)) if end is not None else ("", "")
            found[row.id] = Excerpt(asked, detail[:_LONGEST_DETAIL], reason)
        return found

    async def asked_for(self, row: TaskRow) -> AskedFor | None:
        """The child whose question a paused task asks; None: it asks its own, or it is gone."""
        logged = await self.last_state(row)
        return None if logged is None else await self._of_event(row.caller, self._codec.asked_for, logged)

    async def last_state(self, row: TaskRow) -> Logged | None:
        """The event that gave a paused task its state."""
        for at in range(row.at, max(row.at - _BEHIND_A_PAUSE, START), -1):
            log = await self._engine.events.read(row.id, after=Cursor(at - 1), upto=Cursor(at))
            if log and log[0].event.state is not None:
                return log[0]
        return None

    async def _of_event(self, caller: Caller, read: Callable[[Event], _Read], logged: Logged) -> _Read:
        return await self._folding.run(caller, read, logged.event) if _is_long((logged,)) else read(logged.event)

    async def words(self, change: TaskChange) -> str:
        """What the status of that event says, in words. Empty: it has no text, or the task is gone."""
        return await self._of_change(change, self._codec.words)

    async def reason(self, change: TaskChange) -> str:
        """Why the hub itself has ended the task with that event. Empty: it has not, or the task is gone."""
        return await self._of_change(change, self._codec.reason)

    async def _of_change(self, change: TaskChange, read: Callable[[Event], str]) -> str:
        log = await self._engine.events.read(change.id, after=Cursor(change.at - 1), upto=change.at)
        return await self._of_event(change.caller, read, log[0]) if log else ""

    async def as_of(self, caller: Caller, task: TaskId, at: Cursor) -> Logged:
        """The Task after event `at`, or after the last event if the log is shorter, as an event with that cursor."""
        log = await self._engine.events.read(task, upto=at)
        state = next((e.event.state for e in reversed(log) if e.event.state is not None), None)
        cursor, dialect = (log[-1].cursor, log[0].event.dialect) if log else (START, "")
        folded, log = self.of(caller, task, log, TaskView(dialect)), ()
        answer = await folded
        return Logged(cursor, Event(EventKind.TASK, state, answer.dialect, answer.body))


def _snapshot(fold: LogFold, view: TaskView) -> bytes:
    return fold.snapshot(history_length=view.history_length, alias=view.alias, artifacts=view.artifacts)


def _is_long(log: Sequence[Logged]) -> bool:
    """Whether to fold it in a thread, so that the loop serves others meanwhile."""
    return len(log) > _FOLDED_ON_LOOP or _size(log) > _FOLDED_ON_LOOP * 1024


def _is_short(row: TaskRow) -> bool:
    return row.at <= _FOLDED_ON_LOOP and row.size <= _FOLDED_ON_LOOP * 1024


def _page_of(log: Sequence[Logged]) -> int:
    """How many events of it are folded next: those that are large, one by one."""
    size = 0
    for count, logged in enumerate(log[:_PAGE], 1):
        size += len(logged.event.body)
        if size > _FOLDED_ON_LOOP * 1024:
            return count
    return min(len(log), _PAGE)


def _size(log: Sequence[Logged]) -> int:
    size = 0
    for logged in log:
        size += len(logged.event.body)
    return size


def answered_in(dialects: tuple[str, ...], row: TaskRow) -> str:
    """The dialect of the answer: see `GetTask`."""
    return row.dialect if not dialects or row.dialect in dialects else dialects[-1]


def readable(rows: Sequence[TaskRow]) -> int:
    """How many rows of a page can be read at once, by the size of their logs; at least one."""
    size = 0
    for count, row in enumerate(rows):
        size += row.size
        if size > _READ_AT_ONCE and count:
            return count
    return len(rows)
