"""The profiled hub process: `python -m tests.walk.hub`, then the arguments of `rolecall`.

It runs the command `rolecall` with a profile in every thread except one, which reads commands from stdin:

    begin PORT      start to count; PORT is the client's port
    end             a line of JSON: the steps from the first read of the request to the last write of the answer
    kept            a line of JSON: objects (those that the garbage collector tracks), tasks, and KiB of resident memory
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import sys
import threading
from importlib.metadata import entry_points
from pathlib import Path
from types import FrameType
from typing import Any

from tests.walk.counting import Kept, Step

ROOT = Path(__file__).resolve().parents[2]
OURS = tuple(f"{ROOT / folder}{os.sep}" for folder in ("hub", "rolecall", "worker_sdk"))
_READS, _WRITES = ("recv", "recv_into"), ("send", "sendmsg")


class Recorder:
    """A profile function. It records the steps at which the client's socket was first read and last written."""

    def __init__(self) -> None:
        self._client = 0
        self._steps: list[Step] = []
        self._threads: dict[int, int] = {}
        self._files: dict[str, str | None] = {}
        self._first_read: int | None = None
        self._last_write = 0

    def begin(self, client: int) -> None:
        self._steps, self._threads, self._first_read, self._last_write = [], {}, None, 0
        self._client = client

    def end(self) -> list[Step]:
        self._client = 0
        return self._steps[self._first_read : self._last_write]

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if not self._client:
            return
        if event == "call":
            name = frame.f_code.co_filename
            if name not in self._files:
                self._files[name] = _ours(name)
            if (file := self._files[name]) is not None:
                own = threading.get_ident()
                self._steps.append(Step(self._threads.setdefault(own, len(self._threads)), file))
        elif event == "c_call" and isinstance(connection := getattr(arg, "__self__", None), socket.socket):
            self._note(arg.__name__, connection)

    def _note(self, what: str, connection: socket.socket) -> None:
        if what in _READS and self._first_read is None and self._is_clients(connection):
            self._first_read = len(self._steps)
        elif what in _WRITES and self._is_clients(connection):
            self._last_write = len(self._steps)

    def _is_clients(self, connection: socket.socket) -> bool:
        try:
            return connection.family == socket.AF_INET and bool(connection.getpeername()[1] == self._client)
        except OSError:
            return False  # the socket has just been closed


def _ours(name: str) -> str | None:
    return str(Path(name).relative_to(ROOT)) if name.startswith(OURS) else None


def _kept() -> Kept:
    gc.collect()
    tracked = gc.get_objects()
    tasks = sum(isinstance(one, asyncio.Task) and not one.done() for one in tracked)
    page_count = int(Path("/proc/self/statm").read_text().split()[1])
    return Kept(len(tracked), tasks, page_count * os.sysconf("SC_PAGE_SIZE") / 1024)


def _serve_commands(recorder: Recorder) -> None:
    for line in sys.stdin:
        word, *more = line.split()
        if word == "begin":
            recorder.begin(int(more[0]))
            answer: Any = "counting"
        elif word == "end":
            answer = recorder.end()
        else:
            answer = _kept()
        print(json.dumps(answer), flush=True)


def main() -> None:
    recorder = Recorder()
    threading.Thread(target=_serve_commands, args=(recorder,), name="walk", daemon=True).start()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    (command,) = entry_points(group="console_scripts", name="rolecall")
    command.load()()


if __name__ == "__main__":
    main()
