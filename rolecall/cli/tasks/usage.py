"""What tasks have used of language models, as people read it."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from rolecall.model.a2a import JsonObject

FIGURES = ("TOKENS", "COST")


def figures_of(usage: Sequence[JsonObject]) -> tuple[str, str]:
    """The cells of `FIGURES`."""
    return str(_tokens(usage)) if usage else "—", _costs(usage) or "—"


def used_in_words(usage: Sequence[JsonObject]) -> str:
    """`1280 tokens, 0.54 USD`; empty if nothing was used."""
    return ", ".join(part for part in (f"{_tokens(usage)} tokens" if usage else "", _costs(usage)) if part)


def _tokens(usage: Sequence[JsonObject]) -> int:
    return sum(one["input_tokens"] + one["output_tokens"] for one in usage)


def _costs(usage: Sequence[JsonObject]) -> str:
    sums: dict[str, Decimal] = {}
    for cost in (one["cost"] for one in usage if one["cost"]):
        sums[cost["currency"]] = sums.get(cost["currency"], Decimal(0)) + Decimal(cost["amount"])
    return ", ".join(f"{amount:f} {currency}" for currency, amount in sorted(sums.items()))
