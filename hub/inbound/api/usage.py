"""The hub's own API for usage: what tasks have used of language models."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

from quart import Quart

from hub.core.hub import Hub
from hub.inbound.api.answers import Cost, UsageItem, UsageSum, UsageSums
from hub.inbound.api.operation import operation
from hub.inbound.api.requests import UsageFilter
from hub.inbound.middleware.authentication import caller, may
from rolecall.errors import InvalidParams, ListTooSlow
from rolecall.model.principal import Right
from rolecall.model.usage import Usage, UsageGroup, UsageQuery, amount_text

_FIRST_DAY = date(1970, 1, 1)


def add_usage(app: Quart, hub: Hub) -> None:
    @app.get("/registry/usage")
    @operation("What tasks have used of language models, in sums of days.", InvalidParams, ListTooSlow)
    async def usage(query: UsageFilter) -> UsageSums:
        return await _read_usage(hub, query)


def usage_items(usage: Sequence[Usage]) -> list[UsageItem]:
    return [
        UsageItem(
            model=one.model or None,
            input_tokens=one.input_tokens,
            output_tokens=one.output_tokens,
            cost=cost_item(one.nanos, one.currency) if one.currency else None,
        )
        for one in usage
    ]


def cost_item(nanos: int, currency: str) -> Cost:
    return Cost(amount=amount_text(nanos), currency=currency)


async def _read_usage(hub: Hub, query: UsageFilter) -> UsageSums:
    """Of the caller; for operators of everybody in their workspace, or of one holder."""
    own = caller(Right.OPERATE) if query.holder not in (None, caller().name) else caller()
    holder = own.name if query.holder is None and not may(Right.OPERATE) else query.holder
    since, until = (None if day is None else (day - _FIRST_DAY).days for day in (query.since, query.until))
    after = _read_cursor(query.cursor, len(query.by)) if query.cursor is not None else None
    wanted = UsageQuery(own.workspace, query.by, holder, query.role, since, until, query.limit + 1, after)
    groups = await hub.usage(wanted)
    shown = groups[: query.limit]
    more = len(groups) > len(shown)
    return UsageSums(sums=[_sum(query.by, group) for group in shown], next_cursor=_cursor(shown[-1].names) if more else None)


def _cursor(names: Sequence[str]) -> str:
    """Names have no line ends."""
    return urlsafe_b64encode("\n".join(names).encode()).decode()


def _read_cursor(cursor: str, count: int) -> tuple[str, ...]:
    try:
        names = tuple(urlsafe_b64decode(cursor).decode().split("\n"))
    except ValueError:
        names = ()
    if len(names) != count:
        raise InvalidParams("The cursor is not one that this hub issued for such a query. Start again without it.")
    return names


def _sum(by: Sequence[str], group: UsageGroup) -> UsageSum:
    names: dict[str, Any] = dict(zip(by, group.names, strict=True))
    if "day" in names:
        names["day"] = (_FIRST_DAY + timedelta(days=int(names["day"]))).isoformat()
    for name in ("holder", "model"):
        if name in names:
            names[name] = names[name] or None
    costs = [cost_item(nanos, currency) for currency, nanos in sorted(group.costs.items())]
    return UsageSum(input_tokens=group.input_tokens, output_tokens=group.output_tokens, costs=costs, **names)
