"""The relay of one task: copies the worker's stream into the log, and reconnects when the connection is cut.

Two things never happen: a call that may have run is not repeated, except to a worker that recognises it; and contents are
not compared to find out what is new.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from hub.core.relay.batches import Batches
from hub.core.relay.context import Dependencies
from hub.core.relay.log_writer import TaskLogWriter
from hub.core.relay.retry_budget import RetryBudget
from hub.core.relay.start_signal import StartSignal
from hub.core.routing.router import Route
from hub.ports.forwarder import Attach, Dispatch
from rolecall.errors import (
    DeadlinePassed,
    HubError,
    HubRestarted,
    InvalidAnswer,
    LogFull,
    LogMoved,
    LogTooLong,
    NoLiveWorker,
    NotProcessed,
    RequestError,
    RouteError,
    StoreUnavailable,
    WorkerBroke,
    WorkerFault,
    WorkerLost,
    WorkerUnreachable,
)
from rolecall.model.a2a import PAUSED, TaskState
from rolecall.model.command import Send
from rolecall.model.ids import START, WorkerId
from rolecall.model.task import TaskRow, Turn
from rolecall.model.worker import Health, Registration

log = logging.getLogger(__name__)

_FIRST_PAUSE = 0.25
_SHORTEST_STREAM = 1.0
"""Seconds. A stream that ends sooner and brings no event counts as not started."""
_SILENCE_LIMIT = 10
"""After a cut, an unchanged task counts as running for this many times the allowed silence."""
_FIRST_POLL, _SLOWEST_POLL = 0.1, 2.0


class Relay:
    def __init__(
        self,
        deps: Dependencies,
        row: TaskRow,
        turns: Sequence[Turn],
        *,
        route: Route | None,
        send: Send | None,
        references: dict[str, str] | None = None,
    ) -> None:
        """With `send` it delivers a message; without, it continues a task that an earlier hub left open."""
        self._deps = deps
        self._row = row
        self._turns = turns
        self._send = send
        self._references = references or {}
        self._registration = route.registration if route else None
        self._can_fail_over = route is not None and row.at == START and route.rule not in ("owner", "instance")
        self._interruption: HubError | None = None
        self._failing = False
        self._detach_pending = False
        """`detach` was called during an append."""
        self.taken_back = False
        """Nothing ran, and the caller got that error: the same message may be sent again."""
        self._retry_budget = RetryBudget(deps.silence.total_seconds())
        self._stream_ended = False
        self._cut = send is None
        self._counted = False
        self.log_writer = TaskLogWriter(deps.engine.events, deps.codec, deps.observer, row, turns)
        self.began = row.at
        self._answering = row.at > START and (send is not None or row.has_open_answer(turns))
        self._called_at = self._changed_at = self.alive_at = deps.clock.monotonic()
        if send is None:
            self._called_at -= max(0.0, deps.clock.wall() - (row.created if len(turns) == 1 else row.updated))
        self.started = StartSignal()
        self.task: asyncio.Task[None] | None = None
        self.over = False
        self.when_over: list[Callable[[], None]] = []

    @property
    def rests(self) -> bool:
        """Nothing more is expected. A paused task that is being answered does not rest until the worker has sent an event
        for that answer.
        """
        return self.log_writer.ended or (self.log_writer.rests and not (self._answering and self.log_writer.at == self.began))

    @property
    def role(self) -> str:
        return self._row.role

    @property
    def worker(self) -> WorkerId | None:
        return self._registration.worker if self._registration else self._row.worker

    @property
    def registration(self) -> Registration | None:
        return self._registration

    async def run(self) -> None:
        """Run the relay until the task rests or is given up."""
        self._count_load(1)
        try:
            if self._send is not None:
                await self._call(self._send)
            while not self.rests:
                await self._come_back()
        except LogMoved:
            log.info("another writer has this task", extra={"event": "relay_fenced", "task": self._row.id})
            self._fail_start(LogMoved())
        except HubError as error:
            await self._give_up(error)
        except asyncio.CancelledError:
            if self._interruption is None:
                self._fail_start(WorkerLost("The hub stopped."))
                raise
            await self._give_up(self._interruption)
        finally:
            if not self.started.come:
                self._fail_start(WorkerLost(f"{self.worker} sent no answer to this message."))
            self._count_load(-1)
            self.notify_over()

    def notify_over(self) -> None:
        """Call the `when_over` callbacks, before any waiter of this relay continues."""
        self.over = True
        while self.when_over:
            self.when_over.pop()()

    async def end(self, error: HubError, state: TaskState) -> None:
        """End the task by the hub; callers that wait for its start get the end."""
        await self.log_writer.conclude(error, state)
        self._mark_begun()
        self.detach()

    async def show(self) -> None:
        """Callers that wait for the worker's first event get the task as it stands."""
        await self.log_writer.reveal()
        self._mark_begun()

    def interrupt(self, error: HubError) -> None:
        """Give the task up with this error, unless it rests when the relay notices, or is being given up already."""
        if self._failing:
            return
        self._interruption = error
        if not self.log_writer.writing and self.task is not None:
            self.task.cancel()

    def check_deadline(self) -> None:
        deadline = self._deps.deadline.total_seconds()
        if deadline and self._deps.clock.monotonic() - self._called_at > deadline:
            self.interrupt(DeadlinePassed(deadline))

    def detach(self) -> None:
        """Stop reading the worker's stream: nothing more is expected. Callers that wait for the start find it in the log."""
        if self.rests and self.log_writer.at != self.began:
            self._mark_begun()
        if self.log_writer.writing:
            self._detach_pending = True
        elif self.task is not None:
            self.task.cancel()

    def still_there(self) -> None:
        """The worker reports the task as unfinished. If it can stream and does not, this counts for a limited time only:
        agents whose handler crashed keep reporting it (decision 0003).
        """
        now = self._deps.clock.monotonic()
        streams = self._registration is None or self._registration.offer.streaming
        alive_for = self._deps.silence.total_seconds() * (
            0 if self._stream_ended else _SILENCE_LIMIT if streams else float("inf")
        )
        if now - self._changed_at < alive_for:
            self.alive_at = now

    # --- the call

    async def _call(self, send: Send) -> None:
        """Deliver the message; to another worker, as long as it is certain that none has processed it."""
        refused: set[WorkerId] = set()
        while True:
            try:
                await self._deliver(send)
                return
            except NotProcessed as error:
                if not self._can_fail_over or self.log_writer.at != self.began:
                    raise
                await self._fail_over(error, refused)
            except (WorkerBroke, InvalidAnswer, StoreUnavailable) as error:
                if not self._can_come_back(error):
                    raise
                self._cut = True
                return

    async def _deliver(self, send: Send) -> None:
        registration = self._live_registration()
        dispatch = Dispatch(send, self.log_writer.ids, self._references)
        try:
            await self._copy(Batches(partial(self._deps.forwarder.deliver, registration.offer, dispatch)))
        except WorkerUnreachable as error:
            await self.suspect(registration, error)
            raise
        if not self.log_writer.ids.worker_task and not self.rests:
            raise InvalidAnswer(str(registration.worker), "it ended without an event")
        self._stream_ended = registration.offer.streaming

    async def _copy(self, call: Batches) -> None:
        async with call as batches:
            self._mark_alive()
            async for batch in batches:
                self._mark_alive()
                if batch:
                    await self.log_writer.write(batch, gap=self._cut)
                    if self.log_writer.at != self.began:
                        self._mark_begun()
                self._check()
                if self._detach_pending and self.rests:
                    return
                self._detach_pending = False

    def _check(self) -> None:
        """Act on the result of an append, and on an interruption that came while it ran."""
        if self.rests:
            return
        if self._interruption is not None:
            raise self._interruption
        if self.log_writer.size > self._deps.max_log:
            raise LogFull(self._deps.max_log)
        if self.log_writer.at > self._deps.max_log_events:
            raise LogTooLong(self._deps.max_log_events)

    async def _fail_over(self, error: NotProcessed, refused: set[WorkerId]) -> None:
        """Move to the next worker of the role. If there is none, the first refusal is the answer."""
        deps, previous = self._deps, self._registration
        assert previous is not None  # its lease may have ended by now, but it certainly did nothing
        refused.add(previous.worker)
        deps.observer.worker_failed(previous.worker.role, type(error).__name__)
        try:
            route = deps.router.within(previous.workspace, previous.worker.role, avoid=refused, rule="failover")
        except NoLiveWorker:
            raise error from None
        next_one = route.registration
        log_dialect = next_one.offer.preferred_dialect(self._row.dialect)
        await deps.engine.tasks.assign(self._row.id, next_one.worker, next_one.epoch, log_dialect)
        self.log_writer.use_dialect(log_dialect)
        self._count_load(-1)
        self._registration = next_one
        self._count_load(1)
        deps.observer.failed_over(previous.worker.role)

    # --- reconnecting

    async def _come_back(self) -> None:
        """Attach to the worker's stream again, repeat the call, or poll; WorkerLost if the worker does not know the task."""
        registration = self._live_registration()
        try:
            unanswered = self._answering and self.log_writer.at == self.began and registration.offer.replays
            if not self.log_writer.ids.worker_task or unanswered:
                await self._listen_again(registration, self._repeat(registration))
            elif registration.offer.replays:
                attach = Attach(self.log_writer.ids, self.log_writer.position)
                stream = Batches(partial(self._deps.forwarder.attach, registration.offer, attach))
                await self._listen_again(registration, self._copy(stream))
            else:
                await self._poll(registration)
        except WorkerUnreachable as error:
            await self.suspect(registration, error)
            now = self._deps.clock.monotonic()
            self._retry_budget.refused(str(registration.worker), now, alive_at=self.alive_at)
            await asyncio.sleep(_FIRST_PAUSE)
        except WorkerFault as error:
            known = "no longer knows the task" if error.task_unknown else "cannot be asked for the task"
            raise WorkerLost(f"{registration.worker} {known}. What it had not sent is lost.") from error
        except StoreUnavailable:
            # A failing store is not silence of the worker.
            self._mark_alive()
            await asyncio.sleep(_FIRST_PAUSE)
        except (WorkerBroke, InvalidAnswer) as error:
            self._retry_budget.silent(str(registration.worker), self._deps.clock.monotonic() - self.alive_at)
            if isinstance(error, InvalidAnswer):
                self._retry_budget.invalid_answer(error)
            log.info("connection cut", extra={"event": "relay_cut", "task": self._row.id, "why": type(error).__name__})
            await asyncio.sleep(_FIRST_PAUSE)

    async def _listen_again(self, registration: Registration, stream: Awaitable[None]) -> None:
        """Read a stream. One that ends at once without an event is no sign of life."""
        clock, known = self._deps.clock, (self.log_writer.at, self.log_writer.position)
        began, before = clock.monotonic(), (self._changed_at, self.alive_at)
        await stream
        if self.rests or known != (self.log_writer.at, self.log_writer.position):
            return
        now = clock.monotonic()
        if now - began < _SHORTEST_STREAM:
            self._changed_at, self.alive_at = before
            self._retry_budget.silent(str(registration.worker), now - self.alive_at)
        await asyncio.sleep(_FIRST_PAUSE)

    async def _repeat(self, registration: Registration) -> None:
        """Send the message again to a worker that recognises it. HubRestarted for any other: it may have run the message."""
        if not registration.offer.replays:
            raise HubRestarted
        await self._deliver(self._send or self._deps.codec.recall(self._turns[-1], self._row))

    async def _poll(self, registration: Registration) -> None:
        """Follow the task of a worker that does not replay, by polling."""
        pause = _FIRST_POLL
        while not self.rests:
            before = self.log_writer.at
            worker_event = await self._deps.forwarder.fetch(registration.offer, self.log_writer.ids)
            await self.log_writer.write([worker_event], gap=self._cut)
            if self.log_writer.at != before:
                self._mark_alive()
                self._mark_begun()
            else:
                self.still_there()
                if worker_event.state in PAUSED and self._answering:
                    self._retry_budget.still_paused(str(registration.worker))
            self._check()
            if self.rests:
                return
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _SLOWEST_POLL)

    def _can_come_back(self, error: HubError) -> bool:
        """Whether the worker knows the task by an id, or recognises a repeated message."""
        if self.log_writer.ids.worker_task:
            return True
        return self._live_registration().offer.replays and not isinstance(error, InvalidAnswer)

    # --- the end

    async def _give_up(self, error: HubError) -> None:
        self._failing = True
        await self.log_writer.idle()  # it may be being revealed
        nothing_came = self.log_writer.at == self.began
        nothing_processed = isinstance(error, NotProcessed | RequestError | RouteError | WorkerFault)
        if nothing_came and nothing_processed and not self.started.come:
            self.taken_back = True
            if self.began == START:
                await self._retry_write(lambda: self._deps.engine.tasks.discard(self._row.id))
            elif isinstance(error, WorkerFault) and error.task_unknown:
                lost = WorkerLost(f"{self.worker} no longer knows the task.")
                await self._retry_write(lambda: self.log_writer.conclude(lost))
            else:
                await self._retry_write(lambda: self._deps.engine.tasks.drop_turn(self._row.id, self._turns[-1]))
            self._fail_start(error)
            return
        self._deps.observer.worker_failed(self._row.role, type(error).__name__)
        log.warning(
            "task given up",
            extra={"event": "task_failed", "task": self._row.id, "worker": str(self.worker), "why": type(error).__name__},
        )
        try:
            await self._retry_write(lambda: self.log_writer.conclude(error))
        except HubError as failure:
            self._fail_start(failure)
            raise
        if isinstance(error, InvalidAnswer):
            self._fail_start(error)
        self._mark_begun()
        if isinstance(error, LogFull | DeadlinePassed):
            await self._cancel_at_worker()

    async def _retry_write(self, write: Callable[[], Awaitable[None]]) -> None:
        """Retry until the store takes the write: nothing else would end this task."""
        while True:
            try:
                await write()
                return
            except StoreUnavailable as failure:
                self._fail_start(failure)
                await asyncio.sleep(_FIRST_PAUSE)

    async def _cancel_at_worker(self) -> None:
        """Cancel at the worker: its result is no longer needed."""
        if self._registration is not None and self.log_writer.ids.worker_task:
            try:
                await self._deps.forwarder.cancel(self._registration.offer, self.log_writer.ids)
            except HubError as error:
                log.info(
                    "not cancelled at the worker",
                    extra={"event": "call_off", "task": self._row.id, "why": type(error).__name__},
                )

    # --- details

    def _live_registration(self) -> Registration:
        """The worker's current lease. WorkerLost if it ended or passed to another process: its tasks end with it."""
        known = self._registration
        workspace, worker = self._row.caller.workspace, self.worker
        epoch = known.epoch if known is not None else self._row.epoch
        current = worker and self._deps.engine.registry.get(workspace, worker)
        if current is None or current.epoch != epoch:
            raise WorkerLost(f"{worker} is gone. What it had not sent is lost.")
        self._registration = current
        return current

    async def suspect(self, registration: Registration, error: WorkerUnreachable) -> None:
        registry = self._deps.engine.registry
        try:
            await registry.mark(registration.workspace, registration.worker, registration.epoch, Health.SUSPECT, error.why)
        except StoreUnavailable:
            # The outcome of this task does not depend on whether the health can be stored.
            log.info("not marked", extra={"event": "suspect_not_stored", "worker": str(registration.worker)})

    def _mark_alive(self) -> None:
        self._changed_at = self.alive_at = self._deps.clock.monotonic()

    def _mark_begun(self) -> None:
        if not self.started.come:
            self.started.happen()
            self._deps.observer.first_event(self._row.role, self._deps.clock.monotonic() - self._called_at)
        if self.rests:
            self._count_load(-1)

    def _fail_start(self, error: HubError) -> None:
        """Callers that wait for the start get this error."""
        self.started.happen(error)

    def _count_load(self, step: int) -> None:
        """Add this relay to its worker's load, or remove it; each at most once."""
        if self._registration is not None and self._counted is (step < 0):
            self._registration.in_flight += step
            self._counted = step > 0
