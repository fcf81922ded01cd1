"""All relays of this hub: one per task at most, watched for silence, settled at start-up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from hub.core.relay.context import Dependencies
from hub.core.relay.relay import Relay
from hub.core.relay.transitions import Trigger
from hub.core.relay.worker_call import suspect
from hub.core.routing.router import Route
from hub.core.supervisor import Supervisor
from rolecall.errors import HubError, Overloaded, WorkerFull, WorkerSilent, WorkerUnreachable
from rolecall.model.a2a import PAUSED, TERMINAL, TaskState
from rolecall.model.command import Send
from rolecall.model.ids import START, TaskId, WorkerId
from rolecall.model.task import TaskRow, Turn

log = logging.getLogger(__name__)

_LOOK_EVERY = 1.0
_LET_GO_AFTER = 5.0
_PIECE = 500
"""Relays that are looked at in one turn of the loop."""


class Relays:
    def __init__(self, deps: Dependencies, supervisor: Supervisor) -> None:
        self._inline = deps.inline_files()
        self._open_tasks = deps.shares.open_tasks
        """Each relay holds one of them while it exists."""
        self._messages = deps.shares.messages
        self._deps = deps
        self._supervisor = supervisor
        self._running: dict[TaskId, Relay] = {}
        self._probes = deps.shares.probes
        self._probing: set[TaskId] = set()
        self._not_asked: set[TaskId] = set()
        """Their probes wait for their turn."""
        self.on_end: Callable[[TaskId], None] = lambda task: None
        """Called when a task has ended."""
        self.due_of: Callable[[TaskId], float | None] = lambda task: None
        """When a task must be done: see Relay."""
        self.on_rest: Callable[[TaskId], None] = lambda task: None
        """Called when nobody follows a task any more that is paused."""
        supervisor.at_close(self._stop)

    def __len__(self) -> int:
        return len(self._running)

    def of(self, task: TaskId) -> Relay | None:
        return self._running.get(task)

    def open(self, row: TaskRow, turns: Sequence[Turn]) -> Relay:
        """The relay of a task. A task that nothing runs gets one; it must be told to do something, or let go."""
        relay = self._running.get(row.id)
        if relay is None:
            relay = self._add(Relay(self._deps, self._inline, self._supervisor, row, turns))
            relay.due = self.due_of(row.id)
        return relay

    def start(
        self,
        row: TaskRow,
        turns: Sequence[Turn],
        *,
        route: Route,
        send: Send,
        references: dict[str, str],
        due: float | None = None,
    ) -> Relay:
        """Deliver a stored message. The relay of a paused task has been let go before. `due`: see Relay."""
        relay = self._add(Relay(self._deps, self._inline, self._supervisor, row, turns))
        relay.due = due
        relay.deliver(send, route, references)
        return relay

    def settle(self, row: TaskRow, turns: Sequence[Turn]) -> Relay | None:
        """Continue a task that an earlier hub left open. A paused task has no relay, unless its caller has answered already."""
        if row.ended or (row.state in PAUSED and not row.has_open_answer(turns)):
            return None
        log.info("continuing a task", extra={"event": "task_settling", "task": row.id, "worker": str(row.worker)})
        relay = self._add(Relay(self._deps, self._inline, self._supervisor, row, turns))
        relay.resume()
        return relay

    async def let_go(self, task: TaskId) -> None:
        """A paused task needs the old stream no more. Return when what the relay still writes is in the log."""
        relay = self._running.get(task)
        if relay is not None:
            relay.post(Trigger.LET_GO)
            await relay.caught_up()

    async def watch(self) -> None:
        """Run forever: probe workers that are silent, and let go of streams of tasks that rest."""
        while True:
            await asyncio.sleep(min(_LOOK_EVERY, self._deps.silence.total_seconds() / 4))
            for relay in list(self._running.values()):
                silent_for = relay.silent_for
                if relay.rests:
                    # A worker that waits for credentials may get them elsewhere, and continue on the same stream.
                    if silent_for > _LET_GO_AFTER and relay.log_writer.state is not TaskState.AUTH_REQUIRED:
                        relay.post(Trigger.LET_GO)
                    continue
                relay.check_deadline()
                if silent_for > self._deps.silence.total_seconds() / 2:
                    self._check_silence(relay, silent_for)

    def _check_silence(self, relay: Relay, silent_for: float) -> None:
        if relay.busy:
            relay.mark_alive()  # a slow store is not silence of the worker
            return
        silence = self._deps.silence.total_seconds()
        task = relay.log_writer.ids.task
        if silent_for > silence and task not in self._not_asked:
            relay.post(Trigger.GIVE_UP, WorkerSilent(f"{relay.worker} gave no sign of life for {silent_for:.0f} s."))
        if relay.log_writer.ids.worker_task and not relay.over and task not in self._probing:
            self._probing.add(task)
            self._supervisor.run_once(f"probe {task}", self._probe(relay), then=lambda: self._probing.discard(task))

    async def _probe(self, relay: Relay) -> None:
        """An unfinished task at the worker is a sign of life. An ended one means that its stream was lost unnoticed."""
        self._not_asked.add(task := relay.row.id)
        try:
            async with self._probes.slot(relay.row.caller.workspace):
                self._not_asked.discard(task)
                if not relay.over:
                    await self._ask(relay)
        finally:
            self._not_asked.discard(task)

    async def _ask(self, relay: Relay) -> None:
        registration = relay.registration
        if registration is None:
            return
        try:
            worker_event = await self._deps.forwarder.fetch(
                relay.row.caller.workspace, registration.offer, relay.log_writer.ids
            )
        except WorkerUnreachable as error:
            await suspect(self._deps.engine.registry, registration, error)
            return
        except (WorkerFull, Overloaded):
            relay.mark_unchanged()  # the hub could not ask, which says nothing of the worker
            return
        except HubError:
            return
        if worker_event.state in TERMINAL:
            relay.post(Trigger.SEEN_ENDED, worker_event)
        else:
            relay.mark_unchanged()

    async def lose(self, token: str, lost: Callable[[WorkerId | None], HubError]) -> None:
        """The workers with that token get nothing more: what they run is lost, also where their lease has ended before."""
        for number, relay in enumerate(list(self._running.values()), 1):
            if relay.registration is not None and relay.registration.token == token:
                relay.post(Trigger.LEASE_LOST, lost(relay.worker))
            if number % _PIECE == 0:
                await asyncio.sleep(0)

    def drain(self) -> None:
        """Reveal every task that has not started, so that no caller waits: the hub shuts down."""
        for relay in tuple(self._running.values()):
            relay.drain()

    def _add(self, relay: Relay) -> Relay:
        row = relay.row
        if row.id not in self._running:
            self._open_tasks.fill(row.caller.workspace)
            if relay.message_memory:
                self._messages.fill(row.caller.workspace, relay.message_memory)
        self._running[row.id] = relay
        relay.when_over.append(lambda: self._remove(relay))
        return relay

    def _remove(self, relay: Relay) -> None:
        row = relay.row
        if self._running.get(row.id) is relay:
            del self._running[row.id]
            self._open_tasks.give_back(row.caller.workspace)
            if relay.message_memory:
                self._messages.give_back(row.caller.workspace, relay.message_memory)
        writer = relay.log_writer
        if writer.state in TERMINAL:  # a bare message ends a log, and is no task
            self._deps.observer.task_ended(row.role, writer.state, relay.failure)
        if writer.ended or (relay.taken_back and relay.began == START):
            self.on_end(row.id)
        elif writer.rests:
            self.on_rest(row.id)

    def _stop(self) -> None:
        for relay in tuple(self._running.values()):
            relay.stop()
