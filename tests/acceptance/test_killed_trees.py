"""Agents call agents, and the hub or a worker is killed in the middle."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.agent_trees import Agents, open_agents, text_of
from tests.helpers.processes import wait_for


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    with open_agents(tmp_path) as agents:
        yield agents


@pytest.mark.parametrize("when", ["before the answer", "after the answer"])
def test_an_answer_to_a_child_wakes_its_parents_although_the_hub_is_killed(agents: Agents, when: str) -> None:
    for name in ("planner", "writer", "asker"):
        agents.start(name)
    enough = agents.folder / "enough"
    root, below = agents.send("planner", f"ask until {enough}")["id"], agents.only_task("asker")
    if when == "after the answer":
        agents.send("asker", "blue", wait=False, taskId=below)
    agents.restart()
    if when == "before the answer":
        agents.send("asker", "blue", wait=False, taskId=below)
    enough.touch()
    wait_for(lambda: agents.get("planner", root)["status"]["state"] == "completed", 30)
    assert text_of(agents.get("planner", root)) == "planned: wrote in blue"
    assert agents.states("asker") == agents.states("writer") == ["completed"]


def test_a_tree_that_asks_ends_with_the_worker_in_its_middle(agents: Agents) -> None:
    for name in ("planner", "asker"):
        agents.start(name)
    worker = agents.start("writer")
    agents.send("planner", "ask")
    worker.kill9()
    agents.start("writer")
    wait_for(lambda: agents.states("writer") == ["failed"], 10)
    wait_for(lambda: agents.states("planner") == ["failed"] and agents.states("asker") == ["canceled"], 10)
    refused = agents.answer("asker", agents.only_task("asker"), "blue")
    assert refused["error"]["code"] == -32602


@pytest.mark.parametrize(("first", "then"), [("safe", "plain"), ("plain", "safe")])
def test_a_lost_child_is_started_again_if_the_worker_that_ran_it_is_idempotent(agents: Agents, first: str, then: str) -> None:
    """Two instances of one role, of which one is."""
    agents.start("owner")
    worker = agents.start(first, "safe:a")
    enough = agents.folder / "enough"
    task = agents.send("owner", str(enough), wait=False)
    wait_for(lambda: agents.states("safe") == ["working"])
    agents.start(then, "safe:b")
    worker.kill9()
    enough.touch()
    wait_for(lambda: agents.states("owner")[0] in ("completed", "failed"), 20)
    ended, children = agents.get("owner", task["id"]), agents.tree(task["id"])
    assert {child["parent"] for child in children} == {task["id"]}
    found = [(child["task"]["worker"], child["task"]["state"]) for child in children]
    if first == "safe":
        assert found == [("safe:a", "failed"), ("safe:b", "completed")]
        assert text_of(ended) == "done after b"
    else:
        assert found == [("safe:a", "failed")]
        assert ended["status"]["state"] == "failed"


def test_a_call_in_a_task_goes_on_after_a_kill_of_the_hub(agents: Agents) -> None:
    for role in ("slow", "waiter"):
        agents.start(role)
    enough = agents.folder / "enough"
    task = agents.send("waiter", str(enough), wait=False)
    wait_for(lambda: agents.states("slow") == ["working"])
    agents.restart()
    enough.touch()
    wait_for(lambda: agents.states("waiter") == ["completed"], 30)
    assert text_of(agents.rpc("waiter", "tasks/get", {"id": task["id"]})["result"]) == "in time"
    assert agents.states("slow") == ["completed"]


@pytest.mark.parametrize("what", ["hub", "parent"])
@pytest.mark.parametrize("goes_on", [False, True])
def test_after_a_kill_children_end_or_go_on_as_declared(agents: Agents, what: str, goes_on: bool) -> None:
    parent = agents.start("spread")
    agents.start("leaf")
    root = agents.send("spread", "3 goes-on" if goes_on else "3", wait=False)
    wait_for(lambda: agents.states("leaf").count("working") == 3, 30)
    if what == "parent":
        parent.kill9()
        wait_for(lambda: agents.states("spread") == ["failed"], 30)
    else:
        agents.restart()
        wait_for(lambda: agents.states("leaf").count("working") == 3, 30)
        agents.rpc("spread", "tasks/cancel", {"id": root["id"]})
    if goes_on:
        time.sleep(1)
        assert agents.states("leaf") == ["working"] * 3
    else:
        wait_for(lambda: set(agents.states("leaf")) == {"canceled"}, 15)


@pytest.mark.parametrize("seen", [0, 1, 7])
def test_children_that_are_being_started_when_the_hub_is_killed_are_started_once(agents: Agents, seen: int) -> None:
    parent = agents.start("spread")
    agents.start("leaf")
    root = agents.send("spread", "19", wait=False)
    wait_for(lambda: len(agents.states("leaf")) >= seen, 30)
    agents.restart()
    wait_for(lambda: agents.states("leaf").count("working") >= 19, 30)
    assert len(agents.states("leaf")) == 19
    assert "Traceback" not in (agents.folder / "spread-a.log").read_text()
    parent.kill9()
    wait_for(lambda: agents.get("spread", root["id"])["status"]["state"] == "failed", 30)
    wait_for(lambda: agents.states("leaf") == ["canceled"] * 19, 15)
