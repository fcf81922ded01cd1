"""The inbox of a relay: its triggers, one at a time and in order. While the store works for the relay, they wait."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import Any, NamedTuple

from hub.core.relay.transitions import OF_THE_CALL, Trigger
from hub.core.supervisor import Supervisor
from rolecall.errors import HubError, LogMoved, StoreUnavailable


class Awaited(NamedTuple):
    """What a caller waits for. `error`: why it wants the task to end."""

    done: asyncio.Future[None]
    error: HubError | None

    def tell(self, error: HubError | None) -> None:
        if not self.done.done():
            if error is None:
                self.done.set_result(None)
            else:
                self.done.set_exception(error)


Outcome = tuple[Trigger, Any]


class Inbox(ABC):
    """Who posts a trigger runs what follows, so a relay needs no task."""

    __slots__ = ("_acting", "_held", "_supervisor", "_triggers", "busy", "over")

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._triggers: list[tuple[Trigger, Any]] = []
        self._acting = False
        self._held = False
        """The worker waits."""
        self.busy = False
        """The store works for this relay."""
        self.over = False

    @abstractmethod
    def act(self, trigger: Trigger, payload: Any) -> bool:
        """Act on a trigger. False: there was nothing to do."""

    @abstractmethod
    def abandon(self) -> None:
        """Nothing more can be done for the task, and nobody may wait for it."""

    @abstractmethod
    def hold_worker(self, *, held: bool) -> None:
        """Whether the worker must wait, because its events do."""

    def post(self, trigger: Trigger, payload: Any = None) -> None:
        """Act on it, at once or when the store has answered."""
        self._triggers.append((trigger, payload))
        if self.busy:
            if trigger is Trigger.RECEIVED and not self._held:
                self._held = True
                self.hold_worker(held=True)
        elif not self._acting:
            self._work()

    async def post_and_wait(self, trigger: Trigger, error: HubError | None = None) -> None:
        """Post what a caller wants, and wait until it is done, or is not to be done in this phase."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.post(trigger, Awaited(done, error))
        await done

    def store_then(self, name: str, operation: Awaitable[Outcome]) -> None:
        """Let the inbox wait for an operation of the store, which gives the next trigger."""
        self.busy = True
        self._supervisor.run_once(name, self._await_store(operation))

    def store_done(self, trigger: Trigger | None, payload: Any = None, *, then: Outcome | None = None) -> None:
        """The outcome comes before everything that waits; `then` follows it. None: nothing follows from the outcome."""
        self.busy = False
        if then is not None:
            self._triggers.insert(0, then)
        if trigger is not None:
            self._triggers.insert(0, (trigger, payload))
        if (self._triggers or self._held) and not self._acting:
            self._work()

    def forget_call(self) -> None:
        """What the worker still sent is not acted on."""
        if self._triggers:
            self._triggers = [entry for entry in self._triggers if entry[0] not in OF_THE_CALL]

    def close(self) -> None:
        """Nothing waits any more, also not for what the store still does."""
        self.over = True
        self.busy = False
        triggers, self._triggers = self._triggers, []
        for _, payload in triggers:
            if isinstance(payload, Awaited):
                payload.tell(None)

    def _work(self) -> None:
        """Act on what is there. Events that follow each other are written together."""
        self._acting = True
        in_order = False
        try:
            while self._triggers and not self.busy:
                trigger, payload = self._triggers.pop(0)
                while self._triggers and trigger is self._triggers[0][0] is Trigger.RECEIVED:
                    payload = (*payload, *self._triggers.pop(0)[1])
                if not self.act(trigger, payload) and isinstance(payload, Awaited):
                    payload.tell(None)
            in_order = True
        finally:
            self._acting = False
            if not in_order:  # a bug, which whoever posted reports
                self.abandon()
        if self._held and not self.busy:
            self._held = False
            self.hold_worker(held=False)

    async def _await_store(self, operation: Awaitable[Outcome]) -> None:
        outcome: Outcome | None = None
        try:
            outcome = await operation
        except HubError as error:
            outcome = outcome_of(error)
        finally:
            if outcome is None:
                self.abandon()
        self.store_done(*outcome)


def outcome_of(error: HubError) -> Outcome:
    """What a failed write means for the relay."""
    match error:
        case LogMoved():
            return Trigger.FENCE_LOST, error
        case StoreUnavailable():
            return Trigger.STORE_UNAVAILABLE, error
    return Trigger.GIVE_UP, error


def outcome_for_caller(error: HubError) -> Outcome:
    """A write that a caller wanted has failed: the caller is told, and the task goes on."""
    return (Trigger.FENCE_LOST if isinstance(error, LogMoved) else Trigger.NOT_STORED), error
