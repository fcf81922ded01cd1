"""Errors whose code differs between the versions."""

from __future__ import annotations

import pytest

from rolecall.errors import ExtendedCardNotConfigured
from rolecall.protocol.dialects import DIALECTS
from rolecall.protocol.faults import fault_of


@pytest.mark.parametrize(("dialect", "code"), [("0.3", -32007), ("1.0", -32004)])
def test_an_extended_card_is_refused_with_the_code_of_each_version(dialect: str, code: int) -> None:
    fault = fault_of(ExtendedCardNotConfigured(), DIALECTS[dialect].faults)
    assert (fault.code, fault.status) == (code, 400)
    assert "extended card" in fault.message
