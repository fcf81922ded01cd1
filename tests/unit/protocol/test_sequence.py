"""The sequence extension writes one member into a document, and reads one of a call's parameters."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.errors import InvalidParams
from rolecall.model.a2a import OWN
from rolecall.model.card import SEQUENCE_EXTENSION
from rolecall.model.ids import Cursor
from rolecall.protocol.extensions.sequence import numbered, read_after
from rolecall.protocol.text.jsontext import dump, parse

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("metadata"), inner, max_size=3),
    max_leaves=8,
)
METADATA = st.none() | st.dictionaries(st.text(max_size=5) | st.just(SEQUENCE_EXTENSION), VALUES, max_size=3)


@given(
    st.dictionaries(st.text(min_size=1, max_size=5).filter(lambda name: name != "metadata"), VALUES, min_size=1),
    st.booleans(),
    METADATA,
    st.integers(1, 2**40),
)
def test_everything_else_in_the_document_stays(
    document: dict[str, Any], has_metadata: bool, metadata: dict[str, Any] | None, cursor: int
) -> None:
    if has_metadata:
        document = {**document, "metadata": metadata}
    got = parse(numbered(dump(document), Cursor(cursor)))
    expected = {**(metadata or {}), SEQUENCE_EXTENSION: {"sequence": cursor}} if has_metadata else got["metadata"]
    assert got == {**document, "metadata": expected}
    assert got["metadata"][SEQUENCE_EXTENSION] == {"sequence": cursor}


@pytest.mark.parametrize(("own", "gap"), [({"gap": True}, True), ({"gap": "yes"}, False), ("gap", False), ({}, False)])
def test_a_gap_that_the_hub_marked_is_said(own: Any, gap: bool) -> None:
    document = parse(numbered(dump({"id": "t", "metadata": {OWN: own}}), Cursor(7)))
    assert document["metadata"][SEQUENCE_EXTENSION] == ({"sequence": 7, "gap": True} if gap else {"sequence": 7})
    assert document["metadata"][OWN] == own


def test_the_number_is_the_hubs_also_where_the_worker_wrote_one() -> None:
    document = {"id": "t", "metadata": {SEQUENCE_EXTENSION: {"sequence": 99, "gap": True}}}
    assert parse(numbered(dump(document), Cursor(2)))["metadata"] == {SEQUENCE_EXTENSION: {"sequence": 2}}


@pytest.mark.parametrize("params", [{}, {"metadata": None}, {"metadata": 3}, {"metadata": {"x": {"after": 1}}}])
def test_parameters_without_it_name_no_event(params: dict[str, Any]) -> None:
    assert read_after(params) is None


def test_after_is_a_number() -> None:
    assert read_after({"metadata": {SEQUENCE_EXTENSION: {"after": 12}}}) == 12


@pytest.mark.parametrize("own", [3, "3", [], {}, *({"after": after} for after in (None, "3", 1.5, True, -1, 10**18))])
def test_another_value_is_refused_with_its_name(own: Any) -> None:
    with pytest.raises(InvalidParams, match=f'"after" in metadata.*{SEQUENCE_EXTENSION}'):
        read_after({"metadata": {SEQUENCE_EXTENSION: own}})
