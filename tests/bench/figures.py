"""Arithmetic and tables: from samples to medians, spreads and ratios."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of load. `interval_us` 0: the worker writes its events back to back. `role`: the called role, in a hub.
    `without`: name prefixes of proxies that are left out. `beside`: the title of the case that it is compared with, proxy
    by proxy, instead of nginx and the agents.
    """

    title: str
    method: str
    connections: int
    events: int
    interval_us: int = 0
    seconds: float = 3.0
    role: str = "bench"
    without: tuple[str, ...] = ()
    beside: str = ""

    def is_skipped_for(self, proxy: str) -> bool:
        return proxy.startswith(self.without) if self.without else False

    @property
    def unit(self) -> str:
        return "call" if self.method == "send" else "event"


@dataclass(frozen=True, slots=True)
class Sample:
    """One round of one case with one proxy."""

    rate: float
    cpu_us: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Figure:
    """The median of all rounds, and their range."""

    median_value: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Figure:
        known = sorted(values)
        return cls(median(known), known[0], known[-1])

    @property
    def spread(self) -> float:
        """Half the range, as a share of the median."""
        return (self.highest - self.lowest) / 2 / self.median_value if self.median_value else 0.0


@dataclass(frozen=True, slots=True)
class Row:
    proxy: str
    rate: Figure
    cpu_us: Figure
    p50_ms: Figure
    p99_ms: Figure
    cpu_to: tuple[float, ...]
    """The ratio to each of the bases, in their order."""
    rate_to_peer: float

    def figures(self) -> list[tuple[str, Figure]]:
        return [("rate", self.rate), ("cpu", self.cpu_us), ("p50", self.p50_ms), ("p99", self.p99_ms)]


@dataclass(frozen=True, slots=True)
class Section:
    """One section of the page: its table, a note, and its figures by name."""

    title: str
    table: Sequence[Sequence[str]]
    note: str = ""
    values: Mapping[str, float] = field(default_factory=dict)
    problems: Sequence[str] = ()


Samples = dict[tuple[str, str], list[Sample]]


def rows(case: Case, samples: Samples, *, bases: Sequence[str], peer: str) -> list[Row]:
    """One row for each proxy. Ratios compare medians with the bases (in cost) and the peer (in rate) of the same run."""
    taken = {proxy: found for (title, proxy), found in samples.items() if title == case.title}
    rates = {proxy: Figure.of(s.rate for s in found) for proxy, found in taken.items()}
    costs = {proxy: Figure.of(s.cpu_us for s in found) for proxy, found in taken.items()}
    return [
        Row(
            proxy,
            rates[proxy],
            costs[proxy],
            Figure.of(s.p50_ms for s in found),
            Figure.of(s.p99_ms for s in found),
            tuple(_ratio(costs, proxy, base) for base in bases),
            _ratio(rates, proxy, peer),
        )
        for proxy, found in taken.items()
    ]


def cells(row: Row) -> list[str]:
    return [
        row.proxy,
        f"{number(row.rate.median_value)} ±{row.rate.spread:.0%}",
        f"{row.p50_ms.median_value:.2f}",
        f"{row.p99_ms.median_value:.1f}",
        f"{number(row.cpu_us.median_value)} ±{row.cpu_us.spread:.0%}",
        *(times(ratio) for ratio in row.cpu_to),
        times(row.rate_to_peer),
    ]


def text_table(lines: Sequence[Sequence[str]]) -> str:
    """A table for a terminal: the first column left-aligned, figures right-aligned."""
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def page_table(lines: Sequence[Sequence[str]]) -> str:
    head, *body = [f"| {' | '.join(line)} |" for line in lines]
    rule = "|" + "|".join(["---"] + ["---:"] * (len(lines[0]) - 1)) + "|"
    return "\n".join([head, rule, *body])


def table_of(case: Case, made: Sequence[Row], *, bases: Sequence[str], peer: str) -> list[list[str]]:
    unit = case.unit
    header = ["", f"{unit}s/s", "p50 ms", "p99 ms", f"CPU µs/{unit}", *(f"CPU to {base}" for base in bases), f"rate to {peer}"]
    return [header, *(cells(row) for row in made)]


def _ratio(figures: Mapping[str, Figure], proxy: str, base: str) -> float:
    """NaN if the base was not measured."""
    return (
        figures[proxy].median_value / figures[base].median_value if base in figures and figures[base].median_value else math.nan
    )


def times(ratio: float) -> str:
    return "–" if math.isnan(ratio) else f"{number(ratio)}×"


def number(value: float) -> str:
    """Three significant digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
