"""Names what blocks the event loop. It is a thread, because a blocked loop can report nothing."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
import threading
import time
import traceback
from types import TracebackType

log = logging.getLogger("worker_sdk")


class LoopWatchdog:
    """While its block runs, it logs the stack of whatever holds the running loop for longer than `limit` seconds, once.

    The time counts in which this thread runs too: a machine that slept, or a process that was stopped, blocks nothing. Code
    that keeps the interpreter's lock is not seen.
    """

    def __init__(self, name: str, *, limit: float = 5.0, tick: float = 0.5) -> None:
        self._name = name
        self._limit = limit
        self._tick = tick
        self._beats = 0
        self._ended = threading.Event()
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> LoopWatchdog:
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        run = contextvars.copy_context().run  # for the log
        self._thread = threading.Thread(target=run, args=(self._watch,), name="watchdog of the loop", daemon=True)
        self._beat()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        if self._timer is not None:
            self._timer.cancel()
        self._thread.join(1)

    def _beat(self) -> None:
        self._beats += 1
        self._timer = self._loop.call_later(self._tick, self._beat)

    def _watch(self) -> None:
        seen, blocked, reported, before = -1, 0.0, False, time.monotonic()
        while not self._ended.wait(self._tick):
            now = time.monotonic()
            blocked, before = blocked + min(now - before, 2 * self._tick), now
            if self._beats != seen:
                if reported:
                    text = "%s: the loop runs again, after about %.0f s"
                    log.warning(text, self._name, blocked, extra={"event": "loop_runs_again"})
                seen, blocked, reported = self._beats, 0.0, False
            elif blocked > self._limit and not reported:
                reported = True
                self._report(blocked)

    def _report(self, seconds: float) -> None:
        frame = sys._current_frames().get(self._watched)
        task = asyncio.current_task(self._loop)
        what = task.get_name() if task is not None else "a callback"
        stack = "".join(traceback.format_stack(frame)).rstrip() if frame is not None else ""
        text = (
            f"{self._name}: {what} has blocked the loop for {seconds:.0f} s, so no other task and no heartbeat runs. Write "
            "plain `def` for a handler that waits or computes, or use asyncio.to_thread."
        )
        record = log.makeRecord(
            log.name, logging.ERROR, __file__, 0, text, (), None, "_report", {"event": "loop_blocked"}, stack
        )
        log.handle(record)
