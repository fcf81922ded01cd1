"""A process of the operating system: apart from the terminal's Ctrl-C, with all that it starts, and its output as lines."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol

from rolecall.cli.console.lines import LineSplitter
from rolecall.cli.console.programs import Program

_CHUNK = 64 * 1024
_REST_PATIENCE = 2.0
"""Seconds that what a program has left running may take to end."""
_OUTPUT_PATIENCE = 0.5
"""Seconds to wait for the last output of a process that has ended: another process may hold its pipe."""
_POLL = 0.02
_PARENT_EXIT_SIGNAL = 1  # PR_SET_PDEATHSIG
_END: int = getattr(signal, "CTRL_BREAK_EVENT", signal.SIGTERM)
"""The former on Windows, whose SIGTERM kills."""


class Child(Protocol):
    """A running program. `wait` returns its exit code, negative for a signal, once nothing that it started is left either."""

    async def wait(self) -> int: ...
    def ask_to_end(self) -> None: ...
    def kill(self) -> None: ...


class ChildProcess:
    def __init__(self, process: asyncio.subprocess.Process, reader: threading.Thread) -> None:
        self._process = process
        self._reader = reader

    @classmethod
    async def start(cls, program: Program, write: Callable[[str], None]) -> ChildProcess:
        """`write` gets each line, in a thread; while it blocks, the program's output waits. OSError: it cannot be started."""
        read_end, write_end = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *program.argv,
                cwd=program.cwd,
                env=dict(program.env),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                **_apart(),
            )
        except BaseException:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        reader = threading.Thread(target=_read, args=(read_end, write), name=f"output of {program.name}", daemon=True)
        reader.start()
        return cls(process, reader)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        code = await self._process.wait()
        await self._end_the_rest()
        await _until(lambda: not self._reader.is_alive(), _OUTPUT_PATIENCE)
        return code

    def ask_to_end(self) -> None:
        """It alone: what it has started may be at work for a task that it finishes."""
        try:
            self._process.send_signal(_END)
        except ProcessLookupError:
            pass  # it has just ended by itself
        except OSError:
            self.kill()  # Windows asks through the console, and there is none

    def kill(self) -> None:
        if not self._signal_group("SIGKILL"):
            try:
                self._process.kill()
            except ProcessLookupError:
                pass  # it has just ended by itself

    async def _end_the_rest(self) -> None:
        """A program is restarted, or over, only when all that it has started is: it may hold a port."""
        if self._signal_group("SIGTERM") and not await _until(lambda: not self._signal_group(None), _REST_PATIENCE):
            self._signal_group("SIGKILL")

    def _signal_group(self, name: str | None) -> bool:
        """Whether anything is left of its group, which gets that signal."""
        if sys.platform == "win32":
            return False
        try:
            os.killpg(self._process.pid, getattr(signal, name) if name else 0)
        except (ProcessLookupError, PermissionError):  # macOS: only what has ended and is not waited for
            return False
        return True


def _apart() -> dict[str, Any]:
    """A group of its own, without the terminal: Ctrl-C reaches this process alone, and a program that asks there fails."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True, "preexec_fn": _end_with_parent()}


def _end_with_parent() -> Callable[[], None] | None:
    """A parent that is killed cannot stop its children; on Linux the kernel does."""
    if sys.platform != "linux":
        return None
    libc, parent = ctypes.CDLL(None), os.getpid()

    def prepare() -> None:
        libc.prctl(_PARENT_EXIT_SIGNAL, signal.SIGTERM)
        if os.getppid() != parent:  # it was killed before
            os._exit(1)

    return prepare


def _read(source: int, write: Callable[[str], None]) -> None:
    splitter = LineSplitter()
    try:
        while chunk := os.read(source, _CHUNK):
            for line in splitter.feed(chunk):
                write(line)
        for line in splitter.finish():
            write(line)
    finally:
        os.close(source)


async def _until(predicate: Callable[[], bool], seconds: float) -> bool:
    """Whether it holds in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not (holds := predicate()) and loop.time() < deadline:  # noqa: ASYNC110 - nobody else tells
        await asyncio.sleep(_POLL)
    return holds
