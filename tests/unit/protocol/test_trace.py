"""What of a request's trace context is passed on."""

from __future__ import annotations

import pytest

from rolecall.protocol.text.trace import read_parent, read_state

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
VALID = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize("value", [VALID, f"00-{TRACE}-{SPAN}-ff", f"01-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-01-what.next"])
def test_a_valid_parent_is_kept(value: str) -> None:
    assert read_parent(value.encode()) == value
    assert read_parent(f" {value}\t".encode()) == value


@pytest.mark.parametrize(
    "value",
    [
        "",
        "x\r\nX-Evil: 1",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01-",
        f"cc-{TRACE}-{SPAN}-01more",
        f"cc-{TRACE}-{SPAN}-01-{'x' * 200}",
        f"00-{TRACE}-{SPAN}-01\xff",
    ],
)
def test_an_invalid_parent_is_dropped(value: str) -> None:
    assert read_parent(value.encode("latin-1")) is None
    assert read_parent(None) is None


def state(*values: str) -> str | None:
    return read_state([value.encode("latin-1") for value in values])


def test_the_members_of_all_headers_are_kept_in_order() -> None:
    assert state("rojo=00f067aa0ba902b7 , congo=t61rcWkgMzE,", "fw529a3039@dt=FfD;x:4 ~") == (
        "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE,fw529a3039@dt=FfD;x:4 ~"
    )
    assert state() is state("") is state(" , ") is None


@pytest.mark.parametrize(
    "value",
    [
        "a",
        "a=",
        "=b",
        "A=b",
        "a=b=c",
        "a=b,a=c",
        "a=\x01",
        "a=\xe9",
        "a@=b",
        "a@B=c",
        "@b=c",
        f"{'k' * 257}=v",
        f"a={'v' * 257}",
    ],
)
def test_a_state_with_an_invalid_member_is_dropped(value: str) -> None:
    assert state(value) is None
    assert state(f"z=1,{value}") is None


def test_a_state_has_32_members_at_most() -> None:
    assert state(",".join(f"k{number}=v" for number in range(32))) is not None
    assert state(",".join(f"k{number}=v" for number in range(33))) is None


def test_of_a_long_state_the_large_members_go_first_and_then_the_last_ones() -> None:
    fits = ",".join(f"k{number}={'v' * 100}" for number in range(4))
    assert state(fits) == fits
    assert state(f"large={'v' * 200},{fits}") == fits
    assert state(fits, f"k4={'v' * 100}") == fits
    assert state(f"a={'v' * 256},b={'v' * 256}") is None
