"""JSON as it comes in: finite numbers only, and everything else as it was."""

from __future__ import annotations

from typing import Any

import pytest

from hub.wire.jsontext import NotJson, dump, parse

DIGITS = "1" * 400


@pytest.mark.parametrize(
    "number", ["1e999", "-1E999", "1e+999", "9.9E+400", f"{DIGITS}.5", f"-{DIGITS}.0", f"{DIGITS}e-1", "1e0400"]
)
@pytest.mark.parametrize("around", ["{}", "[0, {}]", '{{"a": [{{"b": {}}}]}}'])
def test_a_number_that_is_too_large_is_refused_wherever_it_stands(number: str, around: str) -> None:
    for text in (around.format(number).encode(), bytearray(around.format(number).encode())):
        with pytest.raises(NotJson, match="out of range"):
            parse(text)


@pytest.mark.parametrize(
    "value",
    [
        1e308,
        -1e308,
        1e-400,
        0,
        2**70,
        0.1,
        "12e456",
        "1e999",
        DIGITS,
        "7E+999",
        {"1e999": "1e999"},
        [None, True, ""],
        "ä\0\u2028",
    ],
)
def test_what_only_looks_like_one_is_kept(value: Any) -> None:
    assert parse(dump(value)) == value


@pytest.mark.parametrize("text", [b"", b"NaN", b"Infinity", b'{"a":1} x', b"[" * 300, b"\xff", b'"\\ud800"', b"{'a':1}"])
def test_what_is_no_json_is_refused(text: bytes) -> None:
    with pytest.raises(NotJson):
        parse(text)
