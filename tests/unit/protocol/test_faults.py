"""What differs between the versions in what they call an error."""

from __future__ import annotations

import pytest

from rolecall.errors import ExtendedCardNotConfigured
from rolecall.protocol.faults import fault_of


@pytest.mark.parametrize(("dialect", "code"), [("0.3", -32007), ("1.0", -32004)])
def test_a_card_that_no_card_claims_is_refused_as_each_version_wants_it(dialect: str, code: int) -> None:
    fault = fault_of(ExtendedCardNotConfigured(), dialect)
    assert (fault.code, fault.status) == (code, 400)
    assert "extended card" in fault.message
