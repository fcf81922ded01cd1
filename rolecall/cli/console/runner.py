"""Keeps one program running: starts it, starts it again when it ends, and ends it when it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from rolecall.cli.console.child import Child
from rolecall.cli.console.programs import Program
from rolecall.cli.console.restart_policy import End, Left, RestartPolicy

Start = Callable[[Program], Awaitable[Child]]
_WRONG = (FileNotFoundError, NotADirectoryError, PermissionError)
"""Why a program cannot be started, now or later."""


class ProgramRunner:
    """`report` gets a line for each end. `reload`: a program that was left stopped starts again at `restart`."""

    def __init__(self, program: Program, start: Start, report: Callable[[str], None], *, reload: bool) -> None:
        self.program = program
        self.starts = 0
        self.last_end: End | None = None
        self.left: Left | None = None
        """Why it stays stopped."""
        self._start = start
        self._report = report
        self._reload = reload
        self._policy = RestartPolicy(program.restart, program.final)
        self._child: Child | None = None
        self._stop_due = self._restart_due = self._kill_due = False
        self._wake = asyncio.Event()

    @property
    def name(self) -> str:
        return self.program.name

    @property
    def failed(self) -> bool:
        return self.left is not None and self.left.failed

    async def run(self) -> None:
        """Until it is told to end, or until it is left stopped for good. A cancelled runner kills its program."""
        try:
            while not self._stop_due:
                end = await self._run_once()
                pause = self._after(end)
                if pause is None and not self._reload:
                    return
                await self._wait(pause)
        finally:
            if self._child is not None:
                self._child.kill()

    @property
    def is_ending(self) -> bool:
        """It has been told to."""
        return self._stop_due

    def restart(self, program: Program) -> None:
        """It finishes what it does, and starts again, as that program; one that is not running starts at once."""
        self.program = program
        self._policy = RestartPolicy(program.restart, program.final)  # what happened before says nothing
        self._restart_due = True
        self._wake.set()

    def end(self) -> None:
        """It finishes what it does, within its time."""
        self._stop_due = True
        self._wake.set()

    def kill(self) -> None:
        self._kill_due = True
        self.end()
        if self._child is not None:
            self._child.kill()

    async def _run_once(self) -> End:
        self.starts += 1
        self.left = None
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            self._child = child = await self._start(self.program)
        except _WRONG as error:
            self.last_end = End(None, 0.0, error.strerror or type(error).__name__)
            return self.last_end
        except OSError as error:  # no memory, too many processes: later there may be
            self._report(f"{self.name} cannot be started now: {error.strerror}")
            self.last_end = End(1, 0.0)
            return self.last_end
        code = await self._code_of(child)
        self._child = None
        self.last_end = End(code, loop.time() - began)
        return self.last_end

    async def _code_of(self, child: Child) -> int:
        ended = asyncio.create_task(child.wait(), name=f"end of {self.name}")
        wake = asyncio.create_task(self._wake.wait(), name=f"order to {self.name}")
        try:
            await asyncio.wait([ended, wake], return_when=asyncio.FIRST_COMPLETED)
            if not ended.done() and not self._kill_due:
                child.ask_to_end()
                await asyncio.wait([ended], timeout=self.program.drain)
                if not ended.done():
                    self._report(f"{self.name} has not ended within {self.program.drain:g} s, and is killed")
            if not ended.done():
                child.kill()
            return await ended
        finally:
            wake.cancel()
            ended.cancel()

    def _after(self, end: End) -> float | None:
        """Seconds until it starts again; None: it does not."""
        if self._stop_due or self._restart_due:
            return 0.0
        decision = self._policy.after(end)
        more = "; a change of its files starts it" if self._reload and isinstance(decision, Left) else ""
        self._report(f"{self.name} {decision.text}{more}")
        if isinstance(decision, Left):
            self.left = decision
            return None
        return decision.pause

    async def _wait(self, pause: float | None) -> None:
        """For the pause, or for an order. None: for an order."""
        if pause != 0.0:
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                pass  # the pause is over
        self._restart_due = False
        self._wake.clear()
        if self._stop_due:
            self._wake.set()
