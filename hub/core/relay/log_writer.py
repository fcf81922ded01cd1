"""The only writer of one task's log: turns what the worker sends into events, and keeps the position of the log's end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from hub.core.observe import Observer
from hub.core.supervisor import Supervisor
from hub.ports.codec import Codec, LogFold
from hub.ports.state.event_log import EventLog, LogEntry
from rolecall.errors import HubError, InvalidAnswer, LogMoved, StoreUnavailable
from rolecall.model.a2a import CONTENT, PAUSED, Event, EventKind, Ids, TaskState, WorkerEvent
from rolecall.model.ids import START, Cursor, FileId
from rolecall.model.task import TaskRow, Turn
from rolecall.model.usage import Reports, Usage
from rolecall.model.value import replace

_PAGE = 500
_FOLDED_ON_LOOP = 200
"""Events, or KiB of log, that are folded on the loop."""
Done = Callable[[HubError | None], None]
"""Gets LogMoved if another writer has the log, StoreUnavailable if nothing was written; None: it is durable."""


class TaskLogWriter:
    """Takes one write at a time: the next one after `done` was called, which may be within the write if nothing is to be
    stored.
    """

    __slots__ = (
        "_codec",
        "_done",
        "_fold",
        "_log",
        "_new_ended",
        "_new_events",
        "_new_files",
        "_new_ids",
        "_new_position",
        "_new_usage",
        "_observer",
        "_open_log",
        "_role",
        "_supervisor",
        "_turns",
        "at",
        "ended",
        "ids",
        "position",
        "size",
        "state",
    )

    def __init__(
        self, log: EventLog, codec: Codec, observer: Observer, supervisor: Supervisor, row: TaskRow, turns: Sequence[Turn]
    ) -> None:
        self._log = log
        self._open_log = log.open(row.id)
        self._codec = codec
        self._observer = observer
        self._supervisor = supervisor
        self._role = row.role
        self._turns = turns
        self._fold: LogFold | None = None
        self.ids = row.ids
        self.at = row.at
        self.size = row.size
        self.state = row.state
        self.position = row.position
        self.ended = row.ended
        # What the present write adds:
        self._done: Done
        self._new_events: list[Event]
        self._new_files: Sequence[FileId]
        self._new_ids: Ids
        self._new_position: str | None
        self._new_ended: bool
        self._new_usage: tuple[Usage, ...]

    @property
    def rests(self) -> bool:
        """Nothing more is expected without a further message."""
        return self.ended or self.state in PAUSED

    def write(self, batch: Sequence[WorkerEvent], done: Done, *, gap: bool = False) -> None:
        """Log what a worker sent. Events after the end, or of another task, are dropped and counted."""
        self._begin(done)
        for place, worker_event in enumerate(batch):
            if not self._add(worker_event):
                compared = self._write_compared(batch[place:], done, gap=gap)
                self._supervisor.run_once(f"comparing {self.ids.task}", compared)
                return
        self._store()

    def reveal(self, done: Done) -> None:
        """Log the opening of the task, if its worker has sent nothing yet."""
        self._begin(done)
        if self.at == START:
            self._open()
        self._store()

    def conclude(self, error: HubError, done: Done, state: TaskState = TaskState.FAILED) -> None:
        """End the task by the hub, with its error."""
        self._begin(done)
        if not self.ended:
            if self.at == START:
                self._open()
            self._new_events.append(self._codec.verdict(self._new_ids, state, error))
            self._new_ended = True
        self._store()

    def use_dialect(self, log_dialect: str) -> None:
        """Another worker gets the call, before any event was logged."""
        assert self.at == START
        self.ids = replace(self.ids, log_dialect=log_dialect)

    def drop(self, batch: Sequence[WorkerEvent]) -> None:
        self._observer.dropped(self._role, "after the end", len(batch))

    # --- what a write adds

    def _begin(self, done: Done) -> None:
        self._done = done
        self._new_events, self._new_files = [], ()
        self._new_ids, self._new_position, self._new_ended = self.ids, self.position, self.ended
        self._new_usage = ()

    def _open(self) -> None:
        self._new_events.append(self._codec.opening(self._new_ids, self._turns[0]))

    def _add(self, worker_event: WorkerEvent) -> bool:
        """False: the event is a Task that must be compared with the log first."""
        ids, events = self._new_ids, self._new_events
        if self._new_ended:
            self._observer.dropped(self._role, "after the end", 1)
            return True
        if worker_event.task != ids.worker_task and worker_event.task and ids.worker_task:
            self._observer.dropped(self._role, "foreign task", 1)
            return True
        opens = self.at == START and not events
        if worker_event.kind is EventKind.TASK and not opens:
            return False
        if not (ids.worker_task and ids.worker_context):
            ids = self._new_ids = _with_worker_ids(ids, worker_event)
        if opens:
            events += self._codec.begin(worker_event, ids, self._turns[0])
        else:
            events.append(self._codec.adopt(worker_event, ids))
        if files := self._codec.files_reported(worker_event, events[-1].body):
            self._new_files = (*self._new_files, *files)
        if worker_event.kind is not CONTENT:
            self._new_ended = events[-1].is_last
            if worker_event.usage is not None:
                self._add_usage(worker_event.usage)
        if worker_event.position:
            self._new_position = worker_event.position
        return True

    def _add_usage(self, reports: Reports) -> None:
        if reports.malformed:
            self._observer.dropped(self._role, "malformed usage", reports.malformed)
        self._new_usage += reports.usage

    async def _write_compared(self, batch: Sequence[WorkerEvent], done: Done, *, gap: bool) -> None:
        outcome: HubError | None = InvalidAnswer(self._role, "the hub cannot compare it with the log")
        try:
            for worker_event in batch:
                if self._add(worker_event):
                    continue
                # The comparison is with the log, so the earlier events of this batch must be there.
                await self._stored()
                fold = await self._folded()
                self._new_ids = _with_worker_ids(self.ids, worker_event)
                missing = fold.missing(worker_event, self._new_ids, gap=gap)
                self._new_events += missing.events
                if missing.usage is not None:
                    self._add_usage(missing.usage)
                for event in missing.events:
                    if self._codec.may_name_files(event.body):
                        self._new_files = (*self._new_files, *self._codec.files_in(event.body, event.dialect))
                self._new_ended = bool(self._new_events) and self._new_events[-1].is_last
                self._new_position = worker_event.position or self.position
            await self._stored()
            outcome = None
        except (LogMoved, StoreUnavailable) as error:
            outcome = error
        finally:
            done(outcome)

    async def _stored(self) -> None:
        """Store what was added so far, and begin again."""
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def resolve(error: HubError | None) -> None:
            if stored.done():
                return
            if error is None:
                stored.set_result(None)
            else:
                stored.set_exception(error)

        self._done = resolve
        self._store()
        await stored
        self._begin(resolve)

    async def _folded(self) -> LogFold:
        """The fold of the whole log. It is kept, so that each comparison reads only what was logged since the last one."""
        fold, self._fold = self._fold or self._codec.fold(self._turns), None
        while fold.at < self.at:
            page = await self._log.read(self.ids.task, after=fold.at, upto=Cursor(min(self.at, fold.at + _PAGE)))
            if len(page) <= _FOLDED_ON_LOOP and sum(len(logged.event.body) for logged in page) <= _FOLDED_ON_LOOP * 1024:
                fold.add(page)
            else:
                await asyncio.to_thread(fold.add, page)
            page = ()  # it may be large
        self._fold = fold  # not before: a thread may still add to a fold whose comparison was cancelled
        return fold

    # --- into the log

    def _store(self) -> None:
        events, ids = self._new_events, self._new_ids
        if not events and self._new_position == self.position:
            self._end(None)
            return
        if events and events[0].state is None and self.state in PAUSED:
            # The pause was answered: readers must not take the task for one that still waits.
            events.insert(0, self._codec.resumed(ids))
        new_ids = None if self.at != START and ids == self.ids else ids
        entry = LogEntry(events, self._new_position, new_ids, self._new_files, self._new_usage)
        self._open_log.append(entry, after=self.at, done=self._appended)

    def _appended(self, error: HubError | None) -> None:
        events = self._new_events
        if error is None and events:
            self.at = Cursor(self.at + len(events))
            size = 0
            for event in events:
                size += len(event.body)
                if event.kind is not CONTENT:
                    self.state = event.state or self.state
            self.size += size
            self.ended = self._new_ended
            self._observer.events_logged(self._role, len(events), size)
            if self._new_usage:
                self._observer.used(self._role, self._new_usage)
        if error is None:
            self.ids, self.position = self._new_ids, self._new_position
        self._end(error)

    def _end(self, error: HubError | None) -> None:
        """Keep nothing of the write: its events are in the log, and `done` may refer to who holds this writer."""
        done = self._done
        del self._done, self._new_events
        done(error)


def _with_worker_ids(ids: Ids, worker_event: WorkerEvent) -> Ids:
    """The ids, with those of the worker. Its context is never the public one: the caller's next message there would be its."""
    return Ids(
        ids.task,
        ids.context,
        ids.worker_task or worker_event.task,
        ids.worker_context or worker_event.context,
        ids.log_dialect,
    )
