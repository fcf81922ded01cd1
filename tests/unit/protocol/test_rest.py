"""REST: the operation of each address, its query, and the form of errors."""

from __future__ import annotations

from typing import Any

import pytest

from rolecall.errors import InvalidParams, NoLiveWorker, SkillNotOffered, TaskNotFound, TaskOver, VersionNotSupported
from rolecall.model.command import Target
from rolecall.protocol.dialects import DIALECTS
from rolecall.protocol.faults import fault_of
from rolecall.protocol.methods import Operation
from rolecall.protocol.rest import RestRoute, params_of, read_query, read_route, write_error
from rolecall.protocol.text.jsontext import parse
from rolecall.protocol.v0_3 import rest as v03

ANY = Target()
ADDRESSES = [
    ("POST", "/message:send", Operation.SEND, {}),
    ("POST", "/message:stream", Operation.STREAM, {}),
    ("GET", "/tasks", Operation.LIST, {}),
    ("GET", "/tasks/t", Operation.GET, {"id": "t"}),
    ("POST", "/tasks/t:cancel", Operation.CANCEL, {"id": "t"}),
    ("GET", "/tasks/t:subscribe", Operation.SUBSCRIBE, {"id": "t"}),
    ("POST", "/tasks/t:subscribe", Operation.SUBSCRIBE, {"id": "t"}),
    ("POST", "/tasks/t/pushNotificationConfigs", Operation.PUSH_SET, {"task": "t"}),
    ("GET", "/tasks/t/pushNotificationConfigs", Operation.PUSH_LIST, {"task": "t"}),
    ("GET", "/tasks/t/pushNotificationConfigs/c", Operation.PUSH_GET, {"task": "t", "config": "c"}),
    ("DELETE", "/tasks/t/pushNotificationConfigs/c", Operation.PUSH_DELETE, {"task": "t", "config": "c"}),
]


@pytest.mark.parametrize(("method", "path", "operation", "names"), ADDRESSES)
@pytest.mark.parametrize(
    ("prefix", "dialect", "target"),
    [
        ("", None, ANY),
        ("/v1", "0.3", ANY),
        ("/a2a/rest", "0.3", ANY),
        ("/echo", None, Target(path_role="echo")),
        ("/echo:a", None, Target(path_role="echo", path_instance="a")),
        ("/echo%3Aa", None, Target(path_role="echo", path_instance="a")),
        ("/agents/echo", None, Target(path_role="echo")),
        ("/agents/echo:a", None, Target(path_role="echo", path_instance="a")),
        ("/agents/echo/v1", "0.3", Target(path_role="echo")),
        ("/agents/echo/a2a/rest", "0.3", Target(path_role="echo")),
        ("/agents/echo/echo", None, Target(path_role="echo", role="echo")),
        ("/agents/echo/other:b", None, Target(path_role="echo", role="other", instance="b")),
    ],
)
def test_every_operation_has_its_address_behind_every_prefix(
    prefix: str, dialect: str | None, target: Target, method: str, path: str, operation: Operation, names: dict[str, str]
) -> None:
    for written in (prefix + path, f"{prefix}{path}/"):
        place = read_route(written, method)
        assert place is not None
        assert (place.operation, place.dialect, place.target, place.names) == (operation, dialect, target, names)


@pytest.mark.parametrize(
    ("method", "path", "operation", "dialect"),
    [
        ("GET", "/extendedAgentCard", Operation.CARD, None),
        ("GET", "/echo/extendedAgentCard", Operation.CARD, None),
        ("GET", "/v1/card", Operation.CARD, "0.3"),
        ("GET", "/agents/echo/v1/card", Operation.CARD, "0.3"),
        ("GET", "/a2a/tasks/t", Operation.GET, "0.3"),
        ("POST", "/a2a/tasks/t/pushNotificationConfig", Operation.PUSH_SET, "0.3"),
        ("GET", "/a2a/tasks/t/pushNotificationConfig", Operation.PUSH_LIST, "0.3"),
    ],
)
def test_cards_and_the_addresses_of_the_seeds_are_known(
    method: str, path: str, operation: Operation, dialect: str | None
) -> None:
    place = read_route(path, method)
    assert place is not None
    assert (place.operation, place.dialect) == (operation, dialect)


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/message:send", ("POST",)),
        ("/tasks", ("GET",)),
        ("/tasks/t", ("GET",)),
        ("/tasks/t:cancel", ("POST",)),
        ("/tasks/t:subscribe", ("GET", "POST")),
        ("/tasks/t/pushNotificationConfigs", ("POST", "GET")),
        ("/tasks/t/pushNotificationConfigs/c", ("GET", "DELETE")),
        ("/extendedAgentCard", ("GET",)),
    ],
)
def test_another_method_gets_those_that_the_address_has(path: str, methods: tuple[str, ...]) -> None:
    for method in {"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"} - {*methods}:
        place = read_route(path, method)
        assert place is not None
        assert (place.operation, place.methods) == (None, methods)


OTHERS = (
    "// /a2a /a2a/rest /a2a/tasks /a2a/message:send /v1 /v1/a2a /agents /agents/echo /card /message: /message:sing "
    "/message:send/x /message /tasks/t/x /tasks/t/pushNotificationConfigs/c/d /registry/tasks /mcp/tasks /dashboard/tasks "
    "/Echo/tasks /.well-known/tasks /agents/Echo/tasks /livez /agents/echo%2Ftasks /agents/tasks/x /agents/echo:/tasks "
    "/echo/v1/tasks /extendedAgentCard/x"
)


@pytest.mark.parametrize("path", ["", "/", *OTHERS.split()])
def test_every_other_address_is_not_rest(path: str) -> None:
    assert read_route(path, "GET") is None


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("a%2Fb", "a/b"),
        ("100%25", "100%"),
        ("a%2520b", "a%20b"),
        ("%E2%82%AC", "€"),
        ("a%3Ab", "a:b"),
        ("a:b", "a:b"),
        ("a+b", "a+b"),
        ("a%00b", "a\0b"),
        ("%FF", "\ufffd"),
        ("%zz", "%zz"),
    ],
)
def test_an_id_is_decoded_once(written: str, name: str) -> None:
    for path, method in ((f"/tasks/{written}", "GET"), (f"/tasks/{written}:cancel", "POST")):
        place = read_route(path, method)
        assert place is not None
        assert place.names == {"id": name}


def test_a_query_is_what_its_json_would_be() -> None:
    query = b"historyLength=3&includeArtifacts=true&pageSize=-1&status=TASK_STATE_WORKING&x=&A2A-Version=1.0&contextId=a%2Fb+c"
    assert read_query(query) == {
        "historyLength": 3,
        "includeArtifacts": True,
        "pageSize": -1,
        "status": "TASK_STATE_WORKING",
        "x": "",
        "contextId": "a/b c",
    }
    assert read_query(b"page_size=5&include_artifacts=false") == {"page_size": 5, "include_artifacts": False}
    assert read_query(b"") == {}


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (b"historyLength=x", '"historyLength" must be a whole number.'),
        (b"historyLength=", '"historyLength" must be a whole number.'),
        (b"historyLength=1.5", '"historyLength" must be a whole number.'),
        ("pageSize=²".encode(), '"pageSize" must be a whole number.'),
        (b"pageSize=99999999999", '"pageSize" must be a whole number.'),
        (b"pageSize=--1", '"pageSize" must be a whole number.'),
        (b"includeArtifacts=1", '"includeArtifacts" must be true or false.'),
        (b"includeArtifacts=TRUE", '"includeArtifacts" must be true or false.'),
        (b"a=1&" * 51, "The query cannot be parsed: use UTF-8 and at most 50 parameters."),
        (b"\xff=1", "The query cannot be parsed: use UTF-8 and at most 50 parameters."),
    ],
)
def test_a_wrong_query_is_refused(query: bytes, text: str) -> None:
    with pytest.raises(InvalidParams) as refusal:
        read_query(query)
    assert refusal.value.message == text


def place(operation: Operation, **names: str) -> RestRoute:
    return RestRoute(operation, None, ANY, names, ())


HOOK = {"url": "u"}


@pytest.mark.parametrize(
    ("route", "body", "dialect", "params"),
    [
        (place(Operation.GET, id="t"), {"id": "x", "historyLength": 1}, "1.0", {"id": "t", "historyLength": 1}),
        (place(Operation.SEND), {"message": {}}, "0.3", {"message": {}}),
        (place(Operation.PUSH_SET, task="t"), {"taskId": "x", **HOOK}, "1.0", {"taskId": "t", **HOOK}),
        (place(Operation.PUSH_GET, task="t", config="c"), {"id": "x"}, "1.0", {"taskId": "t", "id": "c"}),
        (place(Operation.PUSH_LIST, task="t"), {"pageSize": 5}, "1.0", {"taskId": "t", "pageSize": 5}),
        (
            place(Operation.PUSH_SET, task="t"),
            {"pushNotificationConfig": HOOK},
            "0.3",
            {"taskId": "t", "pushNotificationConfig": HOOK},
        ),
        (
            place(Operation.PUSH_SET, task="t"),
            {"parent": "p", "config": HOOK},
            "0.3",
            {"taskId": "t", "pushNotificationConfig": HOOK},
        ),
        (place(Operation.PUSH_SET, task="t"), HOOK, "0.3", {"taskId": "t", "pushNotificationConfig": HOOK}),
        (place(Operation.PUSH_GET, task="t", config="c"), {}, "0.3", {"id": "t", "pushNotificationConfigId": "c"}),
        (place(Operation.PUSH_LIST, task="t"), {}, "0.3", {"id": "t"}),
    ],
)
def test_the_address_overrides_the_body(route: RestRoute, body: dict[str, Any], dialect: str, params: dict[str, Any]) -> None:
    assert params_of(route, body, DIALECTS[dialect]) == params


@pytest.mark.parametrize(
    "body",
    [
        {"message": {"role": "ROLE_USER", "content": [{"text": "hi"}]}},
        {"request": {"role": "ROLE_USER", "content": []}},
        {"message": {"role": "ROLE_USER", "parts": [{"text": "hi"}]}},
    ],
)
def test_the_protobuf_form_of_0_3_is_refused_with_an_alternative(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidParams, match=r"does not support the protobuf form of 0\.3 REST\. Use JSON-RPC, or 1\.0"):
        v03.check(body)


@pytest.mark.parametrize("body", [{}, {"message": {"role": "user", "parts": []}}, {"message": 5}, {"message": {"role": 1}}])
def test_the_json_form_is_not_refused_here(body: dict[str, Any]) -> None:
    v03.check(body)


@pytest.mark.parametrize(
    ("error", "code", "status", "reason", "domain"),
    [
        (TaskNotFound(), 404, "NOT_FOUND", "TASK_NOT_FOUND", "a2a-protocol.org"),
        (VersionNotSupported("2.0", ("0.3", "1.0")), 400, "INVALID_ARGUMENT", "VERSION_NOT_SUPPORTED", "a2a-protocol.org"),
        (TaskOver(7), 400, "INVALID_ARGUMENT", "UNSUPPORTED_OPERATION", "a2a-protocol.org"),
        (NoLiveWorker("echo"), 503, "UNAVAILABLE", "NO_LIVE_WORKER", "rolecall"),
        (SkillNotOffered("echo", "sing", ["say"]), 404, "NOT_FOUND", "SKILL_UNKNOWN", "rolecall"),
        (ValueError("secret"), 500, "INTERNAL", "INTERNAL", "a2a-protocol.org"),
    ],
)
def test_an_error_has_its_status_twice_and_its_reason(
    error: Exception, code: int, status: str, reason: str, domain: str
) -> None:
    document = parse(write_error(fault_of(error, DIALECTS["1.0"].faults)))
    assert (document["error"]["code"], document["error"]["status"]) == (code, status)
    (detail,) = document["error"]["details"]
    assert (detail["reason"], detail["domain"]) == (reason, domain)
    assert detail["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"
    assert document["message"] == document["error"]["message"] != "secret"
