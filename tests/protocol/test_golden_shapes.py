"""Every kind of content in every dialect: golden files, and how the official SDKs read them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from rolecall.model.content import ArtifactUpdate, Content, Message, Task
from rolecall.protocol.v0_1 import shape as v01
from rolecall.protocol.v0_3 import shape as v03
from rolecall.protocol.v1_0 import shape as v10
from tests.protocol.golden_contents import CONTENTS
from tests.protocol.golden_files import as_protobuf_writes, exactly, golden, names_in
from tests.protocol.sdk import TYPES, parsed_by_sdk
from tests.unit.protocol.contents import kind_of

INDEX = 1
"""The index of the updated artifact in its task, which 0.1 needs."""


def written_in_01(content: Content) -> Any:
    return v01.write(content, index=INDEX) if isinstance(content, ArtifactUpdate) else v01.write(content)


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize(("dialect", "shape"), [("0.3", v03), ("1.0", v10)])
def test_content_equals_its_golden_file_and_is_read_back_the_same(dialect: str, shape: ModuleType, name: str) -> None:
    content = CONTENTS[name]
    assert exactly(shape.write(content)) == exactly(golden(f"{dialect}/{name}"))
    assert shape.read(kind_of(content), golden(f"{dialect}/{name}")) == content


@pytest.mark.parametrize("name", CONTENTS)
def test_content_in_0_1_equals_its_golden_file_also_after_reading(name: str) -> None:
    content, document = CONTENTS[name], golden(f"0.1/{name}")
    assert exactly(written_in_01(content)) == exactly(document)
    assert exactly(written_in_01(v01.read(kind_of(content), document))) == exactly(document)


@pytest.mark.parametrize("name", [name for name, content in CONTENTS.items() if not isinstance(content, Message)])
def test_a_stream_of_0_1_equals_its_golden_files(name: str) -> None:
    content = CONTENTS[name]
    stored = f"0.1/stream-{name}" if isinstance(content, Task) else f"0.1/{name}"
    assert exactly(v01.write_stream(content, index=INDEX)) == exactly(golden(stored))


def test_every_golden_file_is_compared() -> None:
    streamed = {f"stream-{name}" for name, content in CONTENTS.items() if isinstance(content, Task)}
    assert names_in("0.3") == names_in("1.0") == CONTENTS.keys()
    assert names_in("0.1") == CONTENTS.keys() | streamed


@pytest.mark.parametrize(("version", "dialect"), [("0.3", "0.3"), ("1.x", "1.0")])
def test_the_official_sdk_reads_every_golden_file_and_loses_nothing(version: str, dialect: str) -> None:
    documents = {name: golden(f"{dialect}/{name}") for name in CONTENTS}
    seen = parsed_by_sdk(version, [(TYPES[kind_of(CONTENTS[name])], document) for name, document in documents.items()])
    as_written = as_protobuf_writes if version == "1.x" else lambda document: document
    for name, parsed in zip(documents, seen, strict=True):
        assert exactly(parsed) == exactly(as_written(documents[name])), name


def test_we_translate_0_3_into_1_0_as_the_official_sdk_does() -> None:
    # Without what the SDK cannot translate: name and media type of a text, and metadata that resembles our marks.
    names = [name for name in CONTENTS if name not in ("message-text-named", "message-metadata-like-ours")]
    documents = [(f"0.3 {TYPES[kind_of(CONTENTS[name])]}", golden(f"0.3/{name}")) for name in names]
    for name, parsed in zip(names, parsed_by_sdk("1.x", documents), strict=True):
        assert exactly(parsed) == exactly(as_protobuf_writes(golden(f"1.0/{name}"))), name
