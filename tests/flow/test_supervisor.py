"""Failed loops are restarted with a growing delay, and the end of a job is reported once."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from hub.core.supervisor import Supervisor


async def test_the_restart_delay_of_a_failing_loop_doubles_up_to_ten_seconds() -> None:
    supervisor, clock, began = Supervisor(), asyncio.get_running_loop(), list[float]()

    async def loop() -> None:
        began.append(clock.time())
        raise RuntimeError("boom")

    supervisor.keep_running("shaky", loop)
    await asyncio.sleep(50)
    await supervisor.close()
    pauses = [round(later - earlier, 2) for earlier, later in pairwise(began)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0]


@pytest.mark.parametrize(("lived", "pause"), [(9.9, 0.4), (10.1, 0.1)])
async def test_a_loop_that_ran_well_for_a_while_is_restarted_at_once(lived: float, pause: float) -> None:
    supervisor, clock, runs = Supervisor(), asyncio.get_running_loop(), list[tuple[float, float]]()

    async def loop() -> None:
        began = clock.time()
        if len(runs) == 2:
            await asyncio.sleep(lived)
        runs.append((began, clock.time()))
        raise RuntimeError("boom")

    supervisor.keep_running("shaky", loop)
    await asyncio.sleep(13)
    await supervisor.close()
    assert runs[3][0] - runs[2][1] == pytest.approx(pause, abs=0.001)


async def test_a_loop_that_returns_is_done() -> None:
    supervisor, runs = Supervisor(), 0

    async def loop() -> None:
        nonlocal runs
        runs += 1

    supervisor.keep_running("short", loop)
    await asyncio.sleep(30)
    assert runs == 1
    await supervisor.close()


@pytest.mark.parametrize("how", ["returns", "fails", "is cancelled"])
async def test_every_end_of_a_job_calls_then_once(how: str, caplog: pytest.LogCaptureFixture) -> None:
    supervisor, ended = Supervisor(), list[str]()

    async def job() -> None:
        await asyncio.sleep(1)
        if how == "fails":
            raise RuntimeError("boom")

    task = supervisor.run_once("job", job(), then=lambda: ended.append("over"))
    assert task.get_name() == "job"
    await asyncio.sleep(0.5)
    assert ended == []
    if how == "is cancelled":
        task.cancel()
    await asyncio.sleep(1)
    assert ended == ["over"]
    failures = [record.__dict__["job"] for record in caplog.records if record.message == "background task failed"]
    assert failures == (["job"] if how == "fails" else [])
    await supervisor.close()
    assert ended == ["over"]


async def test_closing_ends_loops_and_jobs() -> None:
    supervisor, ended = Supervisor(), list[str]()

    async def runs(name: str) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ended.append(name)

    supervisor.keep_running("loop", lambda: runs("loop"))
    supervisor.run_once("job", runs("job"))
    await asyncio.sleep(1)
    await supervisor.close()
    assert sorted(ended) == ["job", "loop"]
