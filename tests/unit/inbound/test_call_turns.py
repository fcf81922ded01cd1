"""A2A calls start several per loop iteration, workspaces in rotation."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hub.core.shares.rotation import Rotation
from hub.inbound.middleware.call_turns import CallTurns


class Calls:
    """Calls that arrive in one iteration of the loop, and in which order they start."""

    def __init__(self) -> None:
        self.turns = CallTurns(Rotation("starts"))
        self.started: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    def come(self, *workspaces: str) -> None:
        self.tasks += [asyncio.create_task(self._one(workspace)) for workspace in workspaces]

    async def _one(self, workspace: str) -> None:
        turn = self.turns.take(workspace)
        if turn is not None:
            await turn
        self.started.append(workspace)

    async def starts(self) -> Sequence[int]:
        """How many start in each iteration, until all have."""
        counts: list[int] = []
        while not all(task.done() for task in self.tasks):
            before = len(self.started)
            await asyncio.sleep(0)
            counts.append(len(self.started) - before)
        return counts


async def test_few_calls_start_at_once() -> None:
    calls = Calls()
    calls.come(*["a"] * 32)
    assert await calls.starts() == [32]


async def test_of_many_calls_a_few_start_in_each_iteration_in_order() -> None:
    calls = Calls()
    calls.come(*map(str, range(100)))
    counts = await calls.starts()
    assert max(counts) == 32
    assert len(counts) < 20
    assert calls.started == [str(number) for number in range(100)]


async def test_a_workspace_with_one_call_does_not_wait_for_the_hundred_of_another() -> None:
    calls = Calls()
    calls.come(*["busy"] * 100, "quiet")
    await calls.starts()
    assert calls.started.index("quiet") < 40


async def test_calls_that_come_one_after_another_never_wait() -> None:
    turns = CallTurns(Rotation("starts"))
    for _ in range(50):
        assert turns.take("a") is None
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_a_cancelled_call_leaves_its_turn_to_the_next() -> None:
    calls = Calls()
    calls.come(*["a"] * 80)
    await asyncio.sleep(0)
    for task in calls.tasks[32:78]:
        task.cancel()
    await asyncio.wait_for(asyncio.gather(*calls.tasks, return_exceptions=True), 1)
    assert len(calls.started) == 34
