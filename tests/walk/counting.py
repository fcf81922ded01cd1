"""What is counted, from the calls of functions that a profile saw.

A *step* is a `call` event of `sys.setprofile` for a function of ours: one whose file lies in `hub/`, `rolecall/` or
`worker_sdk/`. A coroutine or generator that goes on is such an event too, for each frame of its chain. A plain return to the
caller is none, and calls of libraries are none. The steps of each thread are taken by themselves and in their order.

A thread *enters* a file when its step is in another file than its step before. The first time it visits the file; each further
time is a *return*. So a call that goes `a a b a c b` enters 5 times: it passes 3 files and returns twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Step(NamedTuple):
    thread: int
    file: str


@dataclass(frozen=True, slots=True)
class Walk:
    """How often each file was entered, by all threads; in the order of the first visits."""

    entered: dict[str, int]
    returns: int

    @property
    def files(self) -> int:
        return len(self.entered)


def walk_of(steps: Iterable[Step]) -> Walk:
    entered: Counter[str] = Counter()
    visited: set[Step] = set()
    last: dict[int, str] = {}
    returns = 0
    for step in steps:
        if last.get(step.thread) == step.file:
            continue
        last[step.thread] = step.file
        entered[step.file] += 1
        returns += step in visited
        visited.add(step)
    return Walk(dict(entered), returns)


def usual(walks: Sequence[Walk]) -> Walk:
    """The walk that most calls take; of several, the shortest. A timer of the hub that fires during a call adds to its walk."""
    taken = Counter((walk.files, walk.returns) for walk in walks)
    return min(walks, key=lambda walk: (-taken[walk.files, walk.returns], walk.returns, walk.files))


def like(walk: Walk, walks: Iterable[Walk]) -> int:
    """How many have the same figures."""
    return sum((each.files, each.returns) == (walk.files, walk.returns) for each in walks)


def listed(walk: Walk) -> list[str]:
    """A line for each file."""
    return [f"{times:5}  {file}" for file, times in walk.entered.items()]
