"""Lenient payloads, plain addresses, states and codes: what callers of a server with a registry rely on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.seeds.conftest import Locked
from tests.seeds.door import NO_TASK, NOWHERE, Door, data, said, texts
from tests.seeds.strangers import Parrot, Receiver

REST = "/a2a/rest"


def test_s5_01_the_card_spells_its_capabilities_in_camel_case(door: Door) -> None:
    capabilities = door.get("/.well-known/agent-card.json").json()["capabilities"]
    assert {"streaming", "pushNotifications", "stateTransitionHistory"} <= capabilities.keys()
    assert not [name for name in capabilities if "_" in name]


def test_s5_01_a_worker_may_spell_them_in_snake_case(door: Door, parrot: Parrot) -> None:
    flat = {"streaming": True, "push_notifications": True, "state_transition_history": True}
    with (
        door.enrolled("snake:a", parrot.url, capabilities=flat),
        door.enrolled("snake:b", parrot.url, card={"capabilities": flat}),
    ):
        for name in ("snake:a", "snake:b"):
            card = door.get(f"/registry/agents/{name}").json()["card"]
            assert card["capabilities"] == {"streaming": True, "pushNotifications": True, "stateTransitionHistory": True}
        assert [agent["name"] for agent in door.agents(capability="push_notifications", role="snake")] == ["snake:a", "snake:b"]
        assert len(door.agents(capability="pushNotifications", role="snake")) == 2
        assert door.agents(capability="push_notifications", role="counter") == []
        shown = door.get("/agents/snake/.well-known/agent-card.json").json()["capabilities"]
        assert not [name for name in shown if "_" in name]


def test_s5_02_schemes_under_their_old_name_are_taken_and_given_back_in_the_new_form(door: Door, parrot: Parrot) -> None:
    """A role's card is the hub's and names none: a worker's secrets are not its callers' business."""
    card = {"name": "x", "authentication": [{"scheme": "bearer"}]}
    with door.enrolled("guarded:x", parrot.url, card=card):
        kept = door.get("/registry/agents/guarded:x").json()["card"]
        shown = door.get("/agents/guarded/.well-known/agent-card.json").json()
    assert kept["securitySchemes"] == {"bearer": {"type": "http", "scheme": "bearer"}}
    assert kept["security"] == [{"bearer": []}]
    assert not {"authentication", "security", "securityRequirements", "securitySchemes"} & shown.keys()
    assert "authentication" not in kept


def test_s5_02_a_hub_with_tokens_says_on_its_cards_which_it_takes(locked: Locked) -> None:
    card = locked.door.get("/.well-known/agent-card.json").json()
    assert card["securitySchemes"]["bearer"]["scheme"] == "bearer"
    assert {"bearer": []} in card["security"]
    assert "authentication" not in card


@pytest.mark.parametrize(
    ("part", "understood"),
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
def test_s5_03_the_content_of_a_part_may_stand_under_that_name(
    door: Door, path: str, part: dict[str, Any], understood: dict[str, Any]
) -> None:
    task = door.call("message/send", {"message": {"parts": [part]}, "metadata": {"role": "mirror"}}, path)
    assert data(task)["message"]["parts"] == [understood]


def test_s5_04_who_does_not_say_who_speaks_is_the_user(door: Door) -> None:
    task = door.call(
        "message/send", {"message": {"parts": [{"type": "text", "content": "1"}]}, "metadata": {"role": "counter"}}
    )
    assert task["history"][0]["role"] == "user"
    assert task["history"][0]["messageId"]


@pytest.mark.parametrize("names", [{"task_id"}, {"taskId"}, {"id"}, {"name"}, {"id", "task_id"}])
def test_s5_05_a_task_is_named_in_any_of_four_ways(door: Door, names: set[str]) -> None:
    task = door.send("counter", "100 0.1", configuration={"blocking": False})["id"]
    params = {name: f"tasks/{task}" if name == "name" else task for name in names}
    assert door.call("tasks/get", params)["id"] == task
    assert door.call("tasks/cancel", params)["status"]["state"] == "canceled"


def test_s5_05_two_names_that_differ_name_nothing(door: Door) -> None:
    for method in ("tasks/get", "tasks/cancel"):
        assert door.code(method, {"id": NO_TASK, "task_id": f"{NO_TASK}0"}) == -32602


def test_s5_06_rest_has_its_addresses(door: Door, receiver: Receiver) -> None:
    sent = door.post(f"{REST}/message:send", said("1", "counter"))
    assert (sent.status_code, texts(sent.json())) == (200, "0 ")
    task = sent.json()
    assert door.get(f"{REST}/tasks/{task['id']}").json() == task
    with door.opened_at(f"{REST}/message:stream", said("2", "counter")) as stream:
        events = [frame.data for frame in stream]
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert [events[0]["kind"], events[-1]["final"]] == ["task", True]
    running = door.post(f"{REST}/message:send", said("100 0.1", "counter", configuration={"blocking": False})).json()
    assert door.post(f"{REST}/tasks/{running['id']}:cancel", {}).json()["status"]["state"] == "canceled"
    configs = f"{REST}/tasks/{task['id']}/pushNotificationConfigs"
    kept = door.post(configs, {"url": receiver.url, "id": "c1"}).json()
    assert kept["pushNotificationConfig"]["id"] == "c1"
    assert door.get(f"{configs}/c1").json() == kept
    assert door.get(configs).json() == [kept]
    assert door.http.delete(f"{configs}/c1").status_code == 200
    assert door.get(configs).json() == []


@pytest.mark.parametrize(
    ("verb", "path", "status"),
    [
        ("GET", f"{REST}/tasks/{NO_TASK}", 404),
        ("POST", f"{REST}/tasks/{NO_TASK}:cancel", 404),
        ("GET", f"{REST}/tasks/{NO_TASK}?historyLength=-1", 400),
        ("DELETE", f"{REST}/tasks/{NO_TASK}", 405),
        ("GET", f"{REST}/message:send", 405),
    ],
)
def test_s5_06_rest_says_in_http_what_is_wrong(door: Door, verb: str, path: str, status: int) -> None:
    response = door.http.request(verb, path)
    assert response.status_code == status
    assert response.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/", "/a2a/jsonrpc", "/v1/a2a"])
def test_s5_06_json_rpc_is_the_same_at_each_of_its_addresses(door: Door, path: str) -> None:
    task = door.call("message/send", said("2", "counter"), path)
    assert door.call("tasks/get", {"id": task["id"]}, path) == task
    assert door.events("tasks/resubscribe", {"id": task["id"]}, path)[0]["id"] == task["id"]


@pytest.mark.parametrize(
    ("said_by_worker", "told", "ends"),
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
def test_s5_07_each_state_has_one_spelling_and_ends_a_task_or_not(
    door: Door, parrot: Parrot, said_by_worker: str, told: str, ends: bool
) -> None:
    script = json.dumps([parrot.status(said_by_worker, "so it is"), 0.1, parrot.status("failed", "later")])
    first, told_first, *_ = door.events("message/stream", said(script, "parrot"))
    assert told_first["status"]["state"] == told
    if ends:
        assert door.call("tasks/get", {"id": first["id"]})["status"]["state"] == told
        assert door.call("GetTask", {"id": first["id"]})["status"]["state"] == f"TASK_STATE_{told.upper()}"
    else:
        assert door.until(first["id"], "failed")


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
def test_s5_08_tasks_take_each_way_that_the_picture_shows(door: Door, parrot: Parrot, way: list[str]) -> None:
    script = json.dumps([parrot.status(state, f"now {state}") for state in way[1:]])
    events = door.events("message/stream", said(script, "parrot"))
    assert [event["status"]["state"] for event in events] == way


def test_s5_09_what_the_hub_has_no_code_for_goes_out_under_one_with_a_reason(door: Door) -> None:
    """-32007 to -32009 have meanings of their own since: an agent that is not there is none of them."""
    error = door.error("message/send", said("1", "nobody"))
    assert (error["code"], error["data"][0]["reason"]) == (-32000, "ROLE_UNKNOWN")
    assert "counter" in error["message"]
    with door.enrolled("absent:x", NOWHERE):
        error = door.error("message/send", said("1", "absent"))
    assert (error["code"], error["data"][0]["reason"]) == (-32000, "WORKER_UNREACHABLE")
    error = door.error("message/send", said("1", "absent"))
    assert (error["code"], error["data"][0]["reason"]) == (-32000, "NO_LIVE_WORKER")


def test_s5_09_the_codes_of_the_specification_keep_their_meaning(door: Door, parrot: Parrot) -> None:
    task = door.send("counter", "1")["id"]
    assert door.code("tasks/get", {"id": NO_TASK}) == -32001
    assert door.code("tasks/cancel", {"id": task}) == -32002
    assert door.code("SubscribeToTask", {"id": task}) == -32004
    for code in (-32003, -32005, -32006):
        with Refusal(code) as refusal, door.enrolled("refusing:x", refusal.url):
            assert door.code("message/send", said("1", "refusing")) == code


class Refusal(Receiver):
    """A worker that answers every call with one error."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.said = {"code": code, "message": "the worker's own words"}

    def reply(self, body: dict[str, Any]) -> bytes:
        return json.dumps({"jsonrpc": "2.0", "id": body.get("id"), "error": self.said}).encode()
