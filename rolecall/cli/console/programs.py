"""What to run: a program with its words, folder and environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rolecall.cli.console.restart_policy import Restart
from worker_sdk.config import HubAddress

DRAIN = 45.0
"""Seconds that a program may take to end. A worker of the SDK finishes its tasks within 30."""
_NOT_PASSED_ON = ("ROLECALL_", "A2A_")
"""Settings of a hub, or of a single worker: of all workers they would make the same one."""


LOG_FORMAT = "console"
"""People read the output, although it goes through a pipe."""
OUTPUT = {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"}
"""A line comes when it is printed, and not when there are some kilobytes; and as it is read, whatever the system's encoding."""


def _no_files() -> Iterable[Path]:
    return ()


@dataclass(frozen=True, slots=True)
class Program:
    """`name`: the prefix of its lines. `env`: its whole environment. `final`: exit codes after which another start would end
    alike, and why. `role`: that it serves, if known. `instance`: under which it enrols, if it does; `enrols`: it does. `note`:
    what is said of it when it is ready. `entry`: what it is one of the copies of. `check`: the words that load it and start
    nothing. `sources`: its files. The last three are for `--reload`.
    """

    name: str
    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str] = field(repr=False)
    restart: Restart = Restart.ALWAYS
    drain: float = DRAIN
    final: Mapping[int, str] = field(default_factory=dict)
    role: str | None = None
    instance: str | None = None
    enrols: bool = False
    note: str = ""
    entry: str = ""
    check: Sequence[str] = ()
    sources: Callable[[], Iterable[Path]] = _no_files

    def is_worker(self, name: str) -> bool:
        """Whether that `role:instance` is what it runs. Its role may be known only once it has enrolled: the instance that it
        was given is then the whole name, or stands behind another role.
        """
        role, _, instance = name.partition(":")
        return self.instance in (name, instance) and self.role in (None, role)


def own_command(*words: str) -> tuple[str, ...]:
    """A command of this program, in any folder: `-P` keeps files there from standing in for modules of the library."""
    return (sys.executable, "-P", "-m", "rolecall.cli", *words)


def access_to(address: HubAddress, token_file: Path | None = None) -> dict[str, str]:
    """The variables by which workers reach that hub. A token from a file stays in the file, which may change."""
    token = {"ROLECALL_TOKEN_FILE": str(token_file.absolute())} if token_file is not None else {"ROLECALL_TOKEN": address.token}
    found: dict[str, object] = {"ROLECALL_HUB": address.url, **token}
    found |= {"ROLECALL_CA_FILE": str(address.ca_file.absolute())} if address.ca_file is not None else {}
    return {name: str(value) for name, value in found.items() if value is not None}


def worker_environment(access: Mapping[str, str], instance: str, env: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without what is a hub's or another worker's; then how to reach the hub, and `env`."""
    kept = {name: value for name, value in os.environ.items() if name != "PORT" and not name.startswith(_NOT_PASSED_ON)}
    log_format = {"ROLECALL_LOG_FORMAT": os.environ.get("ROLECALL_LOG_FORMAT") or LOG_FORMAT}
    return {**kept, **OUTPUT, **log_format, **access, "ROLECALL_INSTANCE": instance, **env}
