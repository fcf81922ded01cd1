"""Enrolments in the forms that workers use."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from hub.inbound.api.offers import read_beat, read_flat_name, read_offer
from hub.inbound.api.requests import Enrolment, FlatEnrolment, Heartbeat
from hub.inbound.api.validation import validate
from rolecall.errors import OfferInvalid
from rolecall.model.ids import WorkerId
from rolecall.model.worker import Beat, Offer
from rolecall.protocol.text.jsontext import dump

WORKER = WorkerId("a", "b")


def read(document: dict[str, Any], *, max_card: int = 10_000) -> Offer:
    return read_offer(validate(Enrolment, document), WORKER, max_card=max_card)


def card_of(**card: Any) -> dict[str, Any]:
    return read({"url": "http://w/", "card": card}).card


@pytest.mark.parametrize("old", [[{"scheme": "bearer"}], {"schemes": ["bearer"]}, ["bearer"]])
def test_schemes_under_their_old_name_are_read(old: Any) -> None:
    card = card_of(authentication=old)
    assert card["securitySchemes"] == {"bearer": {"type": "http", "scheme": "bearer"}}
    assert card["security"] == [{"bearer": []}]
    assert "authentication" not in card


@pytest.mark.parametrize("old", [[{"scheme": "apiKey"}], [], {}, "bearer", 7, [{"scheme": None}], [{"scheme": ["x"]}], [None]])
def test_schemes_with_too_few_details_are_left_unchanged(old: Any) -> None:
    card = card_of(authentication=old)
    assert card["authentication"] == old
    assert "securitySchemes" not in card


def test_schemes_that_a_card_declares_are_kept() -> None:
    schemes = {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}}
    card = card_of(authentication=[{"scheme": "bearer"}], securitySchemes=schemes)
    assert card["securitySchemes"] == schemes
    assert "security" not in card


def test_capabilities_in_snake_case_are_read_beside_those_of_the_card() -> None:
    document = {"url": "http://w/", "capabilities": {"push_notifications": True}, "card": {"capabilities": {"streaming": True}}}
    offer = read(document)
    assert offer.card["capabilities"] == {"streaming": True, "pushNotifications": True}
    assert offer.streaming is True


@pytest.mark.parametrize(("sent", "idempotent"), [({}, False), ({"idempotent": True}, True), ({"idempotent": None}, False)])
def test_a_worker_is_idempotent_only_if_it_says_so(sent: dict[str, Any], idempotent: bool) -> None:
    assert read({"url": "http://w/", **sent}).idempotent is idempotent


@pytest.mark.parametrize("url", ["http://[::1", "http://℀/"])
def test_an_address_that_cannot_be_parsed_is_refused_and_ignored_in_a_card(url: str) -> None:
    with pytest.raises(OfferInvalid, match=r"^url: not a URL\.$"):
        read({"url": url})
    offer = read(
        {"url": "http://w/", "card": {"url": url, "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC"}]}}
    )
    assert [interface.url for interface in offer.interfaces] == ["http://w/"]


def test_a_whole_number_may_be_written_as_a_float() -> None:
    assert read({"url": "http://w/", "capacity": 4.0}).capacity == 4
    assert read_beat(validate(Heartbeat, {"in_flight": 0.0})) == Beat(in_flight=0)
    for document in (4.5, 0, 0.0, -1.0, 1e10, 1e308, True, "4"):
        with pytest.raises(OfferInvalid):
            read({"url": "http://w/", "capacity": document})


@pytest.mark.parametrize("skills", ["", 0, False, {}, [{"tags": ""}], [{"tags": {}}], [1], [{}] * 101])
def test_skills_are_a_list_of_objects_and_their_tags_a_list(skills: Any) -> None:
    with pytest.raises(OfferInvalid):
        card_of(skills=skills)


def test_skills_and_tags_may_be_left_out() -> None:
    assert card_of(skills=None)["skills"] == card_of()["skills"] == []
    assert card_of(skills=[{"tags": None}])["skills"] == [{"tags": None}]


def test_a_card_may_be_as_large_as_the_setting_allows() -> None:
    """In bytes of the stored JSON."""
    card = {"name": "ä", "skills": [], "capabilities": {}}
    size = len(dump(card))
    assert read({"url": "http://w/", "card": dict(card)}, max_card=size).card == card
    with pytest.raises(OfferInvalid, match=rf"^card: must be at most {size - 1} bytes of JSON \(ROLECALL_MAX_CARD"):
        read({"url": "http://w/", "card": dict(card)}, max_card=size - 1)


@pytest.mark.parametrize("name", ["a:", "a:!", "a: b"])
def test_a_name_without_a_valid_instance_behind_its_colon_is_refused(name: str) -> None:
    for document in ({"name": name}, {"name": name, "role": "b", "instance_id": "c"}):
        with pytest.raises(OfferInvalid, match=r"^name: has no valid instance behind its colon\.$"):
            validate(FlatEnrolment, {"url": "http://w/", **document})


@pytest.mark.parametrize(
    ("labels", "fit"), [({"a" * 128: "b" * 256}, True), ({"a" * 129: ""}, False), ({"a": "b" * 257}, False)]
)
def test_labels_have_a_limit(labels: dict[str, str], fit: bool) -> None:
    document = {"url": "http://w/", "labels": labels}
    if fit:
        assert read(document).labels == labels
        return
    with pytest.raises(OfferInvalid):
        read(document)


@pytest.mark.parametrize(
    ("document", "worker"),
    [
        ({"name": "a:b"}, WorkerId("a", "b")),
        ({"name": "a:b:c"}, WorkerId("a", "b:c")),
        ({"name": "a:b", "role": "c"}, WorkerId("c", "b")),
        ({"name": "a:b", "role": "", "instance_id": "c"}, WorkerId("a", "c")),
        ({"name": "not a role:b", "role": "a"}, WorkerId("a", "b")),
        ({"name": None, "role": "a", "instance_id": "b"}, WorkerId("a", "b")),
    ],
)
def test_role_and_instance_win_over_the_name(document: dict[str, Any], worker: WorkerId) -> None:
    assert read_flat_name(validate(FlatEnrolment, {"url": "http://w/", **document})) == worker


@pytest.mark.parametrize(
    ("document", "refusal"),
    [
        ({}, "name: is required: a role, or role:instance."),
        ({"name": "", "role": None}, "name: is required: a role, or role:instance."),
        ({"name": "A:b"}, "role: must be 1 to 63 "),
        ({"name": "agents"}, "role: must be 1 to 63 "),
    ],
)
def test_an_enrolment_names_a_role(document: dict[str, Any], refusal: str) -> None:
    with pytest.raises(OfferInvalid, match=f"^{refusal}"):
        read_flat_name(validate(FlatEnrolment, {"url": "http://w/", **document}))


def test_the_size_of_a_card_is_measured_without_a_copy_of_its_texts_in_memory() -> None:
    """CPython keeps the UTF-8 form of a string, once it was asked for, as long as the string lives: here with the lease."""
    text = "語" * 900
    before = sys.getsizeof(text)
    card = card_of(description=text, skills=[{"id": "s", "name": text}])
    assert card["description"] is text
    assert sys.getsizeof(text) == before
    dump(text)
    assert sys.getsizeof(text) > before + 2_000
