"""One program under a runner, on virtual time and with scripted children."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from rolecall.cli.console.programs import Program
from rolecall.cli.console.restart_policy import Restart
from rolecall.cli.console.runner import ProgramRunner

pytestmark = pytest.mark.virtual_time
ENDLESS = 1e6


class ScriptedChild:
    """Ends by itself with `code` after `seconds`, or `ends_after` seconds after it is asked to."""

    def __init__(self, code: int, seconds: float, ends_after: float) -> None:
        self.orders: list[str] = []
        self._code = asyncio.get_running_loop().create_future()
        self._ends_after = ends_after
        self._loop = asyncio.get_running_loop()
        self._loop.call_later(seconds, self._end, code)

    async def wait(self) -> int:
        return int(await self._code)

    def ask_to_end(self) -> None:
        self.orders.append("end")
        self._loop.call_later(self._ends_after, self._end, 0)

    def kill(self) -> None:
        self.orders.append("kill")
        self._end(-9)

    def _end(self, code: int) -> None:
        if not self._code.done():
            self._code.set_result(code)


class Stage:
    """A runner and what it does. `script`: code and seconds of each run; after the last a run lasts until it is ended."""

    def __init__(
        self,
        *script: tuple[int, float],
        reload: bool = False,
        ends_after: float = 0.1,
        start_takes: float = 0,
        **values: object,
    ) -> None:
        self._start_takes = start_takes
        self.children: list[ScriptedChild] = []
        self.times: list[float] = []
        self.reports: list[str] = []
        self.errors: list[OSError] = []
        self._script = list(script)
        self._ends_after = ends_after
        program = Program(name="shouter:1", argv=("shouter",), cwd=Path(), env={}, **values)  # type: ignore[arg-type]
        self.runner = ProgramRunner(program, self._start, self.reports.append, reload=reload)
        self.task = asyncio.create_task(self.runner.run())

    async def _start(self, program: Program) -> ScriptedChild:
        self.times.append(round(asyncio.get_running_loop().time(), 1))
        if self.errors:
            raise self.errors.pop(0)
        await asyncio.sleep(self._start_takes)
        code, seconds = self._script.pop(0) if self._script else (0, ENDLESS)
        self.children.append(ScriptedChild(code, seconds, self._ends_after))
        return self.children[-1]

    async def until(self, predicate: Callable[[], bool]) -> None:
        while not predicate():  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.1)

    async def running(self, starts: int) -> ScriptedChild:
        await self.until(lambda: len(self.children) == starts)
        return self.children[-1]


async def test_a_program_that_ends_starts_again_after_growing_pauses() -> None:
    stage = Stage((1, 20), (-9, 20), (1, 20))
    await stage.running(4)
    began = stage.times[0]
    assert [round(time - began, 1) for time in stage.times] == [0, 20.5, 41.5, 63.5]
    assert stage.reports == [
        "shouter:1 ended with code 1; starts again in 0.5 s (1st time)",
        "shouter:1 was ended by SIGKILL; starts again in 1 s (2nd time)",
        "shouter:1 ended with code 1; starts again in 2 s (3rd time)",
    ]
    stage.runner.end()
    await stage.task


async def test_one_that_fails_at_once_five_times_is_left_stopped_and_its_runner_ends() -> None:
    stage = Stage(*[(1, 0.2)] * 9)
    await stage.task
    assert (len(stage.children), stage.runner.starts, stage.runner.failed) == (5, 5, True)
    assert stage.reports[-1] == "shouter:1 ended with code 1, at once, for the 5th time in a row; it is left stopped"


async def test_the_end_is_asked_for_and_waited_for_and_nothing_starts_again() -> None:
    stage = Stage(ends_after=30)
    child = await stage.running(1)
    stage.runner.end()
    await stage.task
    assert (child.orders, stage.reports, stage.runner.failed) == (["end"], [], False)


async def test_one_that_does_not_end_in_its_time_is_killed_and_that_is_said() -> None:
    stage = Stage(ends_after=ENDLESS, drain=7.0)
    child = await stage.running(1)
    asked = asyncio.get_running_loop().time()
    stage.runner.end()
    await stage.task
    assert child.orders == ["end", "kill"]
    assert round(asyncio.get_running_loop().time() - asked) == 7
    assert stage.reports == ["shouter:1 has not ended within 7 s, and is killed"]


async def test_a_kill_ends_it_at_once_also_while_it_finishes() -> None:
    stage = Stage(ends_after=ENDLESS)
    child = await stage.running(1)
    stage.runner.end()
    await asyncio.sleep(1)
    stage.runner.kill()
    async with asyncio.timeout(1):
        await stage.task
    assert child.orders == ["end", "kill"]


async def test_a_kill_that_comes_before_the_start_is_done_kills_without_asking() -> None:
    stage = Stage(ends_after=ENDLESS, start_takes=1)
    await asyncio.sleep(0.5)
    stage.runner.kill()
    async with asyncio.timeout(1):
        await stage.task
    assert [child.orders for child in stage.children] == [["kill"]]


async def test_an_end_during_a_pause_starts_nothing() -> None:
    stage = Stage((1, 20))
    await stage.until(lambda: bool(stage.reports))
    stage.runner.end()
    await stage.task
    assert len(stage.children) == 1


async def test_a_changed_program_finishes_and_starts_again_without_a_pause_and_a_word() -> None:
    stage = Stage(reload=True, ends_after=3)
    child = await stage.running(1)
    stage.runner.restart(stage.runner.program)
    await stage.running(2)
    assert (child.orders, stage.times[1] - stage.times[0] < 4, stage.reports) == (["end"], True, [])
    stage.runner.end()
    await stage.task


async def test_a_change_ends_a_pause_and_what_happened_before_is_forgotten() -> None:
    stage = Stage(*[(1, 0.1)] * 8, reload=True)
    await stage.until(lambda: len(stage.reports) == 4)
    stage.runner.restart(stage.runner.program)
    await stage.running(5)
    assert stage.times[4] - stage.times[3] < 1
    await stage.running(9)
    assert not stage.runner.failed
    stage.runner.end()
    await stage.task


async def test_a_change_revives_one_that_was_left_stopped() -> None:
    stage = Stage(*[(1, 0.1)] * 5, reload=True)
    await stage.until(lambda: stage.runner.failed)
    assert stage.reports[-1].endswith("it is left stopped; a change of its files starts it")
    stage.runner.restart(stage.runner.program)
    await stage.running(6)
    assert not stage.runner.failed
    stage.runner.end()
    await stage.task


async def test_one_that_should_run_once_ends_its_runner_without_a_failure() -> None:
    stage = Stage((0, 1), restart=Restart.NEVER)
    await stage.task
    assert (stage.reports, stage.runner.failed) == (["shouter:1 ended with code 0"], False)


@pytest.mark.parametrize("error", [FileNotFoundError(2, "No such file or directory"), PermissionError(13, "Permission denied")])
async def test_a_program_that_is_not_there_is_left_stopped_at_once(error: OSError) -> None:
    stage = Stage()
    stage.errors.append(error)
    await stage.task
    assert stage.reports == [f"shouter:1 cannot be started: {error.strerror}; it is left stopped"]
    assert stage.runner.failed


async def test_a_system_without_room_for_a_process_is_tried_again() -> None:
    stage = Stage()
    stage.errors.append(BlockingIOError(11, "Resource temporarily unavailable"))
    await stage.running(1)
    assert stage.reports[0] == "shouter:1 cannot be started now: Resource temporarily unavailable"
    stage.runner.end()
    await stage.task


async def test_a_cancelled_runner_leaves_no_process() -> None:
    stage = Stage()
    child = await stage.running(1)
    stage.task.cancel()
    await asyncio.wait([stage.task])
    assert child.orders == ["kill"]
