"""Owns every background task: every failure is logged, and a loop that fails is restarted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

log = logging.getLogger(__name__)

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 10.0


class Supervisor:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._stops: list[Callable[[], None]] = []

    def run_once(
        self, name: str, job: Coroutine[Any, Any, None], *, then: Callable[[], None] | None = None
    ) -> asyncio.Task[None]:
        """Run `job` to its end, then call `then`. A failure is logged here, because nobody awaits the job."""
        task = asyncio.get_running_loop().create_task(job, name=name)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None:
                log.error("background task failed", exc_info=error, extra={"event": "task_failed", "job": name})
            if then is not None:
                then()

        self._tasks.add(task)
        task.add_done_callback(done)
        return task

    def keep_running(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        """Run `loop` until the supervisor closes. Restart it when it fails, with a growing delay."""
        self.run_once(name, self._restart(name, loop))

    def at_close(self, stop: Callable[[], None]) -> None:
        """Call `stop` when the supervisor closes: for work that has no task of its own."""
        self._stops.append(stop)

    async def close(self) -> None:
        """Cancel everything that still runs, and wait until it has ended."""
        while self._stops:
            self._stops.pop()()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _restart(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        pause, clock = _FIRST_PAUSE, asyncio.get_running_loop()
        while True:
            began = clock.time()
            try:
                await loop()
                return
            except Exception:
                if clock.time() - began > _LONGEST_PAUSE:
                    pause = _FIRST_PAUSE  # it had recovered
                log.exception("background loop failed", extra={"event": "loop_failed", "loop": name, "retry_s": pause})
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
