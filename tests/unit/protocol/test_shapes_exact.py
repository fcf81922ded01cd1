"""Translation between dialects is exact: nothing is lost, nothing is guessed."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from rolecall.model.a2a import EventKind, JsonObject
from rolecall.model.content import Content, Message, Part, PartKind
from rolecall.protocol.text.jsontext import dump, parse
from rolecall.protocol.v0_1 import shape as v01
from rolecall.protocol.v0_3 import parts as v03_parts
from rolecall.protocol.v0_3 import shape as v03
from rolecall.protocol.v1_0 import shape as v10
from tests.helpers.examples import examples
from tests.unit.protocol.contents import contents, kind_of, messages, modern_parts, plain_parts

many = settings(max_examples=examples(1500), deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)


def sent(document: JsonObject) -> JsonObject:
    """The document after encoding and parsing."""
    received: JsonObject = parse(dump(document))
    return received


def exactly(document: JsonObject) -> str:
    """For comparing: 1, 1.0 and true differ, the order of members does not matter."""
    return json.dumps(document, sort_keys=True)


def over(shape: ModuleType, content: Content) -> Content:
    read: Callable[[EventKind, Any], Content] = shape.read
    return read(kind_of(content), sent(shape.write(content)))


@many
@given(contents)
def test_content_passes_either_dialect_and_both_unchanged(content: Content) -> None:
    """One test, because to make the content takes longest: of what is read, of what is written, and of the arguments."""
    check_what_is_read(content)
    check_what_is_written(content)
    check_arguments(content)


def check_what_is_read(content: Content) -> None:
    assert over(v03, content) == content
    assert over(v10, content) == content
    assert over(v10, over(v03, content)) == content
    assert over(v03, over(v10, content)) == content


def check_what_is_written(content: Content) -> None:
    """A document of either dialect comes back from the other unchanged."""
    kind = kind_of(content)
    old, new = sent(v03.write(content)), sent(v10.write(content))
    assert dump(v10.write(v03.read(kind, old))) == dump(new)
    assert dump(v03.write(v10.read(kind, new))) == dump(old)


def check_arguments(content: Content) -> None:
    """Writing and reading do not change them."""
    for shape in (v01, v03, v10):
        document = shape.write(content)
        before = dump(document)
        shape.write(shape.read(kind_of(content), document))
        assert dump(document) == before


@settings(many, max_examples=examples(800))
@given(plain_parts)
def test_a_part_that_both_dialects_can_express_is_the_same_after_both(part: Part) -> None:
    old = sent(v03_parts.write_part(part))
    new = sent(v10.write_part(v03_parts.read_part(old)))
    assert v10.read_part(new) == part
    assert dump(v03_parts.write_part(v10.read_part(new))) == dump(old)


@settings(many, max_examples=examples(800))
@given(modern_parts)
def test_a_part_that_only_1_0_can_express_survives_0_3(part: Part) -> None:
    new = sent(v10.write_part(part))
    old = sent(v03_parts.write_part(v10.read_part(new)))
    assert isinstance(old.get("data", {}), dict)
    back = sent(v10.write_part(v03_parts.read_part(old)))
    assert (dump(back), v03_parts.read_part(old)) == (dump(new), part)


@settings(many, max_examples=examples(800))
@given(plain_parts)
def test_metadata_of_a_0_3_sender_is_kept_even_if_it_resembles_ours(part: Part) -> None:
    document: JsonObject = {"kind": part.kind.value, part.kind.value: part.value, "metadata": part.metadata or {}}
    if part.kind in (PartKind.RAW, PartKind.URL):
        document = {"kind": "file", "file": {"uri": part.value}, "metadata": part.metadata or {}}
    passed_on = sent(v10.write_part(v03_parts.read_part(document)))
    assert exactly(v03_parts.write_part(v10.read_part(passed_on))) == exactly(document)


@settings(many, max_examples=examples(600))
@given(messages)
def test_0_1_keeps_what_it_can_express(message: Message) -> None:
    back = over(v01, message)
    assert isinstance(back, Message)
    assert (back.role, back.parts, back.metadata) == (message.role, message.parts, message.metadata)


@pytest.mark.parametrize("value", [None, [], [1, None], "x", 0, False, 1.5])
def test_data_that_is_not_an_object_is_wrapped_and_marked_in_0_3(value: Any) -> None:
    part = Part(PartKind.DATA, value, metadata={"a": 1})
    document = v03_parts.write_part(part)
    assert document == {"kind": "data", "data": {"value": value}, "metadata": {"a": 1, "data_part_compat": True}}
    assert v03_parts.read_part(document) == part


def test_the_media_type_and_name_of_a_text_are_kept_in_its_metadata_in_0_3() -> None:
    part = Part(PartKind.TEXT, "# Hi", "hi.md", "text/markdown", {"kind": "mine"})
    document = v03_parts.write_part(part)
    kept = {"kind": "mine", "rolecall": {"mediaType": "text/markdown", "filename": "hi.md"}}
    assert document == {"kind": "text", "text": "# Hi", "metadata": kept}
    assert v03_parts.read_part(document) == part
