"""Agents call agents: real workers, one hub with tokens; kills in the middle."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from hub.identity.tokens import new
from rolecall.model.principal import Kind, Principal
from tests.helpers.client import text_message
from tests.helpers.processes import ROLECALL, ROOT, HubProcess, Process, run_json, start_hub, start_worker, wait_for

WORKERS = "tests.acceptance.callingworkers"


class Agents:
    def __init__(self, hub: HubProcess, tokens: dict[str, str], folder: Path, closing: ExitStack) -> None:
        self.hub, self.tokens, self.folder, self._closing = hub, tokens, folder, closing
        self.http = closing.enter_context(httpx.Client(trust_env=False, timeout=30))

    def start(self, role: str, name: str = "") -> Any:
        """`name`: if it is not the instance a of that role."""
        env, name = {"ROLECALL_TOKEN": self.tokens["worker"]}, name or f"{role}:a"
        log = self.folder / f"{name.replace(':', '-')}.log"
        worker = self._closing.enter_context(start_worker(f"{WORKERS}:{role}", name, self.hub.url, log=log, env=env))
        self._closing.callback(lambda: worker.kill9() if worker.alive else None)  # its handlers may run for minutes
        return worker

    def restart(self) -> None:
        """Kill the hub, and start it again on the same data and port."""
        self.hub.kill9()
        self.hub = self._closing.enter_context(start_hub(self.hub.data_dir, port=self.hub.port))

    def rpc(self, role: str, method: str, params: dict[str, Any], kind: str = "client", **headers: str) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = {"Authorization": f"Bearer {self.tokens[kind]}", **{k.replace("_", "-"): v for k, v in headers.items()}}
        answer: dict[str, Any] = self.http.post(f"{self.hub.url}/agents/{role}/", json=body, headers=headers).json()
        return answer

    def send(self, role: str, text: str, *, wait: bool = True, **members: Any) -> dict[str, Any]:
        message = text_message(text)
        message["message"] |= members
        result: dict[str, Any] = self.rpc(role, "message/send", {**message, "configuration": {"blocking": wait}})["result"]
        return result

    def take_lease(self, role: str, server: str) -> dict[str, Any]:
        """A lease that the test holds, and whose calls the worker `server` serves."""
        headers = {"Authorization": f"Bearer {self.tokens['worker']}"}
        agent = self.http.get(f"{self.hub.url}/registry/agents/{server}:a", headers=headers).json()
        offer = {"url": agent["url"], "card": agent["card"], "boot": "b"}
        lease: dict[str, Any] = self.http.put(f"{self.hub.url}/registry/agents/{role}/a", json=offer, headers=headers).json()
        return lease

    def call_within(self, task: str, lease: dict[str, Any], role: str, text: str = "hi") -> dict[str, Any]:
        """A call of `role` that the holder of the lease makes in that task."""
        proof = f"task={task}; worker={lease['name']}; epoch={lease['epoch']}; lease={lease['lease']}"
        return self.rpc(role, "message/send", text_message(text), "worker", A2A_Parent=proof)

    def tree(self, task: str) -> list[dict[str, Any]]:
        """What is below the root."""
        headers = {"Authorization": f"Bearer {self.tokens['client']}"}
        tree = self.http.get(f"{self.hub.url}/registry/tasks/{task}/tree", headers=headers).json()
        return [found for found in tree["tasks"] if found["parent"] is not None]

    def revoke(self, name: str) -> None:
        path = self.hub.data_dir / "tokens.json"
        listed = json.loads(path.read_text())
        listed["tokens"] = [one for one in listed["tokens"] if one["name"] != name]
        path.write_text(json.dumps(listed))

    def answer(self, role: str, task: str, text: str) -> dict[str, Any]:
        message = text_message(text)
        message["message"]["taskId"] = task
        return self.rpc(role, "message/send", {**message, "configuration": {"blocking": False}})

    def get(self, role: str, task: str) -> dict[str, Any]:
        found: dict[str, Any] = self.rpc(role, "tasks/get", {"id": task})["result"]
        return found

    def states(self, role: str) -> list[str]:
        return [task["state"] for task in self.tasks(role)]

    def only_task(self, role: str) -> str:
        (task,) = self.tasks(role)
        return str(task["id"])

    def tasks(self, role: str) -> list[dict[str, Any]]:
        headers = {"Authorization": f"Bearer {self.tokens['client']}"}
        page = self.http.get(f"{self.hub.url}/registry/tasks", params={"role": role}, headers=headers).json()
        found: list[dict[str, Any]] = page["tasks"]
        return found


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    data = tmp_path / "hub"
    data.mkdir()
    kinds = {"client": Kind.CLIENT, "worker": Kind.WORKER, "stranger": Kind.WORKER}
    tokens = {
        name: new(data / "tokens.json", Principal(name, kind, roles=("*",)), lasts=None, now=0.0)[0]
        for name, kind in kinds.items()
    }
    with ExitStack() as closing:
        yield Agents(closing.enter_context(start_hub(data)), tokens, tmp_path, closing)


def text_of(task: dict[str, Any]) -> str:
    return "".join(part["text"] for artifact in task.get("artifacts", ()) for part in artifact["parts"])


def test_a_call_goes_through_two_agents_and_a_question_comes_up(agents: Agents) -> None:
    for role in ("planner", "writer", "asker"):
        agents.start(role)
    assert text_of(agents.send("planner", "a poem")) == "planned: wrote a poem"
    asked = agents.send("planner", "ask")
    assert asked["status"]["state"] == "input-required"
    assert asked["status"]["message"]["parts"][0]["text"] == "Which colour?"
    answered = agents.send("planner", "blue", taskId=asked["id"])
    assert (answered["status"]["state"], text_of(answered)) == ("completed", "planned: wrote in blue")
    assert agents.states("asker") == ["completed"]
    env = {"ROLECALL_TOKEN": agents.tokens["client"], "ROLECALL_HUB": agents.hub.url}
    shown = run_json((*ROLECALL, "tasks", "show", agents.only_task("asker"), "--json"), env=env)
    assert isinstance(shown, dict)
    assert [branch["task"]["role"] for branch in shown["tree"]] == ["planner", "writer", "asker"]


@pytest.mark.parametrize("role", ["asker", "writer"])
def test_an_answer_to_any_task_that_asks_goes_on(agents: Agents, role: str) -> None:
    for name in ("planner", "writer", "asker"):
        agents.start(name)
    asked = agents.send("planner", "ask")
    began = time.monotonic()
    answered = agents.send(role, "blue", taskId=agents.only_task(role))
    assert answered["status"]["state"] == "completed"
    wait_for(lambda: agents.states("planner") == ["completed"])
    print(f"the root had ended {time.monotonic() - began:.2f} s after an answer to {role}")
    ended = agents.rpc("planner", "tasks/get", {"id": asked["id"]})["result"]
    assert text_of(ended) == "planned: wrote in blue"
    assert agents.states("asker") == agents.states("writer") == ["completed"]


def test_each_question_of_a_child_can_be_answered_in_another_place(agents: Agents) -> None:
    for name in ("planner", "writer", "asker"):
        agents.start(name)
    asked = agents.send("planner", "ask twice")
    again = agents.send("asker", "blue", taskId=agents.only_task("asker"))
    assert again["status"]["message"]["parts"][0]["text"] == "And which other?"
    wait_for(lambda: "And which other?" in json.dumps(agents.get("planner", asked["id"])["status"]))
    answered = agents.send("planner", "red", taskId=asked["id"])
    assert text_of(answered) == "planned: wrote in blue and red"


def test_of_two_answers_at_the_same_moment_one_is_taken(agents: Agents) -> None:
    for name in ("planner", "writer", "asker"):
        agents.start(name)
    for _ in range(5):
        root = agents.send("planner", "ask")["id"]
        tasks = {role: agents.tasks(role)[0]["id"] for role in ("planner", "writer", "asker")}
        with ThreadPoolExecutor(3) as threads:
            answers = list(threads.map(lambda role: agents.answer(role, tasks[role], f"by {role}"), tasks))  # noqa: B023
        taken = [role for role, answer in zip(tasks, answers, strict=True) if "result" in answer]
        refused = [answer["error"] for answer in answers if "error" in answer]
        assert len(taken) == 1, answers
        assert all(error["code"] == -32602 for error in refused), refused
        wait_for(lambda: agents.get("planner", root)["status"]["state"] == "completed")  # noqa: B023
        assert text_of(agents.get("planner", root)) == f"planned: wrote in by {taken[0]}"


@pytest.mark.parametrize("when", ["before the answer", "after the answer"])
def test_an_answer_to_a_child_wakes_its_parents_although_the_hub_is_killed(agents: Agents, when: str) -> None:
    for name in ("planner", "writer", "asker"):
        agents.start(name)
    root, below = agents.send("planner", "ask slowly")["id"], agents.only_task("asker")
    if when == "after the answer":
        agents.send("asker", "blue", wait=False, taskId=below)
    agents.restart()
    if when == "before the answer":
        agents.send("asker", "blue", taskId=below)
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


def test_a_task_that_asks_can_start_its_first_child_meanwhile(agents: Agents) -> None:
    for name in ("both", "shouter"):
        agents.start(name)
    task = agents.send("both", "go")
    assert task["status"]["state"] == "input-required"
    wait_for(lambda: agents.states("shouter") == ["completed"])
    assert text_of(agents.send("both", "this", taskId=task["id"])) == "GO this"


def test_a_question_that_a_handler_gives_up_leaves_its_task_at_work(agents: Agents) -> None:
    for name in ("quiet", "asker"):
        agents.start(name)
    task = agents.send("quiet", "ask", wait=False)
    wait_for(lambda: agents.states("quiet") == ["completed"])
    assert text_of(agents.get("quiet", task["id"])) == "not answered"
    assert agents.states("asker") == ["input-required"]


def test_the_trace_and_the_remaining_time_go_down(agents: Agents) -> None:
    for role in ("writer", "shouter"):
        agents.start(role)
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    sent = {"traceparent": parent, "tracestate": "a=1,b=2"}
    assert text_of(agents.rpc("writer", "message/send", text_message("trace"), **sent)["result"]) == f"{parent} a=1,b=2 20"
    for wrong in ({"traceparent": parent.upper(), "tracestate": "a=1"}, {"tracestate": "a=1"}):
        assert text_of(agents.rpc("writer", "message/send", text_message("trace"), **wrong)["result"]) == "None None 20"


@pytest.mark.parametrize(("first", "then"), [("safe", "plain"), ("plain", "safe")])
def test_a_lost_child_is_started_again_if_the_worker_that_ran_it_is_idempotent(agents: Agents, first: str, then: str) -> None:
    """Two instances of one role, of which one is."""
    agents.start("owner")
    worker = agents.start(first, "safe:a")
    task = agents.send("owner", "go", wait=False)
    wait_for(lambda: agents.states("safe") == ["working"])
    agents.start(then, "safe:b")
    worker.kill9()
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


def test_the_worker_of_the_how_to_calls_another(agents: Agents) -> None:
    agents.start("shouter")
    text = (ROOT / "docs/howto/agents-that-call-agents.md").read_text("utf-8")
    found = re.search(r"```python worker\n(.*?)```", text, re.DOTALL)
    assert found is not None
    script = agents.folder / "editor.py"
    script.write_text(found[1])
    env = {"ROLECALL_TOKEN": agents.tokens["worker"], "ROLECALL_HUB": agents.hub.url, "ROLECALL_INSTANCE": "a"}
    with Process((sys.executable, str(script)), log=agents.folder / "editor.log", env=env, name="editor"):
        wait_for(lambda: "error" not in agents.rpc("editor", "message/send", text_message("up")), 20)
        assert text_of(agents.send("editor", "hello")) == "HELLO (edited)"


def test_a_call_in_a_task_takes_a_model_and_returns_one(agents: Agents) -> None:
    for role in ("store", "client"):
        agents.start(role)
    assert text_of(agents.send("client", "tea")) == "tea for 12"


def test_a_call_in_a_task_has_a_deadline_and_can_be_given_up(agents: Agents) -> None:
    for role in ("slow", "waiter"):
        agents.start(role)
    assert text_of(agents.send("waiter", "0.1 within 20")) == "in time"
    assert text_of(agents.send("waiter", "60 timeout 1")) == "timed out"
    wait_for(lambda: sorted(agents.states("slow")) == ["canceled", "completed"])
    assert text_of(agents.send("waiter", "60 within 1")) == "failed: DEADLINE_EXCEEDED"
    assert sorted(agents.states("slow")) == ["canceled", "completed", "failed"]


def test_a_call_in_a_task_goes_on_after_a_kill_of_the_hub(agents: Agents) -> None:
    for role in ("slow", "waiter"):
        agents.start(role)
    task = agents.send("waiter", "4", wait=False)
    wait_for(lambda: agents.states("slow") == ["working"])
    agents.restart()
    wait_for(lambda: agents.states("waiter") == ["completed"], 30)
    assert text_of(agents.rpc("waiter", "tasks/get", {"id": task["id"]})["result"]) == "in time"
    assert agents.states("slow") == ["completed"]


def test_the_tree_of_a_caller_whose_token_is_revoked_gets_no_new_calls(agents: Agents) -> None:
    for role in ("leaf", "shouter"):
        agents.start(role)
    lease = agents.take_lease("holder", "leaf")
    task = agents.send("holder", "hi", wait=False)
    assert agents.call_within(task["id"], lease, "shouter")["result"]["status"]["state"] == "completed"
    agents.revoke("client")
    wait_for(lambda: agents.call_within(task["id"], lease, "shouter").get("error") is not None)
    refused = agents.call_within(task["id"], lease, "shouter")["error"]
    assert refused["data"][0]["reason"] == "FORBIDDEN" and "revoked" in refused["message"]


def test_two_roles_that_call_each_other_stop_with_the_chain_in_the_error(agents: Agents) -> None:
    for role in ("ping", "pong"):
        agents.start(role)
    failed = agents.send("ping", "hi")
    assert failed["status"]["state"] == "failed"
    log = (agents.folder / "pong-a.log").read_text()
    assert "ping > pong > ping" in log
    assert agents.states("pong") == ["failed"]


def test_a_tree_is_cancelled_from_the_top_within_two_seconds(agents: Agents) -> None:
    for role in ("spread", "leaf"):
        agents.start(role)
    root = agents.send("spread", "19", wait=False)
    wait_for(lambda: agents.states("leaf").count("working") == 19, 30)
    began = time.monotonic()
    agents.rpc("spread", "tasks/cancel", {"id": root["id"]})
    wait_for(lambda: set(agents.states("leaf")) == {"canceled"}, 10)
    took = time.monotonic() - began
    print(f"19 children had ended {took:.2f} s after their parent was cancelled")
    assert took < 2 * 2


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


def test_nobody_else_calls_in_a_task(agents: Agents) -> None:
    agents.start("leaf")
    agents.start("writer")
    task = agents.send("leaf", "hi", wait=False)
    forged = f"task={task['id']}; worker=leaf:a; epoch=1; lease={'0' * 64}"
    for kind in ("stranger", "worker", "client"):
        answer = agents.rpc("writer", "message/send", text_message("hi"), kind, A2A_Parent=forged)
        assert "error" in answer, kind
    # A worker's token alone calls nobody.
    assert agents.rpc("writer", "message/send", text_message("hi"), "worker")["error"]["data"][0]["reason"] == "FORBIDDEN"
    assert agents.states("writer") == []
