"""Which mutants are planted, and what gets none."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutation.plant import is_in_function, lines_of, mutants_of

ROOT = Path(__file__).parents[2]


def mutants_in(source: str) -> set[str]:
    return {mutant.replace_in(source.encode()).decode() for mutant in mutants_of(source.encode())}


@pytest.mark.parametrize(
    ("source", "mutant"),
    [
        ("x = a < b", "x = a <= b"),
        ("x = a not in b", "x = a in b"),
        ("x = a and b", "x = a or b"),
        ("x = a + 1", "x = a - 1"),
        ("x = a + 1", "x = a + 2"),
        ("x = not a", "x = (a)"),
        ("x = True", "x = False"),
        ("x = f(a, b)", "x = f(b, a)"),
        ("if a:\n    b()", "if (not (a)):\n    b()"),
        ("if a:\n    b()", "if a:\n    pass"),
        ("def f():\n    return a()", "def f():\n    return None"),
        ("def f():\n    raise E(1)", "def f():\n    pass"),
        ("self.x = 1", "pass"),
        ("x = 'ä' if a else 1", "x = 'ä' if (not (a)) else 1"),
    ],
)
def test_a_mutant_is_planted(source: str, mutant: str) -> None:
    assert mutant in mutants_in(source)


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring."""',
        "import a",
        "log.info('text', 1)",
        "def f(x: int | None) -> None: ...",
        "if TYPE_CHECKING:\n    import a",
        "class P(Protocol):\n    def f(self) -> int:\n        return 1",
        "x = min(a, b)",
        "x = max(a, b)",
    ],
)
def test_text_and_declarations_get_no_mutant(source: str) -> None:
    assert mutants_in(source) == set()


def test_every_mutant_of_a_real_file_compiles_and_differs() -> None:
    source = (ROOT / "tests" / "mutation" / "plant.py").read_bytes()
    found, unchanged = mutants_of(source), ast.dump(ast.parse(source))
    assert len(found) > 100
    for mutant in found:
        assert ast.dump(ast.parse(mutant.replace_in(source))) != unchanged, mutant
        assert list(lines_of(source, mutant))


def test_a_line_that_runs_at_import_is_in_no_function() -> None:
    source = b"A = 1\n\n\ndef f(x=2):\n    return 3\n\n\nclass C:\n    b = 4\n"
    assert [line for line in range(1, 10) if is_in_function(source, line)] == [5]
