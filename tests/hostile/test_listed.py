"""Every input of the list is tested somewhere, and what is named as its test is there."""

from __future__ import annotations

import ast
import re

import pytest

from tests.helpers.processes import ROOT
from tests.hostile.listed import LISTED, NOT_SPOKEN


def functions_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_input_has_a_place() -> None:
    assert sorted((*LISTED, *NOT_SPOKEN)) == list(range(1, 65))


@pytest.mark.parametrize("number", LISTED)
def test_every_place_is_a_test(number: int) -> None:
    for place in LISTED[number]:
        path, _, name = place.partition("::")
        assert name in functions_of(path), place


def test_what_carries_a_number_is_listed_under_it() -> None:
    for path in (ROOT / "tests/hostile").glob("test_*.py"):
        for name in functions_of(str(path.relative_to(ROOT))):
            found = re.match(r"test_(\d+)(?:_and_(\d+))?_", name)
            for number in found.groups() if found else ():
                assert number is None or f"tests/hostile/{path.name}::{name}" in LISTED[int(number)], name
