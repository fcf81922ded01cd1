"""A hub takes over the data folder and the running workers of an earlier one; an earlier one refuses a later one's folder."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from rolecall.cli.demo import _STORY
from tests.helpers.processes import ROLECALL, ROOT, HubProcess, Process, environment, free_port, is_live, start_hub, wait_for

EARLIER = "677317f"
"""The last revision whose database has version 13: before usage, files by reference, the feed of tasks and summaries."""
DEMOS = ("echo", "storyteller", "booking")


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of that revision."""
    found = subprocess.run(
        ["git", "archive", EARLIER, "hub", "rolecall", "worker_sdk"], cwd=ROOT, capture_output=True, check=False
    )
    if found.returncode != 0:
        pytest.skip(f"this clone has no revision {EARLIER}")
    folder = tmp_path_factory.mktemp("earlier")
    subprocess.run(["tar", "-x", "-C", folder], input=found.stdout, check=True)
    return folder


def process(tree: Path, *words: str, log: Path, env: dict[str, str]) -> Process:
    """A command with the code of a tree: its folder comes before what is installed."""
    return Process([*ROLECALL, *words], log=log, env={**env, "PYTHONPATH": str(tree)}, cwd=tree, name=words[0])


def rolecall(hub: str, *words: str) -> subprocess.CompletedProcess[str]:
    env = environment({"ROLECALL_HUB": hub})
    return subprocess.run([*ROLECALL, *words], env=env, capture_output=True, text=True, timeout=60, check=False)


def test_tasks_and_workers_of_an_earlier_hub_go_on_at_this_one(earlier: Path, tmp_path: Path) -> None:
    port, data = free_port(), tmp_path / "data"
    url = f"http://127.0.0.1:{port}"
    env = {"ROLECALL_PORT": str(port), "ROLECALL_DATA_DIR": str(data), "ROLECALL_HUB": url, "ROLECALL_INSTANCE": "old"}
    running = [process(earlier, "serve", log=tmp_path / "old.log", env=env)]
    old_hub = running[0]
    try:
        old_hub.wait_until(lambda: "rolecall serves" in old_hub.output or "http" in old_hub.output, 20)
        for demo in DEMOS:
            argv = ("worker", "run", f"rolecall.cli.demo:{demo}")
            running.append(process(earlier, *argv, log=tmp_path / f"{demo}.log", env=env))
        # It takes calls from its hub alone, of whatever version that is.
        argv = ("worker", "run", "rolecall.cli.demo:echo", "--host", "0.0.0.0")
        running.append(process(ROOT, *argv, log=tmp_path / "new.log", env={**env, "ROLECALL_INSTANCE": "new"}))
        for name in (*(f"{demo}:old" for demo in DEMOS), "echo:new"):
            wait_for(_shown(url, name), 30)
        assert rolecall(url, "send", "echo:old", "before").stdout == "before\n"
        assert rolecall(url, "send", "echo:new", "before").stdout == "before\n"
        worker = httpx.get(f"{url}/registry/agents/echo:new").json()["url"]
        assert httpx.post(worker, json={}).status_code == 401
        asked = rolecall(url, "send", "booking", "a table")
        assert asked.returncode == 7
        reader = process(earlier, "send", "storyteller", "a cat", log=tmp_path / "story.log", env=env)
        running.append(reader)
        reader.wait_until(lambda: "nobody had asked" in reader.output, 20)
        old_hub.kill9()

        with start_hub(data, port=port) as hub:
            assert reader.wait(40) == 0
            assert _STORY.format(subject="a cat") in reader.output
            _check(hub, asked.stderr)
            for name in (*(f"{demo}:old" for demo in DEMOS), "echo:new"):
                wait_for(_shown(url, name), 30)
            assert rolecall(url, "send", "echo:old", "after").stdout == "after\n"
            assert rolecall(url, "send", "echo:new", "after").stdout == "after\n"
        refused = process(earlier, "serve", log=tmp_path / "refused.log", env=env)
        assert refused.wait(20) == 2
        assert "this hub knows 13. Start a hub as new as the one that last used it." in refused.output
    finally:
        for one in running:
            one.end()


def _shown(url: str, name: str) -> Callable[[], bool]:
    return lambda: is_live(url, name)


def _check(hub: HubProcess, asked: str) -> None:
    """What ended is still read; what waited is answered, and its worker goes on."""
    listed = rolecall(hub.url, "tasks", "export", "--role", "echo").stdout
    assert '"text": "before"' in listed
    task = asked.split("--task-id ")[1].split()[0]
    answered = rolecall(hub.url, "inbox", "answer", task, "yes")
    assert (answered.returncode, answered.stdout) == (0, "Booked: a table.\n"), answered.stderr
