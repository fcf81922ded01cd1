"""A child's question is also its parent's: an answer to either goes on, and only one is taken.

A parent asks in a child's place until the child goes on or ends. It is paused then, and nobody follows it. So the hub attaches
to its worker, which looks at the child, until the parent goes on too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence, Set
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from hub.core.relay.context import Dependencies
from hub.core.relay.relay import Relay
from hub.core.relay.relays import Relays
from hub.core.relay.start_signal import StartSignal
from hub.core.relay.transitions import Trigger
from hub.core.supervisor import Supervisor
from hub.core.tasks.reader import TaskReader
from hub.core.tasks.trees import Trees
from rolecall.errors import HubError, InvalidParams, StoreUnavailable, TaskNotFound
from rolecall.model.a2a import PAUSED, TERMINAL, WorkerEvent
from rolecall.model.ids import Caller, TaskId
from rolecall.model.task import AskedFor, TaskRow

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 30.0
_ANSWERED = "Another answer to this question was accepted a moment ago. Wait until the task asks again, or cancel it."


class Answer(NamedTuple):
    """An answer that is being accepted. `below`: the tasks whose question its task asks, down to the one that asked first."""

    task: TaskId
    below: Sequence[TaskId]


class Questions:
    def __init__(
        self,
        deps: Dependencies,
        relays: Relays,
        supervisor: Supervisor,
        trees: Trees,
        reader: TaskReader,
        being_answered: Set[TaskId],
    ) -> None:
        """`being_answered`: tasks whose caller's answer is being accepted."""
        self._deps = deps
        self._tasks = deps.engine.tasks
        self._relays = relays
        self._supervisor = supervisor
        self._trees = trees
        self._reader = reader
        self._being_answered = being_answered
        self._on_the_way: dict[TaskId, TaskId] = {}
        """Children that wait for the answer that a task above them has got."""
        self._waking: set[TaskId] = set()
        """Paused parents whose child goes on."""
        trees.on_child_end = relays.on_rest = self._wake
        trees.on_resume = partial(self._wake, resumed=True)

    # --- answers

    async def accept(self, row: TaskRow, *, by_parent: bool) -> Answer:
        """An answer to a task of a tree. To be followed by `accepted` or `refused`. `by_parent`: it passes an answer on.
        InvalidParams: another one has won.
        """
        below = await self._asked_below(row)
        if not by_parent and self._has_answer(row.id, below):
            raise InvalidParams(_ANSWERED)
        self._on_the_way.pop(row.id, None)
        self._on_the_way.update(dict.fromkeys(below, row.id))
        return Answer(row.id, below)

    def accepted(self, answer: Answer, relay: Relay, *, by_parent: bool) -> None:
        if relay.over:
            self.refused(answer)
        relay.when_over.append(lambda: self.refused(answer))
        if not by_parent:
            self._child_goes_on(answer.task, relay.started)

    def refused(self, answer: Answer) -> None:
        """Also when its task rests again: what was not passed on by then never will be."""
        for child in answer.below:
            if self._on_the_way.get(child) == answer.task:
                del self._on_the_way[child]

    async def _asked_below(self, row: TaskRow) -> Sequence[TaskId]:
        """The tasks whose question this one asks: a child of it, a child of that one, and so on."""
        found: list[TaskId] = []
        while row.state in PAUSED and (asked := await self._reader.asked_for(row)) is not None:
            if not await self._trees.is_child(asked.child, row.id):
                break
            found.append(asked.child)
            row = await self._tasks.get(row.caller, asked.child)
        return found

    def _has_answer(self, task: TaskId, below: Sequence[TaskId]) -> bool:
        """The question of the last of them has an answer, or is about to get one."""
        return (
            task in self._on_the_way
            or any(child in self._on_the_way or child in self._being_answered for child in below)
            or (bool(below) and any(parent in self._waking for parent in (task, *below)))
        )

    # --- parents

    async def settle(self) -> None:
        """Take up the paused parents that an earlier hub left, after its trees."""
        for row in await self._tasks.paused_parents():
            self._trees.keep_paused(row)
            self._wake(row.id)

    def _child_goes_on(self, child: TaskId, begun: StartSignal | None = None) -> None:
        """`begun`: it does so then, unless that is an error."""
        if (parent := self._trees.parent_of(child)) is not None:
            self._wake(parent, begun)

    def _wake(self, parent: TaskId, begun: StartSignal | None = None, *, resumed: bool = False) -> None:
        """A child of it may have gone on or ended. If it is paused for that, it can go on too. `resumed`: it does."""
        caller, relay = self._trees.caller_of_parent(parent), self._relays.of(parent)
        if caller is not None and parent not in self._waking and (relay is None or relay.rests):
            self._waking.add(parent)
            job = self._wake_up(caller, parent, begun, resumed=resumed)
            self._supervisor.run_once(f"waking {parent}", job, then=lambda: self._waking.discard(parent))

    async def _wake_up(self, caller: Caller, parent: TaskId, begun: StartSignal | None, *, resumed: bool) -> None:
        if begun is not None:
            with suppress(HubError):  # then the child still asks
                await begun.wait()
        clock = self._deps.clock
        within = self._deps.silence if resumed else self._deps.pause_grace
        pause, until = _FIRST_PAUSE, clock.monotonic() + within.total_seconds()
        while clock.monotonic() < until:
            try:
                row = await self._tasks.get(caller, parent)
                at_work = self._is_at_work(row)
                if not (at_work or resumed or await self._can_go_on(row)):
                    return
                if at_work or await self._attached(row):
                    self._child_goes_on(parent)
                    return
            except TaskNotFound:
                return  # it has been deleted
            except StoreUnavailable:
                pass  # it is asked again
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
        log.info("a parent stays paused", extra={"event": "parent_stays_paused", "task": parent})

    def _is_at_work(self, row: TaskRow) -> bool:
        relay = self._relays.of(row.id)
        return row.state not in PAUSED or (relay is not None and not relay.rests)

    async def _can_go_on(self, row: TaskRow) -> bool:
        """It asks for a child that has gone on since."""
        asked = await self._reader.asked_for(row)
        return asked is not None and not await self._still_asks(row.caller, asked)

    async def _still_asks(self, caller: Caller, asked: AskedFor) -> bool:
        try:
            row = await self._tasks.get(caller, asked.child)
        except TaskNotFound:
            return False
        if self._is_at_work(row):
            return False
        last = await self._reader.last_state(row)
        return asked.event is None or last is None or last.cursor <= asked.event

    async def _attached(self, row: TaskRow) -> bool:
        """Attach to its worker, and return when that has brought something. False: it brings nothing, at least now."""
        workspace = row.caller.workspace
        registration = self._deps.engine.registry.get(workspace, row.worker) if row.worker else None
        if registration is None or registration.epoch != row.epoch:
            return False  # what becomes of it is decided with its worker
        try:
            if not registration.offer.replays:
                worker_event = await self._deps.forwarder.fetch(workspace, registration.offer, row.ids)
                return worker_event.state not in PAUSED and await self._logged(row, worker_event)
            relay = self._relays.open(row, await self._tasks.turns(row.id))
            if relay.call_is_open:
                return False
            relay.post(Trigger.CHECK)
            await relay.started.wait()
        except StoreUnavailable:
            raise
        except HubError:
            return False
        return True

    async def _logged(self, row: TaskRow, worker_event: WorkerEvent) -> bool:
        relay = self._relays.open(row, await self._tasks.turns(row.id))
        relay.post(Trigger.SEEN_ENDED if worker_event.state in TERMINAL else Trigger.SEEN, worker_event)
        await relay.caught_up()
        return True
