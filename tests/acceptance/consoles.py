"""`rolecall up` and `dev` as real processes: a folder with workers, the console, and what is left when it has ended."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.helpers.processes import ROLECALL, Process, environment, free_port, status_of, wait_for

SHOUTER = """
import asyncio
import os
from rolecall import Worker

worker = Worker("{role}", description="In capitals.")


@worker.on_message
async def shout(text: str):
    for word in text.split():
        yield word.upper() + " "
        await asyncio.sleep(float(os.environ.get("PAUSE", "0")))


if __name__ == "__main__":
    worker.run()
"""


class Folder:
    """A folder with agents.toml and workers, a data folder and a port for the hub."""

    def __init__(self, place: Path) -> None:
        self.place = place / "my agents"
        self.place.mkdir(parents=True)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.env: dict[str, str] = {"ROLECALL_PORT": str(self.port), "ROLECALL_DATA_DIR": str(place / "data")}

    def write(self, agents: str, **roles: str) -> None:
        """`roles`: a module with a worker for each, and its text if it is another one."""
        (self.place / "agents.toml").write_text(agents)
        for role, text in roles.items():
            (self.place / f"{role}.py").write_text(text or SHOUTER.replace("{role}", role))

    def up(self, *words: str, env: Mapping[str, str] | None = None, log: str = "up.log") -> Process:
        argv = [*ROLECALL, "up", *words]
        return Process(argv, log=self.place.parent / log, env={**self.env, **(env or {})}, cwd=self.place, name="up")

    def run(self, *words: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*ROLECALL, *words],
            env=environment({**self.env, **(env or {})}),
            cwd=self.place,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def send(self, role: str, text: str, *words: str, env: Mapping[str, str] | None = None) -> str:
        done = self.run("send", "--hub", self.url, role, text, *words, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def hub_answers(self) -> bool:
        return status_of(f"{self.url}/readyz") == 200


def descendants(pid: int) -> dict[int, str]:
    """The processes that this one has started, and those that they have, with their command lines."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            state, parent = status.rpartition(")")[2].split()[:2]
            if state != "Z":
                parents[int(entry.name)] = int(parent)
    found: dict[int, str] = {}
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        for child in [one for one, of in parents.items() if of == parent and one not in found]:
            found[child] = command_of(child)
            waiting.append(child)
    return found


def command_of(pid: int) -> str:
    """Empty: it has ended."""
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def child_of(console: Process, words: str) -> int:
    """The process of the console whose command line contains these words."""
    (found,) = [pid for pid, command in descendants(console.pid).items() if words in command]
    return found


def all_end(processes: Mapping[int, str], seconds: float = 10.0) -> None:
    wait_for(lambda: not any(command_of(pid) for pid in processes), seconds)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
