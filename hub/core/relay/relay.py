"""The relay of one task: copies the worker's stream into the log, and comes back when the connection is cut.

Everything that happens to a running task is a trigger in the relay's inbox: what its worker sends, what the store answers,
and what callers and the hub want. The table in transitions.py says what follows; the methods below carry it out. While the
store works, triggers wait: no decision is taken before the outcome of the last write is known.

Two things never happen: a call that may have run is not repeated, except to a worker that recognises it; and contents are
not compared to find out what is new.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from hub.core.files.inline import InlineFiles
from hub.core.relay.context import Dependencies
from hub.core.relay.inbox import Awaited, Inbox, Outcome, outcome_for_caller, outcome_of
from hub.core.relay.log_writer import TaskLogWriter
from hub.core.relay.retry_budget import RetryBudget
from hub.core.relay.start_signal import StartSignal
from hub.core.relay.transitions import TABLE, Effect, Fact, Phase, Trigger, step
from hub.core.relay.worker_call import WorkerCall, suspect, trigger_of
from hub.core.routing.router import TRIAL, Route
from hub.core.shares.share import SMALL
from hub.core.supervisor import Supervisor
from hub.ports.forwarder import Attach, Dispatch
from rolecall.errors import (
    AnswerTooLarge,
    CredentialRefused,
    DeadlineOfCall,
    DeadlinePassed,
    DiskFull,
    HubError,
    HubRestarted,
    InvalidAnswer,
    LogFull,
    LogTooLong,
    NoLiveWorker,
    NotProcessed,
    RequestError,
    RouteError,
    StoreUnavailable,
    WorkerBroke,
    WorkerFault,
    WorkerLost,
    WorkerSilent,
    WorkerUnreachable,
)
from rolecall.model.a2a import PAUSED, TaskState, WorkerEvent
from rolecall.model.command import Send
from rolecall.model.ids import START, Cursor, WorkerId
from rolecall.model.task import TaskRow, Turn
from rolecall.model.value import replace
from rolecall.model.worker import Offer, Registration

log = logging.getLogger(__name__)

_PAUSE = 0.25
"""Seconds before another attempt to write a verdict."""
_LOST_ERRORS = (WorkerLost, WorkerBroke, WorkerSilent, WorkerUnreachable, HubRestarted)
_FIRST_POLL, _SLOWEST_POLL = 0.1, 2.0


class Relay(Inbox):
    __slots__ = (
        "__weakref__",
        "_answering",
        "_budget",
        "_call",
        "_called_at",
        "_came_back",
        "_can_fail_over",
        "_counted",
        "_cut",
        "_deps",
        "_draining",
        "_error",
        "_known_end",
        "_next_poll",
        "_references",
        "_refused",
        "_rest_waiters",
        "_send",
        "_turns",
        "began",
        "due",
        "log_writer",
        "message_memory",
        "phase",
        "registration",
        "row",
        "started",
        "taken_back",
        "when_over",
    )

    def __init__(
        self, deps: Dependencies, inline: InlineFiles, supervisor: Supervisor, row: TaskRow, turns: Sequence[Turn]
    ) -> None:
        super().__init__(supervisor)
        now = deps.clock.monotonic()
        self._deps = deps
        self.row = row
        self._turns = turns
        self.message_memory = message_memory(turns)
        self._send: Send | None = None
        self._references: dict[str, str] = {}
        self.registration: Registration | None = None
        self._refused: frozenset[WorkerId] = frozenset()
        self._can_fail_over = False
        self._cut = True
        """Events may be missing before the next one that is polled."""
        self._came_back = False
        self._draining = False
        self._next_poll = _FIRST_POLL
        self._error: HubError | None = None
        """Why the task is given up."""
        self._counted = False
        self._budget = RetryBudget(deps.silence.total_seconds(), now)
        self._call = WorkerCall(deps.forwarder, inline, row.caller.workspace, supervisor, self)
        self._rest_waiters: list[asyncio.Future[None]] = []
        self.phase = Phase.RESTING if row.state in PAUSED else Phase.REATTACHING
        self.log_writer = TaskLogWriter(deps.engine.events, deps.codec, deps.observer, supervisor, row, turns)
        self.began = self._known_end = row.at
        self._answering = False
        self.due: float | None = None
        """When the task must be done, on the monotonic clock. None: at no time of its own."""
        self._called_at = now
        self.started = StartSignal()
        """The worker has begun to answer; or the error why it has not."""
        self.taken_back = False
        """Nothing ran, and the caller got that error: the same message may be sent again."""
        self.when_over: list[Callable[[], None]] = []

    # --- how a relay begins

    def deliver(self, send: Send, route: Route, references: dict[str, str]) -> None:
        """Deliver a message that is stored: a task's first one, or the answer to its question."""
        self._send, self._references = send, references
        self.registration = route.registration
        self._can_fail_over = self.began == START and route.rule not in ("owner", "instance")
        self._answering = self.began > START
        self._cut = False
        self._begin_load()
        if route.rule == TRIAL:
            self._deps.failing.trial_began(route.registration, self.row.id)
        if self.began == START:
            self.phase = Phase.CALLING
            self.post(Trigger.ASSIGNED)
        else:
            self.phase = Phase.RESTING
            self.post(Trigger.ANSWERED)

    def resume(self) -> None:
        """Continue a task that an earlier hub left open."""
        self._answering = self.row.has_open_answer(self._turns)
        since = self.row.created if len(self._turns) == 1 else self.row.updated
        self._called_at -= max(0.0, self._deps.clock.wall() - since)
        self.phase = Phase.REATTACHING
        self.post(Trigger.RETRY)

    # --- what others see

    @property
    def rests(self) -> bool:
        """Nothing more is expected. A paused task that is being answered does not rest until the worker has sent an event
        for that answer.
        """
        return self.log_writer.ended or (self.log_writer.rests and not (self._answering and self.log_writer.at == self.began))

    @property
    def worker(self) -> WorkerId | None:
        return self.registration.worker if self.registration else self.row.worker

    @property
    def failure(self) -> HubError | None:
        """Why the hub has given the task up. None: it has not."""
        return self._error

    @property
    def call_is_open(self) -> bool:
        """The worker's stream may bring more."""
        return self._call.streams

    async def caught_up(self) -> None:
        """Return when everything that came so far has been acted on."""
        await self.post_and_wait(Trigger.LOOK)

    async def ends_within(self, seconds: float) -> bool:
        """Whether the task has ended, or ends within that time. It returns early if the task comes to rest otherwise."""
        if not self.log_writer.ended and not self.over:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._rest_waiters.append(waiter)
            await asyncio.wait([waiter], timeout=seconds)
        return self.log_writer.ended

    async def show(self) -> None:
        """Log the opening of the task, if its worker has sent nothing yet. LogMoved, StoreUnavailable."""
        await self.post_and_wait(Trigger.REVEAL)

    def call_off(self, offer: Offer) -> None:
        """Tell the worker that nobody waits for the result any more. Nothing depends on the outcome."""
        self._call.call_off(offer, self.log_writer.ids)

    async def cancel(self, why: HubError) -> None:
        """End the task as canceled, unless it has ended otherwise. LogMoved, StoreUnavailable: it goes on."""
        await self.post_and_wait(Trigger.CANCELED, why)

    def drain(self) -> None:
        """Callers that wait for the worker's first event get the task as it stands."""
        self._draining = True
        if not self.started.come:
            self.post(Trigger.DRAIN)

    def check_deadline(self) -> None:
        now, deadline = self._deps.clock.monotonic(), self._deps.deadline.total_seconds()
        if self.due is not None and now > self.due:
            self.post(Trigger.OVERDUE, DeadlineOfCall())
        if deadline and now - self._called_at > deadline:
            self.post(Trigger.OVERDUE, DeadlinePassed(deadline))

    @property
    def done_by(self) -> float | None:
        """When the task must be done, for whatever reason. None: at no time."""
        deadline = self._deps.deadline
        if not deadline:
            return self.due
        end = self._called_at + deadline.total_seconds()
        return end if self.due is None else min(self.due, end)

    def stop(self) -> None:
        """The hub stops: nothing more is done for this task, whatever the store still writes."""
        self.act(Trigger.HUB_STOPS, WorkerLost("The hub stopped."))

    @property
    def silent_for(self) -> float:
        """Seconds since the worker's last sign of life."""
        return self._deps.clock.monotonic() - self._budget.alive_at

    def mark_alive(self) -> None:
        """The worker gave a sign of life."""
        self._budget.last_sign = self._deps.clock.monotonic()

    def mark_unchanged(self) -> None:
        """The worker reports the task as unfinished."""
        streams = self.registration is None or self.registration.offer.streaming
        self._budget.unchanged(self._deps.clock.monotonic(), streams=streams)

    # --- told by the forwarder

    def received(self, batch: Sequence[WorkerEvent]) -> None:
        self._budget.last_sign = self._deps.clock.monotonic()
        if batch:
            self.post(Trigger.RECEIVED, batch)

    def closed(self, error: HubError | None) -> None:
        self._call.closed()
        self.post(trigger_of(error), error)

    # --- what a trigger means

    def act(self, trigger: Trigger, payload: Any) -> bool:
        self.phase, effects = step(self.phase, trigger, self._holds)
        for effect in effects:
            _CARRY_OUT[effect](self, payload)
        return bool(effects)

    def hold_worker(self, *, held: bool) -> None:
        if held:
            self._call.pause()
        else:
            self._call.resume()

    def abandon(self) -> None:
        self.phase = Phase.WITHDRAWN
        self._call.hang_up()
        self._finish(None)

    def _holds(self, fact: Fact) -> bool:
        match fact:
            case Fact.MOVABLE:
                return self._can_fail_over and not self._begun
            case Fact.KNOWN:
                return bool(self.log_writer.ids.worker_task)
            case Fact.FOLLOWABLE:
                replays = self.registration is not None and self.registration.offer.replays
                return replays or bool(self.log_writer.ids.worker_task)
            case Fact.STREAM_OPEN:
                return self._call.streams
            case Fact.DRAINING:
                return self._draining

    @property
    def _end(self) -> tuple[Cursor, str | None]:
        return self.log_writer.at, self.log_writer.position

    @property
    def _begun(self) -> bool:
        """Something of this answer is in the log."""
        return self.log_writer.at != self.began

    # --- the log

    def _write(self, batch: Sequence[WorkerEvent]) -> None:
        self.busy = True
        self.log_writer.write(batch, self._written, gap=self._cut)

    def _write_missing(self, worker_event: WorkerEvent) -> None:
        self.busy = True
        self.log_writer.write((worker_event,), self._written, gap=True)

    def _written(self, error: HubError | None) -> None:
        """The outcome of a write of what the worker sent."""
        writer = self.log_writer
        before, self._known_end = self._known_end, writer.at
        if error is not None:
            self.store_done(*outcome_of(error))
        elif writer.ended:
            self.store_done(Trigger.ENDED)
        elif writer.state in PAUSED and self.rests:
            self.store_done(Trigger.PAUSED)
        else:
            then: Outcome | None = None
            if writer.size > self._deps.max_log:
                then = Trigger.GIVE_UP, LogFull(self._deps.max_log)
            elif writer.at > self._deps.max_log_events:
                then = Trigger.GIVE_UP, LogTooLong(self._deps.max_log_events)
            elif (excess := self._deps.shares.disk.excess(self.row.caller.workspace)) is not None:
                then = Trigger.GIVE_UP, DiskFull(excess)
            news = Trigger.LOGGED if writer.at != before else Trigger.UNCHANGED
            self.store_done(news if news in TABLE[self.phase] else None, then=then)

    def _show(self, awaited: Awaited | None) -> None:
        def revealed(error: HubError | None) -> None:
            self._known_end = self.log_writer.at
            if awaited is not None:
                awaited.tell(error)
            self.store_done(*((Trigger.SHOWN, None) if error is None else outcome_for_caller(error)))

        self.busy = True
        self.log_writer.reveal(revealed)

    # --- the call

    def _deliver(self, _: Any) -> None:
        """Deliver the message; to another worker, as long as it is certain that none has processed it."""
        registration = self._live_registration()
        if registration is not None:
            send = self._message()
            self._budget.opened(self._deps.clock.monotonic(), self._end, delivers=True)
            try:
                done_by = self.done_by
                remaining = done_by - self._deps.clock.monotonic() if done_by is not None else None
                dispatch = Dispatch(send, self.log_writer.ids, self._references, remaining)
                self._call.deliver(registration.offer, dispatch, size=len(self._turns[-1].params))
            except HubError as error:
                self.post(Trigger.GIVE_UP, error)
            if self.message_memory:
                send.params.clear()  # the turn has it too, and whoever has begun this call would keep it until its end

    def _message(self) -> Send:
        """What is to be delivered; the content of a large one only until then."""
        if self._send is not None and self._send.params:
            return self._send
        recalled = self._deps.codec.recall(self._turns[-1], self.row)
        return recalled if self._send is None else replace(self._send, params=recalled.params)

    def _move(self, error: NotProcessed) -> None:
        """Move to the next worker of the role. If there is none, the first refusal is the answer."""
        deps, previous = self._deps, self.registration
        assert previous is not None  # its lease may have ended by now, but it certainly did nothing
        self._refused |= {previous.worker}
        deps.observer.worker_failed(previous.worker.role, type(error).__name__)
        try:
            skill = self._send.target.skill if self._send is not None else None
            role, refused = previous.worker.role, self._refused
            route = deps.router.within(previous.workspace, role, avoid=refused, rule="failover", skill=skill)
        except NoLiveWorker:
            self.post(Trigger.GIVE_UP, error)
        except RouteError as failure:
            self.post(Trigger.GIVE_UP, failure)
        else:
            self.store_then(f"move {self.row.id}", self._assign(route.registration, previous))

    async def _assign(self, next_one: Registration, previous: Registration) -> Outcome:
        log_dialect = next_one.offer.preferred_dialect(self.row.dialect)
        try:
            await self._deps.engine.tasks.assign(self.row.id, next_one.worker, next_one.epoch, log_dialect)
        except StoreUnavailable as error:
            return Trigger.GIVE_UP, error
        self.log_writer.use_dialect(log_dialect)
        self._end_load()
        self.registration = next_one
        self._begin_load()
        self._deps.observer.failed_over(previous.worker.role)
        return Trigger.ASSIGNED, None

    # --- coming back

    def _retry(self, error: HubError | None) -> None:
        """Come back at once after the first cut. After others wait, unless it is hopeless."""
        if isinstance(error, AnswerTooLarge):  # it would be again
            self.post(Trigger.GIVE_UP, error)
            return
        first, self._came_back = not self._came_back, True
        if first and error is not None:
            self._cut = True
            self.post(Trigger.RETRY)
            return
        now, worker = self._deps.clock.monotonic(), str(self.worker)
        try:
            if error is not None:
                durable = self.registration is not None and self.registration.offer.durable
                pause = self._budget.failed(now, error, worker, durable=durable)
                log.info("connection cut", extra={"event": "relay_cut", "task": self.row.id, "why": type(error).__name__})
            else:
                streams = self.registration is not None and self.registration.offer.streaming
                pause = self._budget.closed(now, self._end, worker, streams=streams)
        except HubError as hopeless:
            self.post(Trigger.GIVE_UP, hopeless)
        else:
            self._call.retry(after=0.0 if first else pause)

    def _come_back(self, _: Any) -> None:
        """Attach to the worker's stream again, repeat the call, or poll."""
        self._came_back = True
        registration = self._live_registration()
        if registration is None:
            return
        unanswered = self._answering and not self._begun and registration.offer.replays
        if not self.log_writer.ids.worker_task or unanswered:
            if registration.offer.replays:
                self._deliver(None)
            else:  # it may have run the message
                self.post(Trigger.GIVE_UP, HubRestarted())
        elif registration.offer.replays:
            self._budget.opened(self._deps.clock.monotonic(), self._end, delivers=False)
            self._call.attach(registration.offer, Attach(self.log_writer.ids, self.log_writer.position))
        else:
            self.post(Trigger.POLL)

    def _attach(self, _: Any) -> None:
        """Attach to a paused task. Whether it is lost with its worker is decided elsewhere."""
        self.registration = current = self._kept_lease()
        if current is None:
            self.post(Trigger.LET_GO)
            return
        self._budget.opened(self._deps.clock.monotonic(), self._end, delivers=False)
        self._call.attach(current.offer, Attach(self.log_writer.ids, self.log_writer.position))

    def _poll(self, _: Any) -> None:
        self._next_poll = _FIRST_POLL
        self._fetch(after=0.0)

    def _poll_later(self, _: Any) -> None:
        pause, self._next_poll = self._next_poll, min(self._next_poll * 1.5, _SLOWEST_POLL)
        self._fetch(after=pause)

    def _fetch(self, *, after: float) -> None:
        assert self.registration is not None
        self._call.poll(self.registration.offer, self.log_writer.ids, after=after)

    def _note_news(self, _: Any) -> None:
        """A poll brought something new."""
        self.mark_alive()

    def _note_same(self, _: Any) -> None:
        """A poll brought nothing new."""
        self.mark_unchanged()
        if self.log_writer.state in PAUSED and self._answering:
            try:
                self._budget.still_paused(str(self.worker))
            except HubError as error:
                self.post(Trigger.GIVE_UP, error)

    # --- the end

    def _give_up(self, error: HubError | None) -> None:
        """Take the message back if nothing ran; else write the verdict, after which the task has ended."""
        if self._error is None:
            if isinstance(error, WorkerFault) and error.task_unknown and self.began > START:
                error = WorkerLost(f"{self.worker} no longer knows the task.")
            self._error = (error or InvalidAnswer(str(self.worker), "it ended without an event")).copy()
            nothing_processed = isinstance(self._error, NotProcessed | RequestError | RouteError | WorkerFault)
            self.taken_back = nothing_processed and not self._begun and not self.started.come
            if isinstance(self._error, _LOST_ERRORS) and self.registration is not None:
                self._error.idempotent = self.registration.offer.idempotent
            if not self.taken_back:
                self._report_failure(self._error)
        if not self.taken_back:
            self._conclude(self._error)
        elif self.began == START:
            self._take_back(self._deps.engine.tasks.discard(self.row.id))
        else:
            self._take_back(self._deps.engine.tasks.drop_turn(self.row.id, self._turns[-1]))

    def _lose(self, error: HubError) -> None:
        if isinstance(error, WorkerFault):
            known = "no longer knows the task" if error.task_unknown else "cannot be asked for the task"
            lost = WorkerLost(f"{self.worker} {known}. What it had not sent is lost.")
            lost.__cause__ = error
            error = lost
        self._give_up(error)

    def _conclude(self, error: HubError) -> None:
        def concluded(failure: HubError | None) -> None:
            self.store_done(*((Trigger.ENDED, None) if failure is None else outcome_of(failure)))

        self.busy = True
        self.log_writer.conclude(error, concluded)

    def _cancel(self, awaited: Awaited) -> None:
        def concluded(failure: HubError | None) -> None:
            awaited.tell(failure)
            self.store_done(*((Trigger.ENDED, None) if failure is None else outcome_for_caller(failure)))

        self.busy = True
        assert awaited.error is not None
        self.log_writer.conclude(awaited.error, concluded, TaskState.CANCELED)

    def _take_back(self, removal: Awaitable[None]) -> None:
        async def remove() -> Outcome:
            await removal
            return Trigger.TAKEN_BACK, self._error

        self.store_then(f"take back {self.row.id}", remove())

    def _report_failure(self, error: HubError) -> None:
        self._deps.observer.worker_failed(self.row.role, type(error).__name__)
        log.warning(
            "task given up",
            extra={"event": "task_failed", "task": self.row.id, "worker": str(self.worker), "why": type(error).__name__},
        )

    def _write_later(self, _: Any) -> None:
        """Nothing else would end this task: try until the store takes it."""
        self._call.retry(after=_PAUSE)

    def _drop(self, batch: Sequence[WorkerEvent]) -> None:
        self.log_writer.drop(batch)

    def _report_end(self, _: Any) -> None:
        """The verdict is in the log. Its result is no longer needed, so a worker that may still work is told."""
        if self.taken_back or isinstance(self._error, InvalidAnswer):
            self._fail_start(self._error)
        self._begin(None)
        if (
            isinstance(self._error, LogFull | DeadlinePassed | DeadlineOfCall | AnswerTooLarge)
            and self.log_writer.ids.worker_task
        ):
            registration = self.registration or self._kept_lease()
            if registration is not None:
                self._call.call_off(registration.offer, self.log_writer.ids)

    def _finish(self, _: Any) -> None:
        """The relay is over: tell everybody, before any waiter of this relay continues."""
        if not self.started.come:
            self._fail_start(WorkerLost(f"{self.worker} sent no answer to this message."))
        self._end_load()
        self._call.close()
        self.close()
        _wake(self._rest_waiters)
        while self.when_over:
            self.when_over.pop()()

    # --- details

    def _live_registration(self) -> Registration | None:
        """The worker's current lease. None: it ended or passed to another process, and its tasks end with it."""
        known = self.registration
        workspace, worker = self.row.caller.workspace, self.worker
        epoch = known.epoch if known is not None else self.row.epoch
        current = self._deps.engine.registry.get(workspace, worker) if worker else None
        if current is None or (current.epoch != epoch and not current.offer.durable):
            self.post(Trigger.LEASE_LOST, WorkerLost(f"{worker} is gone. What it had not sent is lost."))
            return None
        self.registration = current
        return current

    def _kept_lease(self) -> Registration | None:
        """The lease under which the worker got the task, if it has not ended."""
        worker = self.row.worker
        current = self._deps.engine.registry.get(self.row.caller.workspace, worker) if worker else None
        return current if current is not None and current.epoch == self.row.epoch else None

    def _suspect(self, error: WorkerUnreachable) -> None:
        if self.registration is not None and isinstance(error, CredentialRefused):
            self._deps.failing.locked_out(self.registration, self.row.id, error.why)
        elif self.registration is not None:
            self._supervisor.run_once(f"suspect {self.worker}", suspect(self._deps.engine.registry, self.registration, error))

    def _hang_up(self, _: Any) -> None:
        """What the call still brought is not acted on: the worker has it, and the log continues after its own end."""
        self._call.hang_up()
        self.forget_call()

    def _rest(self, _: Any) -> None:
        self._end_load()
        _wake(self._rest_waiters)
        if not self._call.streams:
            self._finish(None)

    def _begin(self, _: Any) -> None:
        if not self.started.come:
            self.started.happen()
            self._send = None  # it is large, perhaps, and the turn has it too
            self._deps.observer.first_event(self.row.role, self._deps.clock.monotonic() - self._called_at)

    def _fail_start(self, error: HubError | None) -> None:
        """Callers that wait for the start get this error."""
        self.started.happen(error or WorkerLost(f"{self.worker} sent no answer to this message."))

    def _begin_load(self) -> None:
        """The worker has this call."""
        if self.registration is not None and not self._counted:
            self.registration.in_flight += 1
            self._counted = True

    def _end_load(self) -> None:
        """The worker is done with this call, or never had it."""
        registration, writer = self.registration, self.log_writer
        if registration is not None and self._counted:
            registration.in_flight -= 1
            self._counted = False
            self._deps.failing.call_ended(registration, self.row.id, writer.state, self._error, rests=writer.rests)
            self._deps.waiting.wake(registration.workspace, registration.worker)


def message_memory(turns: Sequence[Turn]) -> int:
    """Bytes that a relay keeps of its messages, as they are stored and as they are sent. Small ones are not counted."""
    size = 0
    for turn in turns:
        size += len(turn.params)
    return 2 * size if size > SMALL else 0


def _wake(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
    waiters.clear()


_CARRY_OUT: dict[Effect, Callable[[Relay, Any], None]] = {
    Effect.WRITE: Relay._write,
    Effect.WRITE_MISSING: Relay._write_missing,
    Effect.SHOW: Relay._show,
    Effect.BEGIN: Relay._begin,
    Effect.FAIL_START: Relay._fail_start,
    Effect.REST: Relay._rest,
    Effect.DELIVER: Relay._deliver,
    Effect.SUSPECT: Relay._suspect,
    Effect.MOVE: Relay._move,
    Effect.RETRY: Relay._retry,
    Effect.COME_BACK: Relay._come_back,
    Effect.ATTACH: Relay._attach,
    Effect.POLL: Relay._poll,
    Effect.POLL_LATER: Relay._poll_later,
    Effect.NOTE_NEWS: Relay._note_news,
    Effect.NOTE_SAME: Relay._note_same,
    Effect.HANG_UP: Relay._hang_up,
    Effect.GIVE_UP: Relay._give_up,
    Effect.LOSE: Relay._lose,
    Effect.CANCEL: Relay._cancel,
    Effect.WRITE_LATER: Relay._write_later,
    Effect.REPORT_END: Relay._report_end,
    Effect.DROP: Relay._drop,
    Effect.FINISH: Relay._finish,
}
