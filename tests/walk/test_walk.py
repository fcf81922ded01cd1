"""The walk of a call: what counts as a visit and as a return, and the count of a real call."""

from __future__ import annotations

import pytest

from tests.walk.calling import repeat_walk
from tests.walk.counting import Kept, Step, Walk, file_lines, shortest, walk_of
from tests.walk.silent import kept_by_stream


def steps(files: str, thread: int = 0) -> list[Step]:
    return [Step(thread, file) for file in files]


@pytest.mark.parametrize(
    ("passed", "files", "returns"),
    [("", 0, 0), ("aaa", 1, 0), ("abc", 3, 0), ("aba", 2, 1), ("aabacb", 3, 2), ("ababab", 2, 4)],
)
def test_a_return_is_a_step_into_a_file_that_was_left(passed: str, files: int, returns: int) -> None:
    walk = walk_of(steps(passed))
    assert (walk.files, walk.returns) == (files, returns)


def test_each_thread_walks_by_itself() -> None:
    """The order of steps of two threads is random."""
    loop, writer = steps("aab", 0), steps("bbc", 1)
    in_turns = [step for both in zip(loop, writer, strict=True) for step in both]
    assert walk_of(in_turns) == walk_of([*loop, *writer]) == Walk({"a": 1, "b": 2, "c": 1}, 0)


def test_files_are_listed_in_the_order_of_the_first_visit() -> None:
    assert file_lines(walk_of(steps("caba"))) == ["    1  c", "    2  a", "    1  b"]


def test_the_walk_that_counts_is_the_shortest() -> None:
    short, long, longest = (walk_of(steps(files)) for files in ("a", "aba", "abac"))
    assert shortest([longest, long, short, long]) == short


async def test_a_call_is_counted_the_same_twice() -> None:
    first, second = [shortest(await repeat_walk(3)) for _ in range(2)]
    assert (first.files, first.returns) == (second.files, second.returns)
    assert first.files > 20
    assert first.returns > first.files
    packages = {file.split("/")[0] for file in first.entries}
    assert packages <= {"hub", "rolecall", "worker_sdk"}
    assert not [file for file in first.entries if file.startswith("worker_sdk/")]


def test_what_is_kept_for_a_stream_is_the_growth_by_the_number_of_streams() -> None:
    assert Kept(400, 12, 9000.0).since(Kept(100, 2, 6000.0), 10) == Kept(30, 1, 300)


async def test_what_an_open_stream_keeps_is_counted_the_same_twice() -> None:
    first, second = [await kept_by_stream(60) for _ in range(2)]
    assert first.tasks == second.tasks >= 1
    assert first.objects == pytest.approx(second.objects, rel=0.1)
    assert first.objects > first.tasks
    assert first.size > 1
