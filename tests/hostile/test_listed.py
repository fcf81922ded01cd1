"""Every input of the list has a test, and every listed test exists."""

from __future__ import annotations

import ast
import re

import pytest

from tests.helpers.processes import ROOT
from tests.hostile.listed import NOT_SUPPORTED, TESTS_BY_INPUT


def functions_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_input_is_listed() -> None:
    assert sorted((*TESTS_BY_INPUT, *NOT_SUPPORTED)) == list(range(1, 65))


@pytest.mark.parametrize("number", TESTS_BY_INPUT)
def test_every_listed_test_exists(number: int) -> None:
    for place in TESTS_BY_INPUT[number]:
        path, _, name = place.partition("::")
        assert name in functions_of(path), place


def test_a_numbered_test_is_listed_under_its_number() -> None:
    for path in (ROOT / "tests/hostile").glob("test_*.py"):
        for name in functions_of(str(path.relative_to(ROOT))):
            found = re.match(r"test_(\d+)(?:_and_(\d+))?_", name)
            for number in found.groups() if found else ():
                assert number is None or f"tests/hostile/{path.name}::{name}" in TESTS_BY_INPUT[int(number)], name
