"""What a caller of a single 0.3 agent relies on: its card, JSON-RPC, streams, cancelling, and a question in the middle."""

from __future__ import annotations

import json
import re
import time
from itertools import pairwise
from typing import Any

import pytest

from tests.seeds.door import NO_TASK, RPC, Door, asked, data, said, texts, together
from tests.seeds.strangers import Parrot
from tests.seeds.workers import SKILL

CARD = "/.well-known/agent-card.json"
COUNTER_CARD = f"/agents/counter{CARD}"
UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def test_s1_01_the_card_is_json_at_the_well_known_address(door: Door) -> None:
    response = door.get(CARD)
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
def test_s1_02_one_address_takes_every_method(door: Door, method: str, code: int | None) -> None:
    """Without its params each method says what it lacks; only a name that is none is unknown."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {}}
    text = door.post("/a2a/jsonrpc", body).text
    document = json.loads(text.removeprefix("data: "))
    assert document.get("error", {}).get("code") == code


def test_s1_03_the_card_has_the_fields_of_0_3(door: Door) -> None:
    for path in (CARD, COUNTER_CARD):
        card = door.get(path).json()
        assert card["protocolVersion"] == "0.3.0"
        for field in ("name", "description", "version", "url"):
            assert isinstance(card[field], str), field
            assert card[field]
        flags = {card["capabilities"][name] for name in ("streaming", "pushNotifications", "stateTransitionHistory")}
        assert flags <= {True, False}
        for field in ("defaultInputModes", "defaultOutputModes", "skills"):
            assert isinstance(card[field], list), field
            assert card[field]


def test_s1_04_a_workers_skill_is_shown_as_it_was_offered(door: Door) -> None:
    assert door.get(COUNTER_CARD).json()["skills"] == [SKILL]


def test_s1_05_what_the_card_calls_its_address_answers_there(door: Door) -> None:
    for path in (CARD, COUNTER_CARD):
        address = door.get(path).json()["url"]
        assert address.startswith(door.url)
        assert texts(door.call("message/send", said("2", "counter"), address)) == "0 1 "


def test_s1_06_the_card_of_a_role_has_the_roles_name(door: Door) -> None:
    for role in ("counter", "asker"):
        assert door.get(f"/agents/{role}{CARD}").json()["name"] == role


def test_s1_08_a_blocking_message_is_answered_with_the_end_or_a_question(door: Door) -> None:
    began = time.monotonic()
    task = door.send("counter", "4 0.1", configuration={"blocking": True})
    assert (task["status"]["state"], texts(task)) == ("completed", "0 1 2 3 ")
    assert time.monotonic() - began > 0.3
    assert door.send("asker", "begin", configuration={"blocking": True})["status"]["state"] == "input-required"


def test_s1_09_a_message_with_all_its_members_is_taken_and_kept(door: Door) -> None:
    params = said("1", "counter", messageId="m-1 of the caller")
    kept = door.call("message/send", params)["history"][0]
    assert {name: kept[name] for name in ("kind", "messageId", "role", "parts")} == params["message"]


@pytest.mark.parametrize("call", [0, 7, -3, 2**53, "7", "a-1", "ß"])
def test_s1_10_the_id_of_a_request_comes_back_as_it_was(door: Door, call: Any) -> None:
    answers = [door.answer("tasks/get", {"id": NO_TASK}, call=call), door.answer("ListTasks", {"pageSize": 1}, call=call)]
    assert all(type(answer["id"]) is type(call) for answer in answers)


def test_s1_11_the_result_is_a_whole_task(door: Door) -> None:
    task = door.send("counter", "2")
    assert task["kind"] == "task"
    assert task["id"]
    assert task["contextId"]
    assert task["status"].keys() >= {"state", "timestamp"}
    assert [artifact["artifactId"] for artifact in task["artifacts"]]
    assert [message["role"] for message in task["history"]] == ["user", "agent"]


def test_s1_12_moments_are_utc_with_a_z(door: Door) -> None:
    events = door.events("message/stream", said("2", "counter"))
    moments = [event["status"]["timestamp"] for event in events if "status" in event]
    assert len(moments) >= 3
    assert all(UTC.fullmatch(moment) for moment in moments)


def test_s1_13_a_stream_is_an_event_stream(door: Door) -> None:
    with door.opened("message/stream", said("1", "counter")) as stream:
        assert (stream.status, stream.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
        assert list(stream)


def test_s1_14_every_frame_is_a_response_to_the_request(door: Door) -> None:
    """Bare results are about, but no client of the specification could read them."""
    frames = door.stream("message/stream", said("2", "counter"))
    assert len(frames) > 4
    for frame in frames:
        assert (frame.data["jsonrpc"], frame.data["id"], frame.event) == ("2.0", 1, None)
        assert frame.result["kind"]


def test_s1_15_a_status_update_names_its_task_and_says_whether_it_is_the_last(door: Door) -> None:
    task, *events = door.events("message/stream", said("2", "counter"))
    updates = [event for event in events if event["kind"] == "status-update"]
    assert [update["status"]["state"] for update in updates] == ["working", "completed"]
    assert [update["final"] for update in updates] == [False, True]
    assert all((update["taskId"], update["contextId"]) == (task["id"], task["contextId"]) for update in updates)


def test_s1_16_an_artifact_grows_by_chunks_under_one_id(door: Door) -> None:
    task, *events = door.events("message/stream", said("3", "counter"))
    chunks = [event for event in events if event["kind"] == "artifact-update"]
    assert all((chunk["taskId"], chunk["contextId"]) == (task["id"], task["contextId"]) for chunk in chunks)
    text = [chunk for chunk in chunks if "name" not in chunk["artifact"]]
    assert len({chunk["artifact"]["artifactId"] for chunk in text}) == 1
    assert [chunk["append"] for chunk in text] == [False, True, True, True]
    (named,) = [chunk["artifact"] for chunk in chunks if "name" in chunk["artifact"]]
    assert (named["name"], named["parts"]) == ("sum", [{"kind": "data", "data": {"counted": 3}}])


def test_s1_17_an_agents_words_about_its_progress_arrive_as_it_said_them(door: Door, parrot: Parrot) -> None:
    word = parrot.status("working", "Using tool: grep")
    word["status"]["message"]["metadata"] = {"tool": {"name": "grep", "kind": "search"}}
    script = json.dumps([word, parrot.status("completed")])
    _, heard, _ = door.events("message/stream", said(script, "parrot"))
    message = dict(heard["status"]["message"])
    assert (message.pop("taskId", heard["taskId"]), message.pop("contextId")) == (heard["taskId"], heard["contextId"])
    assert message == word["status"]["message"]


@pytest.mark.parametrize("value", [{}, {"kind": "text", "n": 1.0, "list": [None, {"a": []}]}, {"text": "no text part"}])
def test_s1_18_data_parts_pass_untouched(door: Door, parrot: Parrot, value: dict[str, Any]) -> None:
    script = json.dumps([parrot.artifact({"kind": "data", "data": value}), parrot.status("completed")])
    task = door.send("parrot", script)
    assert data(task) == value
    assert json.dumps(data(task)) == json.dumps(value)


def test_s1_19_nothing_follows_the_final_event(door: Door, parrot: Parrot) -> None:
    script = json.dumps([parrot.status("completed"), parrot.status("working", "one more"), parrot.status("failed")])
    events = door.events("message/stream", said(script, "parrot"))
    assert [event["status"]["state"] for event in events] == ["submitted", "completed"]
    assert [event.get("final") for event in events] == [None, True]


@pytest.mark.parametrize("name", ["id", "taskId"])
def test_s1_20_a_task_is_fetched_by_either_name_of_its_id(door: Door, name: str) -> None:
    task = door.send("counter", "1")
    assert door.call("tasks/get", {name: task["id"]}) == task


@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel", "tasks/pushNotificationConfig/get"])
def test_s1_21_an_unknown_task_is_not_found(door: Door, method: str) -> None:
    assert door.code(method, {"id": NO_TASK}) == -32001


@pytest.mark.parametrize("name", ["id", "taskId"])
def test_s1_22_a_task_is_canceled_by_either_name_of_its_id(door: Door, name: str) -> None:
    task = door.send("counter", "100 0.1", configuration={"blocking": False})
    assert door.call("tasks/cancel", {name: task["id"]})["status"]["state"] == "canceled"


def test_s1_23_canceling_ends_a_task_at_work(door: Door) -> None:
    """What the worker does about it is the SDK's: see tests/unit/worker_sdk."""
    task = door.send("counter", "1000 0.05", configuration={"blocking": False})
    assert task["status"]["state"] == "working"
    canceled = door.call("tasks/cancel", {"id": task["id"]})
    assert (canceled["id"], canceled["status"]["state"]) == (task["id"], "canceled")
    assert door.call("tasks/get", {"id": task["id"]})["status"] == canceled["status"]


def test_s1_24_canceling_what_has_ended_is_refused_and_changes_nothing(door: Door) -> None:
    """Some take it for a no-op. The specification has a code for it, which tells callers what they did not achieve."""
    task = door.send("counter", "1")
    assert door.code("tasks/cancel", {"id": task["id"]}) == -32002
    assert door.call("tasks/get", {"id": task["id"]}) == task


@pytest.mark.parametrize("end", ["completed", "failed", "canceled", "input-required"])
def test_s1_30_a_task_goes_from_submitted_over_working_to_any_end(door: Door, parrot: Parrot, end: str) -> None:
    script = json.dumps([parrot.status("working"), parrot.status(end, "so it is")])
    events = door.events("message/stream", said(script, "parrot"))
    assert [event["status"]["state"] for event in events] == ["submitted", "working", end]
    assert events[-1]["final"] is True


def test_s1_32_an_answer_that_names_the_conversation_alone_reaches_the_one_task_that_asks(door: Door) -> None:
    question = door.send("asker", "begin")
    answered = door.send("asker", "blue", contextId=question["contextId"])
    assert (answered["id"], answered["status"]["state"], texts(answered)) == (question["id"], "completed", "blue it is")


def test_s1_32_with_two_questions_open_the_conversation_alone_is_a_new_task(door: Door) -> None:
    first = door.send("asker", "begin")
    context = first["contextId"]
    second = door.call("SendMessage", asked("begin", "asker", contextId=context))["task"]
    assert second["id"] != first["id"]
    third = door.send("asker", "blue", contextId=context)
    assert third["id"] not in (first["id"], second["id"])
    assert (third["contextId"], third["status"]["state"]) == (context, "input-required")


@pytest.mark.parametrize(
    ("body", "code", "call"),
    [
        (b'{"jsonrpc": "2.0", "id": 1, ', -32700, None),
        (b'"\xff"', -32700, None),
        (b'{"jsonrpc": "2.0", "id": 1}', -32600, 1),
        (b'{"jsonrpc": "2.0", "method": "tasks/get"}', -32600, None),
        (b'{"id": 1, "method": "tasks/get"}', -32600, 1),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tasks/purge"}', -32601, 1),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "none"}}', -32001, 1),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tasks/cancel", "params": {"id": "none"}}', -32001, 1),
    ],
)
def test_s1_33_each_fault_has_its_code(door: Door, body: bytes, code: int, call: int | None) -> None:
    document = door.post(RPC, body).json()
    assert (document["error"]["code"], document["id"]) == (code, call)


def test_s1_34_a_stream_is_written_as_it_happens(door: Door) -> None:
    """Eight pauses of a tenth of a second: whoever collects them would give all frames at once."""
    frames = door.stream("message/stream", said("8 0.1", "counter"), Accept="text/event-stream")
    chunks = [frame.at for frame in frames if frame.result["kind"] == "artifact-update"]
    gaps = [later - earlier for earlier, later in pairwise(chunks)]
    assert len([gap for gap in gaps if gap > 0.05]) >= 4


def test_s1_35_a_request_that_cannot_be_parsed_is_answered_in_json_rpc(door: Door) -> None:
    response = door.post(RPC, b"{")
    assert (response.status_code, response.json()["error"]["code"]) == (200, -32700)


def test_s1_36_two_messages_at_the_same_time_are_two_tasks(door: Door) -> None:
    tasks = together(*(lambda: door.send("counter", "3 0.05") for _ in range(2)))
    assert [texts(task) for task in tasks] == ["0 1 2 "] * 2
    assert len({task["id"] for task in tasks}) == 2


def test_s1_37_the_event_of_a_cancellation_names_the_conversation(door: Door) -> None:
    with door.opened("message/stream", said("1000 0.05", "counter")) as stream:
        frames = iter(stream)
        task = next(frames).result
        door.call("tasks/cancel", {"id": task["id"]})
        *_, last = frames
    assert last.result["status"]["state"] == "canceled"
    assert (last.result["taskId"], last.result["contextId"]) == (task["id"], task["contextId"])


def test_s1_38_the_result_comes_before_the_word_that_it_is_done(door: Door) -> None:
    events = door.events("message/stream", said("2", "counter"))
    places = {event["kind"]: at for at, event in enumerate(events)}
    assert places["artifact-update"] < places["status-update"] == len(events) - 1
    assert texts(door.call("tasks/get", {"id": events[0]["id"]})) == "0 1 "
