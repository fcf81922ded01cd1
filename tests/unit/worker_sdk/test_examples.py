"""The first examples do what their README says: its blocks are what is run here."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.doors import Door, doors
from tests.helpers.processes import ROLECALL, ROOT, Process, environment

EXAMPLES = {"01_echo": "echo", "02_stream": "counter", "03_needs_input": "booking"}


@pytest.fixture(scope="module", params=doors())
def door(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with request.param(tmp_path_factory.mktemp("hub")) as door:
        yield door


def block(readme: str, kind: str) -> str:
    found = re.search(rf"```\w+ {kind}\n(.*?)```", readme, re.DOTALL)
    assert found, f"no block {kind!r}"
    return found[1]


def tell(command: str, door: Door) -> subprocess.CompletedProcess[str]:
    text = re.search(r'"(.*)"', command)
    words = (re.sub(r'".*"', "TEXT", command) if text else command).split()
    argv = [*ROLECALL, *(text[1] if text and word == "TEXT" else word for word in words[1:])]
    return subprocess.run(argv, env=environment(door.for_callers), capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize("folder", EXAMPLES)
def test_an_example_prints_what_its_readme_says(folder: str, door: Door, tmp_path: Path) -> None:
    readme = (ROOT / "examples" / folder / "README.md").read_text()
    python, script = block(readme, "run").split()
    assert python == "python"
    env = {**door.for_workers, "ROLECALL_INSTANCE": "a"}
    with Process((sys.executable, script), log=tmp_path / "log", env=env, name=folder) as worker:
        worker.wait_until(lambda: door.shows(f"{EXAMPLES[folder]}:a"))
        said = tell(block(readme, "try"), door)
        assert said.stdout.strip() == block(readme, "expected").strip(), said.stderr
        if "answer\n" in readme:
            task = re.search(r"--task-id (\S+)", said.stderr)
            assert task and said.returncode == 7
            answered = tell(block(readme, "answer").replace("TASK", task[1]), door)
            assert answered.stdout.strip() == block(readme, "answered").strip()
        assert worker.stop() == 0
    assert not door.shows(f"{EXAMPLES[folder]}:a")
