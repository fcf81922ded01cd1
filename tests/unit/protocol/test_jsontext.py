"""JSON as it comes in: finite numbers only, and everything else as it was."""

from __future__ import annotations

import time
import timeit
from functools import partial
from typing import Any

import pytest

from rolecall.errors import TooManyValues
from rolecall.protocol.jsonrpc import read_body
from rolecall.protocol.text.jsontext import MAX_VALUES, NotJson, dump, has_more_values, is_deeper, parse, read_object

DIGITS = "1" * 400


@pytest.mark.parametrize(
    "number", ["1e999", "-1E999", "1e+999", "9.9E+400", f"{DIGITS}.5", f"-{DIGITS}.0", f"{DIGITS}e-1", "1e0400"]
)
@pytest.mark.parametrize("deps", ["{}", "[0, {}]", '{{"a": [{{"b": {}}}]}}'])
def test_a_number_that_is_too_large_is_refused_wherever_it_stands(number: str, deps: str) -> None:
    for text in (deps.format(number).encode(), bytearray(deps.format(number).encode())):
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


@pytest.mark.parametrize(
    ("text", "depth"),
    [
        (b"1", 0),
        (b"[]", 1),
        (b'{"a":[{}]}', 3),
        (b"[[],[],[[]],[]]", 3),
        (b'["[[[[","\\"[[[[\\\\",{"[{":"]}"}]', 2),
        (b'[["]]"],"]",[[""]]]', 3),
        (b"[" + b"{}," * 500 + b"{}]", 2),
    ],
)
def test_depth_is_what_lies_in_one_another_outside_of_texts(text: bytes, depth: int) -> None:
    assert not is_deeper(text, depth)
    assert depth == 0 or is_deeper(text, depth - 1)


@pytest.mark.parametrize("piece", [b'"', b'\\"', b'"\\', b'"[', b"[", b'{"', b"]["])
def test_how_deep_something_is_is_seen_in_one_pass_whatever_it_is(piece: bytes) -> None:
    """Ten times as much takes ten times as long, not a hundred times."""

    def seconds(count: int) -> float:
        text = b"[[" + piece * count
        return min(timeit.repeat(lambda: is_deeper(text, 1), number=1, repeat=5, timer=time.process_time))

    assert seconds(100_000) < 30 * max(seconds(10_000), 0.001)


def test_a_usual_request_is_not_held_up() -> None:
    text = dump({"id": 1, "params": {"message": {"parts": [{"text": "x" * 400}], "metadata": {"a": [1, {"b": 2}]}}}})
    assert min(timeit.repeat(lambda: is_deeper(text, 100), number=1000, repeat=5, timer=time.process_time)) < 0.005


@pytest.mark.parametrize("one", [b"{}", b"[]", b"0", b'"a"', b'{"":0}', b"[[[]]]"])
def test_values_are_counted_before_they_are_made(one: bytes) -> None:
    many = b"[" + b",".join([one] * 300) + b"]"
    count = 300 * (1 + one.count(b"[") + one.count(b"{"))
    assert has_more_values(many, count - 1)
    assert not has_more_values(many, count + 1)


def test_what_stands_in_texts_counts_as_one_value() -> None:
    assert not has_more_values(b'["' + b',[{\\"' * 1_000 + b'"]', 10)
    assert has_more_values(b'["' + b",[{" * 1_000 + b'",' + b"1," * 20 + b"1]", 10)


def test_a_request_may_hold_many_values_and_no_more() -> None:
    for read in (partial(read_object, max_depth=100), read_body):
        assert len(read(b'{"a":[' + b",".join([b"0"] * (MAX_VALUES - 10)) + b"]}")["a"]) == MAX_VALUES - 10
        with pytest.raises(TooManyValues, match="more than 400000 numbers, texts, lists and objects"):
            read(b'{"a":[' + b",".join([b"0"] * (MAX_VALUES + 10)) + b"]}")
