"""Limits of requests per caller."""

from __future__ import annotations

import pytest

from hub.inbound.middleware.rate_limiter import RateLimiter
from rolecall.errors import TooManyAtOnce, TooManyRequests
from rolecall.model.ids import Caller
from tests.helpers.clock import ManualClock

CALLER, OTHER = Caller("default", "alice"), Caller("default", "bob")


def ask(rate_limiter: RateLimiter, caller: Caller, times: int) -> int:
    """How many requests are admitted."""
    admitted = 0
    for _ in range(times):
        try:
            rate_limiter.enter(caller)
            admitted += 1
            rate_limiter.leave(caller)
        except TooManyRequests:
            pass
    return admitted


def test_a_burst_of_twice_the_rate_is_admitted_and_then_the_rate() -> None:
    clock = ManualClock()
    rate_limiter = RateLimiter(rate=10, at_once=0, monotonic=clock.monotonic)
    assert ask(rate_limiter, CALLER, 100) == 20
    clock.advance(1)
    assert ask(rate_limiter, CALLER, 100) == 10
    assert ask(rate_limiter, OTHER, 100) == 20
    clock.advance(100)
    assert ask(rate_limiter, CALLER, 100) == 20


def test_a_refusal_contains_the_time_to_retry() -> None:
    rate_limiter = RateLimiter(rate=0.1, at_once=0, monotonic=ManualClock().monotonic)
    with pytest.raises(TooManyRequests) as refused:
        rate_limiter.enter(CALLER)
    assert refused.value.retry_after == pytest.approx(8)


def test_open_requests_are_limited_and_leaving_makes_room() -> None:
    rate_limiter = RateLimiter(rate=0, at_once=2)
    for caller in (CALLER, CALLER, OTHER):
        rate_limiter.enter(caller)
    with pytest.raises(TooManyAtOnce):
        rate_limiter.enter(CALLER)
    rate_limiter.leave(CALLER)
    assert ask(rate_limiter, CALLER, 3) == 3


def test_zero_is_no_limit() -> None:
    assert ask(RateLimiter(rate=0, at_once=0), CALLER, 10_000) == 10_000


def test_a_request_refused_by_the_rate_does_not_count_as_open() -> None:
    clock = ManualClock()
    rate_limiter = RateLimiter(rate=1, at_once=2, monotonic=clock.monotonic)
    assert ask(rate_limiter, CALLER, 50) == 2
    clock.advance(10)
    for _ in range(2):
        rate_limiter.enter(CALLER)
    with pytest.raises(TooManyAtOnce):
        rate_limiter.enter(CALLER)
    for _ in range(2):
        rate_limiter.leave(CALLER)
    clock.advance(10)
    assert ask(rate_limiter, CALLER, 50) == 2


def test_a_request_refused_for_open_requests_does_not_use_the_rate() -> None:
    rate_limiter = RateLimiter(rate=1, at_once=1, monotonic=ManualClock().monotonic)
    rate_limiter.enter(CALLER)
    for _ in range(50):
        with pytest.raises(TooManyAtOnce):
            rate_limiter.enter(CALLER)
    rate_limiter.leave(CALLER)
    assert ask(rate_limiter, CALLER, 5) == 1


def test_the_number_of_remembered_callers_is_limited() -> None:
    """Beyond the limit all callers start anew; a known caller never causes that."""
    rate_limiter = RateLimiter(rate=1, at_once=0, monotonic=ManualClock().monotonic)
    for number in range(9_999):
        assert ask(rate_limiter, Caller("default", str(number)), 1) == 1
    assert ask(rate_limiter, CALLER, 9) == 2
    assert ask(rate_limiter, CALLER, 9) == 0
    assert ask(rate_limiter, OTHER, 1) == 1
    assert ask(rate_limiter, CALLER, 9) == 2
