"""Two workspaces on one hub: no answer shows to one that the other exists."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.acceptance.access_table import RIGHTS
from tests.acceptance.access_world import HIDDEN, HIDDEN_ROLE, OFFER, ROLE, WORKER, Ids, World, make_tokens, same
from tests.helpers.client import text_message
from tests.helpers.processes import start_hub, start_worker

SKILL = "secret-skill"
CARD = {"name": "hidden", "skills": [{"id": SKILL, "name": SKILL, "description": "x", "tags": ["secret-tag"]}]}
OPEN_PAGES = ["/.well-known/agent-card.json", "/.well-known/ai-catalog.json", "/registry/agents", "/agents"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    data = tmp_path_factory.mktemp("workspaces")
    tokens = make_tokens(data)
    with start_hub(data, push_allowed_hosts="127.0.0.1") as hub, httpx.Client(trust_env=False, timeout=30) as http:
        found = World(hub, tokens, http)
        env = {"ROLECALL_TOKEN": tokens["worker"]}
        worker = start_worker("tests.acceptance.workers:asker", WORKER, hub.url, log=data / "w.log", env=env)
        with worker:
            enrolled = found.ask("other-farm", "PUT", f"/registry/agents/{HIDDEN_ROLE}/z", {**OFFER, "card": CARD})
            assert enrolled.status_code == 201
            yield found


@pytest.mark.parametrize("path", OPEN_PAGES)
def test_cards_catalog_and_discovery_show_only_the_callers_workspace(world: World, path: str) -> None:
    for who, shown, kept in (("owner", ROLE, HIDDEN_ROLE), ("admin", ROLE, HIDDEN_ROLE), ("stranger", HIDDEN_ROLE, ROLE)):
        text = world.ask(who, "GET", path).text
        assert shown in text
        assert kept not in text


def test_without_a_token_cards_are_those_of_the_default_workspace(world: World) -> None:
    assert world.ask("none", "GET", f"/agents/{ROLE}/.well-known/agent-card.json").status_code == 200
    assert HIDDEN_ROLE not in world.ask("none", "GET", OPEN_PAGES[0]).text
    assert world.ask("none", "GET", "/health").json()["workers"] == 1


def test_the_task_count_is_visible_only_to_those_who_may_read_metrics(world: World) -> None:
    for who, visible in (("none", False), ("wrong", False), ("stranger", False), ("reader", True), ("owner", True)):
        assert ("running_tasks" in world.ask(who, "GET", "/health").json()) is visible, who
        assert (world.ask(who, "GET", "/metrics").status_code == 200) is visible, who


@pytest.mark.parametrize(
    ("who", "name", "kind", "workspace"),
    [
        ("reader", "board", "reader", "default"),
        ("owner", "anna", "client", "default"),
        ("stranger", "zoe", "client", "acme"),
        ("worker", "farm", "worker", "default"),
        ("admin", "root", "admin", "default"),
    ],
)
def test_a_holder_is_told_its_name_kind_workspace_and_rights(
    world: World, who: str, name: str, kind: str, workspace: str
) -> None:
    shown = world.ask(who, "GET", "/registry/me").json()
    assert set(shown.pop("rights")) == RIGHTS[who]
    assert shown == {"name": name, "kind": kind, "workspace": workspace}


def test_an_admin_lists_and_redelivers_dead_letters_of_its_workspace(world: World) -> None:
    task = world.dead_letter("owner")
    assert all(task in world.ask(who, "GET", "/registry/push/dead-letters").text for who in ("owner", "admin"))
    assert all(task not in world.ask(who, "GET", "/registry/push/dead-letters").text for who in ("other", "reader", "stranger"))
    (letter,) = [
        one for one in world.ask("admin", "GET", "/registry/push/dead-letters").json()["dead_letters"] if one["task"] == task
    ]
    again = f"/registry/push/dead-letters/{task}/c/{letter['cursor']}/redeliver"
    assert world.ask("owner", "POST", again).status_code == 403
    assert world.ask("admin", "POST", again).status_code == 202
    assert world.ask("admin", "POST", again.replace(task, str(uuid4()))).status_code == 404


@pytest.mark.parametrize(
    ("member", "hidden", "unknown_name"), [("role", HIDDEN_ROLE, "xxxxxx"), ("skill", SKILL, "x" * len(SKILL))]
)
def test_a_foreign_role_and_skill_get_the_same_answer_as_unknown_ones(
    world: World, member: str, hidden: str, unknown_name: str
) -> None:
    def ask(name: str) -> httpx.Response:
        params = {**text_message("hi", messageId="m"), "metadata": {member: name}}
        return world.ask("owner", "POST", "/", {"jsonrpc": "2.0", "id": 7, "method": "message/send", "params": params})

    foreign, unknown = ask(hidden), ask(unknown_name)
    assert foreign.json()["error"]["data"][0]["reason"] == "ROLE_UNKNOWN"
    same(foreign, unknown, Ids(None, hidden, unknown_name))


def test_the_feed_reports_only_the_readers_workspace(world: World) -> None:
    assert _feed_names(world, "owner", WORKER) == {WORKER}
    assert _feed_names(world, "stranger", HIDDEN) == {HIDDEN}


@pytest.mark.parametrize("who", ["owner", "other", "admin"])
def test_the_feed_of_tasks_has_only_the_readers_own(world: World, who: str) -> None:
    """Those of others come first, so they would be seen."""
    for other in ("owner", "other", "admin"):
        world.task(other)
    newest, seen = world.task(who)["id"], list[str]()
    headers = {"Authorization": f"Bearer {world.tokens[who]}"}
    with world.http.stream("GET", f"{world.hub.url}/registry/tasks/events?after=0", headers=headers) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                change = json.loads(line.removeprefix("data: "))
                assert change["holder"] == world.ask(who, "GET", "/registry/me").json()["name"]
                seen.append(change["task"]["id"])
                if seen[-1] == newest:
                    break
    listed = world.ask(who, "GET", "/registry/tasks?limit=100").json()["tasks"]
    assert set(seen) == {task["id"] for task in listed}


def _feed_names(world: World, who: str, until: str) -> set[str]:
    """The workers that a feed names from its beginning up to `until`."""
    headers = {"Authorization": f"Bearer {world.tokens[who]}", "Last-Event-ID": "0"}
    names = set[str]()
    with world.http.stream("GET", f"{world.hub.url}/registry/events", headers=headers) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                names.add(line.partition('"name":"')[2].partition('"')[0])
            if until in names:
                break
    return names


def test_metrics_cover_all_workspaces_and_are_for_the_default_one_alone(world: World) -> None:
    def figures(who: str) -> httpx.Response:
        return world.ask(who, "GET", "/metrics")

    for who in ("reader", "owner", "admin"):
        text = figures(who).text
        assert f'a2a_hub_workers{{role="{HIDDEN_ROLE}",state="ready"}} 1.0' in text
        assert f'a2a_hub_registrations_total{{outcome="enrolled",role="{HIDDEN_ROLE}"}} 1.0' in text
    refused = figures("stranger")
    assert (refused.status_code, refused.json()["reason"]) == (403, "FORBIDDEN")


def test_a_holder_erases_its_own_tasks_and_an_operator_those_of_its_workspace(world: World) -> None:
    mine, theirs = world.task("owner"), world.task("other")

    def known(who: str, task: dict[str, Any]) -> bool:
        return world.ask(who, "GET", f"/registry/tasks/{task['id']}/events").status_code == 200

    for who, path in (
        ("owner", f"/{theirs['id']}"),
        ("admin", f"/{theirs['id']}"),
        ("owner", f"?context_id={theirs['contextId']}"),
        ("owner", "?holder=bert"),
        ("reader", f"/{theirs['id']}"),
    ):
        world.ask(who, "DELETE", f"/registry/tasks{path}")
    assert known("other", theirs)
    assert world.ask("owner", "DELETE", f"/registry/tasks?context_id={mine['contextId']}").json() == {
        "erased": 1,
        "more": False,
    }
    assert not known("owner", mine)
    assert world.ask("admin", "DELETE", "/registry/tasks?holder=bert").json()["erased"] >= 1
    assert not known("other", theirs)
    assert world.ask("admin", "DELETE", "/registry/tasks").json()["reason"] == "INVALID_PARAMS"


def test_a_routing_decision_is_shown_for_the_callers_own_task_under_any_name(world: World) -> None:
    """In 0.1 a caller chooses its task ids, and so may choose the id of a foreign task."""
    task = world.task("owner")["id"]
    words: dict[str, Any] = {"message": {"role": "user", "parts": [{"type": "text", "text": "x"}]}}
    named = world.result("other", "tasks/send", {"id": task, **words})
    assert named["id"] == task
    decision = world.ask("other", "GET", f"/registry/tasks/{task}/decision").json()
    assert decision["task"] != task
    assert world.ask("owner", "GET", f"/registry/tasks/{task}/decision").json()["task"] == task


def test_a_foreign_context_does_not_steer_routing(world: World) -> None:
    context = world.task("owner")["contextId"]
    task = world.result("other", "message/send", text_message("mine", contextId=context))
    assert world.ask("other", "GET", f"/registry/tasks/{task['id']}/decision").json()["rule"] == "path"
    again = world.result("owner", "message/send", text_message("blue", contextId=context))
    assert again["status"]["state"] == "completed"
