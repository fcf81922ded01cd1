"""Why this worker: the last decisions, for whoever asks."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from hub.core.router import Route
from hub.model.ids import TaskId, WorkerId

_REMEMBERED = 10_000


class Decision(NamedTuple):
    task: TaskId
    worker: WorkerId
    rule: str
    candidates: int
    at: float


class Decisions:
    """A ring: the oldest goes when a new one comes."""

    def __init__(self) -> None:
        self._ring: OrderedDict[TaskId, Decision] = OrderedDict()

    def note(self, task: TaskId, route: Route, at: float) -> None:
        self._ring[task] = Decision(task, route.registration.worker, route.rule, route.candidates, at)
        if len(self._ring) > _REMEMBERED:
            self._ring.popitem(last=False)

    def of(self, task: TaskId) -> Decision | None:
        return self._ring.get(task)
