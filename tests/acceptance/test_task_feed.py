"""The feed of tasks over kills of the hub: every change once, in order, as the logs have it."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx

from rolecall.model.a2a import PAUSED, TaskState
from rolecall.protocol.sse import FrameReader
from tests.helpers.client import send
from tests.helpers.processes import HubProcess, start_hub, start_worker, wait_for

WORKERS = "tests.acceptance.workers"
TIMES = 3
"""How often the hub is killed."""
Outline = tuple[str, str, int]
"""The kind of a change, and the state and the event of its task."""


class FeedReader:
    """Reads on a thread, and comes back with the newest revision as often as the stream breaks."""

    def __init__(self, hub: str, after: int) -> None:
        self.changes: list[dict[str, Any]] = []
        self.connections = 0
        self._url = f"{hub}/registry/tasks/events"
        self._after = after
        self._over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over = True
        self._thread.join(10)

    def _run(self) -> None:
        while not self._over:
            try:
                self._read()
            except httpx.HTTPError:
                time.sleep(0.05)

    def _read(self) -> None:
        headers = {"Last-Event-ID": str(self._after)}
        with httpx.stream("GET", self._url, headers=headers, timeout=5, trust_env=False) as answer:
            self.connections += answer.status_code == 200
            frames = FrameReader()
            for chunk in answer.iter_bytes():
                for frame in frames.feed(chunk):
                    assert frame.id is not None
                    self.changes.append(json.loads(frame.data))
                    self._after = int(frame.id)
                if self._over:
                    return


def tasks_of(hub: str) -> Iterator[dict[str, Any]]:
    cursor = ""
    while cursor is not None:
        page = httpx.get(f"{hub}/registry/tasks?limit=100&cursor={cursor}", trust_env=False).json()
        yield from page["tasks"]
        cursor = page["next_cursor"]


def logged(hub: str, task: str) -> Sequence[Outline]:
    """What the feed must have of a task, as its log has it."""
    found, after, state = list[Outline](), 0, TaskState.SUBMITTED
    found.append(("admitted", state, 0))
    while after is not None:
        page = httpx.get(f"{hub}/registry/tasks/{task}/events?after={after}", trust_env=False).json()
        for event in page["events"]:
            new = TaskState(event["state"]) if event["state"] else state
            if new is not state or (event["state"] and new in PAUSED):
                kind = "ended" if new in (TaskState.COMPLETED, TaskState.FAILED) else "changed"
                found.append((kind, new, event["cursor"]))
            state = new
        after = page["next_after"]
    return found


class Callers:
    """Begin calls on threads, as often as the hub takes them."""

    def __init__(self, hub: str) -> None:
        self._hub = hub
        self._over = threading.Event()
        texts = {"counter": "10 0.05", "echo": "hi", "asker": "what?"}
        self._threads = [threading.Thread(target=self._run, args=item, daemon=True) for item in texts.items()]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(10)

    def _run(self, role: str, text: str) -> None:
        while not self._over.wait(0.03):
            try:
                send(self._hub, role, text, timeout=5)
            except (httpx.HTTPError, ValueError):
                continue


def begin_hub(folder: Path, port: int = 0) -> HubProcess:
    return start_hub(folder / "hub", port=port, lease_ttl=4, heartbeat=0.5, worker_silence=5)


def test_every_change_comes_once_and_in_order_over_kills_of_the_hub(tmp_path: Path) -> None:
    rng, hub = random.Random(6), begin_hub(tmp_path)
    roles = {"counter": "counter", "echo": "instant", "asker": "asker"}
    workers = [
        start_worker(f"{WORKERS}:{name}", f"{role}:a", hub.url, log=tmp_path / f"{role}.log") for role, name in roles.items()
    ]
    try:
        reader, callers = FeedReader(hub.url, 0), Callers(hub.url)
        wait_for(lambda: len(reader.changes) > 10)
        for _ in range(TIMES):
            time.sleep(rng.uniform(0.3, 1.0))
            hub.kill9()
            hub = begin_hub(tmp_path, hub.port)
            seen = len(reader.changes)
            wait_for(lambda seen=seen: len(reader.changes) > seen + 10)
        callers.stop()
        open_states = ("submitted", "working")
        wait_for(lambda: all(task["state"] not in open_states for task in tasks_of(hub.url)), 20)
        truth = {task["id"]: logged(hub.url, task["id"]) for task in tasks_of(hub.url)}
        wait_for(lambda: len(by_task(reader.changes).keys() & truth) == len(truth), 10)
        time.sleep(0.5)
        reader.stop()
    finally:
        for process in (*workers, hub):
            process.end()
    revisions = [change["revision"] for change in reader.changes]
    assert revisions == sorted(set(revisions))
    assert reader.connections > TIMES
    found = by_task(reader.changes)
    gone = {task for task, outlines in found.items() if outlines[-1][0] == "gone"}
    assert {task: outlines for task, outlines in found.items() if task not in gone} == truth
    assert {outline[1] for outlines in truth.values() for outline in outlines} >= {"completed", "input-required", "working"}
    print(f"{len(reader.changes)} changes of {len(truth)} tasks, {len(gone)} of them gone, {reader.connections} connections")


def by_task(changes: Sequence[dict[str, Any]]) -> dict[str, list[Outline]]:
    found: dict[str, list[Outline]] = {}
    for change in changes:
        task = change["task"]
        found.setdefault(task["id"], []).append((change["event"], task["state"], task["events"]))
    return found
