"""The recording of the tests for mutants."""

from __future__ import annotations

from pathlib import Path

import pytest

from rolecall.cli import run
from tests.mutation.reach import FOLDER, SOURCES


def test_its_variables_are_no_settings_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the hub's prefix each would be an unknown setting, and every test of the command would fail."""
    monkeypatch.chdir(tmp_path)
    for name in (FOLDER, SOURCES):
        monkeypatch.setenv(name, str(tmp_path))
    assert run(["config", "show"]) == 0
