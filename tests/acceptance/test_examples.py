"""The examples do what their README shows: the tests run its blocks."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.pages import blocks_of
from tests.helpers.processes import ROLECALL, Process, environment
from tests.helpers.reachable_hubs import ReachableHub, reachable_hubs

EXAMPLES = {
    "echo": blocks_of("examples/01_echo/README.md"),
    "counter": blocks_of("examples/02_stream/README.md"),
    "booking": blocks_of("examples/03_needs_input/README.md"),
}


@pytest.fixture(scope="module", params=reachable_hubs())
def hub(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReachableHub]:
    with request.param(tmp_path_factory.mktemp("hub")) as hub:
        yield hub


def run(command: str, hub: ReachableHub) -> subprocess.CompletedProcess[str]:
    quoted = re.search(r'"(.*)"', command)
    words = (re.sub(r'".*"', "TEXT", command) if quoted else command).split()
    argv = [*ROLECALL, *(quoted[1] if quoted and word == "TEXT" else word for word in words[1:])]
    return subprocess.run(argv, env=environment(hub.for_callers), capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize("role", EXAMPLES)
def test_an_example_prints_what_its_readme_shows(role: str, hub: ReachableHub, tmp_path: Path) -> None:
    page = EXAMPLES[role]
    python, script = page["run"].split()
    assert python == "python"
    env = {**hub.for_workers, "ROLECALL_INSTANCE": "a"}
    with Process((sys.executable, script), log=tmp_path / "log", env=env, name=role) as worker:
        worker.wait_until(lambda: hub.shows(f"{role}:a"))
        sent = run(page["try"], hub)
        assert sent.stdout.strip() == page["expected"].strip(), sent.stderr
        if "answer" in page:
            task = re.search(r"--task-id (\S+)", sent.stderr)
            assert task and sent.returncode == 7
            answered = run(page["answer"].replace("TASK", task[1]), hub)
            assert answered.stdout.strip() == page["answered"].strip()
        assert worker.stop() == 0
    assert not hub.shows(f"{role}:a")
