"""Programs as processes of the operating system."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from rolecall.cli.console.child import ChildProcess
from rolecall.cli.console.programs import Program, worker_environment
from tests.helpers.processes import wait_for

SLEEPS = "import time; print('up', flush=True); time.sleep(60)"
IGNORES = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ignores', flush=True); time.sleep(60)"


async def start(code: str, lines: list[str], **env: str) -> ChildProcess:
    argv = (sys.executable, "-c", textwrap.dedent(code))
    program = Program(name="p", argv=argv, cwd=Path.cwd(), env={**os.environ, **env})
    return await ChildProcess.start(program, lines.append)


async def line_of(lines: list[str], text: str) -> None:
    await asyncio.to_thread(wait_for, lambda: text in lines)


def is_running(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


async def test_both_streams_become_lines_and_the_code_comes_after_them() -> None:
    lines: list[str] = []
    code = "import sys; print('out', flush=True); print('err', file=sys.stderr); print('no end', end=''); sys.exit(7)"
    child = await start(code, lines)
    assert await child.wait() == 7
    assert sorted(lines) == ["err", "no end", "out"]


async def test_it_has_the_environment_and_the_folder_and_nothing_to_read(tmp_path: Path) -> None:
    lines: list[str] = []
    argv = (sys.executable, "-c", "import os, sys; print(os.environ['MODEL'], os.getcwd(), repr(sys.stdin.read()))")
    child = await ChildProcess.start(Program(name="p", argv=argv, cwd=tmp_path, env={"MODEL": "small"}), lines.append)
    assert await child.wait() == 0
    assert lines == [f"small {tmp_path} ''"]


async def test_it_is_asked_to_end_with_sigterm_and_by_a_kill_it_ends_at_once() -> None:
    lines: list[str] = []
    asked, killed = await start(SLEEPS, lines), await start(IGNORES, lines)
    await line_of(lines, "up")
    await line_of(lines, "ignores")
    asked.ask_to_end()
    killed.ask_to_end()
    assert await asked.wait() == -signal.SIGTERM
    killed.kill()
    assert await killed.wait() == -signal.SIGKILL
    asked.ask_to_end()
    killed.kill()


async def test_one_that_cannot_be_asked_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_console(self: object, number: int) -> None:
        raise OSError(6, "The handle is invalid")

    lines: list[str] = []
    child = await start(IGNORES, lines)
    await line_of(lines, "ignores")
    monkeypatch.setattr(subprocess.Popen, "send_signal", no_console)
    child.ask_to_end()
    assert await child.wait() == -signal.SIGKILL


async def test_its_lines_are_read_in_the_encoding_in_which_it_writes_them() -> None:
    lines: list[str] = []
    no_unicode = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    child = await start(r"print('\u201cone\u201d')", lines, **worker_environment({}, "a", no_unicode))
    assert (await child.wait(), lines) == (0, ["“one”"])


async def test_asking_reaches_the_program_alone_and_its_end_ends_what_it_has_started() -> None:
    """A tool that it started may be at work for a task that it finishes."""
    lines: list[str] = []
    code = """
        import signal, subprocess, sys, time
        tool = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        print(tool.pid, flush=True)
        def finish(*_):
            time.sleep(0.3)
            print("tool runs" if tool.poll() is None else "tool was ended", flush=True)
            sys.exit(0)
        signal.signal(signal.SIGTERM, finish)
        time.sleep(60)
    """
    child = await start(code, lines)
    await asyncio.to_thread(wait_for, lambda: bool(lines))
    tool = int(lines[0])
    child.ask_to_end()
    assert await child.wait() == 0
    assert lines[1] == "tool runs"
    assert not is_running(tool)


async def test_what_a_killed_program_has_started_ends_too_also_if_it_does_not_listen() -> None:
    lines: list[str] = []
    code = f"""
        import subprocess, sys, time
        tool = subprocess.Popen([sys.executable, "-c", {IGNORES!r}], stdout=subprocess.PIPE)
        tool.stdout.readline()
        print(tool.pid, flush=True)
        time.sleep(60)
    """
    child = await start(code, lines)
    await asyncio.to_thread(wait_for, lambda: bool(lines))
    os.kill(child.pid, signal.SIGKILL)
    assert await child.wait() == -signal.SIGKILL
    wait_for(lambda: not is_running(int(lines[0])))


async def test_a_process_that_left_its_group_and_holds_the_output_does_not_hold_up_the_end() -> None:
    lines: list[str] = []
    code = f"""
        import subprocess, sys
        print(subprocess.Popen([sys.executable, "-c", {SLEEPS!r}], start_new_session=True).pid, flush=True)
    """
    child = await start(code, lines)
    began = time.monotonic()
    assert await child.wait() == 0
    assert time.monotonic() - began < 10
    os.kill(int(lines[0]), signal.SIGKILL)


async def test_it_is_in_a_session_of_its_own_so_that_a_terminal_does_not_signal_it() -> None:
    lines: list[str] = []
    child = await start("import os; print(os.getsid(0) == os.getpid())", lines)
    assert (await child.wait(), lines) == (0, ["True"])


@pytest.mark.parametrize("argv", [("/no/such/program",), ("no-such-program-at-all",)])
async def test_a_program_that_is_not_there_is_an_error_that_leaves_no_descriptor(argv: tuple[str, ...]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        await ChildProcess.start(Program(name="p", argv=argv, cwd=Path.cwd(), env={}), print)
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a signal for the death of a parent")
def test_children_of_a_parent_that_is_killed_end_with_it() -> None:
    parent = """
import asyncio, os, sys
from pathlib import Path
from rolecall.cli.console.child import ChildProcess
from rolecall.cli.console.programs import Program

async def main():
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    program = Program(name="p", argv=(sys.executable, "-c", code), cwd=Path.cwd(), env=dict(os.environ))
    child = await ChildProcess.start(program, lambda line: print(line, flush=True))
    await child.wait()

asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
    wait_for(lambda: not is_running(pid))
