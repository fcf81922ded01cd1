"""An audit that could not check every package does not pass."""

from __future__ import annotations

import json
import runpy
from typing import Any

import pytest

from tests.helpers.processes import ROOT

verdict = runpy.run_path(str(ROOT / "scripts" / "audit.py"))["verdict"]
SAFE = {"name": "a", "version": "1", "vulns": []}
BROKEN = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1"}]}
UNKNOWN = {"name": "c", "skip_reason": "Dependency not found on PyPI"}


@pytest.mark.parametrize(
    ("packages", "code", "words"),
    [
        ([SAFE], 0, "The 1 packages have no known vulnerabilities."),
        ([SAFE, BROKEN, UNKNOWN], 1, "b 2: PYSEC-1"),
        ([SAFE, UNKNOWN], 2, "1 of 2 packages are not audited"),
    ],
)
def test_the_verdict_matches_what_is_known(packages: list[dict[str, Any]], code: int, words: str) -> None:
    found = verdict(json.dumps({"dependencies": packages}), "")
    assert found.code == code
    assert words in found.text


def test_an_unreachable_source_is_reported() -> None:
    found = verdict("", "Traceback\nConnectionError: no route")
    assert found.code == 2
    assert "no source of advisories can be reached" in found.text
    assert "no route" in found.text
