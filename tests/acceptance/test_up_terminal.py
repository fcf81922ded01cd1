"""`rolecall up` on a real terminal, in a pipe, under a terminal that closes, and where a system lacks what Linux has."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.acceptance.consoles import Folder, all_end, descendants
from tests.helpers.processes import ROLECALL, Process, environment, wait_for
from tests.helpers.terminal import Terminal

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


@contextmanager
def terminal(folder: Folder, *words: str) -> Iterator[Terminal]:
    with Terminal([*ROLECALL, "up", *words], env=folder.env, cwd=folder.place) as opened:
        wait_for(lambda: WAITS in opened.output, 40)
        yield opened


def test_ctrl_c_reaches_each_program_once_and_leaves_no_process(folder: Folder) -> None:
    with terminal(folder) as up:
        children = descendants(up.process.pid)
        assert len(children) == 3
        up.press("\x03")
        assert up.wait(30) == 0
    all_end(children, 1)
    assert (up.output.count("is no longer enrolled"), "stopped at once" in up.output) == (1, False)
    assert re.findall(r"got SIG\w+", up.output) == ["got SIGTERM"]
    assert re.search(r"\x1b\[\d+mshouter:1  \|\x1b\[0m ", up.output), "no colour on a terminal"
    assert "ended after" in up.output


def test_without_colour_a_terminal_gets_none_and_its_end_is_an_end(folder: Folder) -> None:
    with terminal(folder, "--no-color") as up:
        assert "\x1b" not in up.output
        children = descendants(up.process.pid)
        up.close()
        assert up.wait(30) == 0
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
