"""Metrics: what is counted, under which names, and that callers cannot create series."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hub.core.observe import Figures, Observer, ShareUse, TokenLife
from hub.telemetry.metrics import FAMILIES, OTHER, PREFIX, UNKNOWN, Metrics
from rolecall.errors import WorkerLost
from rolecall.model.a2a import TaskState
from rolecall.model.ids import DOCTOR_ROLE, WorkerId
from rolecall.model.usage import Usage
from rolecall.model.worker import ChangeKind, Health, Offer, Registration, RegistryChange


def _worker(role: str, instance: str, *, capacity: int | None = None, health: Health = Health.READY) -> Registration:
    offer = Offer(WorkerId(role, instance), "http://127.0.0.1:1", capacity=capacity)
    return Registration("default", offer, 1, "boot", "secret", timedelta(seconds=120), health=health)


DAY = 86_400.0
FIGURES = Figures({"store": True, "disk": False}, 7_000, 5_000, 3, 2, 4, [TokenLife("t1", "anna", "default", 1.5 * DAY)])
NOTHING = Figures({}, None, None, None, None)


def _metrics(workers: Callable[[], Iterable[Registration]], shares: Callable[[], Iterable[ShareUse]] = tuple) -> Metrics:
    return Metrics(workers, shares, reason_of=lambda error: type(error).__name__)


def _samples(metrics: Metrics, figures: Figures = NOTHING) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(metrics.render(figures).decode())
    return {(s.name.removeprefix(PREFIX), frozenset(s.labels.items())): s.value for f in families for s in f.samples}


def _value(metrics: Metrics, name: str, figures: Figures = NOTHING, **labels: str) -> float | None:
    return _samples(metrics, figures).get((name, frozenset(labels.items())))


def _use_everything(observer: Observer, role: str = "echo") -> None:
    for kind in ChangeKind:
        observer.registry_changed(RegistryChange(1, kind, "default", WorkerId(role, "a"), 1, None, 0.0))
    observer.call_started(role, "message/send")
    observer.routed(role, "least-busy", "ok")
    observer.stream_opened(role)
    observer.first_event(role, 0.02)
    observer.events_logged(role, 3, 900)
    observer.used(role, [Usage("small", 100, 20, 5 * 10**8, "USD"), Usage("large", 1, 2, 25 * 10**7, "USD"), Usage("free", 3)])
    observer.worker_failed(role, "worker_lost")
    observer.failed_over(role)
    observer.dropped(role, "after-the-end", 2)
    observer.stream_closed(role)
    observer.call_ended(role, "message/send", "ok", 0.3)
    for outcome in ("failed", "delivered", "delivered", "dead"):
        observer.pushed(outcome)
    observer.push_caught_up(2.0)
    observer.file_bytes("in", 7)
    observer.file_bytes("out", 5)
    observer.file_bytes("out", 6)
    observer.connections(3)
    observer.refused("overloaded", "team")
    observer.refused("overloaded", "team")
    observer.refused("unauthenticated")
    observer.task_ended(role, TaskState.COMPLETED, None)
    observer.task_ended(role, TaskState.FAILED, WorkerLost())
    observer.certificate(time.time() + 3 * DAY)
    observer.loop_lag(0.004)


def test_a_call_is_counted_and_timed() -> None:
    metrics = _metrics(lambda: [])
    _use_everything(metrics)
    assert _value(metrics, "requests_total", role="echo", method="message/send", outcome="ok") == 1
    assert _value(metrics, "requests_active", role="echo", method="message/send") == 0
    assert _value(metrics, "streams_active", role="echo") == 0
    assert _value(metrics, "stream_events_total", role="echo") == 3
    assert _value(metrics, "stream_bytes_total", role="echo", direction="in") == 900
    assert _value(metrics, "usage_tokens_total", role="echo", direction="input") == 104
    assert _value(metrics, "usage_tokens_total", role="echo", direction="output") == 22
    assert _value(metrics, "usage_cost_total", role="echo", currency="USD") == 0.75
    assert [_value(metrics, "file_bytes_total", direction=way) for way in ("in", "out")] == [7, 11]
    assert _value(metrics, "dropped_events_total", role="echo", what="after-the-end") == 2
    assert _value(metrics, "lease_expirations_total", role="echo") == 1
    assert _value(metrics, "registrations_total", role="echo", outcome="withdrawn") == 1
    assert _value(metrics, "push_deliveries_total", outcome="delivered") == 2
    assert _value(metrics, "push_lag_seconds_sum") == 2.0
    assert _value(metrics, "connections_active") == 3
    assert _value(metrics, "refused_total", reason="overloaded", workspace="team") == 2
    assert _value(metrics, "refused_total", reason="unauthenticated", workspace="") == 1
    assert _value(metrics, "tasks_ended_total", role="echo", state="completed", reason="") == 1
    assert _value(metrics, "tasks_ended_total", role="echo", state="failed", reason="WorkerLost") == 1
    assert _value(metrics, "certificate_days_left") == pytest.approx(3, abs=0.01)
    assert _value(metrics, "event_loop_lag_seconds") == 0.004


def test_histograms_are_cumulative_and_complete() -> None:
    metrics = _metrics(lambda: [_worker("echo", "a")])
    for seconds in (0.3, 0.5, 1000.0):
        metrics.call_ended("echo", "m", "ok", seconds)
    labels = {"role": "echo", "method": "m"}
    name = "request_duration_seconds"
    assert _value(metrics, f"{name}_bucket", le="0.25", **labels) == 0
    assert _value(metrics, f"{name}_bucket", le="0.5", **labels) == 2
    assert _value(metrics, f"{name}_bucket", le="600.0", **labels) == 2
    assert _value(metrics, f"{name}_bucket", le="+Inf", **labels) == 3
    assert _value(metrics, f"{name}_count", **labels) == 3
    assert _value(metrics, f"{name}_sum", **labels) == 1000.8


def test_every_family_in_the_table_is_exposed_and_no_other() -> None:
    metrics = _metrics(lambda: [_worker("echo", "a", capacity=4)], lambda: [ShareUse("things", 4, 3, 2, 2, 1, 7)])
    _use_everything(metrics)
    exposed = set()
    for name, labels in _samples(metrics, FIGURES):
        family = FAMILIES.get(name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count"))
        if name.startswith("process_"):
            continue
        assert family is not None, name
        assert {label for label, _ in labels} - {"le"} == set(family.labels), name
        exposed.add(family.name)
    assert exposed == set(FAMILIES)
    assert all("instance" not in family.labels for family in FAMILIES.values())


def test_workers_that_invent_currencies_make_few_series() -> None:
    metrics = _metrics(lambda: [_worker("echo", "a")])
    for first in "ABCDEFGH":
        metrics.used("echo", [Usage("m", 0, 0, 10**9, f"{first}AA")])
        metrics.used("echo", [Usage("m", 0, 0, 10**9, "AAA")])
    costs = [(dict(labels), value) for (name, labels), value in _samples(metrics).items() if name == "usage_cost_total"]
    found = {labels["currency"]: value for labels, value in costs}
    assert found == {"AAA": 9.0, "BAA": 1.0, "CAA": 1.0, "DAA": 1.0, "EAA": 1.0, "_other": 3.0}


def test_the_use_of_what_is_scarce_is_read_at_each_scrape() -> None:
    uses = [ShareUse("things", 4, 3, 2, 2, 1, 7)]
    metrics = _metrics(lambda: [], lambda: uses)
    names = ("limit", "used", "largest", "workspaces", "waiting", "refused_total")
    assert [_value(metrics, f"share_{name}", thing="things") for name in names] == [4, 3, 2, 2, 1, 7]
    uses[0] = uses[0]._replace(used=0)
    assert _value(metrics, "share_used", thing="things") == 0


def test_figures_are_those_of_the_scrape() -> None:
    metrics = _metrics(lambda: [])
    assert _value(metrics, "ready", FIGURES, check="store") == 1
    assert _value(metrics, "ready", FIGURES, check="disk") == 0
    names = ("disk_free_bytes", "disk_reserve_bytes", "push_owed", "push_dead_letters")
    assert [_value(metrics, name, FIGURES) for name in names] == [7_000, 5_000, 3, 2]
    assert _value(metrics, "audit_lost_total", FIGURES) == 4
    assert _value(metrics, "token_days_left", FIGURES, token="t1", holder="anna", workspace="default") == 1.5
    shown = {name for name, _ in _samples(metrics)}  # now nothing of this is known
    assert not shown & {*names, "ready", "token_days_left", "certificate_days_left"}


def test_workspaces_make_few_series() -> None:
    metrics = _metrics(lambda: [])
    for number in range(150):
        metrics.refused("overloaded", f"w{number}")
        metrics.refused("overloaded", "w7")
    assert _value(metrics, "refused_total", reason="overloaded", workspace="w7") == 151
    assert _value(metrics, "refused_total", reason="overloaded", workspace=OTHER) == 50


def test_workers_are_read_at_each_scrape() -> None:
    live = [_worker("echo", "a", capacity=4), _worker("echo", "b", health=Health.DRAINING)]
    live[0].in_flight = 3
    metrics = _metrics(lambda: live)
    assert _value(metrics, "workers", role="echo", state="ready") == 1
    assert _value(metrics, "workers", role="echo", state="draining") == 1
    assert _value(metrics, "worker_load_ratio", role="echo", worker="echo:a") == 0.75
    live.clear()
    assert _value(metrics, "workers", role="echo", state="ready") == 0
    assert _value(metrics, "worker_load_ratio", role="echo", worker="echo:a") is None


def test_roles_invented_by_callers_share_one_series() -> None:
    metrics = _metrics(lambda: [_worker("echo", "a")])
    before = len(_samples(metrics))
    for number in range(1000):
        metrics.call_started(f"made-up-{number}", "message/send")
        metrics.routed(f"made-up-{number}", "path", "role-unknown")
        metrics.call_ended(f"made-up-{number}", "message/send", "role_unknown", 0.001)
    assert len(_samples(metrics)) < before + 30
    assert _value(metrics, "requests_total", role=UNKNOWN, method="message/send", outcome="role_unknown") == 1000


def test_a_role_from_before_a_restart_is_known_without_a_registry_change() -> None:
    metrics = _metrics(lambda: [_worker("echo", "a")])
    metrics.routed("echo", "pinned", "ok")
    assert _value(metrics, "route_decisions_total", role="echo", policy="pinned", result="ok") == 1


def test_a_role_that_enrols_during_a_call_makes_no_gauge_negative() -> None:
    metrics = _metrics(lambda: [])
    metrics.call_started("late", "m")
    metrics.stream_opened("late")
    metrics.registry_changed(RegistryChange(1, ChangeKind.ENROLLED, "default", WorkerId("late", "a"), 1, Health.READY, 0.0))
    metrics.call_ended("late", "m", "ok", 0.1)
    metrics.stream_closed("late")
    assert all(value >= 0 for (name, _), value in _samples(metrics).items() if name.endswith("_active"))
    assert _value(metrics, "requests_active", role=UNKNOWN, method="m") == 0


@pytest.mark.soak
def test_counting_a_call_costs_microseconds() -> None:
    metrics = _metrics(lambda: [_worker("echo", "a")])

    def measured() -> float:
        started = time.perf_counter()
        for _ in range(2000):
            metrics.call_started("echo", "m")
            metrics.routed("echo", "least-busy", "ok")
            metrics.first_event("echo", 0.01)
            metrics.events_logged("echo", 3, 900)
            metrics.call_ended("echo", "m", "ok", 0.02)
        return (time.perf_counter() - started) / 2000

    assert min(measured() for _ in range(5)) < 5e-6


def test_the_calls_of_the_doctor_are_not_shown() -> None:
    metrics = _metrics(lambda: [_worker(DOCTOR_ROLE, "x", capacity=1)])
    _use_everything(metrics, DOCTOR_ROLE)
    assert not [labels for _, labels in _samples(metrics) if "role" in dict(labels)]
    assert _value(metrics, "refused_total", reason="overloaded", workspace="team") == 2
