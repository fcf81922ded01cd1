"""The page of sizes says what the settings and the constants say, and misses no setting of a size."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hub.core.shares import table
from hub.settings.model import SPECS, Settings, variable
from rolecall.protocol.codec import MOST_FILES
from rolecall.protocol.text.jsontext import MAX_VALUES
from worker_sdk.calling import stream
from worker_sdk.files.hub_files import FILE_THRESHOLD
from worker_sdk.files.parts import FETCHED, INLINE_TOGETHER
from worker_sdk.handlers.models import MAX_MODEL_VALUES
from worker_sdk.tasks.log import MAX_EVENT
from worker_sdk.tasks.task_table import TaskLimits
from worker_sdk.worker import MAX_BODY

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "sizes.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in PAGE.splitlines() if line.startswith("| ")][1:]
UNITS = {"": 1, "KiB": 1024, "MiB": 1024**2}
CONSTANTS = {
    "MAX_VALUES": MAX_VALUES,
    "_LARGE_EVENTS": table._LARGE_EVENTS,
    "MAX_MODEL_VALUES": MAX_MODEL_VALUES,
    "_LARGEST_EVENT": stream._LARGEST_EVENT,
    "MOST_FILES": MOST_FILES,
    "FILE_THRESHOLD": FILE_THRESHOLD,
    "INLINE_TOGETHER": INLINE_TOGETHER,
    "FETCHED": FETCHED,
    "Worker(max_body=…)": MAX_BODY,
    "Worker(max_event=…)": MAX_EVENT,
    "TaskLimits(log=…)": TaskLimits().log,
}
ELSEWHERE = {"max_disk", "max_disk_per_workspace", "disk_reserve", "webhook_secret"}
"""Sizes of the disk, which SECURITY.md explains, and of a secret."""


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_size_is_what_its_setting_or_constant_says(row: list[str]) -> None:
    _, source, default, _ = row
    name, *_ = re.findall("`([^`]+)`", source)
    number, _, unit = default.partition(" ")
    settings = Settings.of()
    known = {variable(field): getattr(settings, field) for field in SPECS} | CONSTANTS
    assert int(number) * UNITS[unit] == known[name]


def test_every_setting_of_a_size_has_a_row() -> None:
    sizes = {field for field, spec in SPECS.items() if "bytes" in spec.expected} - ELSEWHERE
    assert {variable(field) for field in sizes} <= set(re.findall(r"ROLECALL_\w+", PAGE))
