"""Why this worker: the last decisions, for whoever asks."""

from __future__ import annotations

from collections import deque

from hub.core.routing.router import Route
from rolecall.model.ids import TaskId, WorkerId
from rolecall.model.value import Value

_REMEMBERED = 2_000


class RoutingDecision(Value, frozen=True):
    task: TaskId
    worker: WorkerId
    rule: str
    candidates: int
    at: float


class RoutingHistory:
    """A ring: the oldest goes when a new one comes."""

    def __init__(self) -> None:
        self._ring: deque[RoutingDecision] = deque(maxlen=_REMEMBERED)

    def note(self, task: TaskId, route: Route, at: float) -> None:
        self._ring.append(RoutingDecision(task, route.registration.worker, route.rule, route.candidates, at))

    def of(self, task: TaskId) -> RoutingDecision | None:
        return next((made for made in reversed(self._ring) if made.task == task), None)
