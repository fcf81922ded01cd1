"""Chooses among equal workers: the less busy of two random ones. Pure except for `rng`."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from rolecall.model.worker import Registration


def least_busy_of_two(candidates: Sequence[Registration], rng: Random) -> Registration:
    """Two random candidates spread the load almost as well as all, and do not send every call to the newest worker."""
    count = len(candidates)
    if count == 1:
        return candidates[0]
    first = int(rng.random() * count)
    second = int(rng.random() * (count - 1))
    if second >= first:
        second += 1
    one, other = candidates[first], candidates[second]
    return one if relative_load(one) <= relative_load(other) else other


def relative_load(registration: Registration) -> float:
    """The used share of the worker's capacity. Without a capacity: its load divided by 8, to compare with such shares."""
    capacity = registration.offer.capacity
    return registration.load / (capacity if capacity else 8)
