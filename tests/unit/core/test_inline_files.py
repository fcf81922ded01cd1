"""Whether the bytes of files have to be put into an event."""

from __future__ import annotations

from typing import Any

import pytest

from hub.core.files.inline import InlineFiles
from hub.core.shares.share import SMALL
from hub.core.shares.table import Shares


class WatchedCodec:
    """Says that a document which begins with `F` may name a file."""

    def __init__(self) -> None:
        self.asked = 0

    def may_name_files(self, body: bytes) -> bool:
        self.asked += 1
        return body.startswith(b"F")


def inline_files(codec: WatchedCodec, limit: int = 1000) -> InlineFiles:
    files: Any = None
    of_codec: Any = codec
    return InlineFiles(files, of_codec, Shares(), limit)


def test_an_event_is_searched_once_for_all_its_readers() -> None:
    inline = inline_files(codec := WatchedCodec())
    for count, body in enumerate([b"F one", b"two", b"F three"], start=1):
        assert {inline.may_be_in(body) for _ in range(1000)} == {body.startswith(b"F")}
        assert codec.asked == count


@pytest.mark.parametrize("first", [b"F", b"x"])
def test_a_large_event_is_not_kept_for_that(first: bytes) -> None:
    inline = inline_files(codec := WatchedCodec())
    large = first * SMALL
    assert [inline.may_be_in(large) for _ in range(3)] == [first == b"F"] * 3
    assert codec.asked == 3


def test_a_hub_that_puts_nothing_in_searches_nothing() -> None:
    inline = inline_files(codec := WatchedCodec(), limit=0)
    assert not inline.may_be_in(b"F")
    assert codec.asked == 0
