"""Every code block of the README runs as it is, with and without tokens. Only the hub's address differs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.helpers.pages import blocks_of
from tests.helpers.processes import ROOT, Process, environment, wait_for
from tests.helpers.reachable_hubs import ReachableHub, reachable_hubs
from tests.helpers.tools import sdk_python

PAGE = blocks_of("README.md")


@pytest.fixture(scope="module", params=reachable_hubs())
def hub_access(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReachableHub]:
    with request.param(tmp_path_factory.mktemp("readme")) as hub_access:
        yield hub_access


@pytest.fixture(scope="module")
def workers(hub_access: ReachableHub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("workers")
    demos = [f"rolecall.cli.demo:{name}" for name in ("echo", "storyteller")]
    scripts = {"shouter.py": PAGE["worker"], "researcher.py": PAGE["streaming"]}
    for name, text in scripts.items():
        (folder / name).write_text(text)
    commands = [(rolecall(), "worker", "run", demo) for demo in demos] + [
        (sys.executable, str(folder / name)) for name in scripts
    ]
    running = [
        Process(argv, log=folder / f"{n}.log", env={**hub_access.for_workers, "ROLECALL_INSTANCE": "readme"})
        for n, argv in enumerate(commands)
    ]
    try:
        for role in ("echo", "storyteller", "shouter", "researcher"):
            wait_for(partial(hub_access.shows, f"{role}:readme"))
        yield
    finally:
        for process in running:
            process.end()


def rolecall() -> str:
    return str(Path(sys.executable).with_name("rolecall"))


def run(hub_access: ReachableHub, *argv: str) -> str:
    """The output that a user gets in the folder of the clone."""
    env = environment({**hub_access.for_callers, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"})
    done = subprocess.run(argv, env=env, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_two_setup_commands_are_make_targets() -> None:
    named = re.findall(r"^make (\w+)", PAGE["setup"], re.MULTILINE)
    assert named == ["run", "test"]
    makefile = (ROOT / "Makefile").read_text()
    assert all(f"\n{target}:" in makefile for target in named)


def test_the_worker_has_eight_lines() -> None:
    assert len([line for line in PAGE["worker"].splitlines() if line]) == 8


def test_the_first_commands_work(hub_access: ReachableHub, workers: None) -> None:
    source, *commands = PAGE["try"].strip().splitlines()
    assert source == "source .venv/bin/activate"
    answers = [run(hub_access, "bash", "-c", command) for command in commands]
    assert answers[0] == "hello\n"
    assert "lighthouse" in answers[1]
    assert "storyteller" in answers[2]


def test_the_command_line_calls_the_worker(hub_access: ReachableHub, workers: None) -> None:
    assert run(hub_access, "bash", "-c", PAGE["send"]) == "ANY AGENT, ANY FRAMEWORK \n"


def test_python_calls_the_worker(hub_access: ReachableHub, workers: None) -> None:
    assert run(hub_access, sys.executable, "-c", PAGE["call"]) == "PIECE BY PIECE ANY AGENT, ANY FRAMEWORK \n"


def test_the_worker_runs_by_the_command_line_too(hub_access: ReachableHub, tmp_path: Path) -> None:
    """What stands under `if __name__ == "__main__"` is for scripts. The worker must not run twice."""
    (tmp_path / "shouter.py").write_text(PAGE["worker"])
    argv = [rolecall(), "worker", "run", "shouter:worker", "--instance", "loaded"]
    with Process(argv, log=tmp_path / "log", env=hub_access.for_workers, cwd=tmp_path) as loaded:
        wait_for(lambda: hub_access.shows("shouter:loaded"))
        assert loaded.stop(5) == 0
    assert not hub_access.shows("shouter:loaded")


def test_curl_calls_the_worker(hub_access: ReachableHub, workers: None) -> None:
    answer = run(hub_access, "bash", "-c", PAGE["curl"].replace("http://127.0.0.1:8420", hub_access.url))
    assert '"text":"HELLO "' in answer


def test_a_stock_client_calls_the_worker(hub_access: ReachableHub, workers: None) -> None:
    script = PAGE["other-client"].replace("http://127.0.0.1:8420", hub_access.url)
    assert run(hub_access, str(sdk_python("0.3")), "-c", script) == "HELLO THERE \n"


def test_the_streaming_worker_asks_and_continues(hub_access: ReachableHub, workers: None) -> None:
    done = subprocess.run(
        [rolecall(), "send", "researcher", "bees"],
        env=environment(hub_access.for_callers),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 7
    assert "All about bees." in done.stdout
    task = re.search(r"--task-id (\S+)", done.stderr)
    assert task is not None
    assert run(hub_access, rolecall(), "send", "researcher", "yes", "--task-id", task[1]).endswith("published\n")
