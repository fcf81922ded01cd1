"""A registry of roles with many instances: discovery, leases and routing."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.processes import HubProcess, Process, is_live
from tests.seeds.door import NOWHERE, RawClient, message_v03, message_v10, texts, wait
from tests.seeds.strangers import ScriptedAgent
from worker_sdk import HubClient, RoleUnknown

CATALOG = "/.well-known/ai-catalog.json"


def test_s5_10_a_registration_returns_a_name_and_a_role(client: RawClient, scripted: ScriptedAgent) -> None:
    flat = {
        "description": "Reviews Python",
        "capabilities": {"streaming": True, "push_notifications": False},
        "models_supported": ["acme:large"],
    }
    with client.enrolled("code-reviewer:dev-vm:abc123", scripted.url, **flat) as lease:
        assert (lease["name"], lease["role"]) == ("code-reviewer:dev-vm:abc123", "code-reviewer")
        assert lease["registered"] is True
        shown = client.get("/registry/agents/code-reviewer:dev-vm:abc123").json()
        assert (shown["models_supported"], shown["description"]) == (["acme:large"], "Reviews Python")
        assert texts(client.send("code-reviewer", json.dumps([scripted.status("completed")]))) == ""
    with client.enrolled("bare", scripted.url) as lease:
        assert re.fullmatch(r"bare:.+", lease["name"])
    with client.enrolled("a b:c", scripted.url, role="explicit", instance_id="own") as lease:
        assert (lease["name"], lease["role"], lease["instance_id"]) == ("explicit:own", "explicit", "own")


@pytest.mark.parametrize("instance", ["a", "b"])
def test_s5_11_a_name_selects_that_instance_and_a_role_any(client: RawClient, instance: str) -> None:
    """In other systems names do not route."""
    for _ in range(3):
        assert texts(client.send(f"twin:{instance}", "who?")) == instance
        assert texts(client.call("message/send", message_v03("who?"), f"/agents/twin:{instance}/")) == instance
        assert texts(client.call("SendMessage", message_v10("who?", f"twin:{instance}"))["task"]) == instance
    assert {texts(client.send("twin", "who?")) for _ in range(12)} <= {"a", "b"}
    assert client.error("message/send", message_v03("who?", "twin:z"))["data"][0]["reason"] == "NO_LIVE_WORKER"


def test_s5_12_discovery_lists_the_agents_and_how_to_route(client: RawClient) -> None:
    for path in ("/registry/agents", "/agents"):
        found = client.get(path).json()
        assert found["count"] == len(found["agents"]) >= 7
        assert "Use 'role' with send_to_agent for routing" in found["routing_note"]
        assert "call /agents/{role}/ of this hub" in found["routing_note"]
        (agent,) = [agent for agent in found["agents"] if agent["role"] == "counter"]
        assert (agent["name"], agent["instance_id"]) == ("counter:here", "here")
        assert agent["description"] == "Counts to the given number"
        assert agent["url"].startswith("http://127.0.0.1:")
        assert agent["capabilities"] == {"streaming": True, "push_notifications": False}
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", agent["last_seen"])


def test_s5_12_the_catalog_lists_every_live_role_with_its_card(client: RawClient, scripted: ScriptedAgent) -> None:
    with client.enrolled("listed:x", scripted.url, card={"name": "x", "skills": [{"id": "s", "tags": ["t1", "t2"]}]}):
        response = client.get(CATALOG)
        assert response.headers["content-type"] == "application/ai-catalog+json"
        assert response.headers["access-control-allow-origin"] == "*"
        catalog = response.json()
        assert (catalog["specVersion"], catalog["host"]["displayName"]) == ("1.0", "Rolecall")
        entries = {entry["displayName"]: entry for entry in catalog["entries"]}
        assert entries.keys() == {agent["role"] for agent in client.agents()}
        assert len({entry["identifier"] for entry in catalog["entries"]}) == len(entries)
        entry = entries["listed"]
        assert entry["type"] == "application/a2a-agent-card+json"
        assert (entry["description"], entry["tags"]) == ("listed:x here", ["t1", "t2"])
        assert client.get(entry["url"]).json()["name"] == "listed"
        assert entry["updatedAt"].endswith("Z")
    assert "listed" not in client.get(CATALOG).text
    assert client.http.options(CATALOG).headers["access-control-allow-methods"] == "GET, OPTIONS"


@pytest.mark.parametrize(
    ("name", "role", "instance"),
    [("code-reviewer:dev-vm:abc123", "code-reviewer", "dev-vm:abc123"), ("a:b", "a", "b"), ("a:b:c:d", "a", "b:c:d")],
)
def test_s5_13_a_name_splits_at_its_first_colon(
    client: RawClient, scripted: ScriptedAgent, name: str, role: str, instance: str
) -> None:
    with client.enrolled(name, scripted.url) as lease:
        assert (lease["role"], lease["instance_id"]) == (role, instance)
        (agent,) = client.agents(role=role)
        assert (agent["name"], agent["role"], agent["instance_id"]) == (name, role, instance)


def test_s5_14_two_instances_of_a_role_are_two_agents(client: RawClient) -> None:
    assert [agent["name"] for agent in client.agents(role="twin")] == ["twin:a", "twin:b"]


def test_s5_15_a_heartbeat_only_needs_the_name_of_the_agent(client: RawClient, scripted: ScriptedAgent) -> None:
    """The hub returns the interval: 45 s with 10 % jitter, so that workers do not beat in step."""
    with client.enrolled("beating:x", scripted.url) as lease:
        assert 40 <= lease["heartbeat_seconds"] <= 50
        before = client.agents(role="beating")[0]["last_seen"]

        def seen_later() -> bool:
            beat = client.post("/registry/agents/beating:x/heartbeat", b"")
            assert (beat.status_code, beat.json()["registered"]) == (200, True)
            return bool(client.agents(role="beating")[0]["last_seen"] > before)

        wait(seen_later, 3)
        again = client.post("/registry/agents", {"name": "beating:x", "description": "d", "url": scripted.url}).json()
        assert again["epoch"] == lease["epoch"]
        assert len(client.agents(role="beating")) == 1


def test_s5_16_an_agent_without_heartbeats_leaves_discovery_after_its_ttl(other: RawClient) -> None:
    """After 120 s by default, here after 1.5 s. tests/contract tests the exact moment and TTL 0 with a movable clock."""
    began = time.monotonic()
    other.enrol("beating:x", NOWHERE)
    assert other.enrol("silent:x", NOWHERE)["ttl_seconds"] == 1.5
    assert [agent["name"] for agent in other.agents(role="silent")] == ["silent:x"]

    def gone() -> bool:
        assert other.post("/registry/agents/beating:x/heartbeat", {}).status_code == 200
        return other.agents(role="silent") == []

    wait(gone, 6)
    assert time.monotonic() - began >= 1.5
    assert [agent["name"] for agent in other.agents(role="beating")] == ["beating:x"]


def test_s5_17_an_expired_agent_is_in_no_list(other: RawClient, scripted: ScriptedAgent) -> None:
    card = {"name": "x", "skills": [{"id": "vanish", "name": "Vanish", "tags": ["ghost"]}]}
    other.enrol("fading:x", scripted.url, card=card)
    queries = [{"role": "fading"}, {"skill": "vanish"}, {"tag": "ghost"}, {"q": "fading"}, {}]
    assert all("fading:x" in [agent["name"] for agent in other.agents(**query)] for query in queries)
    wait(lambda: other.agents(role="fading") == [], 3)
    assert not [query for query in queries if "fading:x" in [agent["name"] for agent in other.agents(**query)]]
    assert other.get("/registry/agents/fading:x").status_code == 404
    assert other.get("/agents/fading/.well-known/agent-card.json").status_code == 404
    assert "fading" not in other.get("/.well-known/agent-card.json").text
    assert "fading" not in other.get(CATALOG).text
    assert other.error("message/send", message_v03("[]", "fading"))["data"][0]["reason"] == "NO_LIVE_WORKER"


def test_s5_18_only_the_hubs_clock_counts(client: RawClient, scripted: ScriptedAgent) -> None:
    """The hub ignores times from workers, so none can be in the future."""
    with client.enrolled("hasty:x", scripted.url, last_seen="2099-01-01T00:00:00Z", registered_at="2099-01-01T00:00:00Z"):
        beat = client.post("/registry/agents/hasty:x/heartbeat", {"last_seen": "1999-01-01T00:00:00Z"})
        assert beat.status_code == 200
        (agent,) = client.agents(role="hasty")
        assert not agent["last_seen"].startswith(("2099", "1999"))
        assert agent["expires_in"] > 100


def test_s5_19_a_heartbeat_of_an_unknown_agent_fails(client: RawClient) -> None:
    response = client.post("/registry/agents/never:seen/heartbeat", {})
    document = response.json()
    assert (response.status_code, document["registered"], document["reason"]) == (404, False, "LEASE_UNKNOWN")
    assert "Enrol" in document["detail"]


def test_s5_20_a_late_heartbeat_fails_and_enrolling_again_succeeds(other: RawClient, scripted: ScriptedAgent) -> None:
    """A worker whose heartbeat succeeds is in every list."""
    other.enrol("late:x", scripted.url)
    wait(lambda: other.agents(role="late") == [], 3)
    late = other.post("/registry/agents/late:x/heartbeat", {})
    assert (late.status_code, late.json()["registered"]) == (404, False)
    assert other.agents(role="late") == []
    other.enrol("late:x", scripted.url)
    assert [agent["name"] for agent in other.agents(role="late")] == ["late:x"]


@pytest.fixture(scope="package")
def old_style(hub: HubProcess, client: RawClient, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A worker started half by command line and half by environment, as in other systems."""
    argv = (sys.executable, "-m", "worker_sdk", "--agent-name", "style-reviewer", "--server", hub.url)
    env = {"A2A_AGENT_DESCRIPTION": "Python code review specialist", "A2A_AGENT_NAME": "not-me"}
    with Process(argv, log=tmp_path_factory.mktemp("old") / "log", env=env) as worker:
        worker.wait_until(lambda: bool(client.agents(role="style-reviewer")))
        yield client.agents(role="style-reviewer")[0]


def test_s5_21_a_worker_accepts_the_known_flags_and_variables(
    client: RawClient, old_style: dict[str, Any], tmp_path: Path
) -> None:
    assert old_style["description"] == "Python code review specialist"
    assert texts(client.send("style-reviewer", "as you like")) == "as you like"
    env = {"A2A_SERVER_URL": client.url, "A2A_AGENT_NAME": "by-variables:x", "A2A_AGENT_URL": "http://127.0.0.1:9/"}
    with Process((sys.executable, "-m", "worker_sdk"), log=tmp_path / "log", env=env) as worker:
        worker.wait_until(lambda: is_live(client.url, "by-variables:x"))
        assert client.agents(role="by-variables")[0]["url"] == "http://127.0.0.1:9/"


def test_s5_21_the_hub_reads_its_name_from_the_same_variables(other: RawClient) -> None:
    card = other.get("/.well-known/agent-card.json").json()
    assert (card["name"], card["description"]) == ("Switchboard", "Knows everybody")


def test_s5_22_an_instance_name_has_the_host_and_a_random_part(old_style: dict[str, Any]) -> None:
    role, host, own = old_style["name"].split(":")
    assert role == "style-reviewer"
    assert re.fullmatch(r"[A-Za-z0-9.-]+", host)
    assert re.fullmatch(r"[0-9a-f]{6}", own)


async def test_s5_23_the_client_discovers_agents_and_sends_to_roles(client: RawClient) -> None:
    async with HubClient(client.url) as hub:
        agents = await hub.discover_agents()
        assert {"counter", "twin"} <= {agent.role for agent in agents}
        reply = await hub.send_to_agent("counter", message="3")
    assert (reply.state, reply.text) == ("completed", "0 1 2 ")


async def test_s5_24_errors_name_what_is_missing(client: RawClient, scripted: ScriptedAgent) -> None:
    async with HubClient(client.url) as hub:
        with pytest.raises(TypeError, match="role"):
            await hub.send_to_agent(message="to nobody")  # type: ignore[call-arg]
        with pytest.raises(RoleUnknown):
            await hub.send_to_agent("nobody", "hi")
    for given, missing in (({"url": scripted.url}, "name"), ({"name": "x:y"}, "url")):
        response = client.post("/registry/agents", {"description": "d", **given})
        assert (response.status_code, response.json()["reason"]) == (422, "OFFER_INVALID")
        assert response.json()["detail"].startswith(f"{missing}: is required")


def test_s5_25_a_message_waits_for_a_worker_on_request(client: RawClient, scripted: ScriptedAgent) -> None:
    """Only on request, and not without a limit."""
    params = {**message_v03(json.dumps([scripted.status("completed")])), "metadata": {"role": "later", "waitSeconds": 5}}
    answers: list[dict[str, Any]] = []

    async def both() -> None:
        waiting = asyncio.create_task(asyncio.to_thread(client.call, "message/send", params))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        with client.enrolled("later:x", scripted.url, capabilities={"streaming": True}):
            answers.append(await waiting)

    asyncio.run(both())
    assert answers[0]["status"]["state"] == "completed"
    began = time.monotonic()
    error = client.error("message/send", {**params, "metadata": {"role": "never", "waitSeconds": 0.4}})
    assert error["data"][0]["reason"] == "ROLE_UNKNOWN"
    assert 0.35 < time.monotonic() - began < 5


async def test_s5_26_a_reply_has_its_task_and_the_hub_its_worker(client: RawClient) -> None:
    async with HubClient(client.url) as hub:
        reply = await hub.send_to_agent("counter", "2", context_id="talk-1")
        assert reply.task_id is not None
        decision = await hub.task_decision(reply.task_id)
    assert (reply.state, reply.context_id) == ("completed", "talk-1")
    assert decision is not None
    assert (decision["role"], decision["worker"], decision["task"]) == ("counter", "counter:here", reply.task_id)
    assert decision["at"].endswith("Z")


@pytest.mark.parametrize("metadata", [{"role": "counter-of-beans"}, {"role": "count"}, {"skill": "count"}, {}])
def test_s5_27_a_call_for_one_role_never_runs_on_another(client: RawClient, metadata: dict[str, str]) -> None:
    params = {**message_v03("1"), "metadata": metadata}
    before = client.get("/registry/tasks").json()["total"]
    for method in ("message/send", "message/stream"):
        assert client.error(method, params)["data"][0]["reason"] == "ROLE_UNKNOWN"
    assert client.get("/registry/tasks").json()["total"] == before


def test_s5_28_an_agent_is_only_found_by_its_exact_name(client: RawClient) -> None:
    agent = client.get("/registry/agents/counter:here").json()
    assert agent.keys() >= {"name", "description", "url", "capabilities", "card"}
    for unknown in ("counter:there", "nobody:here"):
        response = client.get(f"/registry/agents/{unknown}")
        assert (response.status_code, unknown in response.json()["detail"]) == (404, True)
