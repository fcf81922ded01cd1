"""The pushes port: push configs, and the deliveries that are due to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import NamedTuple, Protocol

from rolecall.model.ids import Caller, Cursor, TaskId
from rolecall.model.push import Backlog, DeadPage, SealedConfig


class DeliveryClaim(NamedTuple):
    """The right to deliver, in order, what one receiver lacks: the events after `sent`, up to `last`. `only`: a redelivery of
    one dead letter. `failures`: failures in a row, the first one `failing_for` ago. Events are owed since `waiting_for`.
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


class DeliveryRoom(NamedTuple):
    """How many deliveries may be claimed: at all, and in addition to the `busy` ones by workspace and host, for one workspace
    and for one of its hosts.
    """

    limit: int
    per_workspace: int
    per_host: int
    busy: Mapping[tuple[str, str], int] = MappingProxyType({})


class Pushes(Protocol):
    """Push configs, and what is owed to their receivers. The log is the outbox: a receiver is owed the events after its
    cursor, so an append and the obligation to deliver it are one write. Durable on return. TaskNotFound: unknown, of
    another caller, or a bare message. A task is not deleted while events of it are owed, or a recent dead letter exists.
    """

    async def set(self, caller: Caller, config: SealedConfig, *, limit: int, newest: bool = False) -> None:
        """A new config gets the events that follow; for a task that has ended, or with `newest`, also the last one so far. One
        that replaces a config with the same id takes over what that one was owed, due at once. InvalidParams if the task would
        have more than `limit`.
        """

    async def get(self, caller: Caller, task: TaskId, config: str) -> SealedConfig:
        """PushConfigNotFound."""

    async def list(self, caller: Caller, task: TaskId) -> Sequence[SealedConfig]:
        """In the order in which they were first set."""

    async def delete(self, caller: Caller, task: TaskId, config: str) -> None:
        """Deletes what it is owed and its dead letters too. A missing config is no error."""

    def on_due(self, wake: Callable[[], None]) -> None:
        """`wake` is called on the loop when a delivery may be due: a hint. A postponed delivery becomes due without one."""

    async def claim(self, room: DeliveryRoom, lease: timedelta) -> Sequence[DeliveryClaim]:
        """Claims what is due and has no holder, as far as there is room: workspace by workspace in turn, and within one host by
        host. A claim has one holder, for `lease`. A holder that died loses it when the lease ends.
        """

    async def delivered(self, claim: DeliveryClaim, upto: Cursor, *, hold: timedelta) -> Cursor | None:
        """The receiver has the events up to `upto`. Returns the last event that it is owed now, and renews the claim for
        `hold`. Returns None and releases the claim if nothing is owed, `hold` is zero, or another holder has the claim.
        """

    async def bury(self, claim: DeliveryClaim, cursor: Cursor, reason: str, *, hold: timedelta) -> Cursor | None:
        """Give up that event: it becomes a dead letter. Else like `delivered`, but the time of the first failure is kept until
        a delivery succeeds.
        """

    async def postpone(self, claim: DeliveryClaim, retry_in: timedelta) -> None:
        """A delivery failed: release the claim; it is due again after that time. Like `release`, no effect if another holder
        has the claim.
        """

    async def release(self, claim: DeliveryClaim) -> None: ...

    async def dead_letters(self, caller: Caller, *, limit: int, before: str | None = None, whole: bool = False) -> DeadPage:
        """Newest first; `whole`: those of all callers in the workspace. A letter stays listed until it is delivered."""

    async def backlog(self) -> Backlog:
        """Of all workspaces."""

    async def redeliver(self, caller: Caller, task: TaskId, config: str, cursor: Cursor) -> None:
        """Make that event due again, independent of the ordered deliveries. The task may belong to any caller in the workspace.
        DeadLetterNotFound.
        """
