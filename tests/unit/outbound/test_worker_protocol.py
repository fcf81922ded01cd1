"""URL, method, body and headers of the requests to a worker, in JSON-RPC and as REST."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hub.outbound.worker_protocol import WorkerMethod, WorkerProtocol
from rolecall.model.a2a import Ids
from rolecall.model.card import HTTP_JSON, JSONRPC, Interface
from rolecall.model.ids import TaskId

IDS = Ids(TaskId("T"), "C", "wt/1", "wc")
RPC_03 = WorkerProtocol(Interface("http://w/a2a", JSONRPC, "0.3"))
RPC_10 = WorkerProtocol(Interface("http://w/a2a", JSONRPC, "1.0"))
REST_10 = WorkerProtocol(Interface("http://w/rest/", HTTP_JSON, "1.0"))
NAMES = {
    WorkerMethod.SEND: ("message/send", "SendMessage"),
    WorkerMethod.STREAM: ("message/stream", "SendStreamingMessage"),
    WorkerMethod.GET: ("tasks/get", "GetTask"),
    WorkerMethod.CANCEL: ("tasks/cancel", "CancelTask"),
    WorkerMethod.SUBSCRIBE: ("tasks/resubscribe", "SubscribeToTask"),
}


@pytest.mark.parametrize("method", WorkerMethod)
def test_json_rpc_uses_the_dialects_method_names(method: WorkerMethod) -> None:
    for protocol, name in zip((RPC_03, RPC_10), NAMES[method], strict=True):
        request = protocol.request(method, IDS, {"id": "wt/1"})
        assert (request.http_method, request.url) == (b"POST", "http://w/a2a")
        assert json.loads(request.body) == {"jsonrpc": "2.0", "id": "T", "method": name, "params": {"id": "wt/1"}}


@pytest.mark.parametrize(
    ("method", "http_method", "url", "body"),
    [
        (WorkerMethod.SEND, b"POST", "http://w/rest/message:send", b'{"x":1}'),
        (WorkerMethod.STREAM, b"POST", "http://w/rest/message:stream", b'{"x":1}'),
        (WorkerMethod.GET, b"GET", "http://w/rest/tasks/wt%2F1", b""),
        (WorkerMethod.CANCEL, b"POST", "http://w/rest/tasks/wt%2F1:cancel", b"{}"),
        (WorkerMethod.SUBSCRIBE, b"POST", "http://w/rest/tasks/wt%2F1:subscribe", b"{}"),
    ],
)
def test_rest_has_a_path_for_each_method(method: WorkerMethod, http_method: bytes, url: str, body: bytes) -> None:
    request = REST_10.request(method, IDS, {"x": 1})
    assert (request.http_method, request.url, request.body) == (http_method, url, body)


def test_a_tenant_is_part_of_every_request() -> None:
    rpc = WorkerProtocol(Interface("http://w/", JSONRPC, "1.0", "a b"))
    assert json.loads(rpc.request(WorkerMethod.GET, IDS, {"id": "wt"}).body)["params"] == {"id": "wt", "tenant": "a b"}
    rest = WorkerProtocol(Interface("http://w", HTTP_JSON, "1.0", "a b/../c"))
    assert rest.request(WorkerMethod.SEND, IDS, {}).url == "http://w/a%20b%2F..%2Fc/message:send"


@pytest.mark.parametrize(
    ("protocol", "without", "with_two"),
    [
        (RPC_03, {}, {"X-A2A-Extensions": "a, b"}),
        (RPC_10, {"A2A-Version": "1.0"}, {"A2A-Version": "1.0", "A2A-Extensions": "a, b"}),
        (REST_10, {"A2A-Version": "1.0"}, {"A2A-Version": "1.0", "A2A-Extensions": "a, b"}),
    ],
)
def test_version_and_extensions_are_in_the_dialects_headers(
    protocol: WorkerProtocol, without: dict[str, str], with_two: dict[str, str]
) -> None:
    assert dict(protocol.request(WorkerMethod.SEND, IDS, {}).headers) == without
    assert dict(protocol.request(WorkerMethod.SEND, IDS, {}, ("a", "b")).headers) == with_two


def test_a_json_rpc_answer_is_a_result_or_an_error() -> None:
    assert RPC_10.reply(b'{"jsonrpc":"2.0","id":1,"result":{"a":1}}').result == {"a": 1}
    reply = RPC_10.reply(b'{"error":{"code":-32001,"message":"no","data":[{"reason":"TASK_NOT_FOUND"}]}}')
    assert (reply.code, reply.text, reply.reason) == (-32001, "no", "TASK_NOT_FOUND")
    for text in (b"[]", b"{}", b"x", b'"result"'):
        with pytest.raises(ValueError, match=r"."):
            RPC_10.reply(text)


def test_a_rest_answer_is_bare() -> None:
    documents: tuple[Any, ...] = ({"task": {}}, {"id": "t"}, {"error": None}, {"error": "text"}, [], None, 5)
    for document in documents:
        reply = REST_10.reply(json.dumps(document).encode())
        assert (reply.result, reply.code) == (document, None)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"details": [{"reason": "TASK_NOT_FOUND"}], "status": "INTERNAL"}, -32001),
        ({"details": [{"reason": "TASK_NOT_CANCELABLE"}]}, -32002),
        ({"details": [{"reason": "PUSH_NOTIFICATION_NOT_SUPPORTED"}]}, -32003),
        ({"details": [{"reason": "UNSUPPORTED_OPERATION"}]}, -32004),
        ({"details": [{"reason": "CONTENT_TYPE_NOT_SUPPORTED"}]}, -32005),
        ({"details": [{"reason": "INVALID_AGENT_RESPONSE"}]}, -32006),
        ({"details": [{"reason": "EXTENDED_AGENT_CARD_NOT_CONFIGURED"}]}, -32007),
        ({"details": [{"reason": "EXTENSION_SUPPORT_REQUIRED"}]}, -32008),
        ({"details": [{"reason": "VERSION_NOT_SUPPORTED"}]}, -32009),
        ({"details": [5, {"reason": 5}, {"reason": "WORKER_BUSY"}], "status": "UNAVAILABLE"}, -32000),
        ({"details": [{"reason": "SOMETHING"}], "status": "NOT_FOUND"}, -32001),
        ({"status": "FAILED_PRECONDITION"}, -32004),
        ({"status": "INVALID_ARGUMENT", "details": {}}, -32602),
        ({"status": "INTERNAL"}, -32603),
        ({"status": ["NOT_FOUND"], "details": "x"}, -32603),
        ({}, -32603),
    ],
)
def test_a_rest_errors_code_follows_from_its_reason_or_else_its_status(error: dict[str, Any], code: int) -> None:
    reply = REST_10.reply(json.dumps({"error": {"message": "why", **error}}).encode())
    assert (reply.code, reply.text) == (code, "why")


def test_an_error_without_a_message_has_an_empty_text() -> None:
    assert REST_10.reply(b'{"error":{"message":5}}').text == ""


def test_answers_are_parsed_in_the_interfaces_dialect() -> None:
    old = {"kind": "task", "id": "wt", "status": {"state": "working"}}
    new = {"task": {"id": "wt", "status": {"state": "TASK_STATE_WORKING"}}}
    assert RPC_03.read_event(old, position="b.1").position == "b.1"
    assert RPC_10.read_event(new).dialect == REST_10.read_task(new["task"]).dialect == "1.0"
