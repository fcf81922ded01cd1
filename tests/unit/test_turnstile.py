from __future__ import annotations

import pytest

from hub.errors import TooManyAtOnce, TooManyRequests
from hub.model.ids import Caller
from hub.web.turnstile import Turnstile
from tests.helpers.clock import MovableClock

ANNA, BERT = Caller("default", "anna"), Caller("default", "bert")


def ask(turnstile: Turnstile, caller: Caller, times: int) -> int:
    """How many of them got through."""
    passed = 0
    for _ in range(times):
        try:
            turnstile.enter(caller)
            passed += 1
            turnstile.leave(caller)
        except TooManyRequests:
            pass
    return passed


def test_a_burst_of_twice_the_rate_gets_through_and_then_the_rate() -> None:
    clock = MovableClock()
    turnstile = Turnstile(rate=10, at_once=0, monotonic=clock.monotonic)
    assert ask(turnstile, ANNA, 100) == 20
    clock.advance(1)
    assert ask(turnstile, ANNA, 100) == 10
    assert ask(turnstile, BERT, 100) == 20
    clock.advance(100)
    assert ask(turnstile, ANNA, 100) == 20


def test_who_is_refused_is_told_when_to_come_back() -> None:
    turnstile = Turnstile(rate=0.1, at_once=0, monotonic=MovableClock().monotonic)
    with pytest.raises(TooManyRequests) as refused:
        turnstile.enter(ANNA)
    assert refused.value.retry_after == pytest.approx(8)


def test_no_more_than_so_many_are_under_way_and_who_leaves_makes_room() -> None:
    turnstile = Turnstile(rate=0, at_once=2)
    for caller in (ANNA, ANNA, BERT):
        turnstile.enter(caller)
    with pytest.raises(TooManyAtOnce):
        turnstile.enter(ANNA)
    turnstile.leave(ANNA)
    assert ask(turnstile, ANNA, 3) == 3


def test_zero_is_no_limit() -> None:
    assert ask(Turnstile(rate=0, at_once=0), ANNA, 10_000) == 10_000
