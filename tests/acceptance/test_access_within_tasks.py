"""A worker that calls in its task has the rights of that task's caller, as long as it works on it, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from rolecall.protocol.text.timestamp import moment
from tests.acceptance.access_within import CALLED, Within, asks, make_tokens, others, parent_header, reason_of
from tests.helpers.processes import start_hub, start_worker, wait_for

WORKERS = "tests.acceptance.callingworkers"
UNKNOWN = "00000000-0000-0000-0000-000000000000"


@pytest.fixture(scope="module")
def within(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Within]:
    data = tmp_path_factory.mktemp("within")
    tokens = make_tokens(data)
    with ExitStack() as stack:
        hub = stack.enter_context(start_hub(data, max_rate=0, max_at_once=0))
        http = stack.enter_context(httpx.Client(trust_env=False, timeout=30))
        for role, who in (("leaf", "farm"), (CALLED, "farm"), (CALLED, "zfarm")):
            env = {"ROLECALL_TOKEN": tokens[who]}
            log = data / f"{role}-{who}.log"
            worker = stack.enter_context(start_worker(f"{WORKERS}:{role}", f"{role}:a", hub.url, log=log, env=env))
            stack.callback(worker.kill9)
        headers = {"Authorization": f"Bearer {tokens['farm']}"}
        leaf = http.get(f"{hub.url}/registry/agents/leaf:a", headers=headers).json()
        yield Within(hub, tokens, http, leaf["url"], leaf["card"])


def refused(within: Within, who: str, parent: str, reason: str, *, task: str = UNKNOWN) -> None:
    """Whatever is asked with that header, and nothing is done."""
    before = [within.tasks(holder) for holder in ("anna", "bert", "zoe")]
    for one in asks(task):
        answer = within.ask(who, one, parent)
        assert reason_of(answer) == reason, (one, answer.status_code, answer.text)
    assert [within.tasks(holder) for holder in ("anna", "bert", "zoe")] == before


def test_a_worker_can_do_all_that_it_may_in_its_own_task(within: Within) -> None:
    """So that the refusals below are refusals of what would be done."""
    lease = within.lease("farm", "own:a")
    root = within.task("anna", "own:a")
    for one in asks(""):
        if one.of == "send":
            answer = within.ask("farm", one, parent_header(lease, root))
            assert reason_of(answer) == "" and answer.status_code == 200, (one, answer.text)
    child = within.child(lease, root, role="leaf")["result"]["id"]
    for one in asks(child):
        if one.of == "get":
            one = one._replace(path=one.path.replace(CALLED, "leaf"))
            answer = within.ask("farm", one, parent_header(lease, root))
            assert child in answer.text and reason_of(answer) == "", (one, answer.text)
    assert {found["task"]["role"] for found in within.tree("anna", root)} == {"own", CALLED, "leaf"}
    within.cancel("anna", root)


def test_a_task_of_another_workspace_is_as_unknown_as_any(within: Within) -> None:
    lease = within.lease("farm", "one:a")
    foreign = within.lease("zfarm", "one:a")
    task = within.task("zoe", "one:a")
    refused(within, "farm", parent_header(lease, task), "PARENT_OVER", task=task)
    answers = [within.child(lease, name) for name in (task, UNKNOWN)]
    assert answers[0] == answers[1]
    # Nor with the other workspace's own lease.
    refused(within, "farm", parent_header(foreign, task), "LEASE_UNKNOWN", task=task)
    assert within.state("zoe", task) == "working"


@pytest.mark.parametrize("who", ["rival", "root", "zfarm"])
def test_the_lease_of_another_holder_is_no_right(within: Within, who: str) -> None:
    lease = within.lease("farm", "two:a")
    task = within.task("anna", "two:a")
    refused(within, who, parent_header(lease, task), "LEASE_UNKNOWN", task=task)
    assert within.state("anna", task) == "working"


@pytest.mark.parametrize("changed", [{"lease": "0" * 64}, {"lease": ""}, {"epoch": 999_999}, {"worker": "two:nobody"}])
def test_a_wrong_proof_of_the_lease_is_refused(within: Within, changed: dict[str, Any]) -> None:
    lease = within.lease("farm", "two:b")
    task = within.task("anna", "two:b")
    refused(within, "farm", parent_header(lease, task, **changed), "LEASE_UNKNOWN", task=task)


def test_an_old_epoch_is_refused_and_the_new_one_has_none_of_its_tasks(within: Within) -> None:
    old = within.lease("farm", "three:a")
    task = within.task("anna", "three:a")
    new = within.lease("farm", "three:a", boot="next")
    assert new["epoch"] > old["epoch"]
    refused(within, "farm", parent_header(old, task), "LEASE_UNKNOWN", task=task)
    refused(within, "farm", parent_header(new, task), "PARENT_OVER", task=task)


def test_a_task_of_another_worker_of_the_same_role_is_refused(within: Within) -> None:
    lease = within.lease("farm", "four:a")
    within.lease("farm", "four:b")
    task = within.task("anna", "four:b")
    refused(within, "farm", parent_header(lease, task), "PARENT_OVER", task=task)
    assert within.state("anna", task) == "working"


def test_a_header_is_worth_nothing_once_its_task_has_ended(within: Within) -> None:
    lease = within.lease("farm", "five:a")
    task = within.task("anna", "five:a")
    header = parent_header(lease, task)
    child = within.child(lease, task, "goes-on", role="leaf")["result"]["id"]
    within.cancel("anna", task)
    refused(within, "farm", header, "PARENT_OVER", task=child)
    assert within.state("anna", child) == "working"


@pytest.mark.parametrize(("who", "reason"), [("anna", "FORBIDDEN"), ("board", "FORBIDDEN"), ("nobody", "UNAUTHENTICATED")])
def test_a_header_without_a_workers_token_is_refused(within: Within, who: str, reason: str) -> None:
    lease = within.lease("farm", "six:a")
    task = within.task("anna", "six:a")
    refused(within, who, parent_header(lease, task), reason, task=task)


def test_a_token_of_a_worker_without_the_header_calls_nobody(within: Within) -> None:
    for one in asks(UNKNOWN):
        answer = within.ask("farm", one)
        expected = "FORBIDDEN" if one.of in ("send", "answer", "cancel") else "TASK_NOT_FOUND"
        assert reason_of(answer) == expected, (one, answer.text)


@pytest.mark.parametrize("header", ["", "task=x", "task=x; worker=a; epoch=1", "task=x; worker=a:b; epoch=-1; lease=x"])
def test_a_header_that_cannot_be_read_is_refused(within: Within, header: str) -> None:
    refused(within, "farm", header, "INVALID_PARAMS")


def test_only_the_children_of_the_task_can_be_read_answered_and_cancelled(within: Within) -> None:
    """Not its own caller's other tasks, not its own, not its parent, not its grandchildren."""
    lease, below = within.lease("farm", "seven:a"), within.lease("farm", "eight:a")
    root = within.task("anna", "seven:a")
    child = within.child(lease, root, role="eight")["result"]["id"]
    lowest = within.child(below, child, role="leaf")["result"]["id"]
    targets = {
        "its own": (lease, root, root),
        "its grandchild": (lease, root, lowest),
        "its parent": (below, child, root),
        "another of its caller": (lease, root, within.task("anna", "leaf:a")),
        "another caller's": (lease, root, within.task("bert", "leaf:a")),
        "none": (lease, root, UNKNOWN),
    }
    answers: dict[str, list[str]] = {}
    for name, (proof, task, target) in targets.items():
        for one in asks(target):
            if one.of == "send" and "referenceTaskIds" not in str(one.body):
                continue
            answer = within.ask("farm", one, parent_header(proof, task))
            assert reason_of(answer) == "TASK_NOT_FOUND", (name, one, answer.text)
            answers.setdefault(name, []).append(answer.text.replace(target, "ID"))
    assert len(set(map(tuple, answers.values()))) == 1
    assert [within.state("anna", task) for task in (root, child, lowest)] == ["working"] * 3


def test_nothing_else_can_be_asked_within_a_task(within: Within) -> None:
    lease = within.lease("farm", "nine:a")
    task = within.task("anna", "nine:a")
    for one in others():
        answer = within.ask("farm", one, parent_header(lease, task))
        assert reason_of(answer) == "UNSUPPORTED_OPERATION", (one, answer.text)


def test_the_hubs_own_addresses_give_a_worker_no_more_with_the_header(within: Within) -> None:
    lease = within.lease("farm", "ten:a")
    task = within.task("anna", "ten:a")
    header = {"A2A-Parent": parent_header(lease, task), "Authorization": f"Bearer {within.tokens['farm']}"}
    url = within.hub.url
    for method, path in (("GET", f"/registry/tasks/{task}/tree"), ("GET", f"/registry/tasks/{task}/events")):
        assert within.http.request(method, url + path, headers=header).status_code == 404
    assert within.http.get(f"{url}/registry/tasks", headers=header).json()["total"] == 0
    assert within.http.delete(f"{url}/registry/tasks/{task}", headers=header).status_code == 403


@pytest.mark.parametrize("words", [("within=3600",), ("within=99999999999", "goes-on"), (), ("goes-on",)])
def test_no_child_has_a_later_deadline_than_its_parent(within: Within, words: tuple[str, ...]) -> None:
    lease, below = within.lease("farm", "eleven:a"), within.lease("farm", "twelve:a")
    root = within.task("anna", "eleven:a")
    child = within.child(lease, root, "within=60", role="twelve")["result"]["id"]
    assert "result" in within.child(below, child, *words, role="leaf")
    found = {branch["task"]["role"]: branch["deadline"] for branch in within.tree("anna", root)}
    assert found["eleven"] is None
    limit, last = moment(found["twelve"]), moment(found["leaf"])
    assert limit is not None and last is not None and last <= limit
    within.cancel("anna", root)


@pytest.mark.parametrize("words", ["within=-1", "within=abc", "within=1e9", "within="])
def test_a_time_that_is_none_is_refused(within: Within, words: str) -> None:
    lease = within.lease("farm", "thirteen:a")
    task = within.task("anna", "thirteen:a")
    assert within.child(lease, task, words)["error"]["code"] == -32602


def test_the_tree_of_a_revoked_caller_gets_no_new_calls_and_shows_nothing(within: Within) -> None:
    lease, below = within.lease("farm", "fifteen:a"), within.lease("farm", "sixteen:a")
    root = within.task("carl", "fifteen:a")
    child = within.child(lease, root, role="sixteen")["result"]["id"]
    lowest = within.child(below, child, role="leaf")["result"]["id"]
    within.revoke("carl")
    wait_for(lambda: "error" in within.child(lease, root))
    refused(within, "farm", parent_header(lease, root), "FORBIDDEN", task=child)
    refused(within, "farm", parent_header(below, child), "FORBIDDEN", task=lowest)


def test_a_child_belongs_to_the_caller_and_to_nobody_else(within: Within) -> None:
    lease = within.lease("farm", "fourteen:a")
    root = within.task("anna", "fourteen:a")
    child = within.child(lease, root, role="leaf")["result"]["id"]
    assert within.state("anna", child) == "working"
    for who in ("bert", "zoe", "root", "farm", "board"):
        for one in asks(child):
            if one.of in ("get", "subscribe"):
                assert reason_of(within.ask(who, one)) == "TASK_NOT_FOUND", (who, one)
