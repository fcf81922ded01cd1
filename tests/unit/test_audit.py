"""An audit that could ask nobody does not say that all is well."""

from __future__ import annotations

import json
import runpy
from typing import Any

import pytest

from tests.helpers.processes import ROOT

verdict = runpy.run_path(str(ROOT / "scripts" / "audit.py"))["verdict"]
FINE = {"name": "a", "version": "1", "vulns": []}
FLAWED = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1"}]}
UNKNOWN = {"name": "c", "skip_reason": "Dependency not found on PyPI"}


@pytest.mark.parametrize(
    ("packages", "code", "words"),
    [
        ([FINE], 0, "Nothing is known against the 1 packages."),
        ([FINE, FLAWED, UNKNOWN], 1, "b 2: PYSEC-1"),
        ([FINE, UNKNOWN], 2, "1 of 2 packages are not audited"),
    ],
)
def test_what_is_said_is_what_is_known(packages: list[dict[str, Any]], code: int, words: str) -> None:
    found = verdict(json.dumps({"dependencies": packages}), "")
    assert found.code == code
    assert words in found.text


def test_a_source_that_cannot_be_reached_is_named_as_such() -> None:
    found = verdict("", "Traceback\nConnectionError: no route")
    assert found.code == 2
    assert "no source of advisories can be reached" in found.text
    assert "no route" in found.text
