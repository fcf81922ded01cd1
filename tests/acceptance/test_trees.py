"""Agents call agents: real workers, one hub with tokens. What happens when one is killed is in test_killed_trees.py."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from tests.acceptance.agent_trees import Agents, open_agents, text_of
from tests.helpers.client import text_message
from tests.helpers.pages import Shell, blocks_of
from tests.helpers.processes import ROLECALL, Process, run_json, wait_for


class Shared(NamedTuple):
    """Agents for all of these tests, and the clients that no test has used."""

    agents: Agents
    clients: Iterator[str]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    clients = [f"client-{number}" for number in range(30)]
    with open_agents(tmp_path_factory.mktemp("trees"), clients) as agents:
        yield Shared(agents, iter(clients))


@pytest.fixture
def agents(shared: Shared) -> Agents:
    """For a client of this test's own: it sees its own tasks alone."""
    return shared.agents.of(next(shared.clients))


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


def test_the_worker_of_the_how_to_calls_another(agents: Agents) -> None:
    agents.start("shouter")
    page, shell = blocks_of("docs/howto/agents-that-call-agents.md"), Shell(agents.folder, agents.hub.url)
    script = agents.folder / "editor.py"
    script.write_text(page["worker"])
    env = {"ROLECALL_TOKEN": agents.tokens["worker"], "ROLECALL_HUB": agents.hub.url, "ROLECALL_INSTANCE": "a"}
    with Process((sys.executable, str(script)), log=agents.folder / "editor.log", env=env, name="editor"):
        wait_for(lambda: "error" not in agents.rpc("editor", "message/send", text_message("up")), 20)
        done = agents.send("editor", "hello")
        assert text_of(done) == "HELLO (edited)"
        shown = shell.run(page["show"].replace("TASK_ID", done["id"]), ROLECALL_TOKEN=agents.tokens["client"]).stdout
        tree = shown[shown.index("TREE") :].splitlines()[:3]
        assert [row.split()[:3] for row in tree] == [row.split() for row in page["tree"].splitlines()]


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


def test_the_tree_of_a_caller_whose_token_is_revoked_gets_no_new_calls(agents: Agents) -> None:
    for role in ("leaf", "shouter"):
        agents.start(role)
    lease = agents.take_lease("holder", "leaf")
    task = agents.send("holder", "hi", wait=False)
    assert agents.call_within(task["id"], lease, "shouter")["result"]["status"]["state"] == "completed"
    agents.revoke(agents.client)
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
    text = failed["status"]["message"]["parts"][0]["text"]
    assert text.startswith("Its call to pong failed: Its call to ping failed: The role ") and "ping > pong > ping" in text
    (below,) = agents.tree(failed["id"])
    assert (
        below["task"]["detail"].startswith('Its call to ping failed: The role "ping" works on this already')
        and "reason" not in below["task"]
    )


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
