"""What of an artifact becomes a file."""

from __future__ import annotations

from typing import Any

import pytest

from rolecall.errors import InvalidParams
from rolecall.model.content import Artifact, Download, Part, PartKind
from rolecall.protocol.callers.downloads import download_of

PIECES = [
    Part(PartKind.RAW, text, "a.bin", metadata={"rolecall": {"piece": at, "pieces": 2}})
    for at, text in ((1, "YWI="), (2, "Yw=="))
]


def file_of(*parts: Part, part: int | None = None, name: str | None = None) -> Download:
    return download_of(Artifact("id", parts, name), 3, part)


@pytest.mark.parametrize(
    ("part", "name", "media_type", "content"),
    [
        (Part(PartKind.TEXT, "é"), "artifact-3.txt", "text/plain; charset=utf-8", "é".encode()),
        (Part(PartKind.TEXT, "# x", "x.md", "text/markdown; charset=latin-1"), "x.md", "text/markdown; charset=utf-8", b"# x"),
        (Part(PartKind.DATA, {"a": [1]}), "artifact-3.json", "application/json", b'{"a":[1]}'),
        (Part(PartKind.DATA, None), "artifact-3.json", "application/json", b"null"),
        (Part(PartKind.RAW, "AP8=", media_type="image/png"), "artifact-3.png", "image/png", b"\x00\xff"),
        (Part(PartKind.RAW, "AP8=", "a.x"), "a.x", "application/octet-stream", b"\x00\xff"),
        (Part(PartKind.RAW, ""), "artifact-3.bin", "application/octet-stream", b""),
        (Part(PartKind.URL, "http://a/\r\nb", "a.png", "image/png"), "a.png.uri", "text/uri-list", b"http://a/b\r\n"),
    ],
)
def test_a_part_is_a_file_with_its_name_and_media_type(part: Part, name: str, media_type: str, content: bytes) -> None:
    assert file_of(part) == Download(name, media_type, content)


def test_a_part_without_a_name_has_that_of_its_artifact() -> None:
    assert file_of(Part(PartKind.TEXT, "x"), name="notes").name == "notes"
    assert file_of(Part(PartKind.TEXT, "x", "own"), name="notes").name == "own"


def test_texts_are_one_text_and_the_pieces_of_a_file_one_file() -> None:
    assert file_of(Part(PartKind.TEXT, "a"), Part(PartKind.TEXT, "b")).content == b"ab"
    assert file_of(*PIECES) == Download("a.bin", "application/octet-stream", b"abc")


def test_an_empty_text_beside_a_file_counts_for_nothing() -> None:
    file = Part(PartKind.RAW, "YWI=", "a.bin")
    assert file_of(Part(PartKind.TEXT, ""), file) == file_of(file)
    assert file_of(Part(PartKind.TEXT, "")).content == b""
    assert file_of(Part(PartKind.TEXT, ""), file, part=1).content == b""


@pytest.mark.parametrize(
    "parts",
    [
        [Part(PartKind.TEXT, "a"), Part(PartKind.DATA, 1)],
        [Part(PartKind.RAW, "YQ=="), Part(PartKind.RAW, "Yg==")],
        [*PIECES, Part(PartKind.TEXT, "a")],
        [*reversed(PIECES)],
        [PIECES[0], PIECES[0]],
    ],
)
def test_of_several_other_parts_one_has_to_be_named(parts: list[Part]) -> None:
    with pytest.raises(InvalidParams, match=f"The artifact has {len(parts)} parts of different kinds"):
        file_of(*parts)
    for at, part in enumerate(parts, 1):
        assert file_of(*parts, part=at) == file_of(part)
    for wrong in (0, len(parts) + 1):
        with pytest.raises(InvalidParams, match=f"has {len(parts)} parts, and no part {wrong}"):
            file_of(*parts, part=wrong)


def test_an_artifact_without_parts_is_no_file() -> None:
    with pytest.raises(InvalidParams, match="0 parts"):
        file_of()


@pytest.mark.parametrize("metadata", [{"rolecall": 1}, {"rolecall": {}}, {"rolecall": {"piece": 1, "pieces": 1}}, {}])
def test_a_part_with_other_metadata_is_a_file_too(metadata: dict[str, Any]) -> None:
    assert file_of(Part(PartKind.RAW, "YQ==", metadata=metadata)).content == b"a"
