"""Programs and their hub, from the first start to the summary."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rolecall.cli.connect import open_hub
from rolecall.cli.console.child import Child, ChildProcess
from rolecall.cli.console.console import Console, Printer, on_stdout
from rolecall.cli.console.hub_changes import PREFIX, HubChanges
from rolecall.cli.console.hub_choice import ChosenHub
from rolecall.cli.console.old_addresses import old_addresses_refused
from rolecall.cli.console.programs import Program
from rolecall.cli.console.runner import ProgramRunner
from rolecall.cli.console.stopping import stopping_line, unfinished
from rolecall.cli.console.watched_files import FileWatch
from rolecall.cli.console.welcome import live_workers, welcome, workers_among
from rolecall.cli.output import duration
from rolecall.system.signals import END, on_signals
from worker_sdk import AgentInfo, HubClient, HubUnreachable, RolecallError

if TYPE_CHECKING:
    from rolecall.cli.server.own_hub import OwnHub

INTERRUPTED, _WRONG_SETTINGS = 130, 2
_POLL, _WATCH_POLL = 0.05, 0.3
_LAST_LINES = 2.0
"""Seconds that the last lines may take to be written."""

Programs = Callable[[Mapping[str, str]], Sequence[Program]]
"""The programs of a session, from the variables by which workers reach the hub."""


class Options(NamedTuple):
    """`own`: the command, which its own lines begin with. `names`: those of the programs. `logs`: what workers and calls do at
    the hub is shown. `reload`: a program whose files change starts again; `file`: one that is read at the start alone.
    """

    own: str
    names: Sequence[str]
    logs: bool = True
    reload: bool = False
    file: Path | None = None


def run_session(hub: ChosenHub, programs: Programs, options: Options) -> int:
    """Run until a signal comes or nothing is left to run. Returns the exit code."""
    console, printer = on_stdout(options.own)
    code = 1
    try:
        code = asyncio.run(_run(hub, programs, options, console, printer))
    finally:
        if not printer.close(_LAST_LINES):
            os._exit(code)  # a thread that writes to a terminal which takes nothing would keep the process
    return code


async def _run(hub: ChosenHub, programs: Programs, options: Options, console: Console, printer: Printer) -> int:
    session = Session(hub, options, console)
    loop = asyncio.get_running_loop()

    def on_broken() -> None:
        loop.call_soon_threadsafe(session.leave)

    printer.when_broken(on_broken)
    return await session.run(programs)


class Session:
    """Starts the hub and then the others; ends the others and then the hub."""

    def __init__(self, hub: ChosenHub, options: Options, console: Console) -> None:
        self._chosen = hub
        self._options = options
        self._console = console
        self._began = time.monotonic()
        self._leaving = asyncio.Event()
        self._at_once = False
        self._hub: ProgramRunner | None = None
        self._workers: Sequence[ProgramRunner] = ()
        self._tasks: dict[ProgramRunner, asyncio.Task[None]] = {}
        self._stopping: asyncio.Task[None] | None = None

    async def run(self, programs: Programs) -> int:
        own = self._chosen.own
        self._console.expect(
            [*([own.name] if own is not None else []), *self._options.names, *([PREFIX] if self._options.logs else [])]
        )
        on_signals(self._first_signal, self._next_signal, _signals())
        try:
            if own is None or await self._start_hub(own):
                async with self._chosen.with_worker_token() as reached:
                    await self._run_workers(reached, programs(reached.variables))
        finally:
            if self._stopping is not None:
                await asyncio.wait([self._stopping])
            await self._end([self._hub] if self._hub is not None else [])
        for line in self._summary():
            self._console.report(line)
        return self._exit_code()

    def leave(self) -> None:
        """Everything finishes what it does, and ends."""
        self._leaving.set()

    async def _run_workers(self, hub: ChosenHub, programs: Sequence[Program]) -> None:
        async with open_hub(hub.address) as api:
            before = await live_workers(api, programs)
        with old_addresses_refused(before, programs):
            self._workers = [self._keep_running(program, reload=self._options.reload) for program in programs]
            # What shows or watches what the workers do: it ends before they do.
            changes = HubChanges(hub, programs, self._console)
            beside = [asyncio.create_task(self._welcome(hub, programs, before, changes), name="welcome")]
            if self._options.logs:
                beside.append(asyncio.create_task(changes.show(), name="changes at the hub"))
            if self._options.reload:
                beside.append(asyncio.create_task(self._watch(), name="watched files"))
            try:
                await self._until_over(beside)
            finally:
                for task in beside:
                    task.cancel()
                await asyncio.wait(beside)
                await self._end(self._workers)

    # --- the hub

    async def _start_hub(self, own: OwnHub) -> bool:
        """Whether it is ready. False: it has ended for good, or a signal came."""
        self._hub = self._keep_running(own.program(), reload=False)
        async with open_hub(self._chosen.address) as api:
            while not (self._leaving.is_set() or self._tasks[self._hub].done()):
                if await _is_ready(api):
                    return True
                await asyncio.sleep(_POLL)
        return False

    # --- programs

    def _keep_running(self, program: Program, *, reload: bool) -> ProgramRunner:
        runner = ProgramRunner(program, self._start, self._console.report, reload=reload)
        self._tasks[runner] = asyncio.create_task(runner.run(), name=f"runner of {program.name}")
        return runner

    async def _start(self, program: Program) -> Child:
        return await ChildProcess.start(program, partial(self._console.line, program.name))

    async def _until_over(self, beside: Sequence[asyncio.Task[None]]) -> None:
        """Until a signal comes, the hub has ended for good, or all workers have. An error of what runs beside is raised."""
        leaving = asyncio.create_task(self._leaving.wait(), name="leaving")
        try:
            while not self._is_over():
                running = [task for task in (*self._tasks.values(), *beside) if not task.done()]
                await asyncio.wait([leaving, *running], return_when=asyncio.FIRST_COMPLETED)
                for task in beside:
                    if task.done():
                        task.result()
        finally:
            leaving.cancel()

    def _is_over(self) -> bool:
        hub_ended = self._hub is not None and self._tasks[self._hub].done()
        return self._leaving.is_set() or hub_ended or all(self._tasks[runner].done() for runner in self._workers)

    async def _end(self, runners: Sequence[ProgramRunner]) -> None:
        for runner in runners:
            if self._at_once:
                runner.kill()
            else:
                runner.end()
        await asyncio.gather(*(self._tasks[runner] for runner in runners))

    # --- beside the programs

    async def _welcome(
        self, hub: ChosenHub, programs: Sequence[Program], before: Sequence[AgentInfo], changes: HubChanges
    ) -> None:
        found = await workers_among(programs, hub, {agent.name: agent.raw.get("epoch") for agent in before})
        self._console.write(welcome(hub, programs, found, time.monotonic() - self._began))
        changes.after_welcome(found.values())

    async def _watch(self) -> None:
        """Run forever: start workers again whose files have changed."""
        watches = [(runner, FileWatch(runner.program.sources)) for runner in self._workers]
        file = self._options.file
        own_watch = FileWatch(lambda: [file] if file is not None else [])
        while True:
            await asyncio.sleep(_WATCH_POLL)
            for runner, watch in watches:
                changed = await asyncio.to_thread(watch.poll)
                if changed is not None:
                    self._console.report(f"{runner.name} starts again: {changed.name} has changed")
                    runner.restart()
            if own_watch.poll() is not None and file is not None:
                self._console.report(f"{file.name} has changed; it is read when {self._options.own} starts")

    # --- signals

    def _first_signal(self) -> None:
        self._stopping = asyncio.create_task(self._say_and_leave(), name="stopping")

    async def _say_and_leave(self) -> None:
        found = await unfinished(self._chosen, [runner.program for runner in self._workers])
        if not self._at_once:
            whose = " of yours" if self._chosen.caller_address.token is not None else ""
            self._console.report(stopping_line(found, own_hub=self._hub is not None, whose=whose))
            self.leave()

    def _next_signal(self) -> None:
        if not self._at_once:
            self._console.report("stopped at once")
        self._at_once = True
        self.leave()
        for runner in self._tasks:
            runner.kill()

    # --- the end

    def _summary(self) -> Iterator[str]:
        for runner in self._tasks:
            times = f"after {runner.starts} starts" if runner.starts > 1 else "at its first start"
            if runner.failed:
                yield f"{runner.name} was left stopped {times}: {runner.last_end}"
            elif runner.starts > 1:
                yield f"{runner.name} was started {runner.starts} times"
        kept = f"; the hub at {self._chosen.address.url} is left running" if self._chosen.own is None else ""
        yield f"ended after {duration(time.monotonic() - self._began)}{kept}"

    def _exit_code(self) -> int:
        if self._at_once:
            return INTERRUPTED
        hub_end = self._hub.last_end if self._hub is not None and self._hub.failed else None
        if hub_end is not None and hub_end.code == _WRONG_SETTINGS:
            return _WRONG_SETTINGS
        return int(any(runner.failed for runner in self._tasks))


async def _is_ready(api: HubClient) -> bool:
    """HubUnreachable: it is there, and cannot be reached like this."""
    try:
        await api.health()
    except HubUnreachable as error:
        if error.reason != HubUnreachable.reason:
            raise
        return False
    except RolecallError:
        return False
    return True


def _signals() -> tuple[str, ...]:
    """A terminal that closes ends it, unless it was started to stay when the terminal closes."""
    closed = getattr(signal, "SIGHUP", None)
    return END if closed is None or signal.getsignal(closed) is signal.SIG_IGN else (*END, "SIGHUP")
