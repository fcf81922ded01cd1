"""What workers say of themselves, in the forms that are about."""

from __future__ import annotations

from typing import Any

import pytest

from hub.model.ids import WorkerId
from hub.web.offers import read_offer

WHO = WorkerId("a", "b")


def card_of(**card: Any) -> dict[str, Any]:
    return read_offer({"url": "http://w/", "card": card}, WHO).card


@pytest.mark.parametrize("old", [[{"scheme": "bearer"}], {"schemes": ["bearer"]}, ["bearer"]])
def test_schemes_under_their_old_name_are_read(old: Any) -> None:
    card = card_of(authentication=old)
    assert card["securitySchemes"] == {"bearer": {"type": "http", "scheme": "bearer"}}
    assert card["security"] == [{"bearer": []}]
    assert "authentication" not in card


@pytest.mark.parametrize("old", [[{"scheme": "apiKey"}], [], {}, "bearer", 7, [{"scheme": None}], [{"scheme": ["x"]}], [None]])
def test_schemes_that_say_too_little_are_left_as_they_were(old: Any) -> None:
    card = card_of(authentication=old)
    assert card["authentication"] == old
    assert "securitySchemes" not in card


def test_schemes_that_a_card_declares_stand() -> None:
    declared = {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}}
    card = card_of(authentication=[{"scheme": "bearer"}], securitySchemes=declared)
    assert card["securitySchemes"] == declared
    assert "security" not in card


def test_capabilities_in_snake_case_are_read_beside_those_of_the_card() -> None:
    said = {"url": "http://w/", "capabilities": {"push_notifications": True}, "card": {"capabilities": {"streaming": True}}}
    offer = read_offer(said, WHO)
    assert offer.card["capabilities"] == {"streaming": True, "pushNotifications": True}
    assert offer.streaming is True
