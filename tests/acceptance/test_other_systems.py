"""Nothing needs what only Unix has: without it a hub, its workers, clients and commands start, do their work, and end. What is
shown by code, and not run: macOS and Windows themselves.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

from rolecall import HubClient
from tests.acceptance.consoles import Folder, all_end, descendants
from tests.acceptance.windows.stand_in import BREAK, ENV
from tests.helpers.processes import ROLECALL, HubProcess, Process, free_port, is_live, start_worker

CONTENT = bytes(range(256)) * 2048
"""More than goes with a message, and with all that could be taken for the end of a line or of a file."""
WORDS = [f"word{number}" for number in range(6)]


async def test_a_hub_does_all_its_work_drains_and_is_followed_by_the_next(tmp_path: Path) -> None:
    port = free_port()
    with ExitStack() as stack:
        hub = stack.enter_context(_hub(tmp_path, port))
        admin, holder = _tokens(tmp_path, ("--kind", "admin"), ("--kind", "worker", "--role", "*"))
        env = {**ENV, "ROLECALL_TOKEN": holder}
        workers = {
            name: stack.enter_context(
                start_worker(
                    "tests.acceptance.windows.agents:worker", name, hub.url, log=tmp_path / name, env=env, enrolled=False
                )
            )
            for name in ("mirror:a", "mirror:b")
        }
        for name, worker in workers.items():
            worker.wait_until(partial(is_live, hub.url, name, admin))
        (tmp_path / "sent").write_bytes(CONTENT)
        async with HubClient(hub.url, token=admin) as client:
            (file,) = (await client.call("mirror", "this", files=[tmp_path / "sent"])).files
            assert file.url and await file.read() == CONTENT
            _second_hub_is_refused(tmp_path)
            words = list[str]()
            async with client.stream("mirror", " ".join(WORDS)) as stream:
                async for event in stream:
                    words += event.text.split()
                    if hub.alive:
                        hub.signal(BREAK)
                        assert hub.wait() == 0
                        stack.enter_context(_hub(tmp_path, port))
            assert words == WORDS
            for (name, worker), number in zip(workers.items(), (signal.SIGINT, BREAK), strict=True):
                await _worker_drained(client, name, worker, number)
    assert hub.output.count('"event": "draining"') == 1
    assert not [name for name in ("hub", *workers) if "Traceback" in (tmp_path / name).read_text()]


async def test_consoles_run_their_programs_and_end_them(tmp_path: Path) -> None:
    """`up`, once for its file, with a task that is finished first; `dev` with a hub that keeps files in a temporary folder."""
    folder, demo, temporary = Folder(tmp_path / "up"), Folder(tmp_path / "dev"), tmp_path / "temporary"
    folder.write('[workers.shouter]\nrun = "shouter:worker"\nenv = {PAUSE = "0.1"}\n', shouter="")
    temporary.mkdir()
    in_memory = {"ROLECALL_STORE": "memory:", "TMPDIR": str(temporary)}
    (tmp_path / "sent").write_bytes(CONTENT)
    with _console(folder, "up", ROLECALL_LOG_LEVEL="info") as up, _console(demo, "dev", **in_memory) as dev:
        for console in (up, dev):
            console.wait_until(lambda console=console: "in another terminal" in console.output)  # type: ignore[misc]
        children = descendants(up.pid) | descendants(dev.pid)
        assert len(children) == 2 + 4
        second = folder.run("up", env=ENV)
        assert (second.returncode, f"runs already, in process {up.pid} [RUNS_ALREADY]" in second.stderr) == (2, True)
        async with HubClient(demo.url) as client:
            assert (await client.call("echo", "hello", files=[tmp_path / "sent"])).text == "hello"
        assert [path.name[:15] for path in temporary.iterdir()] == ["rolecall-files-"]
        dev.signal(signal.SIGINT)
        async with HubClient(folder.url) as client:
            assert await _words(client, "shouter", up, BREAK) == [word.upper() for word in WORDS]
        assert (up.wait(), dev.wait()) == (0, 0)
        all_end(children, 0)
        assert not list(temporary.iterdir())
    assert "finishes 1 running task" in up.output and "shutting down" in up.output
    for console in (up, dev):
        assert "ended after" in console.output and "Traceback" not in console.output


def _tokens(folder: Path, *kinds: tuple[str, ...]) -> list[str]:
    """Made at the same time, in one file."""
    env = {**ENV, "ROLECALL_DATA_DIR": str(folder / "data")}
    processes = [
        Process((*ROLECALL, "tokens", "new", "--name", f"holder{number}", *words), log=folder / f"token{number}", env=env)
        for number, words in enumerate(kinds)
    ]
    assert [process.wait() for process in processes] == [0] * len(kinds)
    return [process.output.splitlines()[-1] for process in processes]


def _hub(folder: Path, port: int) -> HubProcess:
    return HubProcess(folder / "data", port=port, log=folder / "hub", env=ENV)


def _second_hub_is_refused(folder: Path) -> None:
    with HubProcess(folder / "data", port=free_port(), log=folder / "second", env=ENV) as second:
        assert second.wait() == 2
        assert "is in use by another process" in second.output


async def _worker_drained(client: HubClient, name: str, worker: Process, number: int) -> None:
    """It finishes its task, and leaves."""
    assert await _words(client, name, worker, number) == WORDS
    assert worker.wait() == 0
    assert name not in [agent.name for agent in await client.discover_agents()]


async def _words(client: HubClient, name: str, process: Process, number: int) -> list[str]:
    """The words of an answer; after the first, the process gets that signal."""
    words = list[str]()
    async with client.stream(name, " ".join(WORDS)) as stream:
        async for event in stream:
            if event.text and not words:
                process.signal(signal.Signals(number))
            words += event.text.split()
    return words


@contextmanager
def _console(folder: Folder, command: str, **env: str) -> Iterator[Process]:
    """What a failure leaves of its programs is ended too: no kernel does."""
    variables = {**folder.env, **ENV, **env}
    with Process((*ROLECALL, command), log=folder.place / "log", env=variables, cwd=folder.place) as console:
        try:
            yield console
        finally:
            if console.alive:
                with suppress(ProcessLookupError):
                    os.killpg(console.pid, signal.SIGKILL)
