"""The sequence extension on the wire is what its page and its schema say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from rolecall.model.card import SEQUENCE_EXTENSION
from rolecall.protocol.extensions.sequence import SEQUENCE
from rolecall.protocol.text.profile import write_extension
from tests.helpers.processes import ROOT
from tests.protocol.golden_files import transcript
from tests.protocol.transcripts import CONVERSATIONS

PAGE = (ROOT / "docs/reference/sequence-extension.md").read_text("utf-8")
SCHEMA = jsonschema_rs.validator_for(json.loads((ROOT / "docs/reference/sequence-extension.schema.json").read_text("utf-8")))
NUMBERED = [name for name in CONVERSATIONS if name.startswith("sequence-")]


def blocks(kind: str) -> list[Any]:
    return [json.loads(text) for text in re.findall(rf"```json {kind}\n(.*?)```", PAGE, re.DOTALL)]


def metadata_in(document: Any) -> Iterator[dict[str, Any]]:
    """Every one that has the extension's member."""
    if isinstance(document, dict):
        metadata = document.get("metadata")
        if isinstance(metadata, dict) and SEQUENCE_EXTENSION in metadata:
            yield metadata
    if isinstance(document, dict | list):
        for value in document.values() if isinstance(document, dict) else document:
            yield from metadata_in(value)


def documents_in(text: str) -> list[Any]:
    lines = (line.removeprefix("data: ") for line in text.splitlines())
    return [json.loads(line) for line in lines if line.startswith("{")]


@pytest.mark.parametrize("name", NUMBERED)
def test_what_is_sent_and_answered_is_valid(name: str) -> None:
    found = [one for text in transcript(f"exchanges/{name}").values() for one in metadata_in(documents_in(text))]
    assert len(found) > 10
    for metadata in found:
        SCHEMA.validate(metadata)


@pytest.mark.parametrize("name", NUMBERED)
def test_every_answer_that_is_a_task_or_an_event_has_one_number(name: str) -> None:
    for step, text in transcript(f"exchanges/{name}").items():
        answered = documents_in(text.partition("\nHTTP ")[2])
        for document in answered:
            if "error" not in document and step != "list":
                assert len(list(metadata_in(document))) == 1, step


def test_the_examples_of_the_page_are_valid() -> None:
    examples = [*blocks("metadata"), *blocks("params"), *blocks("gap")]
    assert len(examples) == 3
    for example in examples:
        SCHEMA.validate(example)
    (entry,) = blocks("card")
    assert entry == {"required": False, **write_extension(SEQUENCE)}


@pytest.mark.parametrize("own", [{}, {"sequence": 0}, {"sequence": "1"}, {"sequence": 1, "gap": False}, {"after": -1}, 1])
def test_the_schema_refuses_other_forms(own: Any) -> None:
    assert not SCHEMA.is_valid({SEQUENCE_EXTENSION: own})
