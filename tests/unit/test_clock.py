"""A clock that counts only the time in which the process ran."""

from __future__ import annotations

from hub.clock import WakingClock


class Source:
    def __init__(self) -> None:
        self.now = 500.0

    def __call__(self) -> float:
        return self.now


def test_time_passes_while_the_clock_is_read() -> None:
    source = Source()
    clock = WakingClock(source)
    start = clock.monotonic()
    for _ in range(100):
        source.now += 0.5
        clock.monotonic()
    assert clock.monotonic() - start == 50
    assert clock.pauses == 0


def test_time_in_which_the_process_was_suspended_does_not_count() -> None:
    source = Source()
    clock = WakingClock(source)
    before = clock.monotonic()
    source.now += 300
    assert clock.monotonic() == before
    source.now += 0.25
    assert clock.monotonic() == before + 0.25
    assert clock.pauses == 300
