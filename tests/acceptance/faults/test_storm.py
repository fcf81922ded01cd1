"""Mixed faults by a seeded plan, and a checker of the recorded history."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.acceptance.faults.checker import problems_in
from tests.acceptance.faults.planted import BUG_BY_NAME
from tests.acceptance.faults.storm import SETTINGS, Storm
from tests.helpers.processes import HubProcess, start_hub


@pytest.mark.timeout(180)
def test_a_short_storm_breaks_no_promise(tmp_path: Path) -> None:
    history = Storm(tmp_path, seed=20, seconds=12).run()
    assert problems_in(history) == []
    assert len(history.records) > 15
    assert sum(record.state == "completed" for record in history.records) > len(history.records) / 3


@pytest.mark.parametrize("bug", BUG_BY_NAME)
def test_the_checker_finds_a_planted_bug(tmp_path: Path, bug: str) -> None:
    """A checker that never fails proves nothing."""

    def with_bug(folder: Path, port: int) -> HubProcess:
        return start_hub(folder, port=port, argv=(sys.executable, "-m", "tests.acceptance.faults.planted", bug), **SETTINGS)

    history = Storm(tmp_path, seed=5, seconds=3, faults=(), start=with_bug, patience=6).run()
    assert problems_in(history) != []


@pytest.mark.soak
def test_many_storms_break_no_promise(tmp_path: Path) -> None:
    """STORMS seeds (12) of STORM_SECONDS (60) each, from STORM_SEED (0) on; a failure names its seed."""
    first, count = int(os.environ.get("STORM_SEED", "0")), int(os.environ.get("STORMS", "12"))
    seconds = float(os.environ.get("STORM_SECONDS", "60"))
    for seed in range(first, first + count):
        history = Storm(tmp_path / str(seed), seed=seed, seconds=seconds).run()
        problems = problems_in(history)
        print(f"seed {seed}: {len(history.records)} calls, {len(history.faults)} faults, {len(problems)} problems", flush=True)
        assert problems == [], f"seed {seed}"
