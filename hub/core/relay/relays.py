"""All relays of this hub: one per task at most, watched for silence, settled at start-up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from hub.core.admission.quota import WorkspaceQuota
from hub.core.relay.context import Dependencies
from hub.core.relay.relay import Relay
from hub.core.routing.router import Route
from hub.core.supervisor import Supervisor
from rolecall.errors import HubError, WorkerSilent, WorkerUnreachable
from rolecall.model.a2a import PAUSED, TERMINAL, TaskState, WorkerEvent
from rolecall.model.command import Send
from rolecall.model.ids import TaskId
from rolecall.model.task import TaskRow, Turn

log = logging.getLogger(__name__)

_LOOK_EVERY = 1.0
_LINGER = 5.0


class Relays:
    def __init__(self, deps: Dependencies, supervisor: Supervisor, places: WorkspaceQuota) -> None:
        """Each fills one of `places`, for as long as it is there."""
        self._places = places
        self._deps = deps
        self._supervisor = supervisor
        self._running: dict[TaskId, Relay] = {}
        self._probing: set[TaskId] = set()

    def __len__(self) -> int:
        return len(self._running)

    def of(self, task: TaskId) -> Relay | None:
        return self._running.get(task)

    def start(
        self,
        row: TaskRow,
        turns: Sequence[Turn],
        *,
        route: Route | None,
        send: Send | None,
        references: dict[str, str] | None = None,
    ) -> Relay:
        relay = Relay(self._deps, row, turns, route=route, send=send, references=references)
        if row.id not in self._running:
            self._places.fill(row.caller.workspace)
        self._running[row.id] = relay
        relay.task = self._supervisor.run_once(f"relay {row.id}", relay.run(), then=lambda: self._gone(row, relay))
        return relay

    async def clear(self, task: TaskId) -> None:
        """Let go of a relay that still listens to a paused task's old stream: a new message brings a new one."""
        relay = self._running.get(task)
        if relay is not None and relay.task is not None:
            relay.let_go()
            await asyncio.wait([relay.task], timeout=_LINGER)

    def settle(self, row: TaskRow, turns: Sequence[Turn]) -> Relay | None:
        """Take up what an earlier hub left open. A paused task waits for its caller, unless he has answered already."""
        if row.ended or (row.state in PAUSED and not row.has_open_answer(turns)):
            return None
        log.info("taking up a task", extra={"event": "task_settling", "task": row.id, "worker": str(row.worker)})
        return self.start(row, turns, route=None, send=None)

    async def watch(self) -> None:
        """Forever: ask after workers that say nothing, and let go of those that have nothing left to say."""
        while True:
            await asyncio.sleep(min(_LOOK_EVERY, self._deps.silence.total_seconds() / 4))
            now = self._deps.clock.monotonic()
            for relay in list(self._running.values()):
                quiet_for = now - relay.alive_at
                if relay.rests:
                    # Who waits for credentials may get them by another way, and go on over the same stream.
                    if quiet_for > _LINGER and relay.log_writer.state is not TaskState.AUTH_REQUIRED:
                        relay.let_go()
                    continue
                relay.check_deadline()
                if quiet_for > self._deps.silence.total_seconds() / 2:
                    self._look_after(relay, quiet_for)

    def _look_after(self, relay: Relay, quiet_for: float) -> None:
        if relay.log_writer.writing:
            relay.alive_at = self._deps.clock.monotonic()  # the hub's own trouble is no silence of the worker's
            return
        silence = self._deps.silence.total_seconds()
        if quiet_for > silence:
            relay.interrupt(WorkerSilent(f"{relay.worker} gave no sign of life for {quiet_for:.0f} s."))
        task = relay.log_writer.ids.task
        if relay.log_writer.ids.worker_task and task not in self._probing:
            self._probing.add(task)
            self._supervisor.run_once(f"probe {task}", self._probe(relay), then=lambda: self._probing.discard(task))

    async def _probe(self, relay: Relay) -> None:
        """A task that its worker calls unfinished is a sign of life; one that has ended was ended on a dead line."""
        registration = relay.registration
        if registration is None:
            return
        try:
            worker_event = await self._deps.forwarder.fetch(registration.offer, relay.log_writer.ids)
        except WorkerUnreachable as error:
            await relay.suspect(registration, error)
            return
        except HubError:
            return
        if worker_event.state in TERMINAL:
            await self.conclude(relay, worker_event)
        else:
            relay.still_there()

    async def conclude(self, relay: Relay, worker_event: WorkerEvent) -> None:
        """Log what a worker's task has beyond the log, and stop listening if that ends it."""
        await relay.log_writer.write([worker_event], gap=True)
        if relay.rests:
            relay.let_go()

    def show_all(self) -> None:
        """Nobody is to wait any longer for a worker's first word: the hub goes down."""
        for relay in tuple(self._running.values()):
            if not relay.started.come:
                self._supervisor.run_once(f"showing {relay.log_writer.ids.task}", relay.show())

    def _gone(self, row: TaskRow, relay: Relay) -> None:
        if self._running.get(row.id) is relay:
            del self._running[row.id]
            self._places.leave(row.caller.workspace)
        relay.tell_over()  # one that was cancelled before its first step has not
