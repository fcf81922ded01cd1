"""The history keeps the newest decisions; of one task it returns the newest."""

from __future__ import annotations

from datetime import timedelta

from hub.core.routing.history import RoutingDecision, RoutingHistory
from hub.core.routing.router import Route
from rolecall.model.ids import TaskId, WorkerId
from rolecall.model.value import replace
from rolecall.model.worker import Offer, Registration


def route(instance: str, rule: str = "role", candidates: int = 3) -> Route:
    offer = Offer(WorkerId("a", instance), "http://w/")
    return Route(Registration("default", offer, 1, "b", "s", timedelta(seconds=60)), rule, candidates)


def test_a_decision_has_the_worker_the_rule_and_the_number_of_candidates() -> None:
    decisions = RoutingHistory()
    decisions.note(TaskId("t"), route("1"), 5.0)
    assert decisions.of(TaskId("t")) == RoutingDecision(TaskId("t"), WorkerId("a", "1"), "role", 3, 5.0, {})
    assert decisions.of(TaskId("other")) is None


def test_a_decision_has_the_reasons_why_failing_workers_were_passed_over_of_ten_at_most() -> None:
    decisions = RoutingHistory()
    failing = [route(str(number)).registration for number in range(12)]
    for number, registration in enumerate(failing):
        registration.reason = f"reason {number}"
    decisions.note(TaskId("t"), replace(route("x"), failing=failing), 5.0)
    found = decisions.of(TaskId("t"))
    assert found is not None
    assert found.failing == {f"a:{number}": f"reason {number}" for number in range(10)}


def test_of_two_for_one_task_the_last_counts() -> None:
    decisions = RoutingHistory()
    decisions.note(TaskId("t"), route("1"), 5.0)
    decisions.note(TaskId("t"), route("2", "owner"), 6.0)
    found = decisions.of(TaskId("t"))
    assert found is not None
    assert (found.worker.instance, found.rule, found.at) == ("2", "owner", 6.0)


def test_the_oldest_decision_is_dropped_when_the_history_is_full() -> None:
    decisions = RoutingHistory()
    for number in range(2_001):
        decisions.note(TaskId(str(number)), route("1"), 0.0)
    assert decisions.of(TaskId("0")) is None
    assert decisions.of(TaskId("1")) is not None
    assert decisions.of(TaskId("2000")) is not None
