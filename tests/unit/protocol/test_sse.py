"""The frame reader gives the same frames however the bytes are cut, and keeps no more than its limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.protocol.sse import Frame, FrameReader, FrameTooLong, write_frame

STREAM = (
    b": hello\n\nid: 1\ndata: {}\n\n"
    b"event: status\r\ndata: a\r\ndata: b\r\n\r\n"
    b"data:no space\rid: b.7\r\rretry: 5\n\n"
    b"id: \xc3\xa9\ndata: \xf0\x9f\x8e\x89\n\n"
)
FRAMES = [
    Frame(b"{}", "1", None),
    Frame(b"a\nb", None, "status"),
    Frame(b"no space", "b.7", None),
    Frame("🎉".encode(), "é", None),
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_frames_do_not_depend_on_where_the_bytes_are_cut(positions: list[int]) -> None:
    reader, frames, at = FrameReader(), [], 0
    for cut in [*sorted(positions), len(STREAM)]:
        frames += reader.feed(STREAM[at:cut])
        at = cut
    assert frames == FRAMES
    assert reader.held == 0


@given(st.binary(max_size=4096))
def test_no_bytes_break_the_reader(content: bytes) -> None:
    reader = FrameReader(limit=1024)
    try:
        for at in range(0, len(content), 7):
            reader.feed(content[at : at + 7])
    except FrameTooLong:
        pass


def test_an_endless_line_is_refused_at_the_limit() -> None:
    reader = FrameReader(limit=1000)
    with pytest.raises(FrameTooLong):
        for _ in range(100):
            reader.feed(b"x" * 100)


def test_an_endless_event_of_short_lines_is_refused_at_the_limit() -> None:
    reader = FrameReader(limit=1000)
    with pytest.raises(FrameTooLong):
        for _ in range(100):
            reader.feed(b"data: " + b"x" * 50 + b"\n")


def test_an_unfinished_frame_is_recognised() -> None:
    reader = FrameReader()
    reader.feed(b"data: x\n")
    assert reader.held > 0
    reader.feed(b"\n")
    assert reader.held == 0


def test_a_written_frame_is_read_again() -> None:
    assert FrameReader().feed(write_frame(b'{"a":1}', cursor=7)) == [Frame(b'{"a":1}', "7", None)]


@pytest.mark.parametrize("start", [b"data: ", b"data:", b"id: 3\ndata: "])
def test_a_long_line_that_comes_in_pieces_is_read_whole(start: bytes) -> None:
    line = bytes(range(33, 127)) * 2_000
    whole, reader = start + line + b"\ndata: more\n\ndata: next\n\n", FrameReader()
    frames = [frame for at in range(0, len(whole), 1_000) for frame in reader.feed(whole[at : at + 1_000])]
    assert [frame.data for frame in frames] == [line + b"\nmore", b"next"]
    assert reader.held == 0


def test_a_long_line_that_comes_in_pieces_is_refused_at_the_limit() -> None:
    reader = FrameReader(limit=100_000)
    with pytest.raises(FrameTooLong):
        for piece in (b"data: " + b"x" * 60_000, b"x" * 30_000 + b"\ndata: " + b"x" * 20_000 + b"\n"):
            reader.feed(piece)
