"""`rolecall up` on a real terminal, in a pipe, under a terminal that closes, and where a system lacks what Linux has."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.acceptance.consoles import Folder, all_end, descendants
from tests.helpers.processes import ROLECALL, Process, environment, wait_for

AGENTS = """
[workers.shouter]
run = "shouter:worker"
[workers.listener]
command = ["{python}", "listener.py"]
"""
LISTENER = """
import signal, sys, time

def on_signal(number, _):
    print("got", signal.Signals(number).name)
    if number == signal.SIGTERM:
        sys.exit(0)

for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, on_signal)
while True:
    time.sleep(1)
"""
WAITS = "Next, in another terminal:"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    folder.write(AGENTS.format(python=sys.executable), shouter="", listener=LISTENER)
    return folder


def _take_terminal() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A process whose controlling terminal is a pseudo terminal of ours."""

    def __init__(self, argv: list[str], folder: Folder) -> None:
        self.output = ""
        self._closed = False
        self._master, own_end = pty.openpty()
        self.process = subprocess.Popen(
            argv,
            stdin=own_end,
            stdout=own_end,
            stderr=own_end,
            cwd=folder.place,
            env=environment({**folder.env, "TERM": "xterm"}),
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(own_end)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def close(self) -> None:
        """As when its window is closed."""
        self._closed = True
        self._reader.join(5)

    def _read(self) -> None:
        with open(self._master, "rb", buffering=0) as master:
            try:
                while not self._closed:
                    if select.select([master], [], [], 0.05)[0]:
                        self.output += (master.read(4096) or b"").decode("utf-8", "replace")
            except OSError as error:
                assert error.errno == errno.EIO  # everybody on the other side has gone


@contextmanager
def terminal(folder: Folder, *words: str) -> Iterator[Terminal]:
    opened = Terminal([*ROLECALL, "up", *words], folder)
    try:
        wait_for(lambda: WAITS in opened.output, 40)
        yield opened
    finally:
        if opened.process.poll() is None:
            opened.process.kill()
            opened.process.wait(10)


def test_ctrl_c_reaches_each_program_once_and_leaves_no_process(folder: Folder) -> None:
    with terminal(folder) as up:
        children = descendants(up.process.pid)
        assert len(children) == 3
        up.type(b"\x03")
        assert up.process.wait(30) == 0
    all_end(children, 1)
    assert up.output.count("stopping: taking no new work") == 1
    assert re.findall(r"got SIG\w+", up.output) == ["got SIGTERM"]
    assert re.search(r"\x1b\[\d+mshouter  \|\x1b\[0m ", up.output), "no colour on a terminal"
    assert "ended after" in up.output


def test_without_colour_a_terminal_gets_none_and_its_end_is_an_end(folder: Folder) -> None:
    with terminal(folder, "--no-color") as up:
        assert "\x1b" not in up.output
        children = descendants(up.process.pid)
        up.close()
        assert up.process.wait(30) == 0
    all_end(children, 1)


def test_a_reader_that_goes_ends_it_and_what_it_started(folder: Folder) -> None:
    read_end, write_end = os.pipe()
    with subprocess.Popen(
        [*ROLECALL, "up"], stdout=write_end, cwd=folder.place, env=environment(folder.env), start_new_session=True
    ) as up:
        os.close(write_end)
        assert os.read(read_end, 1)
        wait_for(lambda: len(descendants(up.pid)) == 3, 30)
        children = descendants(up.pid)
        os.close(read_end)
        assert up.wait(30) == 0
    all_end(children, 1)


ELSEWHERE = """
import asyncio, signal, sys
from types import SimpleNamespace

class NoSignals:
    def add_signal_handler(self, *_):
        raise NotImplementedError

asyncio.unix_events._UnixSelectorEventLoop.add_signal_handler = NoSignals.add_signal_handler
del signal.SIGHUP
from rolecall.cli import main
from rolecall.cli.console import child
child.sys = SimpleNamespace(platform="darwin")
main(sys.argv[1:])
"""


def test_it_runs_where_a_loop_takes_no_signals_and_parents_do_not_end_children(folder: Folder) -> None:
    argv = [sys.executable, "-c", ELSEWHERE, "up"]
    with Process(argv, log=folder.place.parent / "up.log", env=folder.env, cwd=folder.place, name="up") as up:
        up.wait_until(lambda: WAITS in up.output, 40)
        assert folder.send("shouter", "hello") == "HELLO"
        children = descendants(up.pid)
        up.signal(signal.SIGINT)
        assert up.wait(30) == 0
    all_end(children, 1)
    assert "Traceback" not in up.output
