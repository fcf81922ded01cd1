"""No callback of the hub's event loop uses much CPU time at once, whatever workers send and callers ask for."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.acceptance import watched_loop
from tests.acceptance.long_tasks import LongTasks, open_long_tasks

MOST = 50.0
"""Milliseconds."""
EVENTS = 20_000
"""So many that the fold of the whole log takes longer than that."""
OTHERS = 3
EVENTS_OF_OTHERS = 1_500
AT_ONCE = 2_000


class WatchedHub(NamedTuple):
    """A hub on asyncio's own loop, whose callbacks are measured."""

    long_tasks: LongTasks
    callbacks: Path

    def call(self, method: str, version: str = "0.3", **params: Any) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = {"A2A-Version": version}
        answer = httpx.post(self.long_tasks.hub.url, json=body, headers=headers, trust_env=False, timeout=30)
        result: dict[str, Any] = answer.json()["result"]
        return result

    def check_callbacks(self, began: float, ended: float = math.inf) -> None:
        lines = [json.loads(line) for line in self.callbacks.read_text().splitlines()]
        found = [(used, name) for at, used, name in lines if began <= at < ended]
        assert found, "no callback was measured"
        used, name = max(found)
        print(f"\nthe longest of the callbacks: {used:.0f} ms of CPU: {name}")
        assert used < MOST, name


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedHub]:
    folder = tmp_path_factory.mktemp("loop")
    argv = (sys.executable, "-m", watched_loop.__name__, str(folder / "callbacks"), "serve")
    with open_long_tasks(folder, argv=argv, loop="asyncio") as long_tasks:
        yield WatchedHub(long_tasks, folder / "callbacks")


class Finished(NamedTuple):
    """A long task, and when it began and ended."""

    task: str
    began: float
    ended: float


@pytest.fixture(scope="module")
def finished(watched: WatchedHub) -> Finished:
    began = time.monotonic()
    task, count = watched.long_tasks.stream(f"{EVENTS} reports 2 tasks")
    assert count >= EVENTS
    return Finished(task, began, time.monotonic())


def test_a_worker_that_repeats_its_long_task_holds_the_loop_only_for_moments(watched: WatchedHub, finished: Finished) -> None:
    watched.check_callbacks(finished.began, finished.ended)


def test_a_long_task_is_read_in_moments(watched: WatchedHub, finished: Finished) -> None:
    began = time.monotonic()
    assert len(watched.call("tasks/get", id=finished.task)["history"]) >= EVENTS
    watched.check_callbacks(began)


def test_a_list_of_long_tasks_is_read_in_moments(watched: WatchedHub, finished: Finished) -> None:
    """In pages, as many as it takes until the longest task is on one."""
    others = [watched.long_tasks.stream(f"{EVENTS_OF_OTHERS} reports")[0] for _ in range(OTHERS)]
    for method, version in (("tasks/list", "0.3"), ("ListTasks", "1.0")):
        began, found, token = time.monotonic(), list[str](), ""
        while not found or token:
            page = watched.call(method, version, pageToken=token)
            found += [task["id"] for task in page["tasks"]]
            token = page["nextPageToken"]
        assert {finished.task, *others} <= set(found)
        watched.check_callbacks(began)


def test_a_burst_of_events_is_passed_on_in_moments(watched: WatchedHub) -> None:
    began = time.monotonic()
    assert watched.long_tasks.stream(f"{AT_ONCE} chunks")[1] == AT_ONCE + 2
    watched.check_callbacks(began)
