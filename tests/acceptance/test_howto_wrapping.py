"""docs/howto/wrap-a-framework.md and test-a-worker.md: their workers and tests run as they are, and keep what the pages say."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rolecall.model.card import USAGE_EXTENSION
from tests.helpers.client import call, send, text_message
from tests.helpers.pages import Shell, blocks_of
from tests.helpers.processes import HubProcess, Process, environment, is_live, start_hub, wait_for

WRAPPED = blocks_of("docs/howto/wrap-a-framework.md")
TESTING = blocks_of("docs/howto/test-a-worker.md")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wrapping")
    for name in ("framework", "worker", "blocking"):
        (folder / f"{name}.py").write_text(WRAPPED[name])
    return folder


@pytest.fixture(scope="module")
def hub(folder: Path) -> Iterator[HubProcess]:
    """With both workers of the page."""
    with ExitStack() as started:
        hub = started.enter_context(start_hub(folder / "hub"))
        for script, role in (("worker", "writer"), ("blocking", "titles")):
            env = {"ROLECALL_HUB": hub.url, "ROLECALL_INSTANCE": "a"}
            argv = (sys.executable, f"{script}.py")
            worker = started.enter_context(Process(argv, log=folder / f"{role}.log", env=env, cwd=folder))
            worker.wait_until(lambda name=f"{role}:a": is_live(hub.url, name))
        yield hub


def test_both_kinds_of_framework_answer_as_the_page_says(hub: HubProcess, folder: Path) -> None:
    done = Shell(folder, hub.url).run(WRAPPED["try"])
    assert (done.returncode, [line.rstrip() for line in done.stdout.splitlines()]) == (0, WRAPPED["tried"].splitlines())


def test_what_the_framework_used_is_in_the_task(hub: HubProcess) -> None:
    (used,) = send(hub.url, "writer", "one two")["metadata"][USAGE_EXTENSION]
    assert (used["model"], used["inputTokens"], used["outputTokens"]) == ("small-1", 2, 2)


def test_a_cancelled_task_closes_the_generator_of_the_framework(hub: HubProcess, folder: Path) -> None:
    log = folder / "writer.log"
    before = log.read_text().count("has let go")
    task = _started(hub, "writer", "word " * 2000)
    assert _cancelled(hub, task) == "canceled"
    wait_for(lambda: log.read_text().count("has let go") == before + 1)


def test_a_cancelled_task_of_a_blocking_framework_is_told_at_once(hub: HubProcess, folder: Path) -> None:
    (folder / "slow.py").write_text(WRAPPED["blocking"].replace("titles", "slow").replace("framework.run", "framework.slow"))
    (folder / "framework.py").write_text(WRAPPED["framework"] + "\n\ndef slow(prompt):\n    time.sleep(5)\n    return prompt\n")
    env = {"ROLECALL_HUB": hub.url, "ROLECALL_INSTANCE": "a"}
    with Process((sys.executable, "slow.py"), log=folder / "slow.log", env=env, cwd=folder) as worker:
        worker.wait_until(lambda: is_live(hub.url, "slow:a"))
        task = _started(hub, "slow", "any")
        began = time.monotonic()
        assert _cancelled(hub, task) == "canceled"
        assert time.monotonic() - began < 3
        worker.kill9()


def test_the_tests_of_the_page_about_tests_pass(tmp_path: Path) -> None:
    done = _pytest(tmp_path, TESTING["worker"])
    assert (done.returncode, "5 passed" in done.stdout) == (0, True), done.stdout


def test_the_tests_of_the_page_fail_when_their_worker_is_wrong(tmp_path: Path) -> None:
    worker = TESTING["worker"]
    for was, now in (
        ("Is that all?", "All?"),
        ("2.5 * order.count", "2.5"),
        ("len(file.raw)", "file.media_type"),
        ('"translator", text', '"interpreter", text'),
    ):
        assert was in worker
        worker = worker.replace(was, now)
    done = _pytest(tmp_path, worker)
    assert (done.returncode, "4 failed, 1 passed" in done.stdout) == (1, True), done.stdout


def _pytest(folder: Path, worker: str) -> subprocess.CompletedProcess[str]:
    files = {"desk.py": worker, "test_desk.py": TESTING["test"], "pyproject.toml": TESTING["settings"]}
    for name, text in files.items():
        (folder / name).write_text(text)
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    return subprocess.run(argv, cwd=folder, env=environment({}), capture_output=True, text=True, timeout=60, check=False)


def _started(hub: HubProcess, role: str, words: str) -> str:
    params = {**text_message(words), "configuration": {"blocking": False}}
    return str(call(f"{hub.url}/agents/{role}/", "message/send", params)["result"]["id"])


def _cancelled(hub: HubProcess, task: str) -> str:
    return str(call(f"{hub.url}/", "tasks/cancel", {"id": task})["result"]["status"]["state"])
