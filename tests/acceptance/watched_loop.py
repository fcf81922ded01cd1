"""A hub whose event loop is watched: `python -m tests.acceptance.watched_loop FILE`, then the arguments of `rolecall`.

Writes a line of JSON to the file for each callback of the loop that used more than a tenth of a millisecond of CPU time: its
beginning on the monotonic clock, the milliseconds, and its name. CPU time, because the machine is shared.
"""

from __future__ import annotations

import asyncio.events
import json
import sys
import time
from pathlib import Path
from typing import IO, Any

from rolecall.cli import main

_LEAST = 0.0001


def _name(callback: Any) -> str:
    """A task's step is named after the task and its coroutine."""
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"a step of task {owner.get_name()!r}, {owner.get_coro().__qualname__}"
    return str(getattr(callback, "__qualname__", repr(callback)))


def watch(lines: IO[str]) -> None:
    """asyncio runs every callback, timer and read of a socket by this method."""
    run = asyncio.events.Handle._run

    def measured(self: Any) -> None:
        callback, began, cpu = self._callback, time.monotonic(), time.thread_time()
        run(self)
        if (used := time.thread_time() - cpu) > _LEAST:
            lines.write(json.dumps([began, used * 1000, _name(callback)]) + "\n")

    asyncio.events.Handle._run = measured  # type: ignore[method-assign]


if __name__ == "__main__":
    with Path(sys.argv[1]).open("w", buffering=1) as lines:
        watch(lines)
        main(sys.argv[2:])
