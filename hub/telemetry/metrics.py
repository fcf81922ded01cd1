"""Metrics for Prometheus. Observer calls only add to plain numbers; metric families are built at each scrape.

Everything runs on the event loop's thread, so there is no lock, and a call costs a few dictionary updates.
"""

from __future__ import annotations

import platform
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from hub.core.observe import Figures, ShareUse
from rolecall import __version__
from rolecall.build import build
from rolecall.errors import HubError
from rolecall.model.a2a import TaskState
from rolecall.model.ids import DOCTOR_ROLE
from rolecall.model.task import COUNTED
from rolecall.model.usage import NANOS, Usage
from rolecall.model.worker import ChangeKind, Registration, RegistryChange

CONTENT_TYPE = CONTENT_TYPE_LATEST
PREFIX = "a2a_hub_"
UNKNOWN = "_unknown"
OTHER = "_other"
_ROLE_LIMIT = 1000
_WORKSPACE_LIMIT = 100
_CURRENCY_LIMIT = 5
_WORKER_LIMIT = 200
_DAY = 86_400.0
_Value = TypeVar("_Value")
_CALL_BOUNDS = (0.005, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_FIRST_EVENT_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Family(NamedTuple):
    """One exposed metric. `name` is without the prefix."""

    name: str
    kind: str
    labels: tuple[str, ...]
    about: str


FAMILIES = {
    family.name: family
    for family in (
        Family("build_info", "gauge", ("version", "build", "python", "quart"), "Versions of the running hub; always 1."),
        Family("workers", "gauge", ("role", "state"), "Live workers."),
        Family(
            "worker_load_ratio",
            "gauge",
            ("role", "worker"),
            f"Calls under way divided by capacity; the first {_WORKER_LIMIT} workers.",
        ),
        Family(
            "registrations_total", "counter", ("role", "outcome"), "Changes of the registry: enrolled, changed, draining, …"
        ),
        Family("share_limit", "gauge", ("thing",), "How much there is of a scarce thing."),
        Family("share_used", "gauge", ("thing",), "How much of it is in use."),
        Family("share_largest", "gauge", ("thing",), "How much of it the workspace uses that uses most."),
        Family("share_workspaces", "gauge", ("thing",), "How many workspaces use it."),
        Family("share_waiting", "gauge", ("thing",), "How many wait for it: requests, or workspaces that were refused lately."),
        Family("share_refused_total", "counter", ("thing",), "How often a workspace was refused it."),
        Family("lease_expirations_total", "counter", ("role",), "Leases that expired without a withdrawal."),
        Family(
            "requests_total", "counter", ("role", "method", "outcome"), "Calls that ended; outcome is ok or an error's reason."
        ),
        Family(
            "tasks_ended_total",
            "counter",
            ("role", "state", "reason"),
            "Tasks that ended; reason is that of the hub's error, and empty if the worker or the caller ended it.",
        ),
        Family("requests_active", "gauge", ("role", "method"), "Calls under way."),
        Family("request_duration_seconds", "histogram", ("role", "method"), "From a call's arrival to its end."),
        Family("time_to_first_event_seconds", "histogram", ("role",), "From a call's arrival to its first event."),
        Family("streams_active", "gauge", ("role",), "Readers of live streams."),
        Family("stream_events_total", "counter", ("role",), "Events logged."),
        Family("stream_bytes_total", "counter", ("role", "direction"), "Bytes of events; direction is in (from workers)."),
        Family(
            "usage_tokens_total", "counter", ("role", "direction"), "Tokens that workers report; direction is input or output."
        ),
        Family(
            "usage_cost_total",
            "counter",
            ("role", "currency"),
            f"Costs that workers report, in the first {_CURRENCY_LIMIT} currencies; all others are {OTHER}.",
        ),
        Family("file_bytes_total", "counter", ("direction",), "Bytes of files; direction is in (uploaded) or out (read)."),
        Family("route_decisions_total", "counter", ("role", "policy", "result"), "How a worker was chosen, or why none was."),
        Family("upstream_errors_total", "counter", ("role", "reason"), "Calls to workers that failed."),
        Family(
            "failovers_total",
            "counter",
            ("role",),
            "Calls that were sent to another worker because the first had not processed them.",
        ),
        Family("dropped_events_total", "counter", ("role", "what"), "Events of workers that were not logged."),
        Family(
            "push_deliveries_total",
            "counter",
            ("outcome",),
            "Attempts to deliver events to a webhook: delivered, failed (will be retried), dead (given up).",
        ),
        Family("push_lag_seconds", "histogram", (), "From the first event that a receiver lacks until it has them all."),
        Family("push_owed", "gauge", (), f"Receivers of webhooks that lack events; {COUNTED} at most."),
        Family("push_dead_letters", "gauge", (), f"Events that were given up and not delivered since; {COUNTED} at most."),
        Family("connections_active", "gauge", (), "Open connections. Only the hub's own server counts them."),
        Family(
            "refused_total",
            "counter",
            ("reason", "workspace"),
            "Requests and connections that were refused before they became calls: no token, too large, overloaded, … The "
            f"workspace is the caller's, and empty if it is not known; all after the first {_WORKSPACE_LIMIT} are {OTHER}.",
        ),
        Family("ready", "gauge", ("check",), "1 if the check of /readyz is passed, else 0."),
        Family("disk_free_bytes", "gauge", (), "Bytes that are free on the disk of the data folder."),
        Family("disk_reserve_bytes", "gauge", (), "Bytes of it that are kept free (ROLECALL_DISK_RESERVE)."),
        Family("certificate_days_left", "gauge", (), "Days until the certificate that the hub's own server shows has ended."),
        Family(
            "token_days_left", "gauge", ("token", "holder", "workspace"), "Days until a token ends, of those that end first."
        ),
        Family("audit_lost_total", "counter", (), "Entries that could not be written to the audit log."),
        Family("event_loop_lag_seconds", "gauge", (), "Delay of the event loop when it was last measured."),
    )
}


class _Histogram:
    """Counts per bucket, not cumulative, then the count above all bounds, then the sum."""

    __slots__ = ("bounds", "values")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.values: dict[tuple[str, ...], list[float]] = {}

    def observe(self, key: tuple[str, ...], seconds: float) -> None:
        counts = self.values.get(key)
        if counts is None:
            counts = self.values[key] = [0.0] * (len(self.bounds) + 2)
        counts[bisect_left(self.bounds, seconds)] += 1
        counts[-1] += seconds


class Metrics:
    """An Observer that counts. `workers` returns the live registrations, `shares` the use of what is scarce, `reason_of` the
    reason of an error, of which there are few.
    """

    def __init__(
        self,
        workers: Callable[[], Iterable[Registration]],
        shares: Callable[[], Iterable[ShareUse]] = tuple,
        *,
        reason_of: Callable[[HubError], str],
    ) -> None:
        self._workers = workers
        self._shares = shares
        self._reason_of = reason_of
        self._certificate_ends: float | None = None
        self._workspaces: set[str] = set()
        self._roles: set[str] = set()
        self._currencies: set[str] = set()
        self._roles_read_at = -1.0
        self._lag = 0.0
        self._counts: dict[str, defaultdict[tuple[str, ...], float]] = {
            name: defaultdict(float) for name, family in FAMILIES.items() if family.kind != "histogram"
        }
        self._requests = self._counts["requests_total"]
        self._ended = self._counts["tasks_ended_total"]
        self._active = self._counts["requests_active"]
        self._events = self._counts["stream_events_total"]
        self._bytes = self._counts["stream_bytes_total"]
        self._streams = self._counts["streams_active"]
        self._routes = self._counts["route_decisions_total"]
        self._durations = _Histogram(_CALL_BOUNDS)
        self._first = _Histogram(_FIRST_EVENT_BOUNDS)
        self._push_lag = _Histogram(_CALL_BOUNDS)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Scrape(self._families))
        ProcessCollector(namespace="a2a_hub", registry=self._registry)

    def render(self, figures: Figures) -> bytes:
        self._show(figures)
        return generate_latest(self._registry)

    # --- Observer

    def registry_changed(self, change: RegistryChange) -> None:
        if len(self._roles) < _ROLE_LIMIT:
            self._roles.add(change.worker.role)
        role = self._known(change.worker.role)
        self._counts["registrations_total"][role, change.kind.value] += 1
        if change.kind is ChangeKind.EXPIRED:
            self._counts["lease_expirations_total"][(role,)] += 1

    def call_started(self, role: str, method: str) -> None:
        self._active[role if role in self._roles else self._known(role), method] += 1

    def call_ended(self, role: str, method: str, outcome: str, seconds: float) -> None:
        if role not in self._roles:
            role = self._known(role)
        call = role, method
        _take_one(self._active, call, (UNKNOWN, method))
        self._requests[role, method, outcome] += 1
        self._durations.observe(call, seconds)

    def first_event(self, role: str, seconds: float) -> None:
        self._first.observe((role if role in self._roles else self._known(role),), seconds)

    def events_logged(self, role: str, count: int, size: int) -> None:
        if role not in self._roles:
            role = self._known(role)
        self._events[(role,)] += count
        self._bytes[role, "in"] += size

    def used(self, role: str, usage: Sequence[Usage]) -> None:
        role = self._known(role)
        for one in usage:
            self._counts["usage_tokens_total"][role, "input"] += one.input_tokens
            self._counts["usage_tokens_total"][role, "output"] += one.output_tokens
            if one.currency:
                if len(self._currencies) < _CURRENCY_LIMIT:
                    self._currencies.add(one.currency)
                currency = one.currency if one.currency in self._currencies else OTHER
                self._counts["usage_cost_total"][role, currency] += one.nanos / NANOS

    def stream_opened(self, role: str) -> None:
        self._streams[(self._known(role),)] += 1

    def stream_closed(self, role: str) -> None:
        _take_one(self._streams, (self._known(role),), (UNKNOWN,))

    def routed(self, role: str, rule: str, result: str) -> None:
        self._routes[role if role in self._roles else self._known(role), rule, result] += 1

    def worker_failed(self, role: str, reason: str) -> None:
        self._counts["upstream_errors_total"][self._known(role), reason] += 1

    def failed_over(self, role: str) -> None:
        self._counts["failovers_total"][(self._known(role),)] += 1

    def task_ended(self, role: str, state: TaskState, error: HubError | None) -> None:
        if role not in self._roles:
            role = self._known(role)
        self._ended[role, state, "" if error is None else self._reason_of(error)] += 1

    def dropped(self, role: str, what: str, count: int) -> None:
        self._counts["dropped_events_total"][self._known(role), what] += count

    def pushed(self, outcome: str) -> None:
        self._counts["push_deliveries_total"][(outcome,)] += 1

    def push_caught_up(self, seconds: float) -> None:
        self._push_lag.observe((), seconds)

    def file_bytes(self, direction: str, size: int) -> None:
        self._counts["file_bytes_total"][(direction,)] += size

    def connections(self, count: int) -> None:
        self._counts["connections_active"][()] = count

    def refused(self, reason: str, workspace: str = "") -> None:
        if workspace and workspace not in self._workspaces:
            if len(self._workspaces) < _WORKSPACE_LIMIT:
                self._workspaces.add(workspace)
            else:
                workspace = OTHER
        self._counts["refused_total"][reason, workspace] += 1

    def certificate(self, not_after: float) -> None:
        self._certificate_ends = not_after

    def loop_lag(self, seconds: float) -> None:
        self._lag = seconds

    # --- scrape

    def _known(self, role: str) -> str:
        """Names invented by callers share one series. Roles from before a restart are looked up, at most once a second."""
        if role in self._roles:
            return role
        now = time.monotonic()
        if now - self._roles_read_at >= 1 or self._roles_read_at < 0:
            self._roles_read_at = now
            self._learn(self._workers())
        return role if role in self._roles else UNKNOWN

    def _learn(self, workers: Iterable[Registration]) -> None:
        for registration in workers:
            if len(self._roles) >= _ROLE_LIMIT:
                return
            self._roles.add(registration.worker.role)

    def _families(self) -> Iterator[Metric]:
        self._count_workers()
        self._count_shares()
        self._counts["event_loop_lag_seconds"][()] = self._lag
        yield InfoMetricFamily(f"{PREFIX}build", FAMILIES["build_info"].about, _build())
        for name, values in self._counts.items():
            if name != "build_info":
                yield _simple(FAMILIES[name], values)
        yield _histogram(FAMILIES["request_duration_seconds"], self._durations)
        yield _histogram(FAMILIES["time_to_first_event_seconds"], self._first)
        yield _histogram(FAMILIES["push_lag_seconds"], self._push_lag)

    def _show(self, figures: Figures) -> None:
        now: dict[str, dict[tuple[str, ...], float | None]] = {
            "ready": {(name,): holds for name, holds in figures.checks.items()},
            "disk_free_bytes": {(): figures.disk_free},
            "disk_reserve_bytes": {(): figures.disk_reserve},
            "push_owed": {(): figures.owed},
            "push_dead_letters": {(): figures.dead_letters},
            "audit_lost_total": {(): figures.audit_lost},
            "token_days_left": {(one.id, one.holder, one.workspace): one.left / _DAY for one in figures.tokens},
            "certificate_days_left": {
                (): None if self._certificate_ends is None else (self._certificate_ends - time.time()) / _DAY
            },
        }
        for name, values in now.items():
            self._counts[name].clear()
            self._counts[name].update({labels: value for labels, value in values.items() if value is not None})

    def _count_shares(self) -> None:
        for use in self._shares():
            for name, value in use._asdict().items():
                if name != "thing":
                    self._counts["share_refused_total" if name == "refused" else f"share_{name}"][(use.thing,)] = value

    def _count_workers(self) -> None:
        workers = tuple(self._workers())
        self._learn(workers)
        states, loads = self._counts["workers"], self._counts["worker_load_ratio"]
        states.update(dict.fromkeys(states, 0.0))
        loads.clear()
        for registration in workers:
            role = self._known(registration.worker.role)
            states[role, registration.health.value] += 1
            if registration.offer.capacity and role != UNKNOWN and len(loads) < _WORKER_LIMIT:
                loads[role, str(registration.worker)] = registration.load / registration.offer.capacity


class _Scrape(Collector):
    def __init__(self, families: Callable[[], Iterator[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return self._families()


def _take_one(gauge: defaultdict[tuple[str, ...], float], key: tuple[str, ...], unknown: tuple[str, ...]) -> None:
    """Subtract one where it was added: under `unknown`, if the role has enrolled in between."""
    gauge[key if gauge[key] > 0 else unknown] -= 1


def _simple(family: Family, values: dict[tuple[str, ...], float]) -> Metric:
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = kind(PREFIX + family.name, family.about, labels=family.labels)
    for labels, value in _shown(family, values):
        metric.add_metric(labels, value)
    return metric


def _histogram(family: Family, histogram: _Histogram) -> Metric:
    metric = HistogramMetricFamily(PREFIX + family.name, family.about, labels=family.labels)
    for labels, (*counts, total) in _shown(family, histogram.values):
        running, buckets = 0.0, []
        for bound, count in zip((*map(str, histogram.bounds), "+Inf"), counts, strict=True):
            running += count
            buckets.append((bound, running))
        metric.add_metric(labels, buckets, total)
    return metric


def _shown(family: Family, values: Mapping[tuple[str, ...], _Value]) -> Sequence[tuple[tuple[str, ...], _Value]]:
    """Without the calls of `rolecall doctor`."""
    by_role = family.labels[:1] == ("role",)
    return [(labels, value) for labels, value in values.items() if not by_role or labels[0] != DOCTOR_ROLE]


def _build() -> dict[str, str]:
    try:
        quart = version("quart")
    except PackageNotFoundError:
        quart = "none"
    return {"version": __version__, "build": build(), "python": platform.python_version(), "quart": quart}
