"""The planner with a budget prints what its page shows, with and without tokens, and so does the tree of its task."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.pages import blocks_of
from tests.helpers.processes import ROOT, environment, run_json, start_worker
from tests.helpers.reachable_hubs import ReachableHub, reachable_hubs

PAGE = blocks_of("examples/06_planner/README.md")
ROLECALL = Path(sys.executable).with_name("rolecall")


def run(hub: ReachableHub, *words: str) -> str:
    done = subprocess.run(
        [ROLECALL, *words], cwd=ROOT, env=environment(hub.for_callers), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tree(hub: ReachableHub) -> str:
    """Of the newest planner task, as the page shows it: without times, ids and instances."""
    (task,) = run_json([ROLECALL, "tasks", "ls", "--role", "planner", "--limit", "1", "--json"], env=hub.for_callers)  # type: ignore[misc]
    shown = run(hub, "tasks", "show", task["id"])
    lines = shown[shown.index("TREE") :].splitlines()
    rows = [re.split(r"  +", line.strip()) for line in lines if len(re.split(r"  +", line.strip())) == 7]
    indents = [line[: len(line) - len(line.lstrip())] for line in lines[: len(rows)]]
    table = [(indent + row[0], row[1], row[4], row[5]) for indent, row in zip(indents, rows, strict=True)]
    widths = [max(len(row[at]) for row in table) for at in range(4)]
    text = "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table)
    facts = "\n".join(line for line in lines if re.match("used|budget", line))
    return f"{text}\n\n{facts}\n"


@pytest.mark.parametrize("opened", reachable_hubs())
def test_the_planner_prints_what_its_readme_shows(opened: Any, tmp_path: Path) -> None:
    with ExitStack() as stack:
        hub = stack.enter_context(opened(tmp_path / "hub"))
        for line in PAGE["run"].splitlines():
            module = line.split()[-1]
            role = module.rpartition(":")[2]
            log = tmp_path / f"{role}.log"
            stack.enter_context(start_worker(module, f"{role}:a", hub.url, log=log, env=hub.for_workers))
        for command, printed, shown in (("try", "expected", "tree"), ("try-less", "expected-less", "tree-less")):
            assert run(hub, *PAGE[command].split()[1:]) == PAGE[printed]
            assert re.sub(r"  +", "  ", tree(hub)) == re.sub(r"  +", "  ", PAGE[shown])
