"""What callers of a server with a registry rely on: lenient payloads, addresses, states and codes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.seeds.conftest import Locked
from tests.seeds.door import NO_TASK, NOWHERE, RawClient, data, message_v03, texts
from tests.seeds.strangers import Receiver, ScriptedAgent

REST = "/a2a/rest"


def test_s5_01_the_card_has_its_capabilities_in_camel_case(client: RawClient) -> None:
    capabilities = client.get("/.well-known/agent-card.json").json()["capabilities"]
    assert {"streaming", "pushNotifications", "stateTransitionHistory"} <= capabilities.keys()
    assert not [name for name in capabilities if "_" in name]


def test_s5_01_a_worker_may_send_them_in_snake_case(client: RawClient, scripted: ScriptedAgent) -> None:
    flat = {"streaming": True, "push_notifications": True, "state_transition_history": True}
    with (
        client.enrolled("snake:a", scripted.url, capabilities=flat),
        client.enrolled("snake:b", scripted.url, card={"capabilities": flat}),
    ):
        for name in ("snake:a", "snake:b"):
            card = client.get(f"/registry/agents/{name}").json()["card"]
            assert card["capabilities"] == {"streaming": True, "pushNotifications": True, "stateTransitionHistory": True}
        assert [agent["name"] for agent in client.agents(capability="push_notifications", role="snake")] == [
            "snake:a",
            "snake:b",
        ]
        assert len(client.agents(capability="pushNotifications", role="snake")) == 2
        assert client.agents(capability="push_notifications", role="counter") == []
        shown = client.get("/agents/snake/.well-known/agent-card.json").json()["capabilities"]
        assert not [name for name in shown if "_" in name]


def test_s5_02_schemes_under_their_old_name_are_accepted_and_returned_in_the_new_form(
    client: RawClient, scripted: ScriptedAgent
) -> None:
    """The hub's card of a role names no schemes, because callers never authenticate to a worker."""
    card = {"name": "x", "authentication": [{"scheme": "bearer"}]}
    with client.enrolled("guarded:x", scripted.url, card=card):
        kept = client.get("/registry/agents/guarded:x").json()["card"]
        shown = client.get("/agents/guarded/.well-known/agent-card.json").json()
    assert kept["securitySchemes"] == {"bearer": {"type": "http", "scheme": "bearer"}}
    assert kept["security"] == [{"bearer": []}]
    assert not {"authentication", "security", "securityRequirements", "securitySchemes"} & shown.keys()
    assert "authentication" not in kept


def test_s5_02_cards_of_a_hub_with_tokens_name_the_schemes(locked: Locked) -> None:
    card = locked.client.get("/.well-known/agent-card.json").json()
    assert card["securitySchemes"]["bearer"]["scheme"] == "bearer"
    assert {"bearer": []} in card["security"]
    assert "authentication" not in card


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "text", "content": "hi"}, {"kind": "text", "text": "hi"}),
        ({"type": "data", "content": {"a": [1]}}, {"kind": "data", "data": {"a": [1]}}),
        (
            {"type": "file", "content": {"name": "n", "uri": "https://example.com/n"}},
            {"kind": "file", "file": {"name": "n", "uri": "https://example.com/n"}},
        ),
    ],
)
@pytest.mark.parametrize("path", ["/", "/a2a/jsonrpc", "/v1/a2a"])
def test_s5_03_the_content_of_a_part_may_be_named_content(
    client: RawClient, path: str, part: dict[str, Any], expected: dict[str, Any]
) -> None:
    task = client.call("message/send", {"message": {"parts": [part]}, "metadata": {"role": "mirror"}}, path)
    assert data(task)["message"]["parts"] == [expected]


def test_s5_04_a_message_without_a_role_is_the_users(client: RawClient) -> None:
    task = client.call(
        "message/send", {"message": {"parts": [{"type": "text", "content": "1"}]}, "metadata": {"role": "counter"}}
    )
    assert task["history"][0]["role"] == "user"
    assert task["history"][0]["messageId"]


@pytest.mark.parametrize("names", [{"task_id"}, {"taskId"}, {"id"}, {"name"}, {"id", "task_id"}])
def test_s5_05_a_task_id_may_have_any_of_four_names(client: RawClient, names: set[str]) -> None:
    task = client.send("counter", "100 0.1", configuration={"blocking": False})["id"]
    params = {name: f"tasks/{task}" if name == "name" else task for name in names}
    assert client.call("tasks/get", params)["id"] == task
    assert client.call("tasks/cancel", params)["status"]["state"] == "canceled"


def test_s5_05_two_different_task_ids_are_refused(client: RawClient) -> None:
    for method in ("tasks/get", "tasks/cancel"):
        assert client.code(method, {"id": NO_TASK, "task_id": f"{NO_TASK}0"}) == -32602


def test_s5_06_rest_works_at_its_addresses(client: RawClient, receiver: Receiver) -> None:
    sent = client.post(f"{REST}/message:send", message_v03("1", "counter"))
    assert (sent.status_code, texts(sent.json())) == (200, "0 ")
    task = sent.json()
    assert client.get(f"{REST}/tasks/{task['id']}").json() == task
    with client.opened_at(f"{REST}/message:stream", message_v03("2", "counter")) as stream:
        events = [frame.data for frame in stream]
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert [events[0]["kind"], events[-1]["final"]] == ["task", True]
    running = client.post(f"{REST}/message:send", message_v03("100 0.1", "counter", configuration={"blocking": False})).json()
    assert client.post(f"{REST}/tasks/{running['id']}:cancel", {}).json()["status"]["state"] == "canceled"
    configs = f"{REST}/tasks/{task['id']}/pushNotificationConfigs"
    kept = client.post(configs, {"url": receiver.url, "id": "c1"}).json()
    assert kept["pushNotificationConfig"]["id"] == "c1"
    assert client.get(f"{configs}/c1").json() == kept
    assert client.get(configs).json() == [kept]
    assert client.http.delete(f"{configs}/c1").status_code == 200
    assert client.get(configs).json() == []


@pytest.mark.parametrize(
    ("http_method", "path", "status"),
    [
        ("GET", f"{REST}/tasks/{NO_TASK}", 404),
        ("POST", f"{REST}/tasks/{NO_TASK}:cancel", 404),
        ("GET", f"{REST}/tasks/{NO_TASK}?historyLength=-1", 400),
        ("DELETE", f"{REST}/tasks/{NO_TASK}", 405),
        ("GET", f"{REST}/message:send", 405),
    ],
)
def test_s5_06_rest_errors_have_an_http_status(client: RawClient, http_method: str, path: str, status: int) -> None:
    response = client.http.request(http_method, path)
    assert response.status_code == status
    assert response.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/", "/a2a/jsonrpc", "/v1/a2a"])
def test_s5_06_json_rpc_works_at_each_of_its_addresses(client: RawClient, path: str) -> None:
    task = client.call("message/send", message_v03("2", "counter"), path)
    assert client.call("tasks/get", {"id": task["id"]}, path) == task
    assert client.events("tasks/resubscribe", {"id": task["id"]}, path)[0]["id"] == task["id"]


@pytest.mark.parametrize(
    ("worker_state", "shown", "terminal"),
    [
        ("submitted", "submitted", False),
        ("pending", "submitted", False),
        ("working", "working", False),
        ("running", "working", False),
        ("input-required", "input-required", False),
        ("auth-required", "auth-required", False),
        ("completed", "completed", True),
        ("failed", "failed", True),
        ("canceled", "canceled", True),
        ("cancelled", "canceled", True),
        ("rejected", "rejected", True),
    ],
)
def test_s5_07_each_state_has_one_spelling_and_is_terminal_or_not(
    client: RawClient, scripted: ScriptedAgent, worker_state: str, shown: str, terminal: bool
) -> None:
    script = json.dumps([scripted.status(worker_state, "so it is"), 0.1, scripted.status("failed", "later")])
    first, update, *_ = client.events("message/stream", message_v03(script, "parrot"))
    assert update["status"]["state"] == shown
    if terminal:
        assert client.call("tasks/get", {"id": first["id"]})["status"]["state"] == shown
        assert client.call("GetTask", {"id": first["id"]})["status"]["state"] == f"TASK_STATE_{shown.upper()}"
    else:
        assert client.until(first["id"], "failed")


@pytest.mark.parametrize(
    "way",
    [
        ["submitted", "rejected"],
        ["submitted", "working", "completed"],
        ["submitted", "working", "failed"],
        ["submitted", "working", "input-required"],
        ["submitted", "auth-required"],
        ["submitted", "canceled"],
    ],
)
def test_s5_08_tasks_follow_each_path_of_the_state_diagram(client: RawClient, scripted: ScriptedAgent, way: list[str]) -> None:
    script = json.dumps([scripted.status(state, f"now {state}") for state in way[1:]])
    events = client.events("message/stream", message_v03(script, "parrot"))
    assert [event["status"]["state"] for event in events] == way


def test_s5_09_errors_without_a_specified_code_share_one_and_have_a_reason(client: RawClient) -> None:
    """-32007 to -32009 now have other meanings, none of which is a missing agent."""
    error = client.error("message/send", message_v03("1", "nobody"))
    assert (error["code"], error["data"][0]["reason"]) == (-32000, "ROLE_UNKNOWN")
    assert "counter" in error["message"]
    with client.enrolled("absent:x", NOWHERE):
        error = client.error("message/send", message_v03("1", "absent"))
    assert (error["code"], error["data"][0]["reason"]) == (-32000, "WORKER_UNREACHABLE")
    error = client.error("message/send", message_v03("1", "absent"))
    assert (error["code"], error["data"][0]["reason"]) == (-32000, "NO_LIVE_WORKER")


def test_s5_09_specified_codes_keep_their_meaning(client: RawClient, scripted: ScriptedAgent) -> None:
    task = client.send("counter", "1")["id"]
    assert client.code("tasks/get", {"id": NO_TASK}) == -32001
    assert client.code("tasks/cancel", {"id": task}) == -32002
    assert client.code("SubscribeToTask", {"id": task}) == -32004
    for code in (-32003, -32005, -32006):
        with Refusal(code) as refusal, client.enrolled("refusing:x", refusal.url):
            assert client.code("message/send", message_v03("1", "refusing")) == code


class Refusal(Receiver):
    """A worker that answers every call with one error."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.error = {"code": code, "message": "the worker's own words"}

    def reply(self, body: dict[str, Any]) -> bytes:
        return json.dumps({"jsonrpc": "2.0", "id": body.get("id"), "error": self.error}).encode()
