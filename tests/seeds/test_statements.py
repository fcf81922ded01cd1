"""Every statement of another system has tests or a reason for refusal, and the page lists them."""

from __future__ import annotations

import re

import pytest

from rolecall.protocol.dialects import method_names, read_method
from rolecall.protocol.methods import Operation
from rolecall.protocol.rest import read_route
from tests.seeds import statements
from tests.seeds.statements import OTHER_TESTS, PAGE, REFUSED, ROOT

ROWS = {
    "send": Operation.SEND,
    "stream": Operation.STREAM,
    "get": Operation.GET,
    "list": Operation.LIST,
    "cancel": Operation.CANCEL,
    "subscribe": Operation.SUBSCRIBE,
    "push set": Operation.PUSH_SET,
    "push get": Operation.PUSH_GET,
    "push list": Operation.PUSH_LIST,
    "push delete": Operation.PUSH_DELETE,
    "extended card": Operation.CARD,
}
COLUMNS = ("0.1", "0.3", "1.0")


@pytest.mark.parametrize("statement", tuple(statements.statements()))
def test_every_statement_is_tested_or_refused(statement: str) -> None:
    tested = [*statements.tests().get(statement, ()), *OTHER_TESTS.get(statement, ())]
    assert tested or statement in REFUSED
    for path, _, name in (test.partition("::") for test in tested):
        assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), name


def test_no_test_names_a_statement_that_does_not_exist() -> None:
    known = set(statements.statements())
    assert not {*statements.tests(), *OTHER_TESTS, *REFUSED} - known


def test_the_page_is_up_to_date() -> None:
    """If not: `python -m tests.seeds.statements`."""
    assert PAGE.read_text(encoding="utf-8") == statements.page()


def cells() -> dict[Operation, list[list[str]]]:
    """The page's table of methods: for each operation the names in each column."""
    rows = re.findall(r"^\| (\w[\w ]*) \|(.+)\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {ROWS[name]: [re.findall(r"`(.+?)`", cell) for cell in rest.split("|")] for name, rest in rows if name in ROWS}


def test_the_table_of_methods_is_complete_and_correct() -> None:
    documented = {
        (name, dialect, operation)
        for operation, row in cells().items()
        for dialect, names in zip(COLUMNS, row[:3], strict=True)
        for name in names
    }
    for name, dialect, operation in documented:
        found, choice = read_method(name, None)
        assert (found, dialect in choice.dialects) == (operation, True), name
    assert {name for name, _, _ in documented} == method_names()


def test_the_table_of_addresses_is_correct() -> None:
    addresses = [
        (operation, dialect, address)
        for operation, row in cells().items()
        for dialect, names in zip(("0.3", "1.0"), row[3:], strict=True)
        for address in names
    ]
    assert {(operation, dialect) for operation, dialect, _ in addresses} == {(o, d) for o in Operation for d in ("0.3", "1.0")}
    for operation, dialect, address in addresses:
        method, _, path = address.partition(" ")
        for prefix in ("", "/agents/counter"):
            place = read_route(prefix + path.replace("{id}", "t-1").replace("{config}", "c-1"), method)
            assert place is not None, address
            assert (place.operation, place.dialect in (dialect, None)) == (operation, True), address
