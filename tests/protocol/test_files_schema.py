"""The files extension on the wire is what its page and its schema say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from rolecall.model.card import FILES_EXTENSION
from rolecall.protocol.codec import MOST_FILES
from rolecall.protocol.dialects import DIALECTS
from rolecall.protocol.extensions.files import files_extension
from rolecall.protocol.text.profile import write_extension
from tests.helpers.processes import ROOT
from tests.protocol.golden_files import transcript
from tests.protocol.test_sequence_schema import documents_in
from tests.protocol.transcripts import CONVERSATIONS

PAGE = (ROOT / "docs/reference/files-extension.md").read_text("utf-8")
SCHEMA = jsonschema_rs.validator_for(json.loads((ROOT / "docs/reference/files-extension.schema.json").read_text("utf-8")))
WITH_FILES = [name for name in CONVERSATIONS if name.startswith("files-")]


def block(kind: str) -> Any:
    (text,) = re.findall(rf"```json {re.escape(kind)}\n(.*?)```", PAGE, re.DOTALL)
    return json.loads(text)


def parts_in(document: Any) -> Iterator[dict[str, Any]]:
    """The file parts."""
    if isinstance(document, dict) and ("file" in document or document.keys() & {"url", "raw"}):
        yield document
    elif isinstance(document, dict | list):
        for value in document.values() if isinstance(document, dict) else document:
            yield from parts_in(value)


@pytest.mark.parametrize("name", WITH_FILES)
def test_a_caller_gets_files_by_reference_if_it_activated_that_and_else_their_bytes(name: str) -> None:
    for step, text in transcript(f"exchanges/{name}").items():
        sent, _, answered = text.partition("\nHTTP ")
        parts = list(parts_in(documents_in(answered)))
        if step.startswith("send") and "0.1" in name:
            continue  # the answer comes before the worker's
        assert parts, step
        inline = parts if step.endswith("-inline") else []
        for part in [*parts_in(documents_in(sent)), *(parts if not inline else ())]:
            SCHEMA.validate(part["metadata"])
            assert (part.get("url") or part["file"]["uri"]).startswith("https://hub.example/registry/files/")
        for part in inline:
            assert (part.get("raw") or part["file"]["bytes"]) == "Y29udGVudA==" and "metadata" not in part


def test_the_examples_of_the_page_are_valid() -> None:
    for dialect in ("0.3", "1.0"):
        part = block(f"part-{dialect}")
        SCHEMA.validate(part["metadata"])
        assert DIALECTS[dialect].shape.file_url(part)
    entry = block("card")
    SCHEMA.validate({FILES_EXTENSION: entry["params"]})
    assert entry == {"required": False, **write_extension(files_extension(**entry["params"]))}
    assert f"may name {MOST_FILES} files" in PAGE.replace("\n", " ")


@pytest.mark.parametrize("own", [{}, {"size": -1}, {"size": "1"}, {"size": 1, "sha256": "x"}, {"url": "https://x"}, 1])
def test_the_schema_refuses_other_forms(own: Any) -> None:
    assert not SCHEMA.is_valid({FILES_EXTENSION: own})
