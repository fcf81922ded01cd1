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
_DETACH_AFTER = 5.0


class Relays:
    def __init__(self, deps: Dependencies, supervisor: Supervisor, open_tasks: WorkspaceQuota) -> None:
        """Each relay takes one slot of `open_tasks` while it exists."""
        self._open_tasks = open_tasks
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
            self._open_tasks.fill(row.caller.workspace)
        self._running[row.id] = relay
        relay.task = self._supervisor.run_once(f"relay {row.id}", relay.run(), then=lambda: self._remove(row, relay))
        return relay

    async def clear(self, task: TaskId) -> None:
        """Stop a relay that still reads the old stream of a paused task: a new message gets a new relay."""
        relay = self._running.get(task)
        if relay is not None and relay.task is not None:
            relay.detach()
            await asyncio.wait([relay.task], timeout=_DETACH_AFTER)

    def settle(self, row: TaskRow, turns: Sequence[Turn]) -> Relay | None:
        """Continue a task that an earlier hub left open. A paused task has no relay, unless its caller has answered already."""
        if row.ended or (row.state in PAUSED and not row.has_open_answer(turns)):
            return None
        log.info("continuing a task", extra={"event": "task_settling", "task": row.id, "worker": str(row.worker)})
        return self.start(row, turns, route=None, send=None)

    async def watch(self) -> None:
        """Run forever: probe workers that are silent, and stop relays of tasks that rest."""
        while True:
            await asyncio.sleep(min(_LOOK_EVERY, self._deps.silence.total_seconds() / 4))
            now = self._deps.clock.monotonic()
            for relay in list(self._running.values()):
                silent_for = now - relay.alive_at
                if relay.rests:
                    # A worker that waits for credentials may get them elsewhere, and continue on the same stream.
                    if silent_for > _DETACH_AFTER and relay.log_writer.state is not TaskState.AUTH_REQUIRED:
                        relay.detach()
                    continue
                relay.check_deadline()
                if silent_for > self._deps.silence.total_seconds() / 2:
                    self._check_silence(relay, silent_for)

    def _check_silence(self, relay: Relay, silent_for: float) -> None:
        if relay.log_writer.writing:
            relay.alive_at = self._deps.clock.monotonic()  # a slow store is not silence of the worker
            return
        silence = self._deps.silence.total_seconds()
        if silent_for > silence:
            relay.interrupt(WorkerSilent(f"{relay.worker} gave no sign of life for {silent_for:.0f} s."))
        task = relay.log_writer.ids.task
        if relay.log_writer.ids.worker_task and task not in self._probing:
            self._probing.add(task)
            self._supervisor.run_once(f"probe {task}", self._probe(relay), then=lambda: self._probing.discard(task))

    async def _probe(self, relay: Relay) -> None:
        """An unfinished task at the worker is a sign of life. An ended one means that its stream was lost unnoticed."""
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
        """Log what the worker's task has and the log lacks, and stop the relay if the task rests then."""
        await relay.log_writer.write([worker_event], gap=True)
        if relay.rests:
            relay.detach()

    def show_all(self) -> None:
        """Reveal every task that has not started, so that no caller waits: the hub shuts down."""
        for relay in tuple(self._running.values()):
            if not relay.started.come:
                self._supervisor.run_once(f"showing {relay.log_writer.ids.task}", relay.show())

    def _remove(self, row: TaskRow, relay: Relay) -> None:
        if self._running.get(row.id) is relay:
            del self._running[row.id]
            self._open_tasks.leave(row.caller.workspace)
        relay.notify_over()  # a relay that was cancelled before its first step has not done it
