"""A registry of roles with many instances: who is there, for how long, and who gets a call."""

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
from tests.seeds.door import NOWHERE, Door, asked, said, texts, wait
from tests.seeds.strangers import Parrot
from worker_sdk import HubClient, RoleUnknown

CATALOG = "/.well-known/ai-catalog.json"


def test_s5_10_a_registration_gives_a_name_and_a_role(door: Door, parrot: Parrot) -> None:
    flat = {
        "description": "Reviews Python",
        "capabilities": {"streaming": True, "push_notifications": False},
        "models_supported": ["acme:large"],
    }
    with door.enrolled("code-reviewer:dev-vm:abc123", parrot.url, **flat) as lease:
        assert (lease["name"], lease["role"]) == ("code-reviewer:dev-vm:abc123", "code-reviewer")
        assert lease["registered"] is True
        shown = door.get("/registry/agents/code-reviewer:dev-vm:abc123").json()
        assert (shown["models_supported"], shown["description"]) == (["acme:large"], "Reviews Python")
        assert texts(door.send("code-reviewer", json.dumps([parrot.status("completed")]))) == ""
    with door.enrolled("bare", parrot.url) as lease:
        assert re.fullmatch(r"bare:.+", lease["name"])
    with door.enrolled("a b:c", parrot.url, role="explicit", instance_id="own") as lease:
        assert (lease["name"], lease["role"], lease["instance_id"]) == ("explicit:own", "explicit", "own")


@pytest.mark.parametrize("instance", ["a", "b"])
def test_s5_11_a_name_means_that_instance_and_a_role_any_of_them(door: Door, instance: str) -> None:
    """Elsewhere names do not route."""
    for _ in range(3):
        assert texts(door.send(f"twin:{instance}", "who?")) == instance
        assert texts(door.call("message/send", said("who?"), f"/agents/twin:{instance}/")) == instance
        assert texts(door.call("SendMessage", asked("who?", f"twin:{instance}"))["task"]) == instance
    assert {texts(door.send("twin", "who?")) for _ in range(12)} <= {"a", "b"}
    assert door.error("message/send", said("who?", "twin:z"))["data"][0]["reason"] == "NO_LIVE_WORKER"


def test_s5_12_discovery_tells_who_is_there_and_how_to_route(door: Door) -> None:
    for path in ("/registry/agents", "/agents"):
        found = door.get(path).json()
        assert found["count"] == len(found["agents"]) >= 7
        assert "Use 'role' with send_to_agent for routing" in found["routing_note"]
        (agent,) = [agent for agent in found["agents"] if agent["role"] == "counter"]
        assert (agent["name"], agent["instance_id"]) == ("counter:here", "here")
        assert agent["description"] == "Counts to the number it is told"
        assert agent["url"].startswith("http://127.0.0.1:")
        assert agent["capabilities"] == {"streaming": True, "push_notifications": False}
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", agent["last_seen"])


def test_s5_12_the_catalog_lists_every_live_role_with_its_card(door: Door, parrot: Parrot) -> None:
    with door.enrolled("listed:x", parrot.url, card={"name": "x", "skills": [{"id": "s", "tags": ["t1", "t2"]}]}):
        response = door.get(CATALOG)
        assert response.headers["content-type"] == "application/ai-catalog+json"
        assert response.headers["access-control-allow-origin"] == "*"
        catalog = response.json()
        assert (catalog["specVersion"], catalog["host"]["displayName"]) == ("1.0", "Rolecall")
        entries = {entry["displayName"]: entry for entry in catalog["entries"]}
        assert entries.keys() == {agent["role"] for agent in door.agents()}
        assert len({entry["identifier"] for entry in catalog["entries"]}) == len(entries)
        entry = entries["listed"]
        assert entry["type"] == "application/a2a-agent-card+json"
        assert (entry["description"], entry["tags"]) == ("listed:x here", ["t1", "t2"])
        assert door.get(entry["url"]).json()["name"] == "listed"
        assert entry["updatedAt"].endswith("Z")
    assert "listed" not in door.get(CATALOG).text
    assert door.http.options(CATALOG).headers["access-control-allow-methods"] == "GET, OPTIONS"


@pytest.mark.parametrize(
    ("name", "role", "instance"),
    [("code-reviewer:dev-vm:abc123", "code-reviewer", "dev-vm:abc123"), ("a:b", "a", "b"), ("a:b:c:d", "a", "b:c:d")],
)
def test_s5_13_a_name_splits_at_its_first_colon(door: Door, parrot: Parrot, name: str, role: str, instance: str) -> None:
    with door.enrolled(name, parrot.url) as lease:
        assert (lease["role"], lease["instance_id"]) == (role, instance)
        (agent,) = door.agents(role=role)
        assert (agent["name"], agent["role"], agent["instance_id"]) == (name, role, instance)


def test_s5_14_two_instances_of_a_role_are_two_agents(door: Door) -> None:
    assert [agent["name"] for agent in door.agents(role="twin")] == ["twin:a", "twin:b"]


def test_s5_15_a_heartbeat_names_the_agent_and_need_not_say_more(door: Door, parrot: Parrot) -> None:
    """The hub says how often: every 45 s, a tenth more or less, so that those who came together do not stay together."""
    with door.enrolled("beating:x", parrot.url) as lease:
        assert 40 <= lease["heartbeat_seconds"] <= 50
        before = door.agents(role="beating")[0]["last_seen"]

        def seen_later() -> bool:
            beat = door.post("/registry/agents/beating:x/heartbeat", b"")
            assert (beat.status_code, beat.json()["registered"]) == (200, True)
            return bool(door.agents(role="beating")[0]["last_seen"] > before)

        wait(seen_later, 3)
        again = door.post("/registry/agents", {"name": "beating:x", "description": "d", "url": parrot.url}).json()
        assert again["epoch"] == lease["epoch"]
        assert len(door.agents(role="beating")) == 1


def test_s5_16_who_is_not_heard_of_leaves_discovery_when_its_time_is_over(other: Door) -> None:
    """After 120 s by default, here after one and a half. To the moment, and that nought means for ever, is shown with a clock
    that is moved: see tests/contract.
    """
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


def test_s5_17_who_has_gone_is_gone_from_every_list(other: Door, parrot: Parrot) -> None:
    card = {"name": "x", "skills": [{"id": "vanish", "name": "Vanish", "tags": ["ghost"]}]}
    other.enrol("fading:x", parrot.url, card=card)
    queries = [{"role": "fading"}, {"skill": "vanish"}, {"tag": "ghost"}, {"q": "fading"}, {}]
    assert all("fading:x" in [agent["name"] for agent in other.agents(**query)] for query in queries)
    wait(lambda: other.agents(role="fading") == [], 3)
    assert not [query for query in queries if "fading:x" in [agent["name"] for agent in other.agents(**query)]]
    assert other.get("/registry/agents/fading:x").status_code == 404
    assert other.get("/agents/fading/.well-known/agent-card.json").status_code == 404
    assert "fading" not in other.get("/.well-known/agent-card.json").text
    assert "fading" not in other.get(CATALOG).text
    assert other.error("message/send", said("[]", "fading"))["data"][0]["reason"] == "NO_LIVE_WORKER"


def test_s5_18_no_clock_but_the_hubs_own_counts(door: Door, parrot: Parrot) -> None:
    """What a worker says of the time is not asked for: it cannot be in the future."""
    with door.enrolled("hasty:x", parrot.url, last_seen="2099-01-01T00:00:00Z", registered_at="2099-01-01T00:00:00Z"):
        beat = door.post("/registry/agents/hasty:x/heartbeat", {"last_seen": "1999-01-01T00:00:00Z"})
        assert beat.status_code == 200
        (agent,) = door.agents(role="hasty")
        assert not agent["last_seen"].startswith(("2099", "1999"))
        assert agent["expires_in"] > 100


def test_s5_19_a_heartbeat_of_somebody_unknown_is_no_success(door: Door) -> None:
    response = door.post("/registry/agents/never:seen/heartbeat", {})
    document = response.json()
    assert (response.status_code, document["registered"], document["reason"]) == (404, False, "LEASE_UNKNOWN")
    assert "Enrol" in document["detail"]


def test_s5_20_a_heartbeat_that_comes_too_late_is_no_success_and_enrolling_again_is(other: Door, parrot: Parrot) -> None:
    """Whoever is told that all is well is in every list."""
    other.enrol("late:x", parrot.url)
    wait(lambda: other.agents(role="late") == [], 3)
    late = other.post("/registry/agents/late:x/heartbeat", {})
    assert (late.status_code, late.json()["registered"]) == (404, False)
    assert other.agents(role="late") == []
    other.enrol("late:x", parrot.url)
    assert [agent["name"] for agent in other.agents(role="late")] == ["late:x"]


@pytest.fixture(scope="session")
def old_style(hub: HubProcess, door: Door, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A worker that is started as the others' are, half by its command line and half by its environment."""
    argv = (sys.executable, "-m", "worker_sdk", "--agent-name", "style-reviewer", "--server", hub.url)
    env = {"A2A_AGENT_DESCRIPTION": "Python code review specialist", "A2A_AGENT_NAME": "not-me"}
    with Process(argv, log=tmp_path_factory.mktemp("old") / "log", env=env) as worker:
        worker.wait_until(lambda: bool(door.agents(role="style-reviewer")))
        yield door.agents(role="style-reviewer")[0]


def test_s5_21_a_worker_is_started_by_the_flags_and_variables_that_people_know(
    door: Door, old_style: dict[str, Any], tmp_path: Path
) -> None:
    assert old_style["description"] == "Python code review specialist"
    assert texts(door.send("style-reviewer", "as you like")) == "as you like"
    env = {"A2A_SERVER_URL": door.url, "A2A_AGENT_NAME": "by-variables:x", "A2A_AGENT_URL": "http://127.0.0.1:9/"}
    with Process((sys.executable, "-m", "worker_sdk"), log=tmp_path / "log", env=env) as worker:
        worker.wait_until(lambda: is_live(door.url, "by-variables:x"))
        assert door.agents(role="by-variables")[0]["url"] == "http://127.0.0.1:9/"


def test_s5_21_the_hub_takes_its_name_from_the_same_variables(other: Door) -> None:
    card = other.get("/.well-known/agent-card.json").json()
    assert (card["name"], card["description"]) == ("Switchboard", "Knows everybody")


def test_s5_22_an_instance_is_named_after_its_host_and_itself(old_style: dict[str, Any]) -> None:
    role, host, own = old_style["name"].split(":")
    assert role == "style-reviewer"
    assert re.fullmatch(r"[A-Za-z0-9.-]+", host)
    assert re.fullmatch(r"[0-9a-f]{6}", own)


async def test_s5_23_the_client_discovers_agents_and_sends_to_roles(door: Door) -> None:
    async with HubClient(door.url) as hub:
        agents = await hub.discover_agents()
        assert {"counter", "twin"} <= {agent.role for agent in agents}
        reply = await hub.send_to_agent("counter", message="3")
    assert (reply.state, reply.text) == ("completed", "0 1 2 ")


async def test_s5_24_what_is_missing_is_named(door: Door, parrot: Parrot) -> None:
    async with HubClient(door.url) as hub:
        with pytest.raises(TypeError, match="role"):
            await hub.send_to_agent(message="to nobody")  # type: ignore[call-arg]
        with pytest.raises(RoleUnknown):
            await hub.send_to_agent("nobody", "hi")
    for lacking, field in (({"url": parrot.url}, "name"), ({"name": "x:y"}, "url")):
        response = door.post("/registry/agents", {"description": "d", **lacking})
        assert (response.status_code, response.json()["reason"]) == (422, "OFFER_INVALID")
        assert response.json()["detail"].startswith(f"{field}: is required")


def test_s5_25_a_message_waits_for_a_worker_when_it_is_told_to(door: Door, parrot: Parrot) -> None:
    """Never by itself, and never for ever."""
    params = {**said(json.dumps([parrot.status("completed")])), "metadata": {"role": "later", "waitSeconds": 5}}
    answers: list[dict[str, Any]] = []

    async def both() -> None:
        waiting = asyncio.create_task(asyncio.to_thread(door.call, "message/send", params))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        with door.enrolled("later:x", parrot.url, capabilities={"streaming": True}):
            answers.append(await waiting)

    asyncio.run(both())
    assert answers[0]["status"]["state"] == "completed"
    began = time.monotonic()
    error = door.error("message/send", {**params, "metadata": {"role": "never", "waitSeconds": 0.4}})
    assert error["data"][0]["reason"] == "ROLE_UNKNOWN"
    assert 0.35 < time.monotonic() - began < 5


async def test_s5_26_a_reply_tells_which_task_it_was_and_who_did_it(door: Door) -> None:
    async with HubClient(door.url) as hub:
        reply = await hub.send_to_agent("counter", "2", context_id="talk-1")
        assert reply.task_id is not None
        decision = await hub.task_decision(reply.task_id)
    assert (reply.state, reply.context_id) == ("completed", "talk-1")
    assert decision is not None
    assert (decision["role"], decision["worker"], decision["task"]) == ("counter", "counter:here", reply.task_id)
    assert decision["at"].endswith("Z")


@pytest.mark.parametrize("metadata", [{"role": "counter-of-beans"}, {"role": "count"}, {"skill": "count"}, {}])
def test_s5_27_a_call_for_one_role_never_runs_on_another(door: Door, metadata: dict[str, str]) -> None:
    params = {**said("1"), "metadata": metadata}
    before = door.get("/registry/tasks").json()["total"]
    for method in ("message/send", "message/stream"):
        assert door.error(method, params)["data"][0]["reason"] == "ROLE_UNKNOWN"
    assert door.get("/registry/tasks").json()["total"] == before


def test_s5_28_an_agent_is_found_by_its_name_or_not_at_all(door: Door) -> None:
    agent = door.get("/registry/agents/counter:here").json()
    assert agent.keys() >= {"name", "description", "url", "capabilities", "card"}
    for unknown in ("counter:there", "nobody:here"):
        response = door.get(f"/registry/agents/{unknown}")
        assert (response.status_code, unknown in response.json()["detail"]) == (404, True)
