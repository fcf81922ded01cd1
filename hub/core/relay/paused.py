"""Ends paused tasks whose worker is gone, and hands them to its new lease when it comes back.

A pause of a worker that replays lives in its process: it ends when that process withdraws or another one takes its name. Other
workers keep their tasks. Whose lease has ended otherwise is asked, and believed. One that refuses connections is gone; one that
does not answer at all may be asleep, and has `pause_grace` to come back. A worker whose lease goes on, and that was away for a
while, may have been started anew without its tasks: it is asked once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Set
from dataclasses import dataclass
from datetime import timedelta

from hub.core.relay.context import Dependencies
from hub.core.relay.relays import Relays
from hub.core.relay.transitions import Trigger
from hub.core.supervisor import Supervisor
from rolecall.errors import (
    InvalidAnswer,
    Overloaded,
    StoreUnavailable,
    TaskNotFound,
    WorkerBroke,
    WorkerFault,
    WorkerFull,
    WorkerLost,
    WorkerRefused,
    WorkerUnreachable,
)
from rolecall.model.a2a import PAUSED, TERMINAL, Ids, WorkerEvent
from rolecall.model.ids import TaskId
from rolecall.model.task import Holder, TaskRow
from rolecall.model.worker import EndedLease, Offer, Registration

log = logging.getLogger(__name__)

_LOOK_EVERY = timedelta(seconds=1)
_LOOK_AT_MOST_EVERY = 0.1
_LIST_EVERY = 2.0
"""A task may pause after the lease of its worker has ended, without a change of the registry."""
_ASKED_AT_ONCE = 200
_PIECE = 50
_ASK_FOR = 5.0
_ASK_FOR_AT_LEAST = 0.5
_REFUSED_TWICE_WITHIN = 0.25
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_ITS_QUESTION = "The question that it asked ended with it."
_WHAT_TO_DO = "Send the message again to start a new task."


@dataclass(slots=True)
class _LostLease:
    """What is known of a worker that no longer has the lease under which its tasks paused, or was away under it."""

    silent_since: float
    next_epoch: int | None = None
    """Of its new lease, if it had one when it was looked at last."""
    due: float = 0.0
    pause: float = _FIRST_PAUSE


class PausedTasks:
    """Holds nothing per task, only absent workers that hold paused tasks: the store knows which tasks are paused where."""

    def __init__(
        self,
        deps: Dependencies,
        relays: Relays,
        supervisor: Supervisor,
        being_answered: Set[TaskId],
        on_assign: Callable[[TaskId, Registration], None],
    ) -> None:
        """`being_answered`: tasks whose caller's answer is being accepted. A relay will decide about them. `on_assign`: called
        when a task has passed to a new lease.
        """
        self._on_assign = on_assign
        self._deps = deps
        self._registry = deps.engine.registry
        self._tasks = deps.engine.tasks
        self._token_is_valid = deps.token_is_valid
        self._relays = relays
        self._supervisor = supervisor
        self._being_answered = being_answered
        self._lost: dict[Holder, _LostLease] = {}
        self._looked_at: set[Holder] = set()
        self._listed = (-1, 0.0)

    async def watch(self) -> None:
        """Run forever. The feed of the registry only wakes it: every look compares all that there is."""
        changes = self._registry.changes(None, after=None, idle=_LOOK_EVERY)
        try:
            await self._look()
            async for _ in changes:
                await self._look()
                await asyncio.sleep(_LOOK_AT_MOST_EVERY)
        finally:
            changes.stop()

    async def _look(self) -> None:
        """Begin to settle each absent worker that is due, or has enrolled again."""
        await self._list()
        now = self._deps.clock.monotonic()
        for holder, lost in self._lost.items():
            if len(self._looked_at) >= _ASKED_AT_ONCE:
                return
            epoch = self._epoch_now(holder)
            waits = epoch == lost.next_epoch and now < lost.due
            if holder in self._looked_at or waits or not self._was_away(holder):
                continue
            if epoch != lost.next_epoch:
                lost.next_epoch, lost.silent_since, lost.pause = epoch, now, _FIRST_PAUSE
            self._looked_at.add(holder)
            job = self._settle(holder, lost)
            self._supervisor.run_once(f"paused at {holder.worker}", job, then=self._done_with(holder))

    async def _list(self) -> None:
        """List the absent workers anew, if the registry has changed or the list is old. The longest due come first."""
        now, revision = self._deps.clock.monotonic(), self._registry.revision()
        if self._listed[0] != revision or now - self._listed[1] >= _LIST_EVERY:
            self._listed = revision, now
            gone = [holder for holder in await self._tasks.holders() if self._was_away(holder)]
            known = {holder: self._lost.get(holder) or _LostLease(now) for holder in gone}
            self._lost = dict(sorted(known.items(), key=lambda item: item[1].due))

    def _epoch_now(self, holder: Holder) -> int | None:
        registration = self._registry.get(holder.workspace, holder.worker)
        return registration.epoch if registration is not None else None

    def _was_away(self, holder: Holder) -> bool:
        """Whether it is away, has another lease, or was away under the one that it had."""
        registration = self._registry.get(holder.workspace, holder.worker)
        if registration is None or registration.epoch != holder.epoch:
            return True
        return registration.was_away and not registration.offer.pauses_in_process

    def _done_with(self, holder: Holder) -> Callable[[], None]:
        return lambda: self._looked_at.discard(holder)

    # --- one worker

    async def _settle(self, holder: Holder, lost: _LostLease) -> None:
        lost.due = self._deps.clock.monotonic() + lost.pause
        lost.pause = min(lost.pause * 2, _LONGEST_PAUSE)
        now_live = self._registry.get(holder.workspace, holder.worker)
        back = now_live if now_live is not None and now_live.epoch == holder.epoch else None
        if back is not None:
            back.was_away = False
        settled = False
        try:
            settled = await self._settle_as(holder, lost, now_live)
        except StoreUnavailable:
            log.info("paused tasks wait for the store", extra={"event": "paused_tasks_wait", "worker": str(holder.worker)})
        if back is not None and not settled:
            back.was_away = True

    async def _settle_as(self, holder: Holder, lost: _LostLease, now_live: Registration | None) -> bool:
        """False: some of its tasks have not been asked for."""
        ended = await self._registry.ended(holder.workspace, holder.worker)
        if now_live is not None and _is_same_process(holder, now_live, ended):
            async for row in self._rows(holder):
                await self._assign(row, now_live)
            return True
        try:
            if now_live is None and ended is not None and not self._token_is_valid(ended.token):
                raise WorkerLost(f"{holder.worker} may no longer serve: its token has ended. {_ITS_QUESTION} {_WHAT_TO_DO}")
            _check_process(holder, now_live, ended)
            offer = now_live.offer if now_live is not None else ended.offer if ended is not None else None
            return await self._ask(holder, lost, offer, now_live)
        except WorkerLost as error:
            await self._end_all(holder, now_live, error)
            return True

    async def _ask(self, holder: Holder, lost: _LostLease, offer: Offer | None, now_live: Registration | None) -> bool:
        """Ask the worker for each task. False: not for all. WorkerLost: it is gone, or has not answered for too long."""
        if offer is None:  # its lease ended under an earlier version of the hub
            self._check_silence(holder, lost)
            return False
        async for row in self._rows(holder):
            try:
                worker_event = await self._fetch(holder.workspace, offer, row.ids, within=self._patience(lost))
            except WorkerFault as fault:
                if fault.task_unknown:
                    await self._end(row, WorkerLost(f"{holder.worker} no longer knows the task. {_WHAT_TO_DO}"))
            except (WorkerFull, Overloaded):
                return False  # the hub could not ask, which says nothing of the worker
            except (WorkerUnreachable, WorkerRefused, WorkerBroke, InvalidAnswer, TimeoutError):
                self._check_silence(holder, lost)
                return False
            else:
                await self._accept(row, worker_event, now_live)
            lost.silent_since = self._deps.clock.monotonic()
        return True

    async def _fetch(self, workspace: str, offer: Offer, ids: Ids, *, within: float) -> WorkerEvent:
        """Two refused connections mean that nothing listens there. WorkerLost."""
        async with asyncio.timeout(within):
            try:
                return await self._deps.forwarder.fetch(workspace, offer, ids)
            except WorkerUnreachable as error:
                if not error.refused:
                    raise
            await asyncio.sleep(_REFUSED_TWICE_WITHIN)
            try:
                return await self._deps.forwarder.fetch(workspace, offer, ids)
            except WorkerUnreachable as error:
                if not error.refused:
                    raise
                gone = f"{offer.worker} is gone: its address refuses connections. {_ITS_QUESTION} {_WHAT_TO_DO}"
                raise WorkerLost(gone) from error

    def _patience(self, lost: _LostLease) -> float:
        """How long to wait for one answer: hardly beyond the grace."""
        left = lost.silent_since + self._deps.pause_grace.total_seconds() - self._deps.clock.monotonic()
        return min(_ASK_FOR, max(left, 0.0) + _ASK_FOR_AT_LEAST)

    def _check_silence(self, holder: Holder, lost: _LostLease) -> None:
        """WorkerLost when the grace is over; until then, ask again later."""
        grace = self._deps.pause_grace.total_seconds()
        if self._deps.clock.monotonic() - lost.silent_since >= grace:
            raise WorkerLost(f"{holder.worker} has not answered for {grace:g} s. {_ITS_QUESTION} {_WHAT_TO_DO}")
        lost.due = min(lost.due, lost.silent_since + grace)

    async def _rows(self, holder: Holder) -> AsyncIterator[TaskRow]:
        """Its paused tasks, a piece at a time, without those that are being answered."""
        after: TaskId | None = None
        while rows := await self._tasks.paused_at(holder, after=after, limit=_PIECE):
            for row in rows:
                relay = self._relays.of(row.id)
                if row.id not in self._being_answered and (relay is None or relay.rests):
                    yield row
            after = rows[-1].id

    # --- one task

    async def _accept(self, row: TaskRow, worker_event: WorkerEvent, now_live: Registration | None) -> None:
        """The worker reports the task. Without a lease nobody could follow it, so that only its end is logged."""
        ended = worker_event.state in TERMINAL
        if now_live is not None and now_live.epoch != row.epoch and not ended:
            await self._assign(row, now_live)
        if ended or (now_live is not None and worker_event.state not in PAUSED):
            await self._log(row, worker_event)

    async def _assign(self, row: TaskRow, registration: Registration) -> None:
        """From now on the task is held under the new lease, so that its caller can answer it."""
        try:
            await self._tasks.assign(row.id, registration.worker, registration.epoch, row.log_dialect)
        except TaskNotFound:
            return  # it has just been deleted
        self._on_assign(row.id, registration)
        log.info("paused task kept", extra={"event": "paused_task_kept", "task": row.id, "worker": str(registration.worker)})

    async def _log(self, row: TaskRow, worker_event: WorkerEvent) -> None:
        """Log what the worker's task has and the log lacks. A task that goes on is followed by its relay."""
        try:
            row = await self._tasks.get(row.caller, row.id)
            relay = self._relays.open(row, await self._tasks.turns(row.id))
        except TaskNotFound:
            return  # it has just been deleted
        relay.post(Trigger.SEEN_ENDED if worker_event.state in TERMINAL else Trigger.SEEN, worker_event)
        await relay.caught_up()

    async def _end_all(self, holder: Holder, now_live: Registration | None, error: WorkerLost) -> None:
        async for row in self._rows(holder):
            if self._registry.get(holder.workspace, holder.worker) is not now_live:
                return  # it has just enrolled again, and is looked at again
            await self._end(row, error)

    async def _end(self, row: TaskRow, error: WorkerLost) -> None:
        relay = self._relays.open(row, await self._tasks.turns(row.id))
        if relay.rests:
            relay.post(Trigger.LEASE_LOST, error)
            await relay.caught_up()


def _is_same_process(holder: Holder, now_live: Registration, ended: EndedLease | None) -> bool:
    """The process that asked has enrolled again, and its pauses with it."""
    return (
        ended is not None
        and ended.offer.pauses_in_process
        and ended.epoch == holder.epoch
        and bool(ended.boot)
        and now_live.boot == ended.boot
    )


def _check_process(holder: Holder, now_live: Registration | None, ended: EndedLease | None) -> None:
    """WorkerLost if the pauses were in a process that is certainly gone."""
    if ended is None or not ended.offer.pauses_in_process:
        return
    if now_live is None and ended.withdrawn:
        raise WorkerLost(f"{holder.worker} withdrew. {_ITS_QUESTION} {_WHAT_TO_DO}")
    if now_live is not None and ended.epoch == holder.epoch and now_live.boot != ended.boot:
        raise WorkerLost(f"{holder.worker} was started again. {_ITS_QUESTION} {_WHAT_TO_DO}")
