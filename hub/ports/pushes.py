"""The pushes port: push configs, and the deliveries that they are owed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol

from rolecall.model.ids import Caller, Cursor, TaskId
from rolecall.model.push import DeadPage, SealedConfig


class DeliveryClaim(NamedTuple):
    """The right to deliver, in order, what one receiver lacks: the events behind `sent`, up to `last`. `only`: a dead letter
    on its way once more. `failures` in a row, the first of them `failing_for` ago; something is owed since `waiting_for`.
    """

    caller: Caller
    config: SealedConfig
    only: bool
    sent: Cursor
    last: Cursor
    failures: int
    failing_for: timedelta
    waiting_for: timedelta
    fence: int


class Pushes(Protocol):
    """Push configs, and what their receivers are owed. The log is the outbox: a receiver is owed the events behind its
    cursor, so that an append and the obligation to deliver it are one write. Durable on return. TaskNotFound: unknown,
    somebody else's, or a bare message. A task is not forgotten while something of it is owed, or has lately died.
    """

    async def set(self, caller: Caller, config: SealedConfig, *, most: int) -> None:
        """A new config gets what follows; of a task that has ended, its last event. One that replaces another of its id
        takes over what that was owed, due at once. InvalidParams if the task would have more than `most`.
        """

    async def get(self, caller: Caller, task: TaskId, config: str) -> SealedConfig:
        """PushConfigNotFound."""

    async def list(self, caller: Caller, task: TaskId) -> Sequence[SealedConfig]:
        """In the order in which they were first set."""

    async def delete(self, caller: Caller, task: TaskId, config: str) -> None:
        """With what it is owed, and its dead letters. Deleting what is not there is no error."""

    def on_due(self, wake: Callable[[], None]) -> None:
        """`wake` is called on the loop when something may have become due: a hint. What was postponed comes without one."""

    async def claim(self, most: int, lease: timedelta, *, at_once: int, busy: Mapping[str, int]) -> Sequence[DeliveryClaim]:
        """What is due and held by nobody, up to `most`, host by host in turn, and of one host no more than `at_once` less
        what `busy` says. Held for `lease`: one holder at a time. A holder that died lets go when its lease ends.
        """

    async def delivered(self, claim: DeliveryClaim, upto: Cursor, *, hold: timedelta) -> Cursor | None:
        """The receiver has the events up to `upto`. Returns the last one it is owed now, and holds the claim for `hold`
        from now; None, and the claim is let go: nothing is owed, `hold` is zero, or somebody else has the claim.
        """

    async def bury(self, claim: DeliveryClaim, cursor: Cursor, reason: str, *, hold: timedelta) -> Cursor | None:
        """Give up that event: a dead letter. As `delivered`, but the time of the first failure stays until one succeeds."""

    async def postpone(self, claim: DeliveryClaim, retry_in: timedelta) -> None:
        """It failed: let go, due again after that time. No effect, as with `release`, if somebody else has the claim."""

    async def release(self, claim: DeliveryClaim) -> None: ...

    async def dead_letters(self, caller: Caller, *, limit: int, before: str | None = None, whole: bool = False) -> DeadPage:
        """Newest first; `whole`: those of all callers in his workspace. A letter stays listed until it is delivered."""

    async def redeliver(self, caller: Caller, task: TaskId, config: str, cursor: Cursor) -> None:
        """Owe that event again, beside what follows in order. The task may be anybody's in the caller's workspace.
        DeadLetterNotFound.
        """
