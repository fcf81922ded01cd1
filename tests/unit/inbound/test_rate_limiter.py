from __future__ import annotations

import pytest

from hub.inbound.middleware.rate_limiter import RateLimiter
from rolecall.errors import TooManyAtOnce, TooManyRequests
from rolecall.model.ids import Caller
from tests.helpers.clock import MovableClock

ANNA, BERT = Caller("default", "anna"), Caller("default", "bert")


def ask(rate_limiter: RateLimiter, caller: Caller, times: int) -> int:
    """How many of them got through."""
    passed = 0
    for _ in range(times):
        try:
            rate_limiter.enter(caller)
            passed += 1
            rate_limiter.leave(caller)
        except TooManyRequests:
            pass
    return passed


def test_a_burst_of_twice_the_rate_gets_through_and_then_the_rate() -> None:
    clock = MovableClock()
    rate_limiter = RateLimiter(rate=10, at_once=0, monotonic=clock.monotonic)
    assert ask(rate_limiter, ANNA, 100) == 20
    clock.advance(1)
    assert ask(rate_limiter, ANNA, 100) == 10
    assert ask(rate_limiter, BERT, 100) == 20
    clock.advance(100)
    assert ask(rate_limiter, ANNA, 100) == 20


def test_who_is_refused_is_told_when_to_come_back() -> None:
    rate_limiter = RateLimiter(rate=0.1, at_once=0, monotonic=MovableClock().monotonic)
    with pytest.raises(TooManyRequests) as refused:
        rate_limiter.enter(ANNA)
    assert refused.value.retry_after == pytest.approx(8)


def test_no_more_than_so_many_are_under_way_and_who_leaves_makes_room() -> None:
    rate_limiter = RateLimiter(rate=0, at_once=2)
    for caller in (ANNA, ANNA, BERT):
        rate_limiter.enter(caller)
    with pytest.raises(TooManyAtOnce):
        rate_limiter.enter(ANNA)
    rate_limiter.leave(ANNA)
    assert ask(rate_limiter, ANNA, 3) == 3


def test_zero_is_no_limit() -> None:
    assert ask(RateLimiter(rate=0, at_once=0), ANNA, 10_000) == 10_000


def test_who_is_refused_by_the_rate_keeps_no_place_under_way() -> None:
    clock = MovableClock()
    rate_limiter = RateLimiter(rate=1, at_once=2, monotonic=clock.monotonic)
    assert ask(rate_limiter, ANNA, 50) == 2
    clock.advance(10)
    for _ in range(2):
        rate_limiter.enter(ANNA)
    with pytest.raises(TooManyAtOnce):
        rate_limiter.enter(ANNA)
    for _ in range(2):
        rate_limiter.leave(ANNA)
    clock.advance(10)
    assert ask(rate_limiter, ANNA, 50) == 2


def test_who_is_refused_for_what_is_under_way_pays_nothing_of_the_rate() -> None:
    rate_limiter = RateLimiter(rate=1, at_once=1, monotonic=MovableClock().monotonic)
    rate_limiter.enter(ANNA)
    for _ in range(50):
        with pytest.raises(TooManyAtOnce):
            rate_limiter.enter(ANNA)
    rate_limiter.leave(ANNA)
    assert ask(rate_limiter, ANNA, 5) == 1


def test_a_crowd_of_callers_is_not_remembered_for_ever() -> None:
    """Where too many are, all begin anew; those that are known are not forgotten for each other's sake."""
    rate_limiter = RateLimiter(rate=1, at_once=0, monotonic=MovableClock().monotonic)
    for number in range(9_999):
        assert ask(rate_limiter, Caller("default", str(number)), 1) == 1
    assert ask(rate_limiter, ANNA, 9) == 2
    assert ask(rate_limiter, ANNA, 9) == 0
    assert ask(rate_limiter, BERT, 1) == 1
    assert ask(rate_limiter, ANNA, 9) == 2
