"""The envelope: JSON-RPC 2.0 over HTTP, strict wherever leniency could hide a mistake."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.helpers.processes import HubProcess
from tests.seeds.door import NO_TASK, RPC, RawClient, message_v03, message_v10, texts, together, wait
from tests.seeds.strangers import Receiver, ScriptedAgent

ADDRESSES = ["/", "/a2a", "/a2a/jsonrpc", "/v1/a2a", "/agents/counter", "/agents/counter/", "/agents/counter/a2a"]


def envelope(**members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": NO_TASK}, **members}


@pytest.mark.parametrize("address", ADDRESSES)
def test_s3_01_a_complete_envelope_is_accepted_at_every_address(client: RawClient, address: str) -> None:
    assert texts(client.call("message/send", message_v03("1", "counter"), address)) == "0 "


@pytest.mark.parametrize("missing", ["jsonrpc", "method"])
def test_s3_01_an_envelope_with_a_missing_member_is_refused(client: RawClient, missing: str) -> None:
    body = envelope()
    del body[missing]
    document = client.post(RPC, body).json()
    assert (document["error"]["code"], document["id"]) == (-32600, 1)


def test_s3_02_an_answer_holds_a_result_or_an_error_and_nothing_else(client: RawClient) -> None:
    good = client.answer("message/send", message_v03("1", "counter"))
    bad = client.answer("message/send", message_v03("1", "nobody"))
    assert good.keys() == {"jsonrpc", "id", "result"}
    assert bad.keys() == {"jsonrpc", "id", "error"}
    assert bad["error"].keys() == {"code", "message", "data"}
    assert isinstance(bad["error"]["code"], int)
    assert isinstance(bad["error"]["message"], str)


@pytest.mark.parametrize("http_method", ["GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"])
@pytest.mark.parametrize("address", [*ADDRESSES, "/subscribe"])
def test_s3_03_methods_other_than_post_are_refused_with_an_allow_header(
    client: RawClient, address: str, http_method: str
) -> None:
    """A browser that opens `/` gets a page, and who reads a role's own address its card."""
    response = client.http.request(http_method, address)
    answered = {"/": "text/html", "/agents/counter": "application/json", "/agents/counter/": "application/json"}
    if address in answered and http_method in ("GET", "HEAD"):
        assert (response.status_code, response.headers["content-type"].partition(";")[0]) == (200, answered[address])
    else:
        assert response.status_code == 405
        assert "POST" in response.headers["allow"].split(", ")


def test_s3_04_bodies_are_json_and_streams_are_event_streams(client: RawClient) -> None:
    answer = client.post(RPC, envelope())
    assert answer.headers["content-type"] == "application/json"
    with client.opened("message/stream", message_v03("1", "counter")) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
    for wrong in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        refused = client.post(RPC, envelope(), **{"Content-Type": wrong})
        assert (refused.status_code, refused.json()["error"]["code"]) == (415, -32005)
    for right in ("application/json; charset=utf-8", "application/json-rpc", "Application/JSON"):
        assert client.post(RPC, envelope(), **{"Content-Type": right}).status_code == 200


@pytest.mark.parametrize(
    "body", [b"", b"{", b"7", b"{}", json.dumps(envelope()).encode(), json.dumps(envelope(method="x")).encode()]
)
def test_s3_05_a_json_rpc_error_has_http_status_200(client: RawClient, body: bytes) -> None:
    """Common clients drop the body of any status but 200, and with it the code."""
    response = client.post(RPC, body)
    assert response.status_code == 200
    assert response.json()["error"]["code"] in (-32700, -32600, -32601, -32001)


def test_s3_06_ten_methods_work(client: RawClient, receiver: Receiver) -> None:
    task = client.call("message/send", message_v03("1", "counter"))["id"]
    hook = {"taskId": task, "pushNotificationConfig": {"url": receiver.url}}
    named = {"id": task, "pushNotificationConfigId": task}
    assert client.events("message/stream", message_v03("1", "counter"))[-1]["final"] is True
    assert client.call("tasks/get", {"id": task})["id"] == task
    assert client.events("tasks/resubscribe", {"id": task})[0]["id"] == task
    assert client.call("tasks/pushNotificationConfig/set", hook)["taskId"] == task
    assert client.call("tasks/pushNotificationConfig/get", named)["taskId"] == task
    assert len(client.call("tasks/pushNotificationConfig/list", {"id": task})) == 1
    assert client.call("tasks/pushNotificationConfig/delete", named) is None
    running = client.send("counter", "100 0.1", configuration={"blocking": False})["id"]
    assert client.call("tasks/cancel", {"id": running})["status"]["state"] == "canceled"
    for spelling in ("agent/authenticatedExtendedCard", "agent/getAuthenticatedExtendedCard"):
        assert client.code(spelling, {}) == -32007


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
def test_s3_07_of_several_faults_the_outermost_is_reported(client: RawClient, body: bytes, code: int) -> None:
    assert client.post(RPC, body).json()["error"]["code"] == code


@pytest.mark.parametrize("call", ["unique-request-id", 1, 0])
def test_s3_08_the_id_is_echoed_in_answers_and_errors(client: RawClient, call: str | int) -> None:
    assert client.answer("tasks/get", {"id": NO_TASK}, call=call)["error"]["code"] == -32001
    assert client.answer("message/send", message_v03("1", "counter"), call=call)["result"]["kind"] == "task"


@pytest.mark.parametrize("method", ["message/send", "message/stream", "tasks/get", "tasks/purge"])
def test_s3_08_without_an_id_a_request_is_answered_with_id_null(client: RawClient, method: str) -> None:
    params = {"id": NO_TASK} if method.startswith("tasks/") else message_v03("1", "counter")
    body = {"jsonrpc": "2.0", "method": method, "params": params}
    text = client.post(RPC, body).text
    answers = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith(("data: ", "{"))]
    assert {answer["id"] for answer in answers} == {None}
    if method.startswith("message/"):
        assert all("result" in answer for answer in answers)
    else:
        assert [answer["error"]["code"] for answer in answers] == [-32001 if method == "tasks/get" else -32601]
    assert client.post(RPC, envelope(id=None)).json()["id"] is None


@pytest.mark.parametrize("call", [True, 1.5, [1], {"a": 1}])
def test_s3_08_an_invalid_id_is_refused_with_id_null(client: RawClient, call: Any) -> None:
    document = client.post(RPC, envelope(id=call)).json()
    assert (document["id"], document["error"]["code"]) == (None, -32600)
    assert client.post(RPC, b"{").json()["id"] is None


def test_s3_09_the_same_message_twice_is_one_task(client: RawClient) -> None:
    params = message_v03("3 0.1", "counter")
    first, second = together(*(lambda: client.call("message/send", params) for _ in range(2)))
    later = client.call("message/send", params)
    assert first == second == later
    assert texts(first) == "0 1 2 "


def test_s3_09_calls_with_one_idempotency_key_are_the_same_or_a_conflict(client: RawClient) -> None:
    params = message_v03("1", "counter")
    key = {"Idempotency-Key": f"key of {params['message']['messageId']}"}
    task = client.call("message/send", params, **key)
    assert client.call("message/send", params, **key) == task
    error = client.error("message/send", message_v03("2", "counter"), **key)
    assert (error["code"], error["data"][0]["reason"]) == (-32000, "CONFLICT")


@pytest.mark.parametrize("version", ["1.0", "2", 2, 2.0, None, "", "2.0 "])
def test_s3_10_the_version_of_the_envelope_is_exactly_2_0(client: RawClient, version: Any) -> None:
    assert client.post(RPC, envelope(jsonrpc=version)).json()["error"]["code"] == -32600


@pytest.mark.parametrize("body", [b"", b"<html>", b"{'a': 1}", b'{"a": NaN}', b"[", b"\x00", b'"text"', b"null", b"[1]"])
def test_s3_11_a_malformed_body_gets_a_json_rpc_error(client: RawClient, body: bytes) -> None:
    response = client.post(RPC, body)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    document = response.json()
    document = document[0] if isinstance(document, list) else document
    assert (document["jsonrpc"], document["id"]) == ("2.0", None)
    assert document["error"]["code"] in (-32700, -32600)


@pytest.mark.parametrize("method", ["", "tasks", "TASKS/GET", "tasks/get ", "message/send/", "rpc.discover", "ß" * 300])
def test_s3_12_an_unknown_method_is_not_found_whatever_its_name(client: RawClient, method: str) -> None:
    error = client.post(RPC, envelope(method=method)).json()["error"]
    assert error["code"] == -32601
    assert len(error["message"]) < 200


@pytest.mark.parametrize("method", [None, 7, ["tasks/get"]])
def test_s3_12_a_method_that_is_not_a_string_is_refused(client: RawClient, method: Any) -> None:
    assert client.post(RPC, envelope(method=method)).json()["error"]["code"] == -32600


def test_s3_13_calls_are_logged_with_ids_but_without_content(client: RawClient, hub: HubProcess, receiver: Receiver) -> None:
    """At log level `debug`. By default a call is only counted and timed."""
    secret = {"token": "s3cret-token", "authentication": {"schemes": ["Bearer"], "credentials": "s3cret-inner"}}
    params = message_v03("1", "counter", configuration={"pushNotificationConfig": {"url": receiver.url, **secret}})
    params["metadata"] |= {"note": "s3cret-note"}
    client.answer("message/send", params, call="call-to-be-found", Authorization="Bearer s3cret-header")
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


def test_s3_14_a_stream_stays_open_while_its_worker_is_silent(client: RawClient) -> None:
    """Streams have no time limit. The SDK's client limits answers, not streams: see its tests."""
    with client.opened("message/stream", message_v03("1 1.2", "counter")) as stream:
        frames = list(stream)
    assert frames[-1].at - frames[0].at > 1
    assert len(stream.keep_alive_lines) >= 2
    assert frames[-1].result["status"]["state"] == "completed"


def test_s3_15_a_batch_gets_an_answer_for_each_entry(client: RawClient) -> None:
    batch = [
        {"jsonrpc": "2.0", "id": "a", "method": "message/send", "params": message_v03("1", "counter")},
        {"jsonrpc": "2.0", "id": 2, "method": "tasks/get", "params": {"id": NO_TASK}},
        {"jsonrpc": "2.0", "id": 3, "method": "message/stream", "params": message_v03("1", "counter")},
        7,
        {"jsonrpc": "2.0", "method": "tasks/get", "params": {}},
        {"jsonrpc": "2.0", "id": 4, "method": "SendMessage", "params": message_v10("1", "counter")},
    ]
    answers = client.post(RPC, batch).json()
    assert [answer["id"] for answer in answers] == ["a", 2, 3, None, None, 4]
    assert [answer.get("error", {}).get("code") for answer in answers] == [None, -32001, -32004, -32600, -32602, None]
    assert texts(answers[0]["result"]) == texts(answers[5]["result"]["task"]) == "0 "


def test_s3_15_empty_and_too_long_batches_are_refused(client: RawClient) -> None:
    assert client.post(RPC, []).json()["error"]["code"] == -32600
    assert client.post(RPC, [envelope()] * 51).json()["error"]["code"] == -32600


def test_s3_15_batches_can_be_switched_off(other: RawClient) -> None:
    error = other.post(RPC, [envelope()]).json()["error"]
    assert (error["code"], error["message"]) == (-32600, "Batch requests are not supported.")


@pytest.mark.parametrize("params", [[], ["a"], "id", 7, True])
@pytest.mark.parametrize("method", ["message/send", "message/stream", "tasks/get", "SendMessage", "tasks/send"])
def test_s3_16_params_are_an_object(client: RawClient, method: str, params: Any) -> None:
    text = client.post(RPC, envelope(method=method, params=params)).text
    assert json.loads(text.removeprefix("data: "))["error"]["code"] == -32602  # of a stream, as an event


def test_s3_17_each_code_has_its_specified_meaning(client: RawClient, scripted: ScriptedAgent) -> None:
    """-32003 and -32008 cannot occur: the hub itself sends push notifications, and it requires no extension."""
    task = client.send("counter", "1")["id"]
    paused = client.send("asker", "begin")["id"]
    malformed = client.send("parrot", json.dumps([{"kind": "status-update", "status": "done"}]))
    codes = {
        -32001: client.code("tasks/get", {"id": NO_TASK}),
        -32002: client.code("tasks/cancel", {"id": task}),
        -32004: client.code("SubscribeToTask", {"id": task}),
        -32602: client.code("message/send", message_v03("1", "counter", taskId=task)),
        -32007: client.code("agent/getAuthenticatedExtendedCard", {}),
        -32009: client.code("GetTask", {"id": task}, **{"A2A-Version": "3.0"}),
    }
    assert all(code == expected for expected, code in codes.items()), codes
    assert client.code("SendMessage", message_v10("1", "counter", taskId=task)) == -32004
    assert malformed["code"] == -32006 if "code" in malformed else malformed["status"]["state"] == "failed"
    assert client.call("tasks/cancel", {"id": paused})["status"]["state"] == "canceled"


def test_s3_17_a_task_that_fails_is_a_result(client: RawClient) -> None:
    task = client.send("failer", "politely")
    assert (task["status"]["state"], task["status"]["message"]["parts"][0]["text"]) == ("failed", "The disk is full.")
    rejected = client.send("refuser", "please")
    assert rejected["status"]["state"] == "rejected"


@pytest.mark.parametrize("state", ["submitted", "working", "input-required", "auth-required", "unknown"])
def test_s3_17_a_task_can_leave_each_non_terminal_state(client: RawClient, scripted: ScriptedAgent, state: str) -> None:
    """A pause ends the caller's stream. The hub still reads a worker that continues by itself."""
    script = json.dumps([scripted.status(state, "so far"), 0.05, scripted.status("completed")])
    events = client.events("message/stream", message_v03(script, "parrot"))
    assert events[1]["status"]["state"] == state
    assert events[1]["final"] is (state in ("input-required", "auth-required"))
    assert client.until(events[0]["id"], "completed")
