"""The usage extension on the wire is what its page and its schema say."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema_rs
import pytest

from rolecall import Budget as PublicBudget
from rolecall import Task, Worker
from rolecall.errors import BudgetSpent
from rolecall.model.card import USAGE_EXTENSION
from rolecall.model.ids import TaskId
from rolecall.model.usage import MAX_REPORTS, MAX_SUMS, Budget, Spending, read_reports
from rolecall.protocol.callers.usage import USAGE, read_budget
from rolecall.protocol.faults import fault_of
from rolecall.protocol.text.profile import write_extension
from tests.helpers.processes import ROOT

PAGE = (ROOT / "docs/reference/usage-extension.md").read_text("utf-8")
SCHEMA = jsonschema_rs.validator_for(json.loads((ROOT / "docs/reference/usage-extension.schema.json").read_text("utf-8")))


def blocks(kind: str) -> list[Any]:
    return [json.loads(text) for text in re.findall(rf"```json {kind}\n(.*?)```", PAGE, re.DOTALL)]


def test_the_examples_of_the_page_are_valid_and_read() -> None:
    examples = [*blocks("report"), *blocks("reports")]
    assert len(examples) == 2
    for example in examples:
        SCHEMA.validate(example)
        reports = read_reports(example[USAGE_EXTENSION])
        assert reports.usage and not reports.malformed
    (budget,) = blocks("budget")
    SCHEMA.validate(budget)
    assert read_budget([budget]) == Budget(200_000, 2_500_000_000, "USD")
    for own in (PublicBudget(2), PublicBudget("0.1", "EUR", tokens=5), PublicBudget(tokens=1)):
        SCHEMA.validate(own.metadata())
        assert read_budget([own.metadata()]) is not None
    (entry,) = blocks("card")
    assert entry == {"required": False, **write_extension(USAGE)}


async def test_what_a_worker_reports_and_the_sums_of_its_tasks_are_valid() -> None:
    worker = Worker("w")

    @worker.on_message
    async def work(text: str, task: Task) -> None:
        for number in range(2 * MAX_SUMS):
            task.usage(model=f"m{number}", input_tokens=number + 1, cost=number / 7, currency="ABC")

    async with worker.test() as t:
        documents = [event.raw async for event in t.stream("x")]
        documents.append((await t.get(documents[0]["id"])).raw)
    reporting = [document["metadata"] for document in documents if "metadata" in document]
    assert len(reporting) == 2
    for metadata in reporting:
        SCHEMA.validate(metadata)
        assert len(metadata[USAGE_EXTENSION]) <= MAX_REPORTS


def test_a_refusal_has_the_members_that_the_page_shows() -> None:
    (shown,) = blocks("refusal")
    spending = Spending(TaskId("…"), Budget(200_000, 2_500_000_000, "USD"), 91_000, 2_520_000_000)
    error = BudgetSpent(("planner", "researcher"), spending.task, spending.spent, spending.figures)
    data = fault_of(error).data
    assert data is not None
    assert {"reason": data[0]["reason"], "metadata": data[0]["metadata"]} == shown


@pytest.mark.parametrize(
    "own",
    [
        {},
        [],
        {"budget": {}},
        {"budget": {"tokens": 0}},
        {"other": 1},
        {"inputTokens": -1},
        {"inputTokens": 1.5},
        {"model": "m" * 129},
        {"cost": {"amount": 1}},
        {"cost": {"amount": "1,5", "currency": "USD"}},
        {"cost": {"amount": 1, "currency": "usd"}},
        1,
    ],
)
def test_the_schema_refuses_what_the_hub_does(own: Any) -> None:
    assert not SCHEMA.is_valid({USAGE_EXTENSION: own})
    assert not read_reports(own).usage
