"""The targets of the project, and the verdict of a run on each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.bench.figures import Section, number

PLAIN_CALLS = "Plain calls, 32 connections"
BACK_TO_BACK = "100 streams of 20 events, back to back"
WITH_INTERVAL = "500 streams of 20 events, 100 ms apart"
Values = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Target:
    """`least`: the figure must be at least the target; otherwise at most."""

    what: str
    unit: str
    target: float
    better: float
    figure: Callable[[Values], float]
    least: bool = False


@dataclass(frozen=True, slots=True)
class Compared:
    target: Target
    figure: float

    @property
    def measured(self) -> bool:
        return not math.isnan(self.figure)

    @property
    def verdict(self) -> str:
        if not self.measured:
            return "not measured"
        if self._reaches(self.target.better):
            return "stretch"
        return "met" if self._reaches(self.target.target) else "missed"

    def _reaches(self, limit: float) -> bool:
        return self.figure >= limit if self.target.least else self.figure <= limit


def _value(values: Values, name: str) -> float:
    return values.get(name, math.nan)


def _to(case: str, proxy: str, other: str, figure: str) -> Callable[[Values], float]:
    return lambda values: _value(values, f"{case}/{proxy}/{figure}") / _value(values, f"{case}/{other}/{figure}")


def _plain(name: str) -> Callable[[Values], float]:
    return lambda values: _value(values, name)


TARGETS = (
    Target("CPU of a plain call, 32 connections, to nginx's", "×", 6, 3, _to(PLAIN_CALLS, "hub", "nginx", "cpu")),
    Target("plain calls/s, to an agent's on SDK 1.3.0", "×", 30, 60, _to(PLAIN_CALLS, "hub", "sdk-1.3", "rate"), least=True),
    Target(
        "CPU of a plain call on unpatched Hypercorn, to nginx's", "×", 18, 14, _to(PLAIN_CALLS, "hub-hypercorn", "nginx", "cpu")
    ),
    Target("CPU of a streamed event, back to back, to nginx's", "×", 4, 2.5, _to(BACK_TO_BACK, "hub", "nginx", "cpu")),
    Target("CPU of a streamed event, paced, to nginx's", "×", 4, 2.5, _to(WITH_INTERVAL, "hub", "nginx", "cpu")),
    Target("CPU of a streamed event, paced, to the floor's", "×", 1.8, 1.4, _to(WITH_INTERVAL, "hub", "floor", "cpu")),
    Target(
        "events/s of 100 streams, to an agent's on SDK 1.3.0",
        "×",
        25,
        60,
        _to(BACK_TO_BACK, "hub", "sdk-1.3", "rate"),
        least=True,
    ),
    Target("latency of a paced event, p50, to that through nginx", "×", 15, 6, _to(WITH_INTERVAL, "hub", "nginx", "p50")),
    Target("latency of a paced event, p99, to that through nginx", "×", 15, 6, _to(WITH_INTERVAL, "hub", "nginx", "p99")),
    Target("memory of a silent stream, 1,000 open", " KiB", 48, 32, _plain("stream memory hub")),
    Target(
        "CPU of a plain call, 10,000 workers in 1,000 roles, to 10",
        "×",
        1.1,
        1.0,
        _plain("growth 10,000 workers"),
    ),
    Target("CPU of a plain call, 1,000,000 tasks stored, to none", "×", 1.2, 1.0, _plain("growth 1,000,000 tasks")),
    Target("p99 of calls while 5,000 heartbeats come in a second, to before", "×", 2, 1.2, _plain("storm 32")),
    Target("longest that a sweep of 10,000 leases holds the loop", " ms", 20, 20, _plain("held 10,000 workers")),
    Target("longest that retention holds the loop", " ms", 20, 20, _plain("held retention")),
    Target("20 readers of the feed of tasks, 50 tasks a second, to none", " % of a core", 5, 2, _plain("feed readers")),
    Target("idle memory", " MB", 80, 60, _plain("idle memory hub")),
    Target("start to ready", " s", 1, 0.5, _plain("start hub")),
)


def compared(sections: Sequence[Section]) -> list[Compared]:
    values: dict[str, float] = {}
    for section in sections:
        values |= section.values
    return [Compared(target, target.figure(values)) for target in TARGETS]


def table_of_targets(found: Sequence[Compared]) -> list[list[str]]:
    return [["", "target", "stretch", "figure", ""], *(_cells(compared_target) for compared_target in found)]


def _cells(found: Compared) -> list[str]:
    target, sign = found.target, "≥" if found.target.least else "≤"
    limits = [f"{sign} {limit:g}{target.unit}" for limit in (target.target, target.better)]
    figure = f"{number(found.figure)}{target.unit}" if found.measured else "–"
    return [target.what, *limits, figure, found.verdict]
