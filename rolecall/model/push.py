"""Push notifications: where a task's events are sent, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rolecall.model.ids import Cursor, TaskId


@dataclass(frozen=True, slots=True)
class PushConfig:
    """One receiver of one task's events. `id` is unique within its task; empty: the hub names it after the task. `dialect` is
    the one it was set in: what is sent is spelled in it. `schemes` and `credentials` make the Authorization header, `token`
    goes as X-A2A-Notification-Token. Both secrets go in only: what the hub gives back does not have them.
    """

    task: TaskId
    id: str
    url: str
    dialect: str
    token: str | None = field(default=None, repr=False)
    schemes: tuple[str, ...] = ()
    credentials: str | None = field(default=None, repr=False)

    def of(self, task: TaskId) -> PushConfig:
        return replace(self, task=task)

    def named(self) -> PushConfig:
        return self if self.id else replace(self, id=self.task)


@dataclass(frozen=True, slots=True)
class SealedConfig:
    """A config as the store has it: its secrets cannot be read there. `host`: by which deliveries are counted."""

    task: TaskId
    id: str
    url: str
    host: str
    dialect: str
    token: bytes | None = field(default=None, repr=False)
    schemes: tuple[str, ...] = ()
    credentials: bytes | None = field(default=None, repr=False)


class DeadLetter(NamedTuple):
    """A delivery that was given up. `at` is the wall clock's."""

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
    """Give this back to get the next page; None on the last."""
