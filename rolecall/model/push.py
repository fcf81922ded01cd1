"""Push notifications: where and how a task's events are sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rolecall.model.ids import Cursor, TaskId


@dataclass(frozen=True, slots=True)
class PushConfig:
    """One receiver of one task's events. `id` is unique within its task; empty: the hub uses the task's id. `dialect` is the
    one that the config was set in; notifications use it. `schemes` and `credentials` make the Authorization header, `token`
    is sent as X-A2A-Notification-Token, in some dialects also as bearer token. The hub never returns these two secrets.
    `numbers`: it was set with the sequence extension; `by_reference`: with the files extension.
    """

    task: TaskId
    id: str
    url: str
    dialect: str
    token: str | None = field(default=None, repr=False)
    schemes: tuple[str, ...] = ()
    credentials: str | None = field(default=None, repr=False)
    numbers: bool = False
    by_reference: bool = False

    def of(self, task: TaskId, *, numbers: bool | None = None, by_reference: bool | None = None) -> PushConfig:
        return replace(
            self,
            task=task,
            numbers=self.numbers if numbers is None else numbers,
            by_reference=self.by_reference if by_reference is None else by_reference,
        )

    def named(self) -> PushConfig:
        return self if self.id else replace(self, id=self.task)


@dataclass(frozen=True, slots=True)
class SealedConfig:
    """A config as it is stored, with sealed secrets. `host`: deliveries are counted by it."""

    task: TaskId
    id: str
    url: str
    host: str
    dialect: str
    token: bytes | None = field(default=None, repr=False)
    schemes: tuple[str, ...] = ()
    credentials: bytes | None = field(default=None, repr=False)
    numbers: bool = False
    by_reference: bool = False


class Backlog(NamedTuple):
    """What webhooks lack: receivers that are owed events, and dead letters; of each COUNTED at most."""

    owed: int
    dead_letters: int


class DeadLetter(NamedTuple):
    """A delivery that was given up. `at` is a time of the wall clock."""

    task: TaskId
    config: str
    cursor: Cursor
    url: str
    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class DeadPage:
    letters: Sequence[DeadLetter]
    before: str | None
    """Pass it to get the next page; None on the last."""
