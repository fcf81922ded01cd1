"""An event loop with virtual time: a sleep costs nothing, and the load of the machine changes nothing.

When no callback is ready and no file descriptor is readable, time jumps to the next timer. It stands still while work runs
outside the loop: in the threads of the loop's executor, and inside `busy`. A loop with sockets looks once more before that,
because beside other load the kernel may deliver a little later what was sent on this machine.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

from tests.helpers.clock import ManualClock

_LOOK_AGAIN = 0.02
_ON_ITS_WAY = 0.001
_NOW = 1e-6
_OWN_PIPE = 1
"""What a loop without sockets waits for."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._now = 0.0
        self._busy = 0
        super().__init__(_VirtualSelector(self))

    def time(self) -> float:
        return self._now

    def wait(self, select: Callable[[float], list[Any]], seconds: float, *, sockets: bool) -> list[Any]:
        """Called by the selector: returns events, or none after `seconds` of virtual time."""
        ready = select(0) or (select(_ON_ITS_WAY) if sockets else [])
        if not ready and self._busy:
            return select(_LOOK_AGAIN)
        if not ready:
            self._now += seconds + _NOW
        return ready

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Time stands still inside."""
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future = super().run_in_executor(executor, func, *args)
        self._busy += 1
        future.add_done_callback(self._idle)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """From Python 3.12 on it has a timeout, which virtual time would reach at once."""
        with self.busy():
            await super().shutdown_default_executor()

    def _idle(self, future: asyncio.Future[Any]) -> None:
        self._busy -= 1


class _VirtualSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        return self._loop.wait(super().select, timeout, sockets=len(self.get_map()) > _OWN_PIPE)


class LoopClock(ManualClock):
    """The clock port on the time of a loop. `advance` moves the clock only, not the timers of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._began = loop.time()

    def monotonic(self) -> float:
        return super().monotonic() + self._loop.time() - self._began

    def wall(self) -> float:
        return super().wall() + self._loop.time() - self._began
