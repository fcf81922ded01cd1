"""`rolecall dev`: a hub of its own and three demo workers, in one console."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rolecall.cli.console.hub_choice import started_hub
from rolecall.cli.console.programs import Program, own_command, worker_environment
from rolecall.cli.console.session import Options, run_session
from rolecall.cli.server.own_hub import OwnHub

DEMOS = ("echo", "storyteller", "booking")
_INSTANCE = "1"


def run_dev(file: Path | None, flags: Mapping[str, Any], *, logs: bool) -> int:
    """The exit code. `file` and `flags`: as for `rolecall serve`."""
    names = [f"{demo}:{_INSTANCE}" for demo in DEMOS]
    return run_session(started_hub(OwnHub(file, flags)), _demos, Options("dev", names, logs=logs))


def _demos(access: Mapping[str, str]) -> Sequence[Program]:
    return [
        Program(
            name=f"{demo}:{_INSTANCE}",
            argv=own_command("worker", "run", f"rolecall.cli.demo:{demo}", "--instance", _INSTANCE, "--quiet"),
            cwd=Path.cwd(),
            env=worker_environment(access, _INSTANCE, {}),
            role=demo,
            instance=_INSTANCE,
            enrols=True,
            note="demo worker",
        )
        for demo in DEMOS
    ]
