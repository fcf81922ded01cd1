"""Push notifications: where a task's events are sent, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from hub.model.ids import Cursor, TaskId


@dataclass(frozen=True, slots=True)
class PushConfig:
    """One receiver of one task's events. `id` is unique within its task. `dialect` is the one it was set in: what is sent is
    spelled in it. `schemes` and `credentials` make the Authorization header, `token` goes as X-A2A-Notification-Token.
    """

    task: TaskId
    id: str
    url: str
    dialect: str
    token: str | None = None
    schemes: tuple[str, ...] = ()
    credentials: str | None = None


class DeadLetter(NamedTuple):
    """A delivery that was given up. `at` is the wall clock's."""

    task: TaskId
    config: str
    cursor: Cursor
    url: str
    reason: str
    at: float
