"""Choosing among equals: the less busy of two that the dice name."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from random import Random

import pytest

from hub.core.routing.balance import busyness, least_busy_of_two
from rolecall.model.ids import WorkerId
from rolecall.model.worker import Offer, Registration


class Dice(Random):
    """Shows what it is told to."""

    def __init__(self, *shows: float) -> None:
        super().__init__()
        self.shows = list(shows)

    def random(self) -> float:
        return self.shows.pop(0)


def worker(name: str, in_flight: int = 0, capacity: int | None = None, reported: int = 0) -> Registration:
    offer = Offer(WorkerId("a", name), "http://w/", capacity=capacity)
    lease = Registration("default", offer, 1, "b", "s", timedelta(seconds=60))
    lease.in_flight, lease.reported_in_flight = in_flight, reported
    return lease


def chosen(workers: Sequence[Registration], *shows: float) -> str:
    return least_busy_of_two(workers, Dice(*shows)).worker.instance


def test_the_one_there_is_gets_it_whatever_it_has() -> None:
    assert chosen([worker("only", in_flight=9)]) == "only"


@pytest.mark.parametrize(("first", "second"), [(first, second) for first in (0.0, 0.99) for second in (0.0, 0.99)])
def test_of_two_both_are_always_looked_at(first: float, second: float) -> None:
    """The dice never name one worker twice."""
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
def test_the_second_is_one_of_the_others(first: float, second: float, looked_at: str) -> None:
    for least in looked_at:
        workers = [worker(name, in_flight=5 if name != least else 1) for name in "abcd"]
        assert chosen(workers, first, second) == least
    # Equals: the first that the dice named.
    assert chosen([worker(name) for name in "abcd"], first, second) == looked_at[0]


def test_whom_the_dice_do_not_name_is_not_chosen() -> None:
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
def test_busyness_is_the_share_of_its_slots(lease: Registration, busy: float) -> None:
    """Without a limit it counts as one that has eight."""
    assert busyness(lease) == busy
