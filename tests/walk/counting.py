"""Counts a walk from the function calls that a profile recorded.

A *step* is a `call` event of `sys.setprofile` for a function of ours: one whose file lies in `hub/`, `rolecall/` or
`worker_sdk/`. A coroutine or generator that resumes is also a step, for each frame of its chain. A plain return to a caller
is no step, and calls of libraries are none. The steps of each thread are counted separately, in their order.

A thread *enters* a file when its step is in another file than its previous step. The first entry is a visit; each later one is
a *return*. A call that goes `a a b a c b` enters 5 times: it passes 3 files and returns twice.
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
    """How often all threads entered each file, in the order of the first visits."""

    entries: dict[str, int]
    returns: int

    @property
    def files(self) -> int:
        return len(self.entries)


class Kept(NamedTuple):
    """What a process keeps in memory, or what it keeps for each stream."""

    objects: float
    tasks: float
    size: float
    """KiB of resident memory."""

    def since(self, before: Kept, streams: int) -> Kept:
        """What each of the streams that were opened since then keeps."""
        return Kept(*((now - then) / streams for now, then in zip(self, before, strict=True)))


def walk_of(steps: Iterable[Step]) -> Walk:
    entries: Counter[str] = Counter()
    seen: set[Step] = set()
    last: dict[int, str] = {}
    returns = 0
    for step in steps:
        if last.get(step.thread) == step.file:
            continue
        last[step.thread] = step.file
        entries[step.file] += 1
        returns += step in seen
        seen.add(step)
    return Walk(dict(entries), returns)


def shortest(found: Sequence[Walk]) -> Walk:
    """The walk of a call that nothing disturbed: a timer of the hub during a call only adds to its walk."""
    return min(found, key=lambda walk: (walk.returns, walk.files))


def like(walk: Walk, found: Iterable[Walk]) -> int:
    """How many walks have the same figures."""
    return sum((other.files, other.returns) == (walk.files, walk.returns) for other in found)


def file_lines(walk: Walk) -> list[str]:
    """A line for each file."""
    return [f"{times:5}  {file}" for file, times in walk.entries.items()]
