"""REST over real sockets, in 1.0 and in the plain form of 0.3: every operation, status and body."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.acceptance.wire import Played, Told, Wire, enrolled
from tests.helpers.processes import HubProcess, start_hub, start_worker

NEW: dict[str, Any] = {"A2A_Version": "1.0"}
# Where a version is spoken, and with which header.
PLACES = {
    "1.0": [("", NEW), ("/echo", NEW), ("/agents/echo", NEW), ("/agents/echo:w", NEW), ("", {"A2A_Version": "1.1"})],
    "0.3": [("/v1", {}), ("/agents/echo/v1", {}), ("/a2a/rest", {}), ("", {}), ("/agents/echo", {"A2A_Version": "0.3"})],
}
everywhere = pytest.mark.parametrize(
    ("dialect", "prefix", "headers"), [(dialect, *place) for dialect, places in PLACES.items() for place in places]
)
DONE = {"0.3": "completed", "1.0": "TASK_STATE_COMPLETED"}
ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    folder = tmp_path_factory.mktemp("hub")
    with start_hub(folder, push_allowed_cidrs="127.0.0.0/8", max_body=20_000) as hub:
        workers = [("instant", "echo:w"), ("asker", "asker:w"), ("counter", "counter:w")]
        running = [start_worker(f"tests.acceptance.workers:{one}", name, hub.url, log=folder / one) for one, name in workers]
        yield hub
        for worker in running:
            worker.end()


@pytest.fixture(autouse=True)
def no_traceback(hub: HubProcess) -> Iterator[None]:
    yield
    assert "Traceback" not in hub.output


@pytest.fixture
async def wire(hub: HubProcess) -> AsyncIterator[Wire]:
    async with httpx.AsyncClient(base_url=hub.url, trust_env=False, timeout=20) as http:
        yield Wire(http)


def said(dialect: str, text: str = "hi", role: str = "echo", **more: Any) -> dict[str, Any]:
    new = dialect == "1.0"
    part = {"text": text} if new else {"kind": "text", "text": text}
    message = {"messageId": str(uuid4()), "role": "ROLE_USER" if new else "user", "parts": [part]}
    return {"message": message, "metadata": {"role": role}, **more}


def task_of(dialect: str, answer: dict[str, Any]) -> dict[str, Any]:
    """The answer to a message is wrapped in 1.0, and says what it is in 0.3."""
    if dialect == "1.0":
        assert list(answer) == ["task"]
        answer = answer["task"]
        assert "kind" not in answer
    else:
        assert answer["kind"] == "task"
    return answer


async def done(wire: Wire, dialect: str = "1.0", text: str = "hi") -> str:
    """A task that has ended."""
    response = await wire.rest("POST", "/message:send", said(dialect, text), **(NEW if dialect == "1.0" else {}))
    return str(task_of(dialect, response.json())["id"])


@everywhere
async def test_send_get_and_list(wire: Wire, dialect: str, prefix: str, headers: dict[str, Any]) -> None:
    sent = await wire.rest("POST", f"{prefix}/message:send", said(dialect), **headers)
    assert (sent.status_code, sent.headers["content-type"]) == (200, "application/json")
    task = task_of(dialect, sent.json())
    assert task["status"]["state"] == DONE[dialect]
    assert task["artifacts"][0]["parts"] == [{"text": "hi"} if dialect == "1.0" else {"kind": "text", "text": "hi"}]
    got = await wire.rest("GET", f"{prefix}/tasks/{task['id']}?historyLength=0", **headers)
    assert got.status_code == 200
    assert got.json() == {name: value for name, value in task.items() if name != "history"}
    # A list without any version is one of 1.0: it had no such address before.
    headers = headers or ({} if prefix else {"A2A_Version": dialect})
    listed = (await wire.rest("GET", f"{prefix}/tasks?pageSize=1&historyLength=0", **headers)).json()
    assert listed.keys() == {"tasks", "nextPageToken", "pageSize", "totalSize"}
    assert listed["pageSize"] == 1 <= listed["totalSize"]
    assert listed["tasks"] == [{name: value for name, value in got.json().items() if name != "artifacts"}]


@everywhere
async def test_stream_and_subscribe(wire: Wire, dialect: str, prefix: str, headers: dict[str, Any]) -> None:
    told = await wire.frames("POST", f"{prefix}/message:stream", said(dialect), **headers)
    assert [frame.cursor for frame in told] == list(range(1, len(told) + 1))
    assert {frame.event for frame in told} == {None}
    task = task_of(dialect, told[0].document)
    assert state(told[-1]) == DONE[dialect]
    for verb in ("GET", "POST"):
        again = await wire.frames(verb, f"{prefix}/tasks/{task['id']}:subscribe", **headers, Last_Event_ID="2")
        assert again[1:] == told[2:]
        assert (again[0].cursor, task_of(dialect, again[0].document)["id"]) == (2, task["id"])
        if dialect == "0.3":
            (whole,) = await wire.frames(verb, f"{prefix}/tasks/{task['id']}:subscribe", **headers)
            assert state(whole) == "completed"
        else:
            refused = await wire.rest(verb, f"{prefix}/tasks/{task['id']}:subscribe", **headers)
            assert (refused.status_code, refused.json()["error"]["details"][0]["reason"]) == (400, "UNSUPPORTED_OPERATION")


@everywhere
async def test_cancel(wire: Wire, dialect: str, prefix: str, headers: dict[str, Any]) -> None:
    """A role's own address has no tasks of other roles."""
    waiting = said(dialect, "paint", "asker", configuration={"blocking": False, "returnImmediately": True})
    root = {"1.0": "", "0.3": "/v1"}[dialect]
    sent = await wire.rest("POST", f"{root}/message:send", waiting, **(NEW if dialect == "1.0" else {}))
    task = task_of(dialect, sent.json())["id"]
    answer = await wire.rest("POST", f"{prefix}/tasks/{task}:cancel", {}, **headers)
    if "echo" in prefix:
        assert (answer.status_code, answer.json()["error"]["details"][0]["reason"]) == (404, "TASK_NOT_FOUND")
        return
    assert (answer.status_code, answer.json()["id"]) == (200, task)
    assert answer.json()["status"]["state"] == ("TASK_STATE_CANCELED" if dialect == "1.0" else "canceled")
    again = await wire.rest("POST", f"{prefix}/tasks/{task}:cancel", **headers)
    assert (again.status_code, again.json()["error"]["details"][0]["reason"]) == (400, "TASK_NOT_CANCELABLE")


@everywhere
async def test_push_configs(wire: Wire, dialect: str, prefix: str, headers: dict[str, Any]) -> None:
    task = await done(wire)
    base, hook = f"{prefix}/tasks/{task}/pushNotificationConfigs", {"id": "p", "url": "http://127.0.0.1:9/", "token": "secret"}
    # Where neither address nor header says which, it is the version that this address came with.
    new = dialect == "1.0" or not (prefix or headers)
    shown: dict[str, Any] = {"taskId": task, "id": "p", "url": hook["url"]}
    if not new:
        shown = {"taskId": task, "pushNotificationConfig": {"id": "p", "url": hook["url"]}}
    body = hook if new else {"pushNotificationConfig": hook}
    assert (await wire.rest("POST", base, body, **headers)).json() == shown
    assert (await wire.rest("GET", f"{base}/p", **headers)).json() == shown
    listed = (await wire.rest("GET", base, **headers)).json()
    assert listed == ({"configs": [shown], "nextPageToken": ""} if new else [shown])
    for _ in range(2):
        deleted = await wire.rest("DELETE", f"{base}/p", **headers)
        assert (deleted.status_code, deleted.json()) == (200, {})
    missing = await wire.rest("GET", f"{base}/p", **headers)
    assert (missing.status_code, missing.json()["error"]["status"]) == (404, "NOT_FOUND")


def state(told: Told) -> str:
    document = next(iter(told.document.values())) if len(told.document) == 1 else told.document
    return str(document["status"]["state"])


# --- errors


@pytest.mark.parametrize(
    ("verb", "path", "body", "status", "name", "reason"),
    [
        ("GET", "/tasks/none", None, 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        ("POST", "/tasks/none:cancel", None, 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        ("GET", "/tasks/none:subscribe", None, 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        ("GET", "/tasks/none/pushNotificationConfigs", None, 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        ("GET", "/tasks?pageSize=0", None, 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        ("GET", "/tasks?pageSize=x", None, 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        ("GET", "/tasks?status=dreaming", None, 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        ("GET", "/tasks?pageToken=x", None, 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        ("GET", "/tasks?includeArtifacts=1", None, 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        ("GET", "/tasks/x?historyLength=-1", None, 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        ("GET", "/tasks/%00?historyLength=1", None, 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        ("GET", "/tasks/:cancel", None, 405, "UNIMPLEMENTED", "METHOD_NOT_ALLOWED"),
        ("POST", "/tasks/:cancel", None, 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        ("GET", f"/tasks/{'x' * 300}", None, 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        ("POST", "/message:send", {}, 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        ("POST", "/message:send", [], 400, "INVALID_ARGUMENT", "INVALID_REQUEST"),
        ("POST", "/message:stream", {"message": 5}, 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        ("POST", "/message:send", {"message": {"parts": [{"raw": "%"}]}}, 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        ("POST", "/message:send", {"message": {"parts": [{"text": "x"}]}}, 404, "NOT_FOUND", "ROLE_UNKNOWN"),
        ("POST", "/nobody/message:send", {"message": {"parts": [{"text": "x"}]}}, 404, "NOT_FOUND", "ROLE_UNKNOWN"),
        ("POST", "/agents/echo/other/message:send", {"message": {"parts": [{"text": "x"}]}}, 404, "NOT_FOUND", "ROLE_UNKNOWN"),
        ("GET", "/extendedAgentCard", None, 400, "INVALID_ARGUMENT", "UNSUPPORTED_OPERATION"),
    ],
)
async def test_an_error_has_its_status_and_its_reason(
    wire: Wire, verb: str, path: str, body: Any, status: int, name: str, reason: str
) -> None:
    response = await wire.rest(verb, path, body, **NEW)
    document = response.json()
    assert (response.status_code, response.headers["content-type"]) == (status, "application/json")
    assert document.keys() == {"error", "message"}
    error = document["error"]
    assert error.keys() == {"code", "status", "message", "details"}
    assert (error["code"], error["status"]) == (status, name)
    assert (error["details"][0]["@type"], error["details"][0]["reason"]) == (ERROR_INFO, reason)
    assert document["message"] == error["message"]


async def test_who_could_try_again_is_told_when(wire: Wire) -> None:
    response = await wire.http.put("/registry/agents/gone/x", json={"url": "http://127.0.0.1:1/"})
    await wire.http.delete("/registry/agents/gone:x")
    assert response.status_code == 201
    answer = await wire.rest("POST", "/gone/message:send", said("1.0", role="gone"), **NEW)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
    (detail,) = answer.json()["error"]["details"]
    assert (detail["reason"], detail["domain"], detail["metadata"]["retryAfter"]) == ("NO_LIVE_WORKER", "rolecall", "10")


@pytest.mark.parametrize(
    ("content", "headers", "status", "reason"),
    [
        (b"{", {"Content-Type": "application/json"}, 400, "PARSE_ERROR"),
        (b"{}", {"Content-Type": "text/plain"}, 415, "MEDIA_TYPE_NOT_SUPPORTED"),
        (b"{}", {"Content-Type": "application/json", "Content-Encoding": "gzip"}, 415, "MEDIA_TYPE_NOT_SUPPORTED"),
        (b"[" * 30_000, {"Content-Type": "application/json"}, 413, "BODY_TOO_LARGE"),
    ],
)
async def test_a_body_that_is_none_is_refused(
    wire: Wire, content: bytes, headers: dict[str, str], status: int, reason: str
) -> None:
    response = await wire.http.post("/message:send", content=content, headers=headers)
    assert response.status_code == status
    assert response.json()["error"]["details"][0]["reason"] == reason


@pytest.mark.parametrize(("prefix", "headers"), [("", NEW), ("/v1", {})])
async def test_what_stands_in_a_messages_query_reaches_no_worker(wire: Wire, prefix: str, headers: dict[str, Any]) -> None:
    new = not prefix
    done = {"id": "wt", "contextId": "wc", "status": {"state": "TASK_STATE_COMPLETED" if new else "completed"}}
    worker = Played(lambda name, params: {"task": done} if new else {"kind": "task", **done})
    async with enrolled(wire.http, worker, "asked", dialect="1.0" if new else "0.3"):
        path = f"{prefix}/message:send?access_token=secret&x=1"
        response = await wire.rest("POST", path, said("1.0" if new else "0.3", role="asked"), **headers)
    assert response.status_code == 200
    ((request, _),) = worker.told
    assert b"secret" not in request.body


async def test_a2a_has_a_media_type_of_its_own(wire: Wire) -> None:
    response = await wire.rest("POST", "/message:send", said("1.0"), Content_Type="application/a2a+json", **NEW)
    assert response.status_code == 200


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/message:send", "POST"),
        ("/v1/message:stream", "POST"),
        ("/tasks", "GET"),
        ("/tasks/x", "GET"),
        ("/agents/echo/tasks/x:cancel", "POST"),
        ("/tasks/x:subscribe", "GET, POST"),
        ("/tasks/x/pushNotificationConfigs", "POST, GET"),
        ("/tasks/x/pushNotificationConfigs/p", "GET, DELETE"),
        ("/v1/card", "GET"),
    ],
)
async def test_another_verb_is_not_allowed(wire: Wire, path: str, allowed: str) -> None:
    for verb in {"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"} - {*allowed.split(", ")}:
        response = await wire.rest(verb, path)
        assert (response.status_code, response.headers["allow"]) == (405, allowed)
        assert (response.content == b"") is (verb == "HEAD")
    # The connection is still in step: a body that had none of its own would show now.
    assert (await wire.rest("GET", "/tasks/none")).status_code == 404


@pytest.mark.parametrize(("prefix", "headers"), [("/v1", {}), ("/agents/echo/v1", {}), ("", {"A2A_Version": "0.3"})])
@pytest.mark.parametrize("verb", ["message:send", "message:stream"])
async def test_the_protobuf_form_of_0_3_is_refused_with_a_way_out(
    wire: Wire, prefix: str, headers: dict[str, str], verb: str
) -> None:
    proto = {"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "hi"}]}, "configuration": {}}
    response = await wire.rest("POST", f"{prefix}/{verb}", proto, **headers)
    assert response.status_code == 400
    assert response.json()["message"] == (
        "The hub does not support the protobuf form of 0.3 REST. Use JSON-RPC, or 1.0 with A2A-Version: 1.0."
    )


@pytest.mark.parametrize(
    ("version", "status", "reason"),
    [("2.0", 400, "VERSION_NOT_SUPPORTED"), ("0.1", 400, "UNSUPPORTED_OPERATION"), ("1", 404, "TASK_NOT_FOUND")],
)
async def test_a_version_is_read_from_the_header_or_from_the_query(wire: Wire, version: str, status: int, reason: str) -> None:
    for response in (
        await wire.rest("GET", "/tasks/none", A2A_Version=version),
        await wire.rest("GET", f"/tasks/none?historyLength=1&A2A-Version={version}"),
    ):
        assert (response.status_code, response.json()["error"]["details"][0]["reason"]) == (status, reason)


async def test_without_a_version_a_task_is_answered_in_its_own(wire: Wire) -> None:
    for dialect, state in DONE.items():
        got = await wire.rest("GET", f"/tasks/{await done(wire, dialect)}")
        assert got.json()["status"]["state"] == state


async def test_an_id_may_hold_what_an_address_cannot(wire: Wire) -> None:
    name = "a/b 100%25 ä"
    message = {"role": "user", "parts": [{"type": "text", "text": "hi"}]}
    await wire.result("tasks/send", {"id": name, "message": message}, "/agents/echo/")
    got = await wire.rest("GET", "/v1/tasks/a%2Fb%20100%2525%20%C3%A4")
    assert got.status_code == 200
    assert (await wire.rest("GET", "/v1/tasks/a/b")).status_code == 404


async def test_a_tenant_behind_a_roles_address_has_to_agree(wire: Wire) -> None:
    assert (await wire.rest("POST", "/agents/echo/echo/message:send", said("1.0"), **NEW)).status_code == 200
    assert (await wire.rest("GET", "/agents/echo/tasks?tenant=asker", **NEW)).status_code == 404
