"""The examples do what their README shows: the tests run its blocks."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.processes import ROLECALL, ROOT, Process, environment
from tests.helpers.reachable_hubs import ReachableHub, reachable_hubs

EXAMPLES = {"01_echo": "echo", "02_stream": "counter", "03_needs_input": "booking"}


@pytest.fixture(scope="module", params=reachable_hubs())
def hub(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReachableHub]:
    with request.param(tmp_path_factory.mktemp("hub")) as hub:
        yield hub


def block(text: str, kind: str) -> str:
    found = re.search(rf"```\w+ {kind}\n(.*?)```", text, re.DOTALL)
    assert found, f"no block {kind!r}"
    return found[1]


def run(command: str, hub: ReachableHub) -> subprocess.CompletedProcess[str]:
    quoted = re.search(r'"(.*)"', command)
    words = (re.sub(r'".*"', "TEXT", command) if quoted else command).split()
    argv = [*ROLECALL, *(quoted[1] if quoted and word == "TEXT" else word for word in words[1:])]
    return subprocess.run(argv, env=environment(hub.for_callers), capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize("folder", EXAMPLES)
def test_an_example_prints_what_its_readme_shows(folder: str, hub: ReachableHub, tmp_path: Path) -> None:
    text = (ROOT / "examples" / folder / "README.md").read_text()
    python, script = block(text, "run").split()
    assert python == "python"
    env = {**hub.for_workers, "ROLECALL_INSTANCE": "a"}
    with Process((sys.executable, script), log=tmp_path / "log", env=env, name=folder) as worker:
        worker.wait_until(lambda: hub.shows(f"{EXAMPLES[folder]}:a"))
        sent = run(block(text, "try"), hub)
        assert sent.stdout.strip() == block(text, "expected").strip(), sent.stderr
        if "answer\n" in text:
            task = re.search(r"--task-id (\S+)", sent.stderr)
            assert task and sent.returncode == 7
            answered = run(block(text, "answer").replace("TASK", task[1]), hub)
            assert answered.stdout.strip() == block(text, "answered").strip()
        assert worker.stop() == 0
    assert not hub.shows(f"{EXAMPLES[folder]}:a")
