"""The envelope: JSON-RPC 2.0 over HTTP, strict where a mistake could hide and lenient nowhere else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.helpers.processes import HubProcess
from tests.seeds.door import NO_TASK, RPC, Door, asked, said, texts, together, wait
from tests.seeds.strangers import Parrot, Receiver

ADDRESSES = ["/", "/a2a", "/a2a/jsonrpc", "/v1/a2a", "/agents/counter", "/agents/counter/", "/agents/counter/a2a"]


def envelope(**members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": NO_TASK}, **members}


@pytest.mark.parametrize("address", ADDRESSES)
def test_s3_01_a_whole_envelope_is_served_at_every_address(door: Door, address: str) -> None:
    assert texts(door.call("message/send", said("1", "counter"), address)) == "0 "


@pytest.mark.parametrize("missing", ["jsonrpc", "id", "method"])
def test_s3_01_a_member_that_lacks_makes_it_no_request(door: Door, missing: str) -> None:
    body = envelope()
    del body[missing]
    document = door.post(RPC, body).json()
    assert (document["error"]["code"], document["id"]) == (-32600, None if missing == "id" else 1)


def test_s3_02_an_answer_holds_a_result_or_an_error_and_nothing_else(door: Door) -> None:
    good = door.answer("message/send", said("1", "counter"))
    bad = door.answer("message/send", said("1", "nobody"))
    assert good.keys() == {"jsonrpc", "id", "result"}
    assert bad.keys() == {"jsonrpc", "id", "error"}
    assert bad["error"].keys() == {"code", "message", "data"}
    assert isinstance(bad["error"]["code"], int)
    assert isinstance(bad["error"]["message"], str)


@pytest.mark.parametrize("verb", ["GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"])
@pytest.mark.parametrize("address", [*ADDRESSES, "/subscribe"])
def test_s3_03_other_verbs_than_post_are_refused_with_the_one_that_is_allowed(door: Door, address: str, verb: str) -> None:
    """A browser's look at `/` is welcome: it is shown a page."""
    response = door.http.request(verb, address)
    if address == "/" and verb in ("GET", "HEAD"):
        assert (response.status_code, response.headers["content-type"].partition(";")[0]) == (200, "text/html")
    else:
        assert response.status_code == 405
        assert "POST" in response.headers["allow"].split(", ")


def test_s3_04_bodies_are_json_and_streams_are_event_streams(door: Door) -> None:
    answer = door.post(RPC, envelope())
    assert answer.headers["content-type"] == "application/json"
    with door.opened("message/stream", said("1", "counter")) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
    for wrong in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        assert door.post(RPC, envelope(), **{"Content-Type": wrong}).status_code == 415
    for right in ("application/json; charset=utf-8", "application/json-rpc", "Application/JSON"):
        assert door.post(RPC, envelope(), **{"Content-Type": right}).status_code == 200


@pytest.mark.parametrize(
    "body", [b"", b"{", b"7", b"{}", json.dumps(envelope()).encode(), json.dumps(envelope(method="x")).encode()]
)
def test_s3_05_an_error_of_the_call_is_no_error_of_http(door: Door, body: bytes) -> None:
    """Common clients drop the body of anything but 200, and with it the code."""
    response = door.post(RPC, body)
    assert response.status_code == 200
    assert response.json()["error"]["code"] in (-32700, -32600, -32601, -32001)


def test_s3_06_ten_methods_work(door: Door, receiver: Receiver) -> None:
    task = door.call("message/send", said("1", "counter"))["id"]
    hook = {"taskId": task, "pushNotificationConfig": {"url": receiver.url}}
    named = {"id": task, "pushNotificationConfigId": task}
    assert door.events("message/stream", said("1", "counter"))[-1]["final"] is True
    assert door.call("tasks/get", {"id": task})["id"] == task
    assert door.events("tasks/resubscribe", {"id": task})[0]["id"] == task
    assert door.call("tasks/pushNotificationConfig/set", hook)["taskId"] == task
    assert door.call("tasks/pushNotificationConfig/get", named)["taskId"] == task
    assert len(door.call("tasks/pushNotificationConfig/list", {"id": task})) == 1
    assert door.call("tasks/pushNotificationConfig/delete", named) is None
    running = door.send("counter", "100 0.1", configuration={"blocking": False})["id"]
    assert door.call("tasks/cancel", {"id": running})["status"]["state"] == "canceled"
    for spelling in ("agent/authenticatedExtendedCard", "agent/getAuthenticatedExtendedCard"):
        assert door.code(spelling, {}) == -32007


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"jsonrpc": "1.0", "method": "none", ', -32700),
        (json.dumps(envelope(jsonrpc="1.0", method="none", params=[])).encode(), -32600),
        (json.dumps(envelope(method="none", params=[])).encode(), -32602),
        (json.dumps(envelope(method="none", params={})).encode(), -32601),
        (json.dumps(envelope(params={})).encode(), -32602),
        (json.dumps(envelope()).encode(), -32001),
    ],
)
def test_s3_07_of_several_faults_the_outermost_is_told(door: Door, body: bytes, code: int) -> None:
    assert door.post(RPC, body).json()["error"]["code"] == code


@pytest.mark.parametrize("call", ["unique-request-id", 1, 0])
def test_s3_08_the_id_is_echoed_in_answers_and_errors(door: Door, call: str | int) -> None:
    assert door.answer("tasks/get", {"id": NO_TASK}, call=call)["error"]["code"] == -32001
    assert door.answer("message/send", said("1", "counter"), call=call)["result"]["kind"] == "task"


@pytest.mark.parametrize("call", [None, True, 1.5, [1], {"a": 1}])
def test_s3_08_an_id_that_could_not_be_echoed_is_refused_under_null(door: Door, call: Any) -> None:
    document = door.post(RPC, envelope(id=call)).json()
    assert (document["id"], document["error"]["code"]) == (None, -32600)
    assert door.post(RPC, b"{").json()["id"] is None


def test_s3_09_the_same_message_twice_is_one_task(door: Door) -> None:
    params = said("3 0.1", "counter")
    first, second = together(*(lambda: door.call("message/send", params) for _ in range(2)))
    third = door.call("message/send", params)
    assert first == second == third
    assert texts(first) == "0 1 2 "


def test_s3_09_a_key_of_the_callers_own_makes_calls_the_same_or_a_conflict(door: Door) -> None:
    params = said("1", "counter")
    key = {"Idempotency-Key": f"key of {params['message']['messageId']}"}
    task = door.call("message/send", params, **key)
    assert door.call("message/send", params, **key) == task
    error = door.error("message/send", said("2", "counter"), **key)
    assert (error["code"], error["data"][0]["reason"]) == (-32000, "CONFLICT")


@pytest.mark.parametrize("version", ["1.0", "2", 2, 2.0, None, "", "2.0 "])
def test_s3_10_the_version_of_the_envelope_is_exactly_2_0(door: Door, version: Any) -> None:
    assert door.post(RPC, envelope(jsonrpc=version)).json()["error"]["code"] == -32600


@pytest.mark.parametrize("body", [b"", b"<html>", b"{'a': 1}", b'{"a": NaN}', b"[", b"\x00", b'"text"', b"null", b"[1]"])
def test_s3_11_what_is_malformed_gets_a_json_rpc_error_and_no_page(door: Door, body: bytes) -> None:
    response = door.post(RPC, body)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    document = response.json()
    document = document[0] if isinstance(document, list) else document
    assert (document["jsonrpc"], document["id"]) == ("2.0", None)
    assert document["error"]["code"] in (-32700, -32600)


@pytest.mark.parametrize("method", ["", "tasks", "TASKS/GET", "tasks/get ", "message/send/", "rpc.discover", "ß" * 300])
def test_s3_12_an_unknown_method_is_not_found_whatever_its_name(door: Door, method: str) -> None:
    error = door.post(RPC, envelope(method=method)).json()["error"]
    assert error["code"] == -32601
    assert len(error["message"]) < 200


@pytest.mark.parametrize("method", [None, 7, ["tasks/get"]])
def test_s3_12_a_method_that_is_no_name_makes_it_no_request(door: Door, method: Any) -> None:
    assert door.post(RPC, envelope(method=method)).json()["error"]["code"] == -32600


def test_s3_13_calls_are_logged_by_their_ids_without_what_was_said(door: Door, hub: HubProcess, receiver: Receiver) -> None:
    """At the level `debug`: by default a call leaves a count and a time, no line."""
    secret = {"token": "s3cret-token", "authentication": {"schemes": ["Bearer"], "credentials": "s3cret-inner"}}
    params = said("1", "counter", configuration={"pushNotificationConfig": {"url": receiver.url, **secret}})
    params["metadata"] |= {"note": "s3cret-note"}
    door.answer("message/send", params, call="call-to-be-found", Authorization="Bearer s3cret-header")
    lines: list[dict[str, Any]] = []

    def logged() -> bool:
        nonlocal lines
        found = [line for line in hub.output.splitlines() if "call-to-be-found" in line]
        lines = [json.loads(line) for line in found]
        return bool(lines)

    wait(logged)
    (line,) = lines
    assert (line["event"], line["method"], line["outcome"]) == ("call", "message/send", "ok")
    assert line["seconds"] > 0
    assert "s3cret" not in hub.output


def test_s3_14_a_stream_is_kept_open_while_its_worker_says_nothing(door: Door) -> None:
    """There is no limit on its length. Clients have one for answers and none for streams: see the SDK's tests."""
    with door.opened("message/stream", said("1 1.2", "counter")) as stream:
        frames = list(stream)
    assert frames[-1].at - frames[0].at > 1
    assert len(stream.comments) >= 2
    assert frames[-1].result["status"]["state"] == "completed"


def test_s3_15_a_batch_gets_an_answer_for_each_of_its_entries(door: Door) -> None:
    batch = [
        {"jsonrpc": "2.0", "id": "a", "method": "message/send", "params": said("1", "counter")},
        {"jsonrpc": "2.0", "id": 2, "method": "tasks/get", "params": {"id": NO_TASK}},
        {"jsonrpc": "2.0", "id": 3, "method": "message/stream", "params": said("1", "counter")},
        7,
        {"jsonrpc": "2.0", "id": 4, "method": "SendMessage", "params": asked("1", "counter")},
    ]
    answers = door.post(RPC, batch).json()
    assert [answer["id"] for answer in answers] == ["a", 2, 3, None, 4]
    assert [answer.get("error", {}).get("code") for answer in answers] == [None, -32001, -32004, -32600, None]
    assert texts(answers[0]["result"]) == texts(answers[4]["result"]["task"]) == "0 "


def test_s3_15_an_empty_batch_and_one_that_is_too_long_are_refused(door: Door) -> None:
    assert door.post(RPC, []).json()["error"]["code"] == -32600
    assert door.post(RPC, [envelope()] * 51).json()["error"]["code"] == -32600


def test_s3_15_batches_can_be_switched_off(other: Door) -> None:
    error = other.post(RPC, [envelope()]).json()["error"]
    assert (error["code"], error["message"]) == (-32600, "Batch requests are not supported.")


@pytest.mark.parametrize("params", [[], ["a"], "id", 7, True])
@pytest.mark.parametrize("method", ["message/send", "message/stream", "tasks/get", "SendMessage", "tasks/send"])
def test_s3_16_params_are_an_object(door: Door, method: str, params: Any) -> None:
    assert door.post(RPC, envelope(method=method, params=params)).json()["error"]["code"] == -32602


def test_s3_17_each_code_has_the_meaning_of_the_specification(door: Door, parrot: Parrot) -> None:
    """-32003 and -32008 cannot happen here: push notifications are the hub's, and it requires no extension."""
    task = door.send("counter", "1")["id"]
    paused = door.send("asker", "begin")["id"]
    nonsense = door.send("parrot", json.dumps([{"kind": "status-update", "status": "done"}]))
    told = {
        -32001: door.code("tasks/get", {"id": NO_TASK}),
        -32002: door.code("tasks/cancel", {"id": task}),
        -32004: door.code("SubscribeToTask", {"id": task}),
        -32602: door.code("message/send", said("1", "counter", taskId=task)),
        -32007: door.code("agent/getAuthenticatedExtendedCard", {}),
        -32009: door.code("GetTask", {"id": task}, **{"A2A-Version": "3.0"}),
    }
    assert all(code == expected for expected, code in told.items()), told
    assert door.code("SendMessage", asked("1", "counter", taskId=task)) == -32004
    assert nonsense["code"] == -32006 if "code" in nonsense else nonsense["status"]["state"] == "failed"
    assert door.call("tasks/cancel", {"id": paused})["status"]["state"] == "canceled"


def test_s3_17_a_task_that_fails_is_a_result(door: Door) -> None:
    task = door.send("failer", "politely")
    assert (task["status"]["state"], task["status"]["message"]["parts"][0]["text"]) == ("failed", "The disk is full.")
    rejected = door.send("refuser", "please")
    assert rejected["status"]["state"] == "rejected"


@pytest.mark.parametrize("state", ["submitted", "working", "input-required", "auth-required", "unknown"])
def test_s3_17_each_state_that_is_no_end_is_told_and_left_again(door: Door, parrot: Parrot, state: str) -> None:
    """A pause ends the caller's stream. A worker that goes on by itself is heard all the same."""
    script = json.dumps([parrot.status(state, "so far"), 0.05, parrot.status("completed")])
    events = door.events("message/stream", said(script, "parrot"))
    assert events[1]["status"]["state"] == state
    assert events[1]["final"] is (state in ("input-required", "auth-required"))
    assert door.until(events[0]["id"], "completed")
