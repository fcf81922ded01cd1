"""No callback of the hub's event loop uses much CPU time at once, whatever workers send and callers ask for."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, repeat
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import httpx
import pytest

from tests.acceptance import watched_loop
from tests.acceptance.long_tasks import LongTasks, open_long_tasks

T = TypeVar("T")
MOST = 50.0
"""Milliseconds."""
ATTEMPTS = 3
"""A callback that was long because of the machine is not long each time: on a shared one its CPU time has what others took."""
EVENTS = 20_000
"""So many that the fold of the whole log takes longer than that."""
OTHERS = 3
EVENTS_OF_OTHERS = 1_500
AT_ONCE = 2_000


@dataclass
class Watched(Generic[T]):
    """What came of a work, and the callback that was longest meanwhile."""

    result: T
    longest: float
    name: str


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

    def long_task(self) -> str:
        task, count = self.long_tasks.stream(f"{EVENTS} reports 2 tasks")
        assert count >= EVENTS
        return task

    def long_tasks_after(self, task: str) -> Iterator[str]:
        """It, and then new ones."""
        yield task
        while True:
            yield self.long_task()

    def watch(self, work: Callable[[str], T], tasks: Iterable[str]) -> Watched[T]:
        """Do that with the first task, and with the next if a callback was long meanwhile: what was read may be in memory."""
        for task in islice(tasks, ATTEMPTS):
            began = time.monotonic()
            result = work(task)
            lines = [json.loads(line) for line in self.callbacks.read_text().splitlines()]
            found = [(used, name) for at, used, name in lines if at >= began]
            assert found, "no callback was measured"
            longest, name = max(found)
            print(f"\nthe longest of the callbacks: {longest:.0f} ms of CPU: {name}")
            if longest < MOST:
                break
        return Watched(result, longest, name)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedHub]:
    folder = tmp_path_factory.mktemp("loop")
    argv = (sys.executable, "-m", watched_loop.__name__, str(folder / "callbacks"), "serve")
    with open_long_tasks(folder, argv=argv, loop="asyncio") as long_tasks:
        yield WatchedHub(long_tasks, folder / "callbacks")


@pytest.fixture(scope="module")
def made(watched: WatchedHub) -> Watched[str]:
    """A long task."""
    return watched.watch(lambda _: watched.long_task(), repeat(""))


@pytest.fixture(scope="module")
def others(watched: WatchedHub) -> list[str]:
    return [watched.long_tasks.stream(f"{EVENTS_OF_OTHERS} reports")[0] for _ in range(OTHERS)]


def test_a_worker_that_repeats_its_long_task_holds_the_loop_only_for_moments(made: Watched[str]) -> None:
    assert made.longest < MOST, made.name


def test_a_long_task_is_read_in_moments(watched: WatchedHub, made: Watched[str]) -> None:
    read = watched.watch(lambda task: watched.call("tasks/get", id=task), watched.long_tasks_after(made.result))
    assert len(read.result["history"]) >= EVENTS
    assert read.longest < MOST, read.name


@pytest.mark.parametrize(("method", "version"), [("tasks/list", "0.3"), ("ListTasks", "1.0")])
def test_a_list_of_long_tasks_is_read_in_moments(
    watched: WatchedHub, made: Watched[str], others: list[str], method: str, version: str
) -> None:
    """In pages, as many as it takes until the longest task is on one."""

    def list_all(longest: str) -> list[str]:
        found, token = list[str](), ""
        while not found or token:
            page = watched.call(method, version, pageToken=token)
            found += [task["id"] for task in page["tasks"]]
            token = page["nextPageToken"]
        assert {longest, *others} <= set(found)
        return found

    read = watched.watch(list_all, watched.long_tasks_after(made.result))
    assert read.longest < MOST, read.name


def test_a_burst_of_events_is_passed_on_in_moments(watched: WatchedHub) -> None:
    read = watched.watch(lambda _: watched.long_tasks.stream(f"{AT_ONCE} chunks")[1], repeat(""))
    assert read.result == AT_ONCE + 2
    assert read.longest < MOST, read.name
