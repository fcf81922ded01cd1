"""Two hubs in the same rounds: the figures of both, their ratio, the spread of rounds, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from tests.bench.figures import Figure, number

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

    @classmethod
    def of(cls, row: str, before: Sequence[float], now: Sequence[float]) -> Pair:
        """The values of both hubs, round by round."""
        ratios = [later / earlier if earlier else math.nan for earlier, later in zip(before, now, strict=True)]
        return cls(row, Figure.of(before), Figure.of(now), median(ratios), len(ratios))

    @property
    def spread(self) -> float:
        """Half the range of one hub's rounds, as a share of their median: the larger of the two hubs."""
        return max(self.before.spread, self.now.spread)

    def is_worse(self, limit: float) -> bool:
        """The ratio exceeds the limit by more than the spread."""
        return self.ratio > limit + self.spread


def in_order(turn: int, both: Sequence[_Each]) -> list[_Each]:
    """The order changes from round to round. Rounds count from 1."""
    return list(both) if turn % 2 else list(reversed(both))


def table_of_pairs(pairs: Sequence[Pair]) -> list[list[str]]:
    return [["row", BEFORE, NOW, "ratio", "spread"], *(_cells(pair) for pair in pairs)]


def _cells(pair: Pair) -> list[str]:
    spread = "–" if pair.rounds == 1 else f"±{pair.spread:.0%}"
    return [pair.row, number(pair.before.median_value), number(pair.now.median_value), f"{pair.ratio:.2f}×", spread]
