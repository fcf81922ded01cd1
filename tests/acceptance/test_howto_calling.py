"""docs/howto/calling.md: its worker and its programs run as they are, and print what the page says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.pages import blocks_of
from tests.helpers.processes import Process, environment
from tests.helpers.reachable_hubs import ReachableHub, reachable_hubs

BLOCKS = blocks_of("docs/howto/calling.md")


@pytest.fixture(scope="module", params=reachable_hubs()[:1])
def hub(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReachableHub]:
    """With the worker of the page."""
    folder = tmp_path_factory.mktemp("calling")
    (folder / "shop.py").write_text(BLOCKS["worker"])
    with request.param(folder / "hub") as hub:
        env = {**hub.for_workers, "ROLECALL_INSTANCE": "a"}
        with Process((sys.executable, "shop.py"), log=folder / "log", env=env, cwd=folder) as worker:
            worker.wait_until(lambda: hub.shows("shop:a"))
            yield hub


@pytest.mark.parametrize(("program", "printed"), [("call", "called"), ("late", "late-printed"), ("sync", "sync-printed")])
def test_a_program_of_the_page_prints_what_the_page_says(hub: ReachableHub, tmp_path: Path, program: str, printed: str) -> None:
    (tmp_path / "program.py").write_text(BLOCKS[program])
    env = environment(hub.for_callers)
    done = subprocess.run(
        [sys.executable, "program.py"], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.returncode) == (BLOCKS[printed], 0), done.stderr
