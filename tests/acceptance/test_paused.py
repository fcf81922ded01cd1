"""A task that waits for its caller while its worker is killed, stopped, restarted or asleep: real processes."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import httpx

from tests.helpers.client import get_task, send, texts
from tests.helpers.processes import HubProcess, Process, free_port, is_live, start_hub, start_script, start_worker, wait_for

SOON = 2.0 + 2.0
"""Seconds in which a certain end must be logged, and as much again for a loaded machine."""
TTL, GRACE = 3.5, 2.5
"""A worker that is started again must be back before its lease ends, on a loaded machine too."""


def a_hub(folder: Path, port: int = 0) -> HubProcess:
    return start_hub(folder, port=port, lease_ttl=TTL, heartbeat=0.5, pause_grace=GRACE)


def asker(hub: HubProcess, name: str, folder: Path) -> Process:
    """A worker that may not be ready yet."""
    log = folder / f"{name}.log"
    return start_worker("tests.acceptance.workers:asker", f"asker:{name}", hub.url, log=log, enrolled=False)


def asked(hub: HubProcess, role: str, name: str) -> str:
    """A paused task there."""
    wait_for(lambda: is_live(hub.url, f"{role}:{name}"), 15)
    task = send(hub.url, f"{role}:{name}", "hello")
    assert task["status"]["state"] == "input-required"
    return str(task["id"])


def time_to_end(hub: HubProcess, task: str, since: float, case: str, reason: str) -> float:
    """Seconds from `since` until the task fails for that reason."""
    wait_for(lambda: get_task(hub.url, task)["status"]["state"] != "input-required", 15)
    took, ended = time.monotonic() - since, get_task(hub.url, task)
    print(f"{case}: {took:.2f} s")
    assert ended["status"]["state"] == "failed"
    assert ended["metadata"]["rolecall"]["reason"] == "WORKER_LOST"
    assert reason in ended["status"]["message"]["parts"][0]["text"]
    return took


def refusal(answer: dict[str, Any]) -> tuple[str, str]:
    return answer["error"]["data"][0]["reason"], answer["error"]["message"]


def test_a_paused_task_ends_with_its_worker_or_waits_for_it(tmp_path: Path) -> None:
    names = ("killed", "again", "asleep", "woken")
    with a_hub(tmp_path / "hub") as hub:
        workers = {name: asker(hub, name, tmp_path) for name in names}
        tasks = {name: asked(hub, "asker", name) for name in names}
        try:
            workers["woken"].pause()
            workers["asleep"].pause()
            workers["killed"].kill9()
            began = time.monotonic()
            workers["again"].kill9()
            workers["next"] = asker(hub, "again", tmp_path / "next")
            workers["next"].wait_until(lambda: "is enrolled" in workers["next"].output)
            assert time_to_end(hub, tasks["again"], time.monotonic(), "new boot", "was started again") < SOON
            wait_for(lambda: not is_live(hub.url, "asker:woken"), 2 * TTL)
            expired = time.monotonic()
            reason, text = refusal(send(hub.url, "asker", "blue", taskId=tasks["woken"]))
            assert (reason, "waits for asker:woken" in text) == ("NO_LIVE_WORKER", True)
            workers["woken"].resume()
            assert time_to_end(hub, tasks["killed"], expired, "killed, after its lease", "refuses connections") < SOON
            took = time_to_end(hub, tasks["asleep"], began, "asleep, with its lease", "has not answered for 2.5 s")
            assert TTL + GRACE - 1 < took < TTL + GRACE + SOON
            assert texts(send(hub.url, "asker", "blue", taskId=tasks["woken"])) == ["blue it is"]
        finally:
            for worker in workers.values():
                worker.end()


def test_a_restarted_hub_knows_which_paused_tasks_have_lost_their_worker(tmp_path: Path) -> None:
    names = ("killed", "again", "withdrawn")
    hub = a_hub(tmp_path / "hub")
    workers = {name: asker(hub, name, tmp_path) for name in names}
    try:
        tasks = {name: asked(hub, "asker", name) for name in names}
        workers["killed"].pause()
        wait_for(lambda: not is_live(hub.url, "asker:killed"), 2 * TTL)
        time.sleep(0.7)  # until the end of its lease is stored
        hub.kill9()
        workers["killed"].kill9()
        workers["again"].kill9()
        workers["next"] = asker(hub, "again", tmp_path / "next")
        hub = a_hub(hub.data_dir, hub.port)
        took = time_to_end(hub, tasks["killed"], time.monotonic(), "killed while the hub was down", "refuses connections")
        assert took < SOON
        wait_for(lambda: is_live(hub.url, "asker:withdrawn"))
        assert workers["withdrawn"].stop() == 0
        assert time_to_end(hub, tasks["withdrawn"], time.monotonic(), "withdrawn", "withdrew") < SOON
        workers["next"].wait_until(lambda: "is enrolled" in workers["next"].output)
        assert time_to_end(hub, tasks["again"], time.monotonic(), "new boot after a restart", "was started again") < SOON
    finally:
        for process in (*workers.values(), hub):
            process.end()


def test_an_agent_that_keeps_its_tasks_is_asked_and_believed(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "agent.log"

    def agent(stored: str) -> Process:
        argv = (sys.executable, Path(__file__).with_name("stock_agent.py"), str(port), tmp_path / stored)
        return start_script(argv, log=log, ready_url=f"http://127.0.0.1:{port}/", name="stock agent")

    def enrol(name: str) -> None:
        """Without beats, so that its lease ends."""
        offer = {"url": f"http://127.0.0.1:{port}/", "boot": str(time.monotonic())}
        answer = httpx.put(f"{hub.url}/registry/agents/stock/{name}", json=offer, trust_env=False)
        assert answer.status_code in (200, 201)

    with a_hub(tmp_path / "hub") as hub:
        with agent("tasks.json"):
            enrol("a")
            task = asked(hub, "stock", "a")
            wait_for(lambda: not is_live(hub.url, "stock:a"), 2 * TTL)
            time.sleep(0.7)  # until the hub has asked
            assert get_task(hub.url, task)["status"]["state"] == "input-required"
            enrol("a")
        with agent("tasks.json"):
            enrol("a")
            began = time.monotonic()
            wait_for(lambda: texts(send(hub.url, "stock", "blue", taskId=task)) == ["blue it is"])
            print(f"answered after a restart of the agent: {time.monotonic() - began:.2f} s")
            lost = asked(hub, "stock", "a")
        with agent("empty.json"):
            enrol("a")
            took = time_to_end(hub, lost, time.monotonic(), "stock agent without its tasks", "no longer knows the task")
            assert took < SOON
