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
from rolecall.cli.console.reloading.reload import Reload
from rolecall.cli.console.runner import ProgramRunner
from rolecall.cli.console.runners import Runners
from rolecall.cli.console.stopping import stopping_line, unfinished
from rolecall.cli.console.welcome import live_workers, welcome, workers_among
from rolecall.cli.output import duration
from rolecall.model.worker import Health
from rolecall.system.signals import END, on_signals
from worker_sdk import AgentInfo, HubClient, HubUnreachable, RolecallError

if TYPE_CHECKING:
    from rolecall.cli.server.own_hub import OwnHub

INTERRUPTED, _WRONG_SETTINGS = 130, 2
_POLL = 0.05
_LAST_LINES = 2.0
"""Seconds that the last lines may take to be written."""

Programs = Callable[[Mapping[str, str]], Sequence[Program]]
"""The programs of a session, from the variables by which workers reach the hub."""


class Options(NamedTuple):
    """`own`: the command, which its own lines begin with. `names`: those of the programs. `logs`: what workers and calls do at
    the hub is shown. `reload`: the file that lists the programs; when it or theirs change, what runs follows.
    """

    own: str
    names: Sequence[str]
    logs: bool = True
    reload: Path | None = None


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
        self._runners = Runners(self._start, console.report)
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
                    await self._run_workers(reached, programs)
        finally:
            if self._stopping is not None:
                await asyncio.wait([self._stopping])
            await self._runners.end([self._hub] if self._hub is not None else [])
        for line in self._summary():
            self._console.report(line)
        return self._exit_code()

    def leave(self) -> None:
        """Everything finishes what it does, and ends."""
        self._leaving.set()

    async def _run_workers(self, hub: ChosenHub, read: Programs) -> None:
        programs = read(hub.variables)
        changes = HubChanges(hub, programs, self._console)
        async with open_hub(hub.address) as api:
            before = await live_workers(api, programs)
        with old_addresses_refused(before, programs):
            for program in programs:
                self._runners.keep_running(program, reload=self._options.reload is not None)
            # What shows or watches what the workers do: it ends before they do.
            beside = [asyncio.create_task(self._welcome(hub, programs, before, changes), name="welcome")]
            if self._options.logs:
                beside.append(asyncio.create_task(changes.show(), name="changes at the hub"))
            if self._options.reload is not None:
                beside.append(asyncio.create_task(self._reload(hub, programs, read, changes), name="watched files"))
            try:
                await self._until_over(beside)
            finally:
                for task in beside:
                    task.cancel()
                await asyncio.wait(beside)
                await self._end_workers()

    # --- the hub

    async def _start_hub(self, own: OwnHub) -> bool:
        """Whether it is ready. False: it has ended for good, or a signal came."""
        self._hub = self._runners.keep_running(own.program())
        async with open_hub(self._chosen.address) as api:
            while not (self._leaving.is_set() or self._runners.is_over(self._hub)):
                if await _is_ready(api):
                    return True
                await asyncio.sleep(_POLL)
        return False

    # --- programs

    @property
    def _workers(self) -> Sequence[ProgramRunner]:
        return [runner for runner in self._runners if runner is not self._hub]

    async def _start(self, program: Program) -> Child:
        return await ChildProcess.start(program, partial(self._console.line, program.name))

    async def _until_over(self, beside: Sequence[asyncio.Task[None]]) -> None:
        """Until a signal comes, the hub has ended for good, or all workers have. An error of what runs beside is raised."""
        leaving = asyncio.create_task(self._leaving.wait(), name="leaving")
        try:
            while not self._is_over():
                running = [*self._runners.still_running(), *(task for task in beside if not task.done())]
                await asyncio.wait([leaving, *running], return_when=asyncio.FIRST_COMPLETED)
                for task in beside:
                    if task.done():
                        task.result()
        finally:
            leaving.cancel()

    def _is_over(self) -> bool:
        hub_ended = self._hub is not None and self._runners.is_over(self._hub)
        return self._leaving.is_set() or hub_ended or all(self._runners.is_over(runner) for runner in self._workers)

    async def _end_workers(self) -> None:
        if self._at_once:
            self._runners.kill()
        await self._runners.end(self._workers)

    # --- beside the programs

    async def _welcome(
        self, hub: ChosenHub, programs: Sequence[Program], before: Sequence[AgentInfo], changes: HubChanges
    ) -> None:
        found = await workers_among(programs, hub, {agent.name: agent.raw.get("epoch") for agent in before})
        self._console.write(welcome(hub, programs, found, time.monotonic() - self._began))
        changes.after_welcome(found.values())

    async def _reload(self, hub: ChosenHub, programs: Sequence[Program], read: Programs, changes: HubChanges) -> None:
        """Run forever."""
        assert self._options.reload is not None

        def on_programs(now: Sequence[Program]) -> None:
            self._console.expect(program.name for program in now)
            changes.add(now)

        async def epoch_of(program: Program) -> object:
            ready = [agent for agent in await live_workers(api, [program]) if agent.state == Health.READY]
            return ready[0].raw.get("epoch") if ready else None

        async with open_hub(hub.address) as api:
            reload = Reload(
                self._runners,
                self._console.report,
                epoch_of,
                file=self._options.reload,
                read=lambda: read(hub.variables),
                on_programs=on_programs,
            )
            await reload.run(programs)

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
        self._runners.kill()

    # --- the end

    def _summary(self) -> Iterator[str]:
        for runner in self._runners:
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
        return int(any(runner.failed for runner in self._runners))


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
