"""Choosing among equals: the less busy of two taken at random. Pure but for the dice."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from rolecall.model.worker import Registration


def least_busy_of_two(candidates: Sequence[Registration], rng: Random) -> Registration:
    """Two random choices spread almost as well as looking at all, and do not herd everybody onto the newest worker."""
    count = len(candidates)
    if count == 1:
        return candidates[0]
    first = int(rng.random() * count)
    second = int(rng.random() * (count - 1))
    if second >= first:
        second += 1
    one, other = candidates[first], candidates[second]
    return one if busyness(one) <= busyness(other) else other


def busyness(registration: Registration) -> float:
    """Share of its slots where it has a limit; plain count otherwise, scaled to compare with shares of a few slots."""
    capacity = registration.offer.capacity
    return registration.load / (capacity if capacity else 8)
