"""The one pump of a task: copies its worker's stream into the log, and comes back when the line is cut.

What is never done: a call that may have run is not repeated (but to a worker that recognises it), and contents are not
compared to find out what is new.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager

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
from rolecall.model.a2a import PAUSED, TaskState, WorkerEvent
from rolecall.model.command import Send
from rolecall.model.ids import START, WorkerId
from rolecall.model.task import TaskRow, Turn
from rolecall.model.worker import Health, Registration

log = logging.getLogger(__name__)

_FIRST_PAUSE = 0.25
_AT_ONCE = 1.0
"""A stream that lasts no longer than this, and brings nothing, has not begun."""
_BELIEVED = 10
"""Silences for which an unchanged task is believed to be at work, after its stream was cut."""
_FIRST_POLL, _SLOWEST_POLL = 0.1, 2.0

Batches = AbstractAsyncContextManager[AsyncIterator[Sequence[WorkerEvent]]]


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
        """With `send` it delivers a message; without, it comes back to a task that an earlier hub left open."""
        self._deps = deps
        self._row = row
        self._turns = turns
        self._send = send
        self._references = references or {}
        self._registration = route.registration if route else None
        self._may_move = route is not None and row.at == START and route.rule not in ("owner", "instance")
        self._interruption: HubError | None = None
        self._giving_up = False
        self._leaving = False
        """Was to be let go in the middle of an append."""
        self.taken_back = False
        """Nothing ran, and its caller was told so: the same message may be sent again."""
        self._patience = RetryBudget(deps.silence.total_seconds())
        self._hung_up = False
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
        """Nothing more is expected. A task that was paused when its answer set out is not at rest until the worker has
        said something to that answer.
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
        """The relay's whole life. Ends when the task rests, or is given up."""
        self._count(1)
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
                self._fail_start(WorkerLost(f"{self.worker} said nothing to this."))
            self._count(-1)
            self.tell_over()

    def tell_over(self) -> None:
        """Those who want to know, before anybody who has waited for this relay goes on."""
        self.over = True
        while self.when_over:
            self.when_over.pop()()

    async def end(self, error: HubError, state: TaskState) -> None:
        """End the task on the hub's own account; whoever waits for its beginning gets the end."""
        await self.log_writer.conclude(error, state)
        self._begun()
        self.let_go()

    async def show(self) -> None:
        """Whoever waits for the worker's first word gets the task as it stands."""
        await self.log_writer.reveal()
        self._begun()

    def interrupt(self, error: HubError) -> None:
        """Give the task up for this reason, unless it rests by the time the relay notices, or is being given up already."""
        if self._giving_up:
            return
        self._interruption = error
        if not self.log_writer.writing and self.task is not None:
            self.task.cancel()

    def check_deadline(self) -> None:
        deadline = self._deps.deadline.total_seconds()
        if deadline and self._deps.clock.monotonic() - self._called_at > deadline:
            self.interrupt(DeadlinePassed(deadline))

    def let_go(self) -> None:
        """Stop listening to a worker that has nothing more to say. Who waits for its first word has it in the log."""
        if self.rests and self.log_writer.at != self.began:
            self._begun()
        if self.log_writer.writing:
            self._leaving = True
        elif self.task is not None:
            self.task.cancel()

    def still_there(self) -> None:
        """The worker says that the task is unfinished. One that could stream and does not is believed for a while only:
        agents whose handler crashed go on saying so (decision 0003).
        """
        now = self._deps.clock.monotonic()
        streams = self._registration is None or self._registration.offer.streaming
        belief = self._deps.silence.total_seconds() * (0 if self._hung_up else _BELIEVED if streams else float("inf"))
        if now - self._changed_at < belief:
            self.alive_at = now

    # --- the call

    async def _call(self, send: Send) -> None:
        """Deliver the message, to another worker while it is certain that nobody has processed it."""
        refused: set[WorkerId] = set()
        while True:
            try:
                await self._deliver(send)
                return
            except NotProcessed as error:
                if not self._may_move or self.log_writer.at != self.began:
                    raise
                await self._move(error, refused)
            except (WorkerBroke, InvalidAnswer, StoreUnavailable) as error:
                if not self._can_come_back(error):
                    raise
                self._cut = True
                return

    async def _deliver(self, send: Send) -> None:
        registration = self._present()
        dispatch = Dispatch(send, self.log_writer.ids, self._references)
        try:
            await self._copy(self._deps.forwarder.deliver(registration.offer, dispatch))
        except WorkerUnreachable as error:
            await self.suspect(registration, error)
            raise
        if not self.log_writer.ids.worker_task and not self.rests:
            raise InvalidAnswer(str(registration.worker), "it ended without an event")
        self._hung_up = registration.offer.streaming

    async def _copy(self, call: Batches) -> None:
        async with call as batches:
            self._life()
            async for batch in batches:
                self._life()
                if batch:
                    await self.log_writer.write(batch, gap=self._cut)
                    if self.log_writer.at != self.began:
                        self._begun()
                self._check()
                if self._leaving and self.rests:
                    return
                self._leaving = False

    def _check(self) -> None:
        """What an append has led to, or what came while it was under way."""
        if self.rests:
            return
        if self._interruption is not None:
            raise self._interruption
        if self.log_writer.size > self._deps.most_logged:
            raise LogFull(self._deps.most_logged)

    async def _move(self, error: NotProcessed, refused: set[WorkerId]) -> None:
        """To the next worker of the role; the first one's refusal is the answer where there is none."""
        deps, left = self._deps, self._registration
        assert left is not None  # its lease may have ended by now: that it did nothing holds all the same
        refused.add(left.worker)
        deps.observer.worker_failed(left.worker.role, type(error).__name__)
        try:
            route = deps.router.within(left.workspace, left.worker.role, avoid=refused, rule="failover")
        except NoLiveWorker:
            raise error from None
        next_one = route.registration
        log_dialect = next_one.offer.preferred_dialect(self._row.dialect)
        await deps.engine.tasks.assign(self._row.id, next_one.worker, next_one.epoch, log_dialect)
        self.log_writer.log_in(log_dialect)
        self._count(-1)
        self._registration = next_one
        self._count(1)
        deps.observer.failed_over(left.worker.role)

    # --- coming back

    async def _come_back(self) -> None:
        """Find the worker's stream again, or learn that there is nothing to find."""
        registration = self._present()
        try:
            unanswered = self._answering and self.log_writer.at == self.began and registration.offer.replays
            if not self.log_writer.ids.worker_task or unanswered:
                await self._listen_again(registration, self._repeat(registration))
            elif registration.offer.replays:
                attach = Attach(self.log_writer.ids, self.log_writer.position)
                await self._listen_again(registration, self._copy(self._deps.forwarder.attach(registration.offer, attach)))
            else:
                await self._poll(registration)
        except WorkerUnreachable as error:
            await self.suspect(registration, error)
            now = self._deps.clock.monotonic()
            self._patience.refused(str(registration.worker), now, alive_at=self.alive_at)
            await asyncio.sleep(_FIRST_PAUSE)
        except WorkerFault as error:
            known = "no longer knows the task" if error.task_unknown else "cannot be asked for the task"
            raise WorkerLost(f"{registration.worker} {known}. What it had not yet sent is gone.") from error
        except StoreUnavailable:
            # The hub's own trouble is no silence of the worker's.
            self._life()
            await asyncio.sleep(_FIRST_PAUSE)
        except (WorkerBroke, InvalidAnswer) as error:
            self._patience.silent(str(registration.worker), self._deps.clock.monotonic() - self.alive_at)
            if isinstance(error, InvalidAnswer):
                self._patience.nonsense(error)
            log.info("line cut", extra={"event": "relay_cut", "task": self._row.id, "why": type(error).__name__})
            await asyncio.sleep(_FIRST_PAUSE)

    async def _listen_again(self, registration: Registration, stream: Awaitable[None]) -> None:
        """A stream that ends at once, and has brought nothing, is no sign of life."""
        clock, known = self._deps.clock, (self.log_writer.at, self.log_writer.position)
        began, lived = clock.monotonic(), (self._changed_at, self.alive_at)
        await stream
        if self.rests or known != (self.log_writer.at, self.log_writer.position):
            return
        now = clock.monotonic()
        if now - began < _AT_ONCE:
            self._changed_at, self.alive_at = lived
            self._patience.silent(str(registration.worker), now - self.alive_at)
        await asyncio.sleep(_FIRST_PAUSE)

    async def _repeat(self, registration: Registration) -> None:
        """The message once more, to a worker that recognises it. Any other may have run it, and has to be left alone."""
        if not registration.offer.replays:
            raise HubRestarted
        await self._deliver(self._send or self._deps.codec.recall(self._turns[-1], self._row))

    async def _poll(self, registration: Registration) -> None:
        """Follow a worker that cannot be attached to, by asking for its task again and again."""
        pause = _FIRST_POLL
        while not self.rests:
            before = self.log_writer.at
            worker_event = await self._deps.forwarder.fetch(registration.offer, self.log_writer.ids)
            await self.log_writer.write([worker_event], gap=self._cut)
            if self.log_writer.at != before:
                self._life()
                self._begun()
            else:
                self.still_there()
                if worker_event.state in PAUSED and self._answering:
                    self._patience.still_asks(str(registration.worker))
            self._check()
            if self.rests:
                return
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _SLOWEST_POLL)

    def _can_come_back(self, error: HubError) -> bool:
        """Known to the worker by a task id, or by a message that it recognises when it comes again."""
        if self.log_writer.ids.worker_task:
            return True
        return self._present().offer.replays and not isinstance(error, InvalidAnswer)

    # --- the end

    async def _give_up(self, error: HubError) -> None:
        self._giving_up = True
        await self.log_writer.idle()  # it may be shown at this moment
        nothing_came = self.log_writer.at == self.began
        nothing_ran = isinstance(error, NotProcessed | RequestError | RouteError | WorkerFault)
        if nothing_came and nothing_ran and not self.started.come:
            self.taken_back = True
            if self.began == START:
                await self._insist(lambda: self._deps.engine.tasks.discard(self._row.id))
            elif isinstance(error, WorkerFault) and error.task_unknown:
                lost = WorkerLost(f"{self.worker} no longer knows the task.")
                await self._insist(lambda: self.log_writer.conclude(lost))
            else:
                await self._insist(lambda: self._deps.engine.tasks.drop_turn(self._row.id, self._turns[-1]))
            self._fail_start(error)
            return
        self._deps.observer.worker_failed(self._row.role, type(error).__name__)
        log.warning(
            "task given up",
            extra={"event": "task_failed", "task": self._row.id, "worker": str(self.worker), "why": type(error).__name__},
        )
        try:
            await self._insist(lambda: self.log_writer.conclude(error))
        except HubError as failure:
            self._fail_start(failure)
            raise
        if isinstance(error, InvalidAnswer):
            self._fail_start(error)
        self._begun()
        if isinstance(error, LogFull | DeadlinePassed):
            await self._call_off()

    async def _insist(self, write: Callable[[], Awaitable[None]]) -> None:
        """However long the store takes no writes: nobody else would ever end this task."""
        while True:
            try:
                await write()
                return
            except StoreUnavailable as failure:
                self._fail_start(failure)
                await asyncio.sleep(_FIRST_PAUSE)

    async def _call_off(self) -> None:
        """The worker is at work on what nobody wants any more."""
        if self._registration is not None and self.log_writer.ids.worker_task:
            try:
                await self._deps.forwarder.cancel(self._registration.offer, self.log_writer.ids)
            except HubError as error:
                log.info("not called off", extra={"event": "call_off", "task": self._row.id, "why": type(error).__name__})

    # --- small things

    def _present(self) -> Registration:
        """The worker's lease as of now: a lease that ended or passed to another process ends its tasks."""
        known = self._registration
        workspace, worker = self._row.caller.workspace, self.worker
        epoch = known.epoch if known is not None else self._row.epoch
        current = worker and self._deps.engine.registry.get(workspace, worker)
        if current is None or current.epoch != epoch:
            raise WorkerLost(f"{worker} has gone, and with it what it had not yet sent.")
        self._registration = current
        return current

    async def suspect(self, registration: Registration, error: WorkerUnreachable) -> None:
        registry = self._deps.engine.registry
        try:
            await registry.mark(registration.workspace, registration.worker, registration.epoch, Health.SUSPECT, error.why)
        except StoreUnavailable:
            # What the worker's silence means for this task does not hang on whether everybody can be told.
            log.info("not marked", extra={"event": "suspect_not_stored", "worker": str(registration.worker)})

    def _life(self) -> None:
        self._changed_at = self.alive_at = self._deps.clock.monotonic()

    def _begun(self) -> None:
        if not self.started.come:
            self.started.happen()
            self._deps.observer.first_event(self._row.role, self._deps.clock.monotonic() - self._called_at)
        if self.rests:
            self._count(-1)

    def _fail_start(self, error: HubError) -> None:
        """Who waits for the beginning hears of it; if nobody does, the log says so all the same."""
        self.started.happen(error)

    def _count(self, step: int) -> None:
        """This relay's share of its worker's load: counted once, given back once."""
        if self._registration is not None and self._counted is (step < 0):
            self._registration.in_flight += step
            self._counted = step > 0
