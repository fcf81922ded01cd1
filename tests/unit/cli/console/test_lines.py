"""Output becomes lines that are whole, bounded and harmless."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecall.cli.console.lines import LONGEST, LineSplitter, safe_line
from tests.helpers.examples import examples


def split(*chunks: bytes) -> list[str]:
    splitter = LineSplitter()
    return [line for chunk in chunks for line in splitter.feed(chunk)] + list(splitter.finish())


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ((b"a\nb\n",), ["a", "b"]),
        ((b"a", b"b\nc"), ["ab", "c"]),
        ((b"a\r\nb\r\n",), ["a", "b"]),
        ((b"\n\n",), ["", ""]),
        ((b"caf\xc3", b"\xa9\n"), ["café"]),
        ((b"\xff\n",), ["\ufffd"]),
        ((b"10%\r20%\r30%\n",), ["30%"]),
        ((b"10%\r", b"20%\r", b"done\n"), ["done"]),
        ((b"10%", b"\r20%", b"\r\n"), ["20%"]),
        ((b"a\r", b"\nb\n"), ["a", "b"]),
        ((), []),
    ],
)
def test_chunks_become_lines(chunks: tuple[bytes, ...], lines: list[str]) -> None:
    assert split(*chunks) == lines


@settings(max_examples=examples(200))
@given(st.binary(max_size=200), st.integers(1, 40))
def test_how_the_bytes_are_cut_changes_nothing(text: bytes, size: int) -> None:
    chunks = [text[start : start + size] for start in range(0, len(text), size)]
    assert split(*chunks) == split(text) if text else split(*chunks) == []


def test_a_long_line_is_cut_and_says_by_how_much() -> None:
    (line,) = split(*[b"x" * 1000] * 100, b"\n")
    assert line == "x" * LONGEST + f" … ({100_000 - LONGEST} more bytes)"
    assert split(b"y" * LONGEST + b"\n") == ["y" * LONGEST]


def test_after_a_long_line_the_next_is_whole() -> None:
    assert split(b"x" * (LONGEST + 5) + b"\nnext\n")[1] == "next"


def test_a_line_without_an_end_holds_no_more_than_the_bound() -> None:
    splitter = LineSplitter()
    for _ in range(1000):
        assert list(splitter.feed(b"x" * 4096)) == []
    (line,) = splitter.finish()
    assert line == "x" * LONGEST + f" … ({1000 * 4096 - LONGEST} more bytes)"


@pytest.mark.parametrize(
    ("text", "plain", "with_colour"),
    [
        ("plain", "plain", "plain"),
        ("\x1b[31mred\x1b[0m", "red", "\x1b[31mred\x1b[0m\x1b[0m"),
        ("\x1b[31mred", "red", "\x1b[31mred\x1b[0m"),
        ("\x1b[2J\x1b[1;1Hcleared", "cleared", "cleared"),
        ("\x1b]0;a title\x07text", "text", "text"),
        ("\x1b]52;c;cGFzc3dk\x1b\\text", "text", "text"),
        ("\x1b]8;;http://evil", "", ""),
        ("a\x07b\x00c\x7f", "abc", "abc"),
        ("a\tb", "a\tb", "a\tb"),
        ("\x1b", "", ""),
        ("\x9b31mred", "31mred", "31mred"),
    ],
)
def test_a_line_can_colour_itself_and_do_nothing_else_to_the_terminal(text: str, plain: str, with_colour: str) -> None:
    assert safe_line(text, colour=False) == plain
    assert safe_line(text, colour=True) == with_colour
