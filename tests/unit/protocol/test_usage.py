"""Reports of usage: what is one, what becomes of it in a log, and the sums in a task."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.errors import InvalidParams
from rolecall.model.a2a import Logged, WorkerEvent
from rolecall.model.card import USAGE_EXTENSION
from rolecall.model.command import Target
from rolecall.model.ids import Cursor, TaskId
from rolecall.model.usage import (
    LONGEST_MODEL,
    MAX_REPORTS,
    MOST_NANOS,
    MOST_TOKENS,
    Budget,
    Spending,
    Usage,
    UsageSums,
    amount_text,
    beyond,
    nanos_of,
    read_reports,
)
from rolecall.protocol.dialects import DIALECTS
from rolecall.protocol.text.jsontext import parse
from tests.unit.protocol.test_codec import IDS, codec, event_of, fold_of, folded, logged, status, task, turn

REPORT = {"model": "small", "inputTokens": 100, "outputTokens": 20, "cost": {"amount": "0.0005", "currency": "USD"}}
USAGE = Usage("small", 100, 20, 500_000, "USD")


def usd(amount: Any, **members: Any) -> dict[str, Any]:
    return {"cost": {"amount": amount, "currency": "USD", **members}}


def reporting(*reports: Any, state: str = "working") -> WorkerEvent:
    """A status update with these reports."""
    value = reports[0] if len(reports) == 1 else list(reports)
    return event_of(
        kind="status-update",
        taskId="wt",
        contextId="wc",
        status={"state": state},
        final=False,
        metadata={USAGE_EXTENSION: value, "other": 1},
    )


# --- what is a report


@pytest.mark.parametrize(
    ("report", "usage"),
    [
        (REPORT, USAGE),
        ({**REPORT, "cachedTokens": 5, "model": None}, Usage("", 100, 20, 500_000, "USD")),
        ({"model": "m"}, Usage("m")),
        ({"inputTokens": 0}, Usage()),
        ({"inputTokens": 12.0}, Usage("", 12)),
        ({"outputTokens": MOST_TOKENS}, Usage("", 0, MOST_TOKENS)),
        (usd(1), Usage("", 0, 0, 10**9, "USD")),
        (usd(0.1), Usage("", 0, 0, 10**8, "USD")),
        (usd(1e-7), Usage("", 0, 0, 100, "USD")),
        (usd("0.0000000375"), Usage("", 0, 0, 38, "USD")),
        (usd("0.0000000005"), Usage("", 0, 0, 1, "USD")),
        (usd("1000000000"), Usage("", 0, 0, MOST_NANOS, "USD")),
        (usd(0), Usage("", 0, 0, 0, "USD")),
    ],
)
def test_a_report_is_read_exactly(report: Any, usage: Usage) -> None:
    reports = read_reports(report)
    assert (reports.usage, reports.malformed) == ((usage,), 0)
    assert read_reports([report, report]).usage == (usage, usage)
    assert read_reports(usage.document()).usage == (usage,)


@pytest.mark.parametrize(
    "report",
    [
        None,
        1,
        "10",
        {},
        {"tokens": 1},
        {"model": 1},
        {"model": "m" * (LONGEST_MODEL + 1)},
        {"model": "a\nb"},
        {"inputTokens": -1},
        {"inputTokens": 1.5},
        {"inputTokens": True},
        {"inputTokens": "1"},
        {"outputTokens": MOST_TOKENS + 1},
        {"outputTokens": 10**400},
        {"outputTokens": float("inf")},
        {"inputTokens": 1, "cost": 1},
        {"cost": {"amount": 1}},
        {"cost": {"currency": "USD"}},
        usd(1, currency="usd"),
        usd(1, currency="DOLLAR"),
        usd(-1),
        usd("-1"),
        usd("1,5"),
        usd("1e3"),
        usd("1."),
        usd(""),
        usd("1000000000.1"),
        usd(1e300),
        usd(10**400),
        usd(True),
        usd([1]),
        usd("９"),
    ],
)
def test_what_is_no_report_is_counted_and_left_out(report: Any) -> None:
    assert (read_reports(report).usage, read_reports(report).malformed) == ((), 1)
    assert (read_reports([report, REPORT]).usage, read_reports([report, REPORT]).malformed) == ((USAGE,), 1)


def test_an_event_has_a_bounded_number_of_reports() -> None:
    assert len(read_reports([REPORT] * MAX_REPORTS).usage) == MAX_REPORTS
    assert read_reports([REPORT] * (MAX_REPORTS + 1)).malformed == 1


_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda values: st.lists(values) | st.dictionaries(st.sampled_from(list(REPORT)) | st.text(), values),
)


@given(_VALUES)
def test_nothing_that_is_sent_raises(value: Any) -> None:
    for one in read_reports(value).usage:
        assert 0 <= one.tokens <= 2 * MOST_TOKENS
        assert 0 <= one.nanos <= MOST_NANOS


@given(st.integers(0, MOST_NANOS))
def test_amounts_are_written_as_they_are_read(nanos: int) -> None:
    text = amount_text(nanos)
    assert nanos_of(text) == nanos == nanos_of(Decimal(text))
    assert Usage(nanos=nanos).cost == Decimal(nanos) / 10**9


def test_amounts_have_no_zeros_at_their_end() -> None:
    assert [amount_text(nanos) for nanos in (0, 10**9, 1_500_000_000, 1, 10**10)] == ["0", "1", "1.5", "0.000000001", "10"]


# --- sums


_USAGE = st.builds(
    Usage, st.sampled_from("abc"), st.integers(0, 99), st.integers(0, 99), st.integers(0, 99), st.sampled_from(["", "USD"])
)


@given(st.lists(_USAGE), st.lists(_USAGE))
def test_what_is_beyond_sums_makes_them_the_others(before: list[Usage], more: list[Usage]) -> None:
    known, seen = UsageSums(before), UsageSums([*before, *more])
    for one in beyond(seen.sums, known.sums):
        known.add(one)
    assert {one for one in known.sums if one.tokens or one.nanos} == {one for one in seen.sums if one.tokens or one.nanos}


def test_less_than_the_sums_is_nothing_beyond_them() -> None:
    assert beyond([Usage("m", 5, 1)], [Usage("m", 10, 1)]) == ()
    assert beyond([Usage("m", 5, 3)], [Usage("m", 10, 1)]) == (Usage("m", 0, 2),)


# --- from a worker's event into the log


def test_an_event_without_a_report_has_none() -> None:
    assert status("working", "hi").usage is None
    assert task(metadata={"other": 1}).usage is None


@pytest.mark.parametrize("kind", ["status", "task", "message"])
def test_reports_are_found_in_updates_tasks_and_messages(kind: str) -> None:
    metadata = {USAGE_EXTENSION: REPORT}
    found = {
        "status": reporting(REPORT),
        "task": task(metadata=metadata),
        "message": event_of(kind="message", role="agent", messageId="a", parts=[], metadata=metadata),
    }[kind]
    assert found.usage is not None
    assert found.usage.usage == (USAGE,)
    assert found.document["metadata"][USAGE_EXTENSION] == REPORT


def test_what_is_no_report_is_taken_out_of_the_event() -> None:
    partly, none = reporting(REPORT, {"inputTokens": -1}), reporting({"cost": "much"})
    assert partly.usage is not None
    assert none.usage is not None
    assert (partly.usage.malformed, none.usage.malformed) == (1, 1)
    assert partly.document["metadata"] == {USAGE_EXTENSION: [USAGE.document()], "other": 1}
    assert none.document["metadata"] == {"other": 1}


# --- the sums in a task


def test_a_task_has_the_sums_of_its_log() -> None:
    large = Usage("large", 1, 1).document()
    log = logged(task(metadata={USAGE_EXTENSION: REPORT}), reporting(REPORT), status("working"), reporting(REPORT, large))
    document = folded(log)
    assert document["metadata"]["other"] == 1
    assert read_reports(document["metadata"][USAGE_EXTENSION]).usage == (
        Usage("small", 300, 60, 1_500_000, "USD"),
        Usage("large", 1, 1),
    )
    assert parse(log[1].event.body)["metadata"][USAGE_EXTENSION] == REPORT


def test_a_message_after_a_task_reports_as_its_last_status() -> None:
    metadata = {USAGE_EXTENSION: REPORT}
    log = logged(task(), event_of(kind="message", role="agent", messageId="a", parts=[], metadata=metadata))
    assert read_reports(folded(log)["metadata"][USAGE_EXTENSION]).usage == (USAGE,)


def compared(log: list[Logged], *reports: Any, state: str = "completed") -> tuple[Any, list[Logged]]:
    """What a worker's Task with these sums adds."""
    seen = task(state, metadata={USAGE_EXTENSION: list(reports), "other": 2})
    missing = fold_of(log).missing(seen, IDS, gap=True)
    return missing.usage, [*log, *(Logged(Cursor(len(log) + at), event) for at, event in enumerate(missing.events, 1))]


@pytest.mark.parametrize(
    ("sums", "added"),
    [
        ([REPORT], ()),
        ([{**REPORT, "inputTokens": 150}], (Usage("small", 50, 0, 0, "USD"),)),
        ([REPORT, {"model": "large", "inputTokens": 7}], (Usage("large", 7),)),
        ([{"model": "small", "inputTokens": 1, "cost": {"amount": "0.0001", "currency": "USD"}}], ()),
    ],
)
def test_of_a_workers_task_counts_what_its_sums_have_more_than_the_log(sums: list[Any], added: tuple[Usage, ...]) -> None:
    usage, log = compared(logged(task(), reporting(REPORT)), *sums)
    assert (usage.usage, usage.malformed) == (added, 0)
    last = parse(log[-1].event.body)
    assert last["metadata"]["other"] == 2
    assert read_reports(last["metadata"].get(USAGE_EXTENSION, [])).usage == added
    total = UsageSums([USAGE, *added]).sums
    assert read_reports(folded(log)["metadata"][USAGE_EXTENSION]).usage == total


def test_a_workers_task_with_nothing_new_reports_nothing() -> None:
    usage, log = compared(logged(task(), reporting(REPORT)), {**REPORT, "inputTokens": 999}, state="working")
    assert usage is None
    assert len(log) == 2


def test_a_first_task_keeps_its_sums() -> None:
    first = task("completed", metadata={USAGE_EXTENSION: [REPORT]})
    (event,) = codec.begin(first, IDS, turn("hi"))
    assert parse(event.body)["metadata"][USAGE_EXTENSION] == [REPORT]


# --- budgets


def called(dialect: str, budget: Any, *, inside: bool = False) -> Budget | None:
    """What a call with that in its metadata, or in its message's, has for a budget."""
    part = {"0.1": {"type": "text", "text": "x"}, "0.3": {"kind": "text", "text": "x"}, "1.0": {"text": "x"}}[dialect]
    role = "ROLE_USER" if dialect == "1.0" else "user"
    metadata = {USAGE_EXTENSION: budget}
    message = {"role": role, "messageId": "m", "parts": [part], **({"metadata": metadata} if inside else {})}
    params = {"id": "t", "message": message, **({} if inside else {"metadata": metadata})}
    return DIALECTS[dialect].requests.read_send(params, Target()).budget


@pytest.mark.parametrize("dialect", ["0.1", "0.3", "1.0"])
@pytest.mark.parametrize("inside", [False, True])
def test_a_call_has_its_budget_in_every_version(dialect: str, inside: bool) -> None:
    both = Budget(1000, 2_500_000_000, "EUR")
    assert called(dialect, {"budget": both.document()}, inside=inside) == both
    assert called(dialect, {"budget": {"tokens": 5.0}}, inside=inside) == Budget(5)
    assert called(dialect, {"budget": {"cost": {"amount": 1e-9, "currency": "USD"}}}, inside=inside) == Budget(None, 1, "USD")
    assert called(dialect, {"other": 1}, inside=inside) is None
    assert called(dialect, None, inside=inside) is None


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ([REPORT], "must be an object"),
        ({"budget": 1}, "must be an object with tokens, a cost, or both"),
        ({"budget": {}}, "must be an object with tokens, a cost, or both"),
        ({"budget": {"tokens": 0}}, "more than nothing"),
        ({"budget": {"cost": {"amount": "0.0000000001", "currency": "USD"}}}, "more than nothing"),
        ({"budget": {"tokens": -1}}, "a whole number"),
        ({"budget": {"tokens": "many"}}, "a whole number"),
        ({"budget": {"cost": 1}}, "an object with amount and currency"),
        ({"budget": {"cost": {"amount": "1", "currency": "$"}}}, "three capital letters"),
        ({"budget": {"cost": {"amount": 10**400, "currency": "USD"}}}, "a decimal number"),
    ],
)
def test_a_wrong_budget_is_refused_and_says_why(own: Any, why: str) -> None:
    with pytest.raises(InvalidParams, match=why):
        called("0.3", own)


def test_a_budget_is_spent_when_nothing_of_it_is_left() -> None:
    spending = Spending(TaskId("t"), Budget(100, 10**9, "USD"))
    assert spending.spent == ()
    more = spending.plus(Usage("m", 50, 49, 10**9 - 1, "USD")).plus(Usage("m", 0, 0, 10**9, "EUR"))
    assert more.spent == ()
    assert more.plus(Usage("m", 1)).spent == ("100 of 100 tokens",)
    assert more.plus(Usage("m", 0, 0, 1, "USD")).spent == ("1 of 1 USD",)
    assert more.plus(Usage("m", 9, 1, 2, "USD")).spent == ("1.000000001 of 1 USD", "109 of 100 tokens")
    assert more.figures == {
        "spentCost": "0.999999999",
        "budgetCost": "1",
        "currency": "USD",
        "spentTokens": "99",
        "budgetTokens": "100",
    }
    assert Spending(TaskId("t"), Budget(5)).figures == {"spentTokens": "0", "budgetTokens": "5"}
