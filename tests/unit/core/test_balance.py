"""Chooses the less busy of two random workers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from random import Random

import pytest

from hub.core.routing.router import least_busy_of_two, relative_load
from rolecall.model.ids import WorkerId
from rolecall.model.worker import Offer, Registration


class ScriptedRandom(Random):
    """Returns the given numbers."""

    def __init__(self, *numbers: float) -> None:
        super().__init__()
        self.numbers = list(numbers)

    def random(self) -> float:
        return self.numbers.pop(0)


def worker(name: str, in_flight: int = 0, capacity: int | None = None, reported: int = 0) -> Registration:
    offer = Offer(WorkerId("a", name), "http://w/", capacity=capacity)
    lease = Registration("default", offer, 1, "b", "s", timedelta(seconds=60))
    lease.in_flight = in_flight
    lease.report(reported)
    return lease


def chosen(workers: Sequence[Registration], *numbers: float) -> str:
    return least_busy_of_two(workers, ScriptedRandom(*numbers)).worker.instance


def test_the_only_worker_is_chosen_at_any_load() -> None:
    assert chosen([worker("only", in_flight=9)]) == "only"


@pytest.mark.parametrize(("first", "second"), [(first, second) for first in (0.0, 0.99) for second in (0.0, 0.99)])
def test_of_two_workers_both_are_always_compared(first: float, second: float) -> None:
    """The two candidates are never the same worker."""
    idle, busy = worker("idle"), worker("busy", in_flight=1)
    assert chosen([idle, busy], first, second) == "idle"
    assert chosen([busy, idle], first, second) == "idle"


@pytest.mark.parametrize(
    ("first", "second", "looked_at"),
    [
        (0.0, 0.0, "ab"),
        (0.0, 0.34, "ac"),
        (0.0, 0.99, "ad"),
        (0.25, 0.0, "ba"),
        (0.25, 0.34, "bc"),
        (0.5, 0.34, "cb"),
        (0.5, 0.67, "cd"),
        (0.99, 0.0, "da"),
        (0.99, 0.99, "dc"),
    ],
)
def test_the_second_candidate_is_another_worker(first: float, second: float, looked_at: str) -> None:
    for least in looked_at:
        workers = [worker(name, in_flight=5 if name != least else 1) for name in "abcd"]
        assert chosen(workers, first, second) == least
    # Equal workers: the first candidate.
    assert chosen([worker(name) for name in "abcd"], first, second) == looked_at[0]


def test_only_the_two_candidates_are_compared() -> None:
    assert chosen([worker("a", 3), worker("b", 2), worker("idle")], 0.0, 0.0) == "b"


@pytest.mark.parametrize(
    ("lease", "busy"),
    [
        (worker("a"), 0),
        (worker("a", in_flight=2, capacity=4), 0.5),
        (worker("a", in_flight=2), 0.25),
        (worker("a", in_flight=1, reported=4, capacity=8), 0.5),
        (worker("a", in_flight=4, reported=1, capacity=8), 0.5),
        (worker("a", in_flight=3, capacity=0), 0.375),
    ],
)
def test_the_relative_load_is_the_used_share_of_the_capacity(lease: Registration, busy: float) -> None:
    """A worker without a capacity counts as one with eight."""
    assert relative_load(lease) == busy
