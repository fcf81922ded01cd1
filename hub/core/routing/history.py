"""Keeps the newest routing decisions: which worker got a task, and why."""

from __future__ import annotations

from collections import deque

from hub.core.routing.router import Route
from rolecall.model.ids import TaskId, WorkerId
from rolecall.model.value import Value

_LIMIT = 2_000
_SHOWN = 10
_NONE: dict[str, str] = {}


class RoutingDecision(Value, frozen=True):
    task: TaskId
    worker: WorkerId
    rule: str
    candidates: int
    at: float
    failing: dict[str, str]
    """Workers that were passed over because calls to them fail, and the reasons; not more than ten."""


class RoutingHistory:
    """Drops the oldest decision when it is full."""

    def __init__(self) -> None:
        self._ring: deque[RoutingDecision] = deque(maxlen=_LIMIT)

    def note(self, task: TaskId, route: Route, at: float) -> None:
        failing = {str(passed.worker): passed.reason for passed in route.failing[:_SHOWN]} if route.failing else _NONE
        self._ring.append(RoutingDecision(task, route.registration.worker, route.rule, route.candidates, at, failing))

    def of(self, task: TaskId) -> RoutingDecision | None:
        return next((decision for decision in reversed(self._ring) if decision.task == task), None)
