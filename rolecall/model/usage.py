"""What tasks have used of language models, and what a call may use with all that it starts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from rolecall.model.value import Value, replace

if TYPE_CHECKING:
    from rolecall.model.a2a import JsonObject
    from rolecall.model.ids import TaskId

Amount: TypeAlias = int | float | str | Decimal

DAY = 86_400
"""Seconds. Sums are kept by days of UTC."""
NANOS = 10**9
"""A cost is counted in billionths of its currency: one token may cost less than a millionth."""
MOST_TOKENS = 10**12
MOST_NANOS = 10**18
"""Of one report, or of a budget."""
MOST_SUMMED = 8 * 10**18
"""Where sums stop: with one report more they are still 64-bit numbers."""
LONGEST_MODEL = 128
MAX_REPORTS = 100
"""In one event."""
MAX_SUMS = 32
"""So many models and currencies are told apart, of a task and of a day."""
_AMOUNT = re.compile(r"[0-9]{1,10}(\.[0-9]{1,18})?")
_CURRENCY = re.compile("[A-Z]{3}")
_MEMBERS = ("model", "inputTokens", "outputTokens", "cost")


class Usage(Value, frozen=True):
    """A report, or the sum of several. `nanos`: the cost in billionths of `currency`. An empty text: not known."""

    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    nanos: int = 0
    currency: str = ""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def cost(self) -> Decimal:
        return Decimal(amount_text(self.nanos))

    @property
    def key(self) -> tuple[str, str]:
        """What is summed apart from others."""
        return self.model, self.currency

    def document(self) -> JsonObject:
        """As a report."""
        document: JsonObject = {"model": self.model} if self.model else {}
        document |= {"inputTokens": self.input_tokens, "outputTokens": self.output_tokens}
        return document | ({"cost": cost_document(self.nanos, self.currency)} if self.currency else {})


class Reports(Value, frozen=True):
    """What one event reports. `malformed`: how many reports were none."""

    usage: tuple[Usage, ...]
    malformed: int = 0


class Budget(Value, frozen=True):
    """What a task may use with all that it starts. None: any number. A cost in another currency does not count."""

    tokens: int | None = None
    nanos: int | None = None
    currency: str = ""

    def document(self) -> JsonObject:
        document: JsonObject = {} if self.tokens is None else {"tokens": self.tokens}
        return document | ({} if self.nanos is None else {"cost": cost_document(self.nanos, self.currency)})


class Spending(Value, frozen=True):
    """What has been spent of the budget that `task` was called with."""

    task: TaskId
    budget: Budget
    tokens: int = 0
    nanos: int = 0

    def plus(self, usage: Usage) -> Spending:
        """Costs in other currencies do not count."""
        nanos = usage.nanos if usage.currency == self.budget.currency else 0
        return replace(self, tokens=min(self.tokens + usage.tokens, MOST_SUMMED), nanos=min(self.nanos + nanos, MOST_SUMMED))

    @property
    def spent(self) -> tuple[str, ...]:
        """What there is no more of, in words: `12 of 10 tokens`."""
        budget, found = self.budget, list[str]()
        if budget.nanos is not None and self.nanos >= budget.nanos:
            found.append(f"{amount_text(self.nanos)} of {amount_text(budget.nanos)} {budget.currency}")
        if budget.tokens is not None and self.tokens >= budget.tokens:
            found.append(f"{self.tokens} of {budget.tokens} tokens")
        return tuple(found)

    @property
    def figures(self) -> dict[str, str]:
        """Of what the budget bounds."""
        budget, found = self.budget, dict[str, str]()
        if budget.nanos is not None:
            found |= {
                "spentCost": amount_text(self.nanos),
                "budgetCost": amount_text(budget.nanos),
                "currency": budget.currency,
            }
        if budget.tokens is not None:
            found |= {"spentTokens": str(self.tokens), "budgetTokens": str(budget.tokens)}
        return found


class UsageQuery(Value, frozen=True):
    """Sums of a workspace's days, each a number of days since 1970 in UTC, both inclusive. `by`: what is told apart: role,
    holder, model, day. `after`: the names of the last group of the page before.
    """

    workspace: str
    by: tuple[str, ...]
    holder: str | None = None
    role: str | None = None
    since: int | None = None
    until: int | None = None
    limit: int = 100
    after: tuple[str, ...] | None = None


class UsageGroup(Value, frozen=True):
    """`names`: one for each of what is told apart. `costs`: in billionths, by currency."""

    names: tuple[str, ...]
    input_tokens: int
    output_tokens: int
    costs: Mapping[str, int]


# --- sums


class UsageSums:
    """Adds reports up, by model and currency."""

    def __init__(self, usage: Iterable[Usage] = ()) -> None:
        self._sums: dict[tuple[str, str], Usage] = {}
        for one in usage:
            self.add(one)

    def __len__(self) -> int:
        return len(self._sums)

    def add(self, usage: Usage) -> None:
        kept = kept_as(usage, self._sums)
        self._sums[kept.key] = plus(self._sums.get(kept.key, Usage(kept.model, currency=kept.currency)), kept)

    @property
    def sums(self) -> tuple[Usage, ...]:
        return tuple(self._sums.values())

    def documents(self) -> list[JsonObject]:
        return [usage.document() for usage in self._sums.values()]


def kept_as(usage: Usage, known: Collection[tuple[str, str]]) -> Usage:
    """The usage as it is summed beside `known`, whose number has a bound: then without its model; then without its cost."""
    if usage.key in known or len(known) < MAX_SUMS:
        return usage
    if ("", usage.currency) in known or len(known) < 2 * MAX_SUMS:
        return replace(usage, model="")
    return replace(usage, model="", nanos=0, currency="")


def plus(known: Usage, more: Usage) -> Usage:
    """Of the same model and currency."""
    return replace(
        known,
        input_tokens=min(known.input_tokens + more.input_tokens, MOST_SUMMED),
        output_tokens=min(known.output_tokens + more.output_tokens, MOST_SUMMED),
        nanos=min(known.nanos + more.nanos, MOST_SUMMED),
    )


def beyond(seen: Iterable[Usage], known: Iterable[Usage]) -> tuple[Usage, ...]:
    """What the sums `seen` have more than the sums `known`; never less than nothing."""
    before, found = {usage.key: usage for usage in known}, list[Usage]()
    for usage in UsageSums(seen).sums:
        old = before.get(usage.key, Usage())
        rest = Usage(
            usage.model,
            max(0, usage.input_tokens - old.input_tokens),
            max(0, usage.output_tokens - old.output_tokens),
            max(0, usage.nanos - old.nanos),
            usage.currency,
        )
        if rest.tokens or rest.nanos:
            found.append(rest)
    return tuple(found)


# --- documents


def read_reports(value: Any) -> Reports:
    """One report, or a list of them. What is none is counted and left out."""
    entries: Sequence[Any] = value if isinstance(value, list) else [value]
    if len(entries) > MAX_REPORTS:
        return Reports((), 1)
    found = list[Usage]()
    for entry in entries:
        try:
            found.append(_read_report(entry))
        except ValueError:
            continue
    return Reports(tuple(found), len(entries) - len(found))


def _read_report(entry: Any) -> Usage:
    """Other members than those that are known are ignored. ValueError."""
    if not isinstance(entry, dict) or all(entry.get(name) is None for name in _MEMBERS):
        raise ValueError("a report is an object with a model, tokens or a cost")
    model, tokens_in, tokens_out, cost = (entry.get(name) for name in _MEMBERS)
    nanos, currency = (0, "") if cost is None else read_cost(cost)
    return Usage(
        "" if model is None else read_model(model),
        0 if tokens_in is None else read_tokens(tokens_in),
        0 if tokens_out is None else read_tokens(tokens_out),
        nanos,
        currency,
    )


def read_model(value: Any) -> str:
    """ValueError."""
    if not isinstance(value, str) or len(value) > LONGEST_MODEL or not value.isprintable():
        raise ValueError(f"a model is a text of at most {LONGEST_MODEL} printable characters")
    return value


def read_tokens(value: Any) -> int:
    """Where metadata were in Protocol Buffers, whole numbers come as floats. ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_TOKENS or value % 1:
        raise ValueError(f"a number of tokens is a whole number from 0 to {MOST_TOKENS}")
    return int(value)


def read_cost(value: Any) -> tuple[int, str]:
    """In billionths, and the currency. ValueError."""
    if not isinstance(value, Mapping):
        raise ValueError("a cost is an object with amount and currency")
    return nanos_of(value.get("amount")), read_currency(value.get("currency"))


def read_currency(value: Any) -> str:
    """ValueError."""
    if not isinstance(value, str) or not _CURRENCY.fullmatch(value):
        raise ValueError("a currency is a code of three capital letters, such as USD")
    return value


def nanos_of(amount: Any) -> int:
    """The amount, rounded to billionths. ValueError."""
    if isinstance(amount, str):
        known = _AMOUNT.fullmatch(amount) is not None
    elif isinstance(amount, Decimal) and amount.is_nan():
        known = False
    else:
        known = isinstance(amount, int | float | Decimal) and not isinstance(amount, bool) and 0 <= amount <= MOST_NANOS
    if not known or (nanos := _rounded(amount)) > MOST_NANOS:
        raise ValueError(f"an amount is a decimal number from 0 to {MOST_NANOS // NANOS}")
    return nanos


def _rounded(amount: Amount) -> int:
    exact = Decimal(repr(amount)) if isinstance(amount, float) else Decimal(amount)
    return int(exact.scaleb(9).to_integral_value(ROUND_HALF_UP))


def amount_text(nanos: int) -> str:
    """The amount as a decimal number, without zeros at its end."""
    whole, rest = divmod(nanos, NANOS)
    return f"{whole}.{rest:09}".rstrip("0").rstrip(".")


def cost_document(nanos: int, currency: str) -> JsonObject:
    return {"amount": amount_text(nanos), "currency": currency}
