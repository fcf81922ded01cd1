"""`rolecall up --reload`: programs whose files change are replaced, and the file that lists them is read again."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from rolecall.cli.console.programs import Program
from rolecall.cli.console.reloading.loading import Load, load
from rolecall.cli.console.reloading.watched_files import FileWatch
from rolecall.cli.console.runner import ProgramRunner
from rolecall.cli.console.runners import Runners
from rolecall.cli.output import CommandError
from rolecall.errors import ConfigError

_POLL = 0.3
_BACK_POLL = 0.1
_PATIENCE = 20.0
"""Seconds that a worker may take from its start until the hub has it again."""

EpochOf = Callable[[Program], Awaitable[object]]
"""The epoch under which the worker of a program is ready at the hub. None: it is not, or the hub does not tell."""


class Reload:
    """A new version is loaded before an old one ends, and copies of one entry are replaced one after the other: the next when
    the one before is back at the hub. `read` reads the `file` of all programs; `on_programs` gets what is in it.
    """

    def __init__(
        self,
        runners: Runners,
        report: Callable[[str], None],
        epoch_of: EpochOf,
        *,
        file: Path,
        read: Callable[[], Sequence[Program]],
        on_programs: Callable[[Sequence[Program]], None],
    ) -> None:
        self._runners = runners
        self._report = report
        self._epoch_of = epoch_of
        self._file = file
        self._read = read
        self._on_programs = on_programs
        self._wanted: dict[str, Sequence[Program]] = {}
        """The copies of each entry, in a new list when there is something to do."""
        self._following: dict[str, asyncio.Task[None]] = {}
        self._of_role: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Who replaces workers of a role. Several entries may serve one, and change together."""

    async def run(self, programs: Sequence[Program]) -> None:
        """Run forever. These programs run already."""
        async with asyncio.TaskGroup() as group:
            for entry, copies in _by_entry(programs).items():
                self._wanted[entry] = copies
                self._following[entry] = group.create_task(self._follow(entry, copies), name=f"changes of {entry}")
            watch = FileWatch(lambda: [self._file])
            while True:
                await asyncio.sleep(_POLL)
                if watch.poll() is not None:
                    await self._read_again(group)

    async def _follow(self, entry: str, copies: Sequence[Program]) -> None:
        """One replacement at a time, and no change is missed meanwhile. `copies`: they run; none: the entry is new."""
        watch = FileWatch(self._wanted[entry][0].sources)
        while True:
            wanted = self._wanted[entry]
            if copies and wanted[0].sources != copies[0].sources:
                watch = FileWatch(wanted[0].sources)
            path = await asyncio.to_thread(watch.poll)
            if path is not None:
                await self._replace(wanted, path.name, all_of_them=True)
            elif wanted is not copies:
                await self._replace(wanted, self._file.name, all_of_them=False)
            copies = wanted
            await asyncio.sleep(_POLL)

    # --- the file of all programs

    async def _read_again(self, group: asyncio.TaskGroup) -> None:
        try:
            programs = self._read()
        except (ConfigError, CommandError) as error:
            self._report(f"{self._file.name} has changed, and is not used: what runs goes on")
            self._report_lines(str(error))
            return
        entries = _by_entry(programs)
        changed = {entry for entry, copies in entries.items() if copies != self._copies_of(entry)}
        gone = self._following.keys() - entries.keys()
        if not changed and not gone:
            self._report(
                f"{self._file.name} has changed, and nothing in it that runs ([hub] and [console] are read at the start)"
            )
        self._on_programs(programs)
        for entry in gone:
            await _end(self._following.pop(entry))
            del self._wanted[entry]
            for runner in self._runners.of(entry):
                self._report(f"{runner.name} ends: it is no longer in {self._file.name}")
                self._runners.let_go(runner)
        for entry, copies in entries.items():
            if entry in changed or copies != self._wanted[entry]:
                self._wanted[entry] = copies
            if entry not in self._following:
                self._following[entry] = group.create_task(self._follow(entry, ()), name=f"changes of {entry}")

    def _copies_of(self, entry: str) -> Sequence[Program]:
        return [runner.program for runner in self._runners.of(entry) if not runner.is_ending]

    # --- one entry

    async def _replace(self, copies: Sequence[Program], changed: str, *, all_of_them: bool) -> None:
        """Make what runs the same as `copies`. `all_of_them`: those that are the same already start again, too."""
        runners = {runner.name: runner for runner in self._runners.of(copies[0].entry) if not runner.is_ending}
        old = [program for program in copies if program.name in runners]
        due = [program for program in old if all_of_them or program != runners[program.name].program]
        found = await self._load(due[0]) if due else Load("", "")
        if found.problem:
            running = any(runner.left is None for runner in runners.values())
            goes_on = "the version before goes on" if running else "it stays stopped"
            self._report(f"{changed} has changed, and cannot be used for {due[0].name}; {goes_on}:")
            self._report_lines(found.problem)
            return
        async with self._of_role[found.role or copies[0].entry]:
            for program in copies:
                if program.name not in runners:
                    self._report(f"{program.name} starts: {changed} has changed")
                    self._runners.keep_running(program, reload=True)
            for name, runner in runners.items():
                if all(program.name != name for program in copies):
                    self._report(f"{name} ends: {changed} has changed")
                    self._runners.let_go(runner)
            await self._one_after_the_other(runners, due, changed)

    async def _one_after_the_other(self, runners: dict[str, ProgramRunner], due: Sequence[Program], changed: str) -> None:
        for program in due:
            runner = runners[program.name]
            before, starts = await self._epoch_of(runner.program), runner.starts
            self._report(f"{program.name} starts again: {changed} has changed")
            runner.restart(program)
            if not await self._is_back(runner, before, starts):
                rest = [one.name for one in due[due.index(program) + 1 :]]
                if rest:
                    self._report(f"{program.name} has not come back to the hub; not replaced: {', '.join(rest)}")
                return

    async def _is_back(self, runner: ProgramRunner, before: object, starts: int) -> bool:
        """Whether the hub has its worker again, which has another epoch then. It may first finish what it does."""
        while runner.starts == starts:
            if self._runners.is_over(runner):
                return False
            await asyncio.sleep(_BACK_POLL)
        if before is None and not runner.program.enrols:
            return True  # as far as anybody knows it is no worker
        loop = asyncio.get_running_loop()
        until = loop.time() + _PATIENCE
        while loop.time() < until and runner.left is None and not self._runners.is_over(runner):
            if await self._epoch_of(runner.program) not in (None, before):
                return True
            await asyncio.sleep(_BACK_POLL)
        return False

    async def _load(self, program: Program) -> Load:
        if not program.check:
            return Load(program.role or "", "")
        try:
            return await load(program.check, program.cwd, program.env)
        except OSError as error:
            return Load("", f"it cannot be tried: {error.strerror}")

    def _report_lines(self, text: str) -> None:
        for line in text.splitlines():
            self._report(f"  {line}")


def _by_entry(programs: Sequence[Program]) -> dict[str, list[Program]]:
    found: dict[str, list[Program]] = {}
    for program in programs:
        found.setdefault(program.entry, []).append(program)
    return found


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
