"""The oldest names: the caller chooses the task's id, does not wait, and gets states rather than messages."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.processes import HubProcess, start_hub
from tests.seeds.conftest import Locked
from tests.seeds.door import RawClient, message_v01, message_v03, texts, together, wait
from tests.seeds.oldest import GET, ROOT_PATH, SET, UTC, finished, fresh, subscribe_frames
from tests.seeds.strangers import Receiver, ScriptedAgent


def test_s4_01_calls_go_to_the_root_and_streams_to_subscribe(client: RawClient) -> None:
    assert client.call("tasks/send", message_v01("1", fresh(), "counter"), ROOT_PATH)["status"]["state"]
    assert subscribe_frames(client, message_v01("1", fresh(), "counter"))[-1].result["final"] is True
    other = client.post("/subscribe", {"jsonrpc": "2.0", "id": 1, "method": "tasks/send", "params": {}})
    assert (other.status_code, other.json()) == (400, {"error": "Only tasks/sendSubscribe supported"})


def test_s4_02_the_card_is_at_its_old_address(client: RawClient) -> None:
    response = client.get("/.well-known/agent.json")
    assert (response.status_code, response.json()["name"]) == (200, "Rolecall")


def test_s4_03_every_old_method_works(client: RawClient, receiver: Receiver) -> None:
    task, params = fresh(), {"sessionId": "s-1", "historyLength": 2, "metadata": {"role": "counter", "note": "n"}}
    sent = client.call("tasks/send", {**message_v01("30 0.1", task), **params}, ROOT_PATH)
    assert (sent["id"], sent["sessionId"]) == (task, "s-1")
    assert client.call("tasks/get", {"id": task}, ROOT_PATH)["id"] == task
    hook = {"id": task, "pushNotificationConfig": {"url": receiver.url}}
    assert client.call(SET, hook, ROOT_PATH)["id"] == task
    assert client.call(GET, {"id": task}, ROOT_PATH)["pushNotificationConfig"]["url"] == receiver.url
    assert client.call("tasks/cancel", {"id": task}, ROOT_PATH)["status"]["state"] == "canceled"
    again = client.stream("tasks/resubscribe", {"id": task}, ROOT_PATH)
    assert [(frame.result["id"], frame.result["final"]) for frame in again] == [(task, True)]
    streamed = client.stream("tasks/sendSubscribe", message_v01("1", fresh(), "counter"), ROOT_PATH)
    assert streamed[-1].result["status"]["state"] == "completed"


def test_s4_04_the_error_names_an_unknown_method(client: RawClient) -> None:
    error = client.error("tasks/sendAgain", {}, ROOT_PATH)
    assert (error["code"], error["message"]) == (-32601, "Method not found: tasks/sendAgain")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"jsonrpc": "2.0", "method"', -32700),
        (b'{"id": 1, "method": "tasks/send", "params": {}}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "params": {}}', -32600),
        (b'{"jsonrpc": "2.0", "method": "tasks/send", "params": {}}', -32602),
    ],
)
def test_s4_05_an_invalid_request_is_refused_with_its_code(client: RawClient, body: bytes, code: int) -> None:
    """Without an id a request is checked as any other."""
    assert client.post(ROOT_PATH, body).json()["error"]["code"] == code


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ("submitted", "submitted"),
        ("working", "working"),
        ("input-required", "input-required"),
        ("completed", "completed"),
        ("failed", "failed"),
        ("canceled", "canceled"),
        ("rejected", "failed"),
        ("auth-required", "input-required"),
    ],
)
def test_s4_06_later_states_become_the_nearest_of_the_six(
    client: RawClient, scripted: ScriptedAgent, state: str, shown: str
) -> None:
    script = json.dumps([scripted.status(state, "so it is"), 0.1, scripted.status("completed")])
    frames = subscribe_frames(client, message_v01(script, fresh(), "parrot"))
    assert frames[1].result["status"]["state"] == shown


def test_s4_07_a_task_has_a_session_and_no_members_of_later_versions(client: RawClient) -> None:
    task = finished(client, "2", sessionId="session-7", metadata={"role": "counter"})
    assert task["sessionId"] == "session-7"
    assert task["status"].keys() >= {"state", "timestamp"}
    assert UTC.fullmatch(task["status"]["timestamp"])
    assert [artifact["index"] for artifact in task["artifacts"]] == [0, 1]
    text = json.dumps(task)
    assert not [name for name in ("kind", "contextId", "messageId", "taskId", "artifactId") if f'"{name}"' in text]
    assert task["history"]


PARTS = [
    {"type": "text", "text": "plain"},
    {"type": "file", "file": {"name": "a.txt", "mimeType": "text/plain", "bytes": "aGk="}},
    {"type": "file", "file": {"name": "b", "mimeType": "text/html", "uri": "https://example.com/b"}},
    {"type": "data", "data": {"n": 1, "type": "text"}},
]


@pytest.mark.parametrize("part", PARTS)
def test_s4_08_parts_have_a_type(client: RawClient, scripted: ScriptedAgent, part: dict[str, Any]) -> None:
    params = message_v01("", fresh(), "mirror")
    params["message"]["parts"] = [part]
    client.call("tasks/send", params, ROOT_PATH)
    wait(lambda: client.call("tasks/get", {"id": params["id"]}, ROOT_PATH)["status"]["state"] == "completed")
    reached = client.call("tasks/get", {"id": params["id"]}, ROOT_PATH)["artifacts"][0]["parts"][0]["data"]["message"]
    assert reached["parts"] == [{"kind": part["type"], **{name: value for name, value in part.items() if name != "type"}}]
    later = {"kind": part["type"], **{name: value for name, value in part.items() if name != "type"}}
    given = finished(client, json.dumps([scripted.artifact(later), scripted.status("completed")]), "parrot")
    assert given["artifacts"][0]["parts"] == [part]


@pytest.mark.parametrize("end", ["completed", "failed", "canceled"])
def test_s4_09_tasks_follow_the_allowed_transitions(client: RawClient, scripted: ScriptedAgent, end: str) -> None:
    script = json.dumps(
        [scripted.status("working"), scripted.status(end), scripted.status("working"), scripted.status("failed")]
    )
    frames = subscribe_frames(client, message_v01(script, fresh(), "parrot"))
    assert [frame.result["status"]["state"] for frame in frames] == ["submitted", "working", end]


def test_s4_10_an_impossible_transition_is_refused(client: RawClient) -> None:
    """A message to an ended task, and a second end."""
    task = finished(client, "1")
    again = message_v01("2", task["id"], "counter")
    for method, params in (("tasks/send", again), ("tasks/cancel", {"id": task["id"]})):
        error = client.error(method, params, ROOT_PATH)
        assert error["code"] == -32002
        assert len(error["message"]) > 20
    assert client.call("tasks/get", {"id": task["id"]}, ROOT_PATH) == task


def test_s4_11_a_task_is_created_read_updated_and_canceled(client: RawClient) -> None:
    """A task store, seen from outside."""
    task = fresh()
    made = client.call("tasks/send", message_v01("1000 0.05", task, "counter"), ROOT_PATH)
    assert made["status"]["state"] == "working"
    wait(lambda: len(texts(client.call("tasks/get", {"id": task}, ROOT_PATH))) > 4)
    assert client.call("tasks/cancel", {"id": task}, ROOT_PATH)["status"]["state"] == "canceled"
    canceled = client.call("tasks/get", {"id": task}, ROOT_PATH)
    assert texts(canceled).startswith("0 1 ")
    assert [entry["state"] for entry in canceled["history"]][-1] == "canceled"


def test_s4_12_history_is_the_list_of_states(client: RawClient) -> None:
    """Here each state with its time; in later versions history holds messages."""
    task = finished(client, "2")
    assert [entry["state"] for entry in task["history"]] == ["working", "working", "completed"]
    assert all(UTC.fullmatch(entry["timestamp"]) for entry in task["history"])
    assert task["history"][-1] == task["status"]
    history = client.send("counter", "2")["history"]
    assert [message["kind"] for message in history] == ["message", "message"]


def test_s4_13_an_unknown_id_creates_a_task_and_a_known_one_answers_its_question(client: RawClient) -> None:
    task = fresh()
    client.call("tasks/send", message_v01("begin", task, "asker"), ROOT_PATH)
    wait(lambda: client.call("tasks/get", {"id": task}, ROOT_PATH)["status"]["state"] == "input-required")
    resumed = client.call("tasks/send", message_v01("blue", task, "asker"), ROOT_PATH)
    assert resumed["id"] == task
    wait(lambda: client.call("tasks/get", {"id": task}, ROOT_PATH)["status"]["state"] == "completed")
    ended = client.call("tasks/get", {"id": task}, ROOT_PATH)
    assert texts(ended) == "blue it is"
    assert [entry["state"] for entry in ended["history"]] == ["working", "input-required", "working", "completed"]


@pytest.mark.parametrize("metadata", [{"role": "nobody"}, {"skill": "juggle"}, {}])
def test_s4_14_a_request_without_a_matching_role_is_a_failed_task(client: RawClient, metadata: dict[str, str]) -> None:
    """Later versions get an error instead, because no task was created."""
    task = fresh()
    params = {**message_v01("1", task), "metadata": metadata}
    failed = client.call("tasks/send", params, ROOT_PATH)
    assert (failed["id"], failed["status"]["state"]) == (task, "failed")
    assert failed["status"]["message"]["parts"][0]["text"].startswith("No matching skill for this request.")
    assert UTC.fullmatch(failed["status"]["timestamp"])
    assert client.code("message/send", {**message_v03("1"), "metadata": metadata}, ROOT_PATH) == -32000


def test_s4_15_sending_does_not_wait_for_the_work(client: RawClient) -> None:
    began = time.monotonic()
    task = client.call("tasks/send", message_v01("100 0.1", fresh(), "counter"), ROOT_PATH)
    assert time.monotonic() - began < 3
    assert task["status"]["state"] in ("submitted", "working")
    client.call("tasks/cancel", {"id": task["id"]}, ROOT_PATH)


def test_s4_15_a_handler_that_raises_fails_its_task(client: RawClient) -> None:
    """With a text for callers only if the handler chose one. Other exceptions stay with the worker."""
    user_error = finished(client, "politely", "failer")
    assert user_error["status"]["message"]["parts"][0]["text"] == "The disk is full."
    failed = finished(client, "otherwise", "failer")
    assert failed["status"]["state"] == "failed"
    assert "secret" not in json.dumps(failed)


def test_s4_16_the_error_names_an_unknown_task(client: RawClient) -> None:
    error = client.error("tasks/get", {"id": "task-none"}, ROOT_PATH)
    assert (error["code"], error["message"]) == (-32001, "Task not found: task-none")


@pytest.mark.parametrize(("length", "states"), [(0, None), (1, ["completed"]), (2, ["working", "completed"])])
def test_s4_16_history_length_selects_the_newest_entries(client: RawClient, length: int, states: list[str] | None) -> None:
    task = finished(client, "1")
    history = client.call("tasks/get", {"id": task["id"], "historyLength": length}, ROOT_PATH).get("history")
    assert (history and [entry["state"] for entry in history]) == states
    assert client.code("tasks/get", {"id": task["id"], "historyLength": -1}, ROOT_PATH) == -32602


def test_s4_17_canceling_an_ended_or_unknown_task_has_its_code(client: RawClient) -> None:
    task = finished(client, "1")
    assert client.code("tasks/cancel", {"id": task["id"]}, ROOT_PATH) == -32002
    assert client.code("tasks/cancel", {"id": fresh()}, ROOT_PATH) == -32001


@pytest.fixture
def full(tmp_path: Path) -> Iterator[RawClient]:
    """A hub that accepts one open task."""
    with start_hub(tmp_path / "hub", max_open_tasks=1) as hub, RawClient(hub.url) as client:
        yield client


def test_s4_18_a_full_hub_refuses_with_its_own_code(full: RawClient, scripted: ScriptedAgent) -> None:
    """-32003 only means that there are no push notifications."""
    with full.enrolled("parrot:p", scripted.url, capabilities={"streaming": True}):
        script = json.dumps([scripted.status("working"), 3])
        first = full.call("tasks/send", message_v01(script, fresh(), "parrot"), ROOT_PATH)
        assert first["status"]["state"] in ("submitted", "working")
        error = full.error("message/send", message_v03("[]", "parrot"), ROOT_PATH)
        assert (error["code"], error["data"][0]["reason"]) == (-32000, "OVERLOADED")


def test_s4_19_a_stream_has_named_events_from_the_first_state_to_the_last(client: RawClient) -> None:
    params = message_v01("2", fresh(), "counter")
    body = {"jsonrpc": "2.0", "id": 5, "method": "tasks/sendSubscribe", "params": params}
    with client.opened_at("/subscribe", body) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert "no-cache" in stream.headers["cache-control"]
        assert "close" not in stream.headers.get("connection", "keep-alive")
        frames = list(stream)
    first, *_, last = frames
    assert {frame.event for frame in frames} == {"status", "artifact"}
    assert all((frame.data["jsonrpc"], frame.data["id"]) == ("2.0", 5) for frame in frames)
    assert (first.event, first.result["id"]) == ("status", params["id"])
    assert first.result["status"]["state"] in ("submitted", "working")
    assert [frame.result.get("final", False) for frame in frames] == [False] * (len(frames) - 1) + [True]
    assert (last.event, last.result["status"]["state"]) == ("status", "completed")
    chunks = [frame.result["artifact"] for frame in frames if frame.event == "artifact"]
    assert texts({"artifacts": chunks}) == "0 1 "


def test_s4_20_a_task_does_not_depend_on_its_stream(client: RawClient) -> None:
    params = message_v01("6 0.1", fresh(), "counter")
    body = {"jsonrpc": "2.0", "id": 5, "method": "tasks/sendSubscribe", "params": params}
    with client.opened_at("/subscribe", body) as stream:
        next(iter(stream))
    wait(lambda: client.call("tasks/get", {"id": params["id"]}, ROOT_PATH)["status"]["state"] == "completed")
    assert texts(client.call("tasks/get", {"id": params["id"]}, ROOT_PATH)) == "0 1 2 3 4 5 "


def test_s4_26_the_card_only_claims_what_the_hub_does(client: RawClient, receiver: Receiver) -> None:
    able = client.get("/.well-known/agent.json").json()["capabilities"]
    assert able["streaming"] is bool(subscribe_frames(client, message_v01("1", fresh(), "counter")))
    task = finished(client, "1")["id"]
    client.call(SET, {"id": task, "pushNotificationConfig": {"url": receiver.url}}, ROOT_PATH)
    receiver.wait(lambda r: bool(r.requests))
    assert able["pushNotifications"] is True
    # In the version of the card, history holds messages.
    assert able["stateTransitionHistory"] is False
    assert able["extendedAgentCard"] is False
    assert client.code("agent/getAuthenticatedExtendedCard", {}) == -32007


@pytest.mark.parametrize("path", ["/.well-known/agent.json", "/agents/counter/.well-known/agent-card.json"])
def test_s4_27_pages_of_other_origins_can_read_the_card(client: RawClient, path: str) -> None:
    for http_method in ("GET", "OPTIONS"):
        response = client.http.request(http_method, path, headers={"Origin": "https://elsewhere.example"})
        assert response.status_code in (200, 204)
        assert response.headers["access-control-allow-origin"] == "*"
        assert {"GET", "OPTIONS"} <= set(response.headers["access-control-allow-methods"].split(", "))


def test_s4_28_a_card_needs_no_token(locked: Locked) -> None:
    """The card names the accepted tokens; with a token in the request, proxies must not cache it."""
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"X-API-Key": "wrong"}, {"Authorization": f"Bearer {locked.token}"}):
        card = locked.client.get("/.well-known/agent.json", **headers)
        assert card.status_code == 200
        assert {one["scheme"] for one in card.json()["securitySchemes"].values() if one["type"] == "http"} == {"bearer"}
        assert ("private" in card.headers["cache-control"]) is bool(headers)
        assert "Authorization" in card.headers["vary"]


@pytest.mark.parametrize("address", [ROOT_PATH, "/subscribe", "/a2a/jsonrpc", "/agents/counter"])
def test_s4_28_everything_else_needs_a_token(locked: Locked, address: str) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"X-API-Key": "wrong"}, {"Authorization": "Basic dTpw"}):
        answer = locked.client.post(address, {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {}}, **headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, -32000)
        assert answer.headers["www-authenticate"].startswith("Bearer")


def test_s4_28_a_token_is_accepted_in_either_header(locked: Locked) -> None:
    for headers in ({"Authorization": f"Bearer {locked.token}"}, {"X-API-Key": locked.token}):
        assert locked.client.code("tasks/get", {"id": "task-none"}, ROOT_PATH, **headers) == -32001


def test_s4_29_the_first_call_of_the_documentation_works_unchanged(other: RawClient, scripted: ScriptedAgent) -> None:
    """With a default role, because such a call names none."""
    text = (
        '{"jsonrpc":"2.0","id":1,"method":"tasks/send","params":{"id":"task-1","sessionId":"session-1",'
        '"message":{"role":"user","parts":[{"type":"text","text":"Look at my figures"}]}}}'
    )
    with other.enrolled("parrot:p", scripted.url, capabilities={"streaming": True}):
        answer = other.post(ROOT_PATH, text.encode()).json()
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", 1)
        assert (answer["result"]["id"], answer["result"]["sessionId"]) == ("task-1", "session-1")
        assert other.until("task-1", "completed", path=ROOT_PATH)["sessionId"] == "session-1"


def test_s4_30_every_answer_is_an_envelope_with_the_right_id(client: RawClient) -> None:
    methods = ("tasks/send", "tasks/get", "tasks/cancel", "tasks/sendSubscribe", "tasks/resubscribe", SET, GET, "none")
    for method in methods:
        for params in ({}, {"id": "none"}, {"id": 7}, {"id": "none", "message": {}}, {"message": None}):
            document = client.answer(method, params, ROOT_PATH, call=f"{method} 1")
            assert document["error"]["code"] in (-32601, -32602, -32001)


def test_s4_31_a_task_id_of_a_caller_belongs_to_that_caller_alone(client: RawClient) -> None:
    """The same id with the same content is the same task. With other content it is a message to that task, which must wait for
    one.
    """
    params = message_v01("20 0.1", fresh(), "counter")
    sent = together(*(lambda: client.call("tasks/send", params, ROOT_PATH) for _ in range(2)))
    assert [task["id"] for task in sent] == [params["id"]] * 2
    assert client.code("tasks/send", message_v01("2", params["id"], "counter"), ROOT_PATH) == -32602
    client.call("tasks/cancel", {"id": params["id"]}, ROOT_PATH)
    without_id = message_v01("1", role="counter")
    del without_id["id"]
    named = [client.call("tasks/send", {**without_id, "sessionId": f"s{n}"}, ROOT_PATH)["id"] for n in range(2)]
    assert len(set(named)) == 2


def test_s4_31_a_stream_whose_reader_disconnects_is_closed(client: RawClient) -> None:
    def open_streams() -> float:
        lines = client.get("/metrics").text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("a2a_hub_streams_active{"))

    before = open_streams()
    params = message_v01("30 0.1", fresh(), "counter")
    body = {"jsonrpc": "2.0", "id": 5, "method": "tasks/sendSubscribe", "params": params}
    with client.opened_at("/subscribe", body) as stream:
        next(iter(stream))
        assert open_streams() == before + 1
    wait(lambda: open_streams() == before, 3)
    client.call("tasks/cancel", {"id": params["id"]}, ROOT_PATH)


def test_s4_32_tasks_are_stored_on_disk(client: RawClient, hub: HubProcess) -> None:
    """For the number see 4.18, for a killed hub see 2.32."""
    finished(client, "1")
    assert any(os.path.getsize(path) for path in hub.data_dir.glob("*.db"))


def test_s4_33_the_first_requests_of_a_tester_work(client: RawClient, locked: Locked) -> None:
    request = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "task-none"}}
    assert locked.client.post(ROOT_PATH, request).status_code == 401
    assert client.post(ROOT_PATH, {"not": "valid jsonrpc"}).json()["error"]["code"] == -32600
    assert len(finished(client, "1")["history"]) >= 2
    frames = subscribe_frames(client, message_v01("1", fresh(), "counter"))
    assert [frame.result.get("final", False) for frame in frames].index(True) == len(frames) - 1
