"""A client without an SDK goes on where its stream was cut, by the sequence extension: the example in both languages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.helpers.pages import blocks_of
from tests.helpers.processes import ROOT, Process, environment
from tests.helpers.reachable_hubs import ReachableHub, reachable_hubs
from tests.helpers.tools import node

FOLDER = ROOT / "examples/04_resume"
PAGE = blocks_of("examples/04_resume/README.md")


@pytest.fixture(scope="module", params=reachable_hubs())
def hub(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReachableHub]:
    with request.param(tmp_path_factory.mktemp("hub")) as hub:
        env = {**hub.for_workers, "ROLECALL_INSTANCE": "a"}
        argv = (sys.executable, *PAGE["run"].split()[1:])
        with Process(argv, log=tmp_path_factory.mktemp("worker") / "log", env=env, name="counter") as worker:
            worker.wait_until(lambda: hub.shows("counter:a"))
            yield hub


@pytest.mark.parametrize("language", ["python", "node"])
def test_a_client_without_an_sdk_goes_on_where_its_stream_was_cut(language: str, hub: ReachableHub) -> None:
    program, script = PAGE[language].split()
    assert program == language
    argv = (sys.executable if language == "python" else str(node()), script)
    done = subprocess.run(argv, env=environment(hub.for_callers), cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert done.stdout.strip() == PAGE["expected"].strip(), done.stderr


def test_the_clients_are_short() -> None:
    for script in FOLDER.glob("resume.*"):
        assert len([line for line in script.read_text("utf-8").splitlines() if line.strip()]) <= 32
