"""All programs of a console, each kept running by a task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

from rolecall.cli.console.programs import Program
from rolecall.cli.console.runner import ProgramRunner, Start


class Runners:
    def __init__(self, start: Start, report: Callable[[str], None]) -> None:
        self._start = start
        self._report = report
        self._tasks: dict[ProgramRunner, asyncio.Task[None]] = {}

    def __iter__(self) -> Iterator[ProgramRunner]:
        return iter(list(self._tasks))

    def of(self, entry: str) -> Sequence[ProgramRunner]:
        """The copies of that entry."""
        return [runner for runner in self if runner.program.entry == entry]

    def keep_running(self, program: Program, *, reload: bool = False) -> ProgramRunner:
        runner = ProgramRunner(program, self._start, self._report, reload=reload)
        self._tasks[runner] = asyncio.create_task(runner.run(), name=f"runner of {program.name}")
        return runner

    def is_over(self, runner: ProgramRunner) -> bool:
        """It will not start again."""
        return runner not in self._tasks or self._tasks[runner].done()

    def still_running(self) -> Sequence[asyncio.Task[None]]:
        return [task for task in self._tasks.values() if not task.done()]

    def let_go(self, runner: ProgramRunner) -> None:
        """It finishes what it does, and is forgotten."""
        runner.end()
        self._tasks[runner].add_done_callback(lambda _: self._tasks.pop(runner, None))

    async def end(self, runners: Sequence[ProgramRunner]) -> None:
        for runner in runners:
            runner.end()
        await asyncio.gather(*(self._tasks[runner] for runner in runners if runner in self._tasks))

    def kill(self) -> None:
        for runner in self:
            runner.kill()
