"""What a caller of a single 0.3 agent relies on: its card, JSON-RPC, streams, cancelling, and a question in the middle."""

from __future__ import annotations

import json
import re
import time
from itertools import pairwise
from typing import Any

import pytest

from tests.seeds.door import NO_TASK, RPC, RawClient, data, message_v03, message_v10, texts, together
from tests.seeds.strangers import ScriptedAgent
from tests.seeds.workers import SKILL

CARD = "/.well-known/agent-card.json"
COUNTER_CARD = f"/agents/counter{CARD}"
UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def test_s1_01_the_card_is_json_at_the_well_known_address(client: RawClient) -> None:
    response = client.get(CARD)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    assert response.json()["name"]


@pytest.mark.parametrize(
    ("method", "code"),
    [
        ("message/send", -32602),
        ("message/stream", -32602),
        ("tasks/get", -32602),
        ("tasks/cancel", -32602),
        ("tasks/resubscribe", -32602),
        ("tasks/pushNotificationConfig/set", -32602),
        ("tasks/pushNotificationConfig/get", -32602),
        ("tasks/pushNotificationConfig/list", -32602),
        ("tasks/pushNotificationConfig/delete", -32602),
        ("agent/getAuthenticatedExtendedCard", -32007),
        ("ListTasks", None),
        ("tasks/list", None),
        ("tasks/purge", -32601),
    ],
)
def test_s1_02_one_address_accepts_every_method(client: RawClient, method: str, code: int | None) -> None:
    """Without params each method reports what is missing; only a name that does not exist is unknown."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {}}
    text = client.post("/a2a/jsonrpc", body).text
    document = json.loads(text.removeprefix("data: "))
    assert document.get("error", {}).get("code") == code


def test_s1_03_the_card_has_the_fields_of_0_3(client: RawClient) -> None:
    for path in (CARD, COUNTER_CARD):
        card = client.get(path).json()
        assert card["protocolVersion"] == "0.3.0"
        for field in ("name", "description", "version", "url"):
            assert isinstance(card[field], str), field
            assert card[field]
        flags = {card["capabilities"][name] for name in ("streaming", "pushNotifications", "stateTransitionHistory")}
        assert flags <= {True, False}
        for field in ("defaultInputModes", "defaultOutputModes", "skills"):
            assert isinstance(card[field], list), field
            assert card[field]


def test_s1_04_a_workers_skill_is_shown_as_it_was_offered(client: RawClient) -> None:
    assert client.get(COUNTER_CARD).json()["skills"] == [SKILL]


def test_s1_05_calls_work_at_the_address_on_the_card(client: RawClient) -> None:
    for path in (CARD, COUNTER_CARD):
        address = client.get(path).json()["url"]
        assert address.startswith(client.url)
        assert texts(client.call("message/send", message_v03("2", "counter"), address)) == "0 1 "


def test_s1_06_the_card_of_a_role_has_the_roles_name(client: RawClient) -> None:
    for role in ("counter", "asker"):
        assert client.get(f"/agents/{role}{CARD}").json()["name"] == role


def test_s1_08_a_blocking_message_returns_at_the_end_or_at_a_question(client: RawClient) -> None:
    began = time.monotonic()
    task = client.send("counter", "4 0.1", configuration={"blocking": True})
    assert (task["status"]["state"], texts(task)) == ("completed", "0 1 2 3 ")
    assert time.monotonic() - began > 0.3
    assert client.send("asker", "begin", configuration={"blocking": True})["status"]["state"] == "input-required"


def test_s1_09_a_message_keeps_all_its_members(client: RawClient) -> None:
    params = message_v03("1", "counter", messageId="m-1 of the caller")
    kept = client.call("message/send", params)["history"][0]
    assert {name: kept[name] for name in ("kind", "messageId", "role", "parts")} == params["message"]


@pytest.mark.parametrize("call", [0, 7, -3, 2**53, "7", "a-1", "ß"])
def test_s1_10_the_id_of_a_request_is_returned_unchanged(client: RawClient, call: Any) -> None:
    answers = [client.answer("tasks/get", {"id": NO_TASK}, call=call), client.answer("ListTasks", {"pageSize": 1}, call=call)]
    assert all(type(answer["id"]) is type(call) for answer in answers)


def test_s1_11_the_result_is_a_whole_task(client: RawClient) -> None:
    task = client.send("counter", "2")
    assert task["kind"] == "task"
    assert task["id"]
    assert task["contextId"]
    assert task["status"].keys() >= {"state", "timestamp"}
    assert [artifact["artifactId"] for artifact in task["artifacts"]]
    assert [message["role"] for message in task["history"]] == ["user", "agent"]


def test_s1_12_timestamps_are_utc_with_a_z(client: RawClient) -> None:
    events = client.events("message/stream", message_v03("2", "counter"))
    moments = [event["status"]["timestamp"] for event in events if "status" in event]
    assert len(moments) >= 3
    assert all(UTC.fullmatch(moment) for moment in moments)


def test_s1_13_a_stream_is_an_event_stream(client: RawClient) -> None:
    with client.opened("message/stream", message_v03("1", "counter")) as stream:
        assert (stream.status, stream.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
        assert list(stream)


def test_s1_14_every_frame_is_a_response_to_the_request(client: RawClient) -> None:
    """Some servers send bare results, but no client of the specification can read them."""
    frames = client.stream("message/stream", message_v03("2", "counter"))
    assert len(frames) > 4
    for frame in frames:
        assert (frame.data["jsonrpc"], frame.data["id"], frame.event) == ("2.0", 1, None)
        assert frame.result["kind"]


def test_s1_15_a_status_update_has_its_task_id_and_a_final_flag(client: RawClient) -> None:
    task, *events = client.events("message/stream", message_v03("2", "counter"))
    updates = [event for event in events if event["kind"] == "status-update"]
    assert [update["status"]["state"] for update in updates] == ["working", "completed"]
    assert [update["final"] for update in updates] == [False, True]
    assert all((update["taskId"], update["contextId"]) == (task["id"], task["contextId"]) for update in updates)


def test_s1_16_an_artifact_grows_by_chunks_under_one_id(client: RawClient) -> None:
    task, *events = client.events("message/stream", message_v03("3", "counter"))
    chunks = [event for event in events if event["kind"] == "artifact-update"]
    assert all((chunk["taskId"], chunk["contextId"]) == (task["id"], task["contextId"]) for chunk in chunks)
    text = [chunk for chunk in chunks if "name" not in chunk["artifact"]]
    assert len({chunk["artifact"]["artifactId"] for chunk in text}) == 1
    assert [chunk["append"] for chunk in text] == [False, True, True, True]
    (named,) = [chunk["artifact"] for chunk in chunks if "name" in chunk["artifact"]]
    assert (named["name"], named["parts"]) == ("sum", [{"kind": "data", "data": {"counted": 3}}])


def test_s1_17_progress_messages_of_an_agent_arrive_unchanged(client: RawClient, scripted: ScriptedAgent) -> None:
    word = scripted.status("working", "Using tool: grep")
    word["status"]["message"]["metadata"] = {"tool": {"name": "grep", "kind": "search"}}
    script = json.dumps([word, scripted.status("completed")])
    _, update, _ = client.events("message/stream", message_v03(script, "parrot"))
    message = dict(update["status"]["message"])
    assert (message.pop("taskId", update["taskId"]), message.pop("contextId")) == (update["taskId"], update["contextId"])
    assert message == word["status"]["message"]


@pytest.mark.parametrize("value", [{}, {"kind": "text", "n": 1.0, "list": [None, {"a": []}]}, {"text": "no text part"}])
def test_s1_18_data_parts_are_not_changed(client: RawClient, scripted: ScriptedAgent, value: dict[str, Any]) -> None:
    script = json.dumps([scripted.artifact({"kind": "data", "data": value}), scripted.status("completed")])
    task = client.send("parrot", script)
    assert data(task) == value
    assert json.dumps(data(task)) == json.dumps(value)


def test_s1_19_nothing_follows_the_final_event(client: RawClient, scripted: ScriptedAgent) -> None:
    script = json.dumps([scripted.status("completed"), scripted.status("working", "one more"), scripted.status("failed")])
    events = client.events("message/stream", message_v03(script, "parrot"))
    assert [event["status"]["state"] for event in events] == ["submitted", "completed"]
    assert [event.get("final") for event in events] == [None, True]


@pytest.mark.parametrize("name", ["id", "taskId"])
def test_s1_20_a_task_is_read_with_either_name_of_its_id(client: RawClient, name: str) -> None:
    task = client.send("counter", "1")
    assert client.call("tasks/get", {name: task["id"]}) == task


@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel", "tasks/pushNotificationConfig/get"])
def test_s1_21_an_unknown_task_is_not_found(client: RawClient, method: str) -> None:
    assert client.code(method, {"id": NO_TASK}) == -32001


@pytest.mark.parametrize("name", ["id", "taskId"])
def test_s1_22_a_task_is_canceled_with_either_name_of_its_id(client: RawClient, name: str) -> None:
    task = client.send("counter", "100 0.1", configuration={"blocking": False})
    assert client.call("tasks/cancel", {name: task["id"]})["status"]["state"] == "canceled"


def test_s1_23_canceling_ends_a_running_task(client: RawClient) -> None:
    """tests/unit/worker_sdk covers the worker's side."""
    task = client.send("counter", "1000 0.05", configuration={"blocking": False})
    assert task["status"]["state"] == "working"
    canceled = client.call("tasks/cancel", {"id": task["id"]})
    assert (canceled["id"], canceled["status"]["state"]) == (task["id"], "canceled")
    assert client.call("tasks/get", {"id": task["id"]})["status"] == canceled["status"]


def test_s1_24_canceling_an_ended_task_is_refused_and_changes_nothing(client: RawClient) -> None:
    """Some systems treat it as a no-op. The specification has a code for it, so the caller knows that nothing was canceled."""
    task = client.send("counter", "1")
    assert client.code("tasks/cancel", {"id": task["id"]}) == -32002
    assert client.call("tasks/get", {"id": task["id"]}) == task


@pytest.mark.parametrize("end", ["completed", "failed", "canceled", "input-required"])
def test_s1_30_a_task_goes_from_submitted_to_working_to_any_end(client: RawClient, scripted: ScriptedAgent, end: str) -> None:
    script = json.dumps([scripted.status("working"), scripted.status(end, "so it is")])
    events = client.events("message/stream", message_v03(script, "parrot"))
    assert [event["status"]["state"] for event in events] == ["submitted", "working", end]
    assert events[-1]["final"] is True


def test_s1_32_an_answer_with_only_the_context_id_reaches_the_one_paused_task(client: RawClient) -> None:
    question = client.send("asker", "begin")
    answered = client.send("asker", "blue", contextId=question["contextId"])
    assert (answered["id"], answered["status"]["state"], texts(answered)) == (question["id"], "completed", "blue it is")


def test_s1_32_with_two_paused_tasks_a_context_id_alone_creates_a_new_task(client: RawClient) -> None:
    first = client.send("asker", "begin")
    context = first["contextId"]
    second = client.call("SendMessage", message_v10("begin", "asker", contextId=context))["task"]
    assert second["id"] != first["id"]
    later = client.send("asker", "blue", contextId=context)
    assert later["id"] not in (first["id"], second["id"])
    assert (later["contextId"], later["status"]["state"]) == (context, "input-required")


@pytest.mark.parametrize(
    ("body", "code", "call"),
    [
        (b'{"jsonrpc": "2.0", "id": 1, ', -32700, None),
        (b'"\xff"', -32700, None),
        (b'{"jsonrpc": "2.0", "id": 1}', -32600, 1),
        (b'{"jsonrpc": "2.0", "method": "tasks/get"}', -32602, None),
        (b'{"id": 1, "method": "tasks/get"}', -32600, 1),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tasks/purge"}', -32601, 1),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "none"}}', -32001, 1),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tasks/cancel", "params": {"id": "none"}}', -32001, 1),
    ],
)
def test_s1_33_each_fault_has_its_code(client: RawClient, body: bytes, code: int, call: int | None) -> None:
    document = client.post(RPC, body).json()
    assert (document["error"]["code"], document["id"]) == (code, call)


def test_s1_34_stream_events_are_sent_as_they_occur(client: RawClient) -> None:
    """Eight pauses of 0.1 s: a server that buffers would send all frames at once."""
    frames = client.stream("message/stream", message_v03("8 0.1", "counter"), Accept="text/event-stream")
    chunks = [frame.at for frame in frames if frame.result["kind"] == "artifact-update"]
    pauses = [later - earlier for earlier, later in pairwise(chunks)]
    assert len([pause for pause in pauses if pause > 0.05]) >= 4


def test_s1_35_a_request_that_cannot_be_parsed_is_answered_in_json_rpc(client: RawClient) -> None:
    response = client.post(RPC, b"{")
    assert (response.status_code, response.json()["error"]["code"]) == (200, -32700)


def test_s1_36_two_concurrent_messages_are_two_tasks(client: RawClient) -> None:
    tasks = together(*(lambda: client.send("counter", "3 0.05") for _ in range(2)))
    assert [texts(task) for task in tasks] == ["0 1 2 "] * 2
    assert len({task["id"] for task in tasks}) == 2


def test_s1_37_the_event_of_a_cancellation_has_the_context_id(client: RawClient) -> None:
    with client.opened("message/stream", message_v03("1000 0.05", "counter")) as stream:
        frames = iter(stream)
        task = next(frames).result
        client.call("tasks/cancel", {"id": task["id"]})
        *_, last = frames
    assert last.result["status"]["state"] == "canceled"
    assert (last.result["taskId"], last.result["contextId"]) == (task["id"], task["contextId"])


def test_s1_38_the_result_comes_before_the_final_status(client: RawClient) -> None:
    events = client.events("message/stream", message_v03("2", "counter"))
    positions = {event["kind"]: at for at, event in enumerate(events)}
    assert positions["artifact-update"] < positions["status-update"] == len(events) - 1
    assert texts(client.call("tasks/get", {"id": events[0]["id"]})) == "0 1 "
