"""The usage extension on the wire is what its page and its schema say."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema_rs
import pytest

from rolecall import Task, Worker
from rolecall.model.card import USAGE_EXTENSION
from rolecall.model.usage import MAX_REPORTS, MAX_SUMS, read_reports
from rolecall.protocol.callers.usage import USAGE
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


@pytest.mark.parametrize(
    "own",
    [
        {},
        [],
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
