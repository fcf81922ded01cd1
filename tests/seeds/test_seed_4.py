"""The oldest names: a caller who makes the task's id, waits for nothing, and hears of states rather than of messages."""

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
from tests.seeds.door import Door, said, texts, together, told, wait
from tests.seeds.oldest import DOOR, GET, SET, UTC, finished, fresh, subscribed
from tests.seeds.strangers import Parrot, Receiver


def test_s4_01_calls_go_to_the_root_and_streams_to_subscribe(door: Door) -> None:
    assert door.call("tasks/send", told("1", fresh(), "counter"), DOOR)["status"]["state"]
    assert subscribed(door, told("1", fresh(), "counter"))[-1].result["final"] is True
    other = door.post("/subscribe", {"jsonrpc": "2.0", "id": 1, "method": "tasks/send", "params": {}})
    assert (other.status_code, other.json()) == (400, {"error": "Only tasks/sendSubscribe supported"})


def test_s4_02_the_card_stands_at_its_old_address(door: Door) -> None:
    response = door.get("/.well-known/agent.json")
    assert (response.status_code, response.json()["name"]) == (200, "Rolecall")


def test_s4_03_every_old_method_is_known(door: Door, receiver: Receiver) -> None:
    task, params = fresh(), {"sessionId": "s-1", "historyLength": 2, "metadata": {"role": "counter", "note": "n"}}
    sent = door.call("tasks/send", {**told("30 0.1", task), **params}, DOOR)
    assert (sent["id"], sent["sessionId"]) == (task, "s-1")
    assert door.call("tasks/get", {"id": task}, DOOR)["id"] == task
    hook = {"id": task, "pushNotificationConfig": {"url": receiver.url}}
    assert door.call(SET, hook, DOOR)["id"] == task
    assert door.call(GET, {"id": task}, DOOR)["pushNotificationConfig"]["url"] == receiver.url
    assert door.call("tasks/cancel", {"id": task}, DOOR)["status"]["state"] == "canceled"
    again = door.stream("tasks/resubscribe", {"id": task}, DOOR)
    assert [(frame.result["id"], frame.result["final"]) for frame in again] == [(task, True)]
    streamed = door.stream("tasks/sendSubscribe", told("1", fresh(), "counter"), DOOR)
    assert streamed[-1].result["status"]["state"] == "completed"


def test_s4_04_an_unknown_method_is_named(door: Door) -> None:
    error = door.error("tasks/sendAgain", {}, DOOR)
    assert (error["code"], error["message"]) == (-32601, "Method not found: tasks/sendAgain")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"jsonrpc": "2.0", "method"', -32700),
        (b'{"id": 1, "method": "tasks/send", "params": {}}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "params": {}}', -32600),
        (b'{"jsonrpc": "2.0", "method": "tasks/send", "params": {}}', -32600),
    ],
)
def test_s4_05_what_is_no_request_is_told_so(door: Door, body: bytes, code: int) -> None:
    """Without an id too: a method that nobody hears the answer of is of no use here."""
    assert door.post(DOOR, body).json()["error"]["code"] == code


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
def test_s4_06_six_states_are_spoken_and_later_ones_become_the_nearest(
    door: Door, parrot: Parrot, state: str, shown: str
) -> None:
    script = json.dumps([parrot.status(state, "so it is"), 0.1, parrot.status("completed")])
    frames = subscribed(door, told(script, fresh(), "parrot"))
    assert frames[1].result["status"]["state"] == shown


def test_s4_07_a_task_has_a_session_and_no_words_of_later_versions(door: Door) -> None:
    task = finished(door, "2", sessionId="session-7", metadata={"role": "counter"})
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
def test_s4_08_parts_are_told_apart_by_their_type(door: Door, parrot: Parrot, part: dict[str, Any]) -> None:
    params = told("", fresh(), "mirror")
    params["message"]["parts"] = [part]
    door.call("tasks/send", params, DOOR)
    wait(lambda: door.call("tasks/get", {"id": params["id"]}, DOOR)["status"]["state"] == "completed")
    reached = door.call("tasks/get", {"id": params["id"]}, DOOR)["artifacts"][0]["parts"][0]["data"]["message"]
    assert reached["parts"] == [{"kind": part["type"], **{name: value for name, value in part.items() if name != "type"}}]
    later = {"kind": part["type"], **{name: value for name, value in part.items() if name != "type"}}
    given = finished(door, json.dumps([parrot.artifact(later), parrot.status("completed")]), "parrot")
    assert given["artifacts"][0]["parts"] == [part]


@pytest.mark.parametrize("end", ["completed", "failed", "canceled"])
def test_s4_09_tasks_take_the_ways_that_there_are(door: Door, parrot: Parrot, end: str) -> None:
    script = json.dumps([parrot.status("working"), parrot.status(end), parrot.status("working"), parrot.status("failed")])
    frames = subscribed(door, told(script, fresh(), "parrot"))
    assert [frame.result["status"]["state"] for frame in frames] == ["submitted", "working", end]


def test_s4_10_a_step_that_cannot_be_is_refused_and_not_passed_over(door: Door) -> None:
    """A message to what has ended, and a second end."""
    task = finished(door, "1")
    again = told("2", task["id"], "counter")
    for method, params in (("tasks/send", again), ("tasks/cancel", {"id": task["id"]})):
        error = door.error(method, params, DOOR)
        assert error["code"] == -32002
        assert len(error["message"]) > 20
    assert door.call("tasks/get", {"id": task["id"]}, DOOR) == task


def test_s4_11_a_task_is_made_fetched_moved_on_filled_and_canceled(door: Door) -> None:
    """What a store of tasks does, seen from outside."""
    task = fresh()
    made = door.call("tasks/send", told("1000 0.05", task, "counter"), DOOR)
    assert made["status"]["state"] == "working"
    wait(lambda: len(texts(door.call("tasks/get", {"id": task}, DOOR))) > 4)
    assert door.call("tasks/cancel", {"id": task}, DOOR)["status"]["state"] == "canceled"
    canceled = door.call("tasks/get", {"id": task}, DOOR)
    assert texts(canceled).startswith("0 1 ")
    assert [entry["state"] for entry in canceled["history"]][-1] == "canceled"


def test_s4_12_history_is_what_the_task_went_through(door: Door) -> None:
    """Here each state with its time; in later versions history is what was said."""
    task = finished(door, "2")
    assert [entry["state"] for entry in task["history"]] == ["working", "working", "completed"]
    assert all(UTC.fullmatch(entry["timestamp"]) for entry in task["history"])
    assert task["history"][-1] == task["status"]
    said_so = door.send("counter", "2")["history"]
    assert [message["kind"] for message in said_so] == ["message", "message"]


def test_s4_13_an_unknown_id_makes_a_task_and_a_known_one_answers_its_question(door: Door) -> None:
    task = fresh()
    door.call("tasks/send", told("begin", task, "asker"), DOOR)
    wait(lambda: door.call("tasks/get", {"id": task}, DOOR)["status"]["state"] == "input-required")
    resumed = door.call("tasks/send", told("blue", task, "asker"), DOOR)
    assert resumed["id"] == task
    wait(lambda: door.call("tasks/get", {"id": task}, DOOR)["status"]["state"] == "completed")
    ended = door.call("tasks/get", {"id": task}, DOOR)
    assert texts(ended) == "blue it is"
    assert [entry["state"] for entry in ended["history"]] == ["working", "input-required", "working", "completed"]


@pytest.mark.parametrize("metadata", [{"role": "nobody"}, {"skill": "juggle"}, {}])
def test_s4_14_a_request_that_fits_no_role_is_a_failed_task(door: Door, metadata: dict[str, str]) -> None:
    """Later versions get an error instead: there no task exists that could have failed."""
    task = fresh()
    params = {**told("1", task), "metadata": metadata}
    failed = door.call("tasks/send", params, DOOR)
    assert (failed["id"], failed["status"]["state"]) == (task, "failed")
    assert failed["status"]["message"]["parts"][0]["text"].startswith("No matching skill for this request.")
    assert UTC.fullmatch(failed["status"]["timestamp"])
    assert door.code("message/send", {**said("1"), "metadata": metadata}, DOOR) == -32000


def test_s4_15_sending_does_not_wait_for_the_work(door: Door) -> None:
    began = time.monotonic()
    task = door.call("tasks/send", told("100 0.1", fresh(), "counter"), DOOR)
    assert time.monotonic() - began < 3
    assert task["status"]["state"] in ("submitted", "working")
    door.call("tasks/cancel", {"id": task["id"]}, DOOR)


def test_s4_15_a_handler_that_breaks_fails_its_task(door: Door) -> None:
    """With the text that it chose for callers. What it did not choose to say stays with the worker."""
    polite = finished(door, "politely", "failer")
    assert polite["status"]["message"]["parts"][0]["text"] == "The disk is full."
    rude = finished(door, "otherwise", "failer")
    assert rude["status"]["state"] == "failed"
    assert "secret" not in json.dumps(rude)


def test_s4_16_an_unknown_task_is_named(door: Door) -> None:
    error = door.error("tasks/get", {"id": "task-none"}, DOOR)
    assert (error["code"], error["message"]) == (-32001, "Task not found: task-none")


@pytest.mark.parametrize(("length", "states"), [(0, None), (1, ["completed"]), (2, ["working", "completed"])])
def test_s4_16_the_newest_of_the_history_is_given(door: Door, length: int, states: list[str] | None) -> None:
    task = finished(door, "1")
    history = door.call("tasks/get", {"id": task["id"], "historyLength": length}, DOOR).get("history")
    assert (history and [entry["state"] for entry in history]) == states
    assert door.code("tasks/get", {"id": task["id"], "historyLength": -1}, DOOR) == -32602


def test_s4_17_canceling_what_cannot_be_canceled_has_its_code(door: Door) -> None:
    task = finished(door, "1")
    assert door.code("tasks/cancel", {"id": task["id"]}, DOOR) == -32002
    assert door.code("tasks/cancel", {"id": fresh()}, DOOR) == -32001


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Door]:
    """A hub that takes one task at a time."""
    with start_hub(tmp_path / "hub", max_open_tasks=1) as hub, Door(hub.url) as door:
        yield door


def test_s4_18_a_hub_that_is_full_says_so_under_its_own_code(full: Door, parrot: Parrot) -> None:
    """-32003 means that there are no push notifications, and nothing else."""
    with full.enrolled("parrot:p", parrot.url, capabilities={"streaming": True}):
        script = json.dumps([parrot.status("working"), 3])
        first = full.call("tasks/send", told(script, fresh(), "parrot"), DOOR)
        assert first["status"]["state"] in ("submitted", "working")
        error = full.error("message/send", said("[]", "parrot"), DOOR)
        assert (error["code"], error["data"][0]["reason"]) == (-32000, "OVERLOADED")


def test_s4_19_a_stream_has_named_events_begins_with_the_state_and_ends_at_the_end(door: Door) -> None:
    params = told("2", fresh(), "counter")
    body = {"jsonrpc": "2.0", "id": 5, "method": "tasks/sendSubscribe", "params": params}
    with door.opened_at("/subscribe", body) as stream:
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


def test_s4_20_a_task_does_not_depend_on_its_stream(door: Door) -> None:
    params = told("6 0.1", fresh(), "counter")
    body = {"jsonrpc": "2.0", "id": 5, "method": "tasks/sendSubscribe", "params": params}
    with door.opened_at("/subscribe", body) as stream:
        next(iter(stream))
    wait(lambda: door.call("tasks/get", {"id": params["id"]}, DOOR)["status"]["state"] == "completed")
    assert texts(door.call("tasks/get", {"id": params["id"]}, DOOR)) == "0 1 2 3 4 5 "


def test_s4_26_the_card_claims_what_the_hub_does(door: Door, receiver: Receiver) -> None:
    able = door.get("/.well-known/agent.json").json()["capabilities"]
    assert able["streaming"] is bool(subscribed(door, told("1", fresh(), "counter")))
    task = finished(door, "1")["id"]
    door.call(SET, {"id": task, "pushNotificationConfig": {"url": receiver.url}}, DOOR)
    receiver.wait(lambda r: bool(r.posts))
    assert able["pushNotifications"] is True
    # In the version that the card names, history holds messages.
    assert able["stateTransitionHistory"] is False
    assert able["extendedAgentCard"] is False
    assert door.code("agent/getAuthenticatedExtendedCard", {}) == -32007


@pytest.mark.parametrize("path", ["/.well-known/agent.json", "/agents/counter/.well-known/agent-card.json"])
def test_s4_27_pages_of_other_origins_may_read_the_card(door: Door, path: str) -> None:
    for verb in ("GET", "OPTIONS"):
        response = door.http.request(verb, path, headers={"Origin": "https://elsewhere.example"})
        assert response.status_code in (200, 204)
        assert response.headers["access-control-allow-origin"] == "*"
        assert {"GET", "OPTIONS"} <= set(response.headers["access-control-allow-methods"].split(", "))


def test_s4_28_nobody_needs_a_token_to_read_a_card(locked: Locked) -> None:
    """It says which tokens are taken, and who shows one gets a card that is no proxy's to hand on."""
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"X-API-Key": "wrong"}, {"Authorization": f"Bearer {locked.token}"}):
        card = locked.door.get("/.well-known/agent.json", **headers)
        assert card.status_code == 200
        assert {one["scheme"] for one in card.json()["securitySchemes"].values() if one["type"] == "http"} == {"bearer"}
        assert ("private" in card.headers["cache-control"]) is bool(headers)
        assert "Authorization" in card.headers["vary"]


@pytest.mark.parametrize("address", [DOOR, "/subscribe", "/a2a/jsonrpc", "/agents/counter"])
def test_s4_28_everything_else_is_shut_without_one(locked: Locked, address: str) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"X-API-Key": "wrong"}, {"Authorization": "Basic dTpw"}):
        answer = locked.door.post(address, {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {}}, **headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, -32000)
        assert answer.headers["www-authenticate"].startswith("Bearer")


def test_s4_28_a_token_opens_it_in_either_header(locked: Locked) -> None:
    for headers in ({"Authorization": f"Bearer {locked.token}"}, {"X-API-Key": locked.token}):
        assert locked.door.code("tasks/get", {"id": "task-none"}, DOOR, **headers) == -32001


def test_s4_29_the_first_call_that_people_type_works_as_it_is(other: Door, parrot: Parrot) -> None:
    """Where one role is the default: such a call names none."""
    text = (
        '{"jsonrpc":"2.0","id":1,"method":"tasks/send","params":{"id":"task-1","sessionId":"session-1",'
        '"message":{"role":"user","parts":[{"type":"text","text":"Look at my figures"}]}}}'
    )
    with other.enrolled("parrot:p", parrot.url, capabilities={"streaming": True}):
        answer = other.post(DOOR, text.encode()).json()
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", 1)
        assert (answer["result"]["id"], answer["result"]["sessionId"]) == ("task-1", "session-1")
        assert other.until("task-1", "completed", path=DOOR)["sessionId"] == "session-1"


def test_s4_30_whatever_is_asked_the_answer_is_an_envelope_with_the_right_id(door: Door) -> None:
    methods = ("tasks/send", "tasks/get", "tasks/cancel", "tasks/sendSubscribe", "tasks/resubscribe", SET, GET, "none")
    for method in methods:
        for params in ({}, {"id": "none"}, {"id": 7}, {"id": "none", "message": {}}, {"message": None}):
            document = door.answer(method, params, DOOR, call=f"{method} 1")
            assert document["error"]["code"] in (-32601, -32602, -32001)


def test_s4_31_the_callers_id_is_his_alone_and_tasks_of_the_hub_have_their_own(door: Door) -> None:
    """The same id with the same words is the same task; with others it is a message to that task, which has to take one."""
    params = told("20 0.1", fresh(), "counter")
    sent = together(*(lambda: door.call("tasks/send", params, DOOR) for _ in range(2)))
    assert [task["id"] for task in sent] == [params["id"]] * 2
    assert door.code("tasks/send", told("2", params["id"], "counter"), DOOR) == -32602
    door.call("tasks/cancel", {"id": params["id"]}, DOOR)
    nameless = told("1", role="counter")
    del nameless["id"]
    named = [door.call("tasks/send", {**nameless, "sessionId": f"s{n}"}, DOOR)["id"] for n in range(2)]
    assert len(set(named)) == 2


def test_s4_31_a_reader_that_leaves_is_let_go(door: Door) -> None:
    def open_streams() -> float:
        lines = door.get("/metrics").text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("a2a_hub_streams_active{"))

    before = open_streams()
    params = told("30 0.1", fresh(), "counter")
    body = {"jsonrpc": "2.0", "id": 5, "method": "tasks/sendSubscribe", "params": params}
    with door.opened_at("/subscribe", body) as stream:
        next(iter(stream))
        assert open_streams() == before + 1
    wait(lambda: open_streams() == before, 3)
    door.call("tasks/cancel", {"id": params["id"]}, DOOR)


def test_s4_32_tasks_are_kept_on_disk_and_their_number_is_a_setting(door: Door, hub: HubProcess) -> None:
    """The number: see 18. That a killed hub loses none: see the second module, 32."""
    finished(door, "1")
    assert any(os.path.getsize(path) for path in hub.data_dir.glob("*.db"))


def test_s4_33_what_a_tester_tries_first(door: Door, locked: Locked) -> None:
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "task-none"}}
    assert locked.door.post(DOOR, asked).status_code == 401
    assert door.post(DOOR, {"not": "valid jsonrpc"}).json()["error"]["code"] == -32600
    assert len(finished(door, "1")["history"]) >= 2
    frames = subscribed(door, told("1", fresh(), "counter"))
    assert [frame.result.get("final", False) for frame in frames].index(True) == len(frames) - 1
