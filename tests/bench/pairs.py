"""Two hubs in the same rounds, and beside some of them the floor: the figures, their ratios, the spread, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TypeVar

from tests.bench.figures import Figure, number, times

BEFORE, NOW = "before", "now"
_Each = TypeVar("_Each")


@dataclass(frozen=True, slots=True)
class Pair:
    """One row. Every row is a cost: less is better."""

    row: str
    before: Figure
    now: Figure
    ratio: float
    """Now to before: the median of the ratios within each round."""
    rounds: int
    floor: Figure | None = None
    to_floor: float = math.nan
    """Now to the floor: the median of the ratios within each round."""

    @classmethod
    def of(cls, row: str, before: Sequence[float], now: Sequence[float], floor: Sequence[float] = ()) -> Pair:
        """The values of both hubs, round by round, and those of the floor where it ran."""
        found = cls(row, Figure.of(before), Figure.of(now), _ratio(before, now), len(now))
        return replace(found, floor=Figure.of(floor), to_floor=_ratio(floor, now)) if floor else found

    @property
    def spread(self) -> float:
        """Half the range of one hub's rounds, as a share of their median: the larger of the two hubs."""
        return max(self.before.spread, self.now.spread)

    def is_worse(self, limit: float) -> bool:
        """The ratio exceeds the limit by more than the spread."""
        return self.ratio > limit + self.spread


def in_order(turn: int, proxies: Sequence[_Each]) -> list[_Each]:
    """The order changes from round to round. Rounds count from 1."""
    return list(proxies) if turn % 2 else list(reversed(proxies))


def table_of_pairs(pairs: Sequence[Pair]) -> list[list[str]]:
    return [["row", BEFORE, NOW, "ratio", "spread", "floor", f"{NOW}/floor"], *(_cells(pair) for pair in pairs)]


def _cells(pair: Pair) -> list[str]:
    spread = "–" if pair.rounds == 1 else f"±{pair.spread:.0%}"
    floor = number(pair.floor.median_value) if pair.floor else "–"
    both = [number(figure.median_value) for figure in (pair.before, pair.now)]
    return [pair.row, *both, f"{pair.ratio:.2f}×", spread, floor, times(pair.to_floor)]


def _ratio(base: Sequence[float], now: Sequence[float]) -> float:
    """The median of the ratios within each round: what slows the machine during a round slows both."""
    return median(later / earlier if earlier else math.nan for earlier, later in zip(base, now, strict=True))
