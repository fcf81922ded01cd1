"""Any document is read or refused; a refusal has the path of the member and quotes nothing."""

from __future__ import annotations

from collections import Counter
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rolecall.model.a2a import EventKind
from rolecall.protocol.untranslatable import Untranslatable
from rolecall.protocol.v0_1 import shape as v01
from rolecall.protocol.v0_3 import shape as v03
from rolecall.protocol.v1_0 import shape as v10
from tests.unit.protocol.contents import kind_of, random_documents, written_and_mutated

SHAPES = [v01, v03, v10]
many = settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
kinds = st.sampled_from(EventKind)


def check(shape: ModuleType, kind: EventKind, document: Any) -> bool:
    """Was it read? Any error but a refusal is raised, and what was read can be written in every dialect."""
    try:
        content = shape.read(kind, document)
    except Untranslatable:
        return False
    assert kind_of(content) is kind
    for other in SHAPES:
        again = other.read(kind, other.write(content))
        assert other.write(again) == other.write(content)
    return True


@pytest.mark.parametrize("shape", SHAPES)
@many
@given(kinds, random_documents)
def test_any_object_is_read_or_refused(shape: ModuleType, kind: EventKind, document: Any) -> None:
    check(shape, kind, document)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_document_with_one_change_is_read_or_refused(shape: ModuleType) -> None:
    outcomes: Counter[bool] = Counter()

    @many
    @given(written_and_mutated(shape.write))
    def try_one(flaw: tuple[EventKind, Any]) -> None:
        outcomes[check(shape, *flaw)] += 1

    try_one()
    assert min(outcomes[True], outcomes[False]) > 50


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("document", [None, [], "x", 1, True, {}])
@pytest.mark.parametrize("kind", EventKind)
def test_a_value_that_is_not_a_document_is_refused(shape: ModuleType, kind: EventKind, document: Any) -> None:
    with pytest.raises(Untranslatable):
        shape.read(kind, document)
