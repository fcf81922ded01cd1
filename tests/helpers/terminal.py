"""A program on a pseudo terminal, as a person has it: keys go in, and what it prints is read."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.helpers.processes import ROOT, environment, wait_for

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r")


class Terminal:
    """`output`: what was printed, with escape sequences; `text`: without."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
        columns: int = 100,
        term: str = "xterm",
    ) -> None:
        self.output = ""
        self._closed = False
        self._master, other_end = pty.openpty()
        fcntl.ioctl(other_end, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        self.process = subprocess.Popen(
            list(argv),
            stdin=other_end,
            stdout=other_end,
            stderr=other_end,
            cwd=cwd,
            env=_of_a_terminal({**(env or {}), "TERM": term}),
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(other_end)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def text(self) -> str:
        return _ESCAPE.sub("", self.output)

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def expect(self, text: str, within: float = 20.0) -> None:
        """Wait until this has been printed."""
        wait_for(lambda: text in self.text, within)

    def enter(self, line: str, then: str) -> None:
        """Type a line, and wait until `then` is printed after it."""
        seen = len(self.text)
        self.press(f"{line}\r")
        wait_for(lambda: then in self.text[seen + len(line) :], 20)

    def close(self) -> None:
        """As when its window is closed."""
        self._closed = True
        self._reader.join(5)

    def wait(self, timeout: float = 15.0) -> int:
        """Its exit code."""
        code = self.process.wait(timeout)
        self._reader.join(5)
        return code

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        self._reader.join(5)

    def _read(self) -> None:
        with open(self._master, "rb", buffering=0) as master:
            while not self._closed:
                try:
                    if select.select([master], [], [], 0.05)[0]:
                        self.output += (master.read(4096) or b"").decode("utf-8", "replace")
                    elif self.process.poll() is not None:
                        return
                except OSError:  # everybody on the other side has gone
                    return


def _of_a_terminal(extra: Mapping[str, str]) -> dict[str, str]:
    """Without a size from where the tests run."""
    return {name: value for name, value in environment(extra).items() if name not in ("COLUMNS", "LINES")}


def _take_terminal() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
