"""REST over real sockets, in 1.0 and in the plain form of 0.3: every operation, status and body."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.acceptance.wire import ApiClient, Played, SseFrame, enrolled
from tests.helpers.processes import HubProcess, start_hub, start_worker

NEW: dict[str, Any] = {"A2A_Version": "1.0"}
# The addresses of each version, and the header that each needs.
ADDRESSES = {
    "1.0": [("", NEW), ("/echo", NEW), ("/agents/echo", NEW), ("/agents/echo:w", NEW), ("", {"A2A_Version": "1.0.1"})],
    "0.3": [("/v1", {}), ("/agents/echo/v1", {}), ("/a2a/rest", {}), ("", {}), ("/agents/echo", {"A2A_Version": "0.3"})],
}
everywhere = pytest.mark.parametrize(
    ("dialect", "prefix", "headers"), [(dialect, *place) for dialect, addresses in ADDRESSES.items() for place in addresses]
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
async def client(hub: HubProcess) -> AsyncIterator[ApiClient]:
    async with httpx.AsyncClient(base_url=hub.url, trust_env=False, timeout=20) as http:
        yield ApiClient(http)


def send_params(dialect: str, text: str = "hi", role: str = "echo", **more: Any) -> dict[str, Any]:
    new = dialect == "1.0"
    part = {"text": text} if new else {"kind": "text", "text": text}
    message = {"messageId": str(uuid4()), "role": "ROLE_USER" if new else "user", "parts": [part]}
    return {"message": message, "metadata": {"role": role}, **more}


def task_of(dialect: str, answer: dict[str, Any]) -> dict[str, Any]:
    """The answer to a message is wrapped in 1.0, and has a kind in 0.3."""
    if dialect == "1.0":
        assert list(answer) == ["task"]
        answer = answer["task"]
        assert "kind" not in answer
    else:
        assert answer["kind"] == "task"
    return answer


async def done(client: ApiClient, dialect: str = "1.0", text: str = "hi") -> str:
    """A task that has ended."""
    response = await client.rest("POST", "/message:send", send_params(dialect, text), **(NEW if dialect == "1.0" else {}))
    return str(task_of(dialect, response.json())["id"])


@everywhere
async def test_send_get_and_list(client: ApiClient, dialect: str, prefix: str, headers: dict[str, Any]) -> None:
    sent = await client.rest("POST", f"{prefix}/message:send", send_params(dialect), **headers)
    assert (sent.status_code, sent.headers["content-type"]) == (200, "application/json")
    task = task_of(dialect, sent.json())
    assert task["status"]["state"] == DONE[dialect]
    assert task["artifacts"][0]["parts"] == [{"text": "hi"} if dialect == "1.0" else {"kind": "text", "text": "hi"}]
    got = await client.rest("GET", f"{prefix}/tasks/{task['id']}?historyLength=0", **headers)
    assert got.status_code == 200
    assert got.json() == {name: value for name, value in task.items() if name != "history"}
    # A list without a version is one of 1.0, because 0.3 has no such address.
    headers = headers or ({} if prefix else {"A2A_Version": dialect})
    page = (await client.rest("GET", f"{prefix}/tasks?pageSize=1&historyLength=0", **headers)).json()
    assert page.keys() == {"tasks", "nextPageToken", "pageSize", "totalSize"}
    assert page["pageSize"] == 1 <= page["totalSize"]
    assert page["tasks"] == [{name: value for name, value in got.json().items() if name != "artifacts"}]


@everywhere
async def test_stream_and_subscribe(client: ApiClient, dialect: str, prefix: str, headers: dict[str, Any]) -> None:
    frames = await client.frames("POST", f"{prefix}/message:stream", send_params(dialect), **headers)
    assert [frame.cursor for frame in frames] == list(range(1, len(frames) + 1))
    assert {frame.event for frame in frames} == {None}
    task = task_of(dialect, frames[0].document)
    assert state(frames[-1]) == DONE[dialect]
    for method in ("GET", "POST"):
        again = await client.frames(method, f"{prefix}/tasks/{task['id']}:subscribe", **headers, Last_Event_ID="2")
        assert again[1:] == frames[2:]
        assert (again[0].cursor, task_of(dialect, again[0].document)["id"]) == (2, task["id"])
        if dialect == "0.3":
            (whole,) = await client.frames(method, f"{prefix}/tasks/{task['id']}:subscribe", **headers)
            assert state(whole) == "completed"
        else:
            refused = await client.rest(method, f"{prefix}/tasks/{task['id']}:subscribe", **headers)
            assert (refused.status_code, refused.json()["error"]["details"][0]["reason"]) == (400, "UNSUPPORTED_OPERATION")


@everywhere
async def test_cancel(client: ApiClient, dialect: str, prefix: str, headers: dict[str, Any]) -> None:
    """The address of a role has no tasks of other roles."""
    waiting = send_params(dialect, "paint", "asker", configuration={"blocking": False, "returnImmediately": True})
    root = {"1.0": "", "0.3": "/v1"}[dialect]
    sent = await client.rest("POST", f"{root}/message:send", waiting, **(NEW if dialect == "1.0" else {}))
    task = task_of(dialect, sent.json())["id"]
    answer = await client.rest("POST", f"{prefix}/tasks/{task}:cancel", {}, **headers)
    if "echo" in prefix:
        assert (answer.status_code, answer.json()["error"]["details"][0]["reason"]) == (404, "TASK_NOT_FOUND")
        return
    assert (answer.status_code, answer.json()["id"]) == (200, task)
    assert answer.json()["status"]["state"] == ("TASK_STATE_CANCELED" if dialect == "1.0" else "canceled")
    again = await client.rest("POST", f"{prefix}/tasks/{task}:cancel", **headers)
    assert (again.status_code, again.json()["error"]["details"][0]["reason"]) == (400, "TASK_NOT_CANCELABLE")


@everywhere
async def test_push_configs(client: ApiClient, dialect: str, prefix: str, headers: dict[str, Any]) -> None:
    task = await done(client)
    base, hook = f"{prefix}/tasks/{task}/pushNotificationConfigs", {"id": "p", "url": "http://127.0.0.1:9/", "token": "secret"}
    # Without a version in address or header, it is the version that introduced this address.
    new = dialect == "1.0" or not (prefix or headers)
    shown: dict[str, Any] = {"taskId": task, "id": "p", "url": hook["url"]}
    if not new:
        shown = {"taskId": task, "pushNotificationConfig": {"id": "p", "url": hook["url"]}}
    body = hook if new else {"pushNotificationConfig": hook}
    assert (await client.rest("POST", base, body, **headers)).json() == shown
    assert (await client.rest("GET", f"{base}/p", **headers)).json() == shown
    page = (await client.rest("GET", base, **headers)).json()
    assert page == ({"configs": [shown], "nextPageToken": ""} if new else [shown])
    for _ in range(2):
        deleted = await client.rest("DELETE", f"{base}/p", **headers)
        assert (deleted.status_code, deleted.json()) == (200, {})
    missing = await client.rest("GET", f"{base}/p", **headers)
    assert (missing.status_code, missing.json()["error"]["status"]) == (404, "NOT_FOUND")


def state(frames: SseFrame) -> str:
    document = next(iter(frames.document.values())) if len(frames.document) == 1 else frames.document
    return str(document["status"]["state"])


# --- errors


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "name", "reason"),
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
    client: ApiClient, method: str, path: str, body: Any, status: int, name: str, reason: str
) -> None:
    response = await client.rest(method, path, body, **NEW)
    document = response.json()
    assert (response.status_code, response.headers["content-type"]) == (status, "application/json")
    assert document.keys() == {"error", "message"}
    error = document["error"]
    assert error.keys() == {"code", "status", "message", "details"}
    assert (error["code"], error["status"]) == (status, name)
    assert (error["details"][0]["@type"], error["details"][0]["reason"]) == (ERROR_INFO, reason)
    assert document["message"] == error["message"]


async def test_a_refusal_that_may_be_retried_has_retry_after(client: ApiClient) -> None:
    response = await client.http.put("/registry/agents/gone/x", json={"url": "http://127.0.0.1:1/"})
    await client.http.delete("/registry/agents/gone:x")
    assert response.status_code == 201
    answer = await client.rest("POST", "/gone/message:send", send_params("1.0", role="gone"), **NEW)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
    (detail,) = answer.json()["error"]["details"]
    assert (detail["reason"], detail["domain"], detail["metadata"]["retryAfter"]) == ("NO_LIVE_WORKER", "rolecall", "10")


@pytest.mark.parametrize(
    ("content", "headers", "status", "reason"),
    [
        (b"{", {"Content-Type": "application/json"}, 400, "PARSE_ERROR"),
        (b"{}", {"Content-Type": "text/plain"}, 415, "CONTENT_TYPE_NOT_SUPPORTED"),
        (b"{}", {"Content-Type": "application/json", "Content-Encoding": "gzip"}, 415, "CONTENT_TYPE_NOT_SUPPORTED"),
        (b"[" * 30_000, {"Content-Type": "application/json"}, 413, "BODY_TOO_LARGE"),
    ],
)
async def test_an_invalid_body_is_refused(
    client: ApiClient, content: bytes, headers: dict[str, str], status: int, reason: str
) -> None:
    response = await client.http.post("/message:send", content=content, headers=headers)
    assert response.status_code == status
    assert response.json()["error"]["details"][0]["reason"] == reason


@pytest.mark.parametrize(("prefix", "headers"), [("", NEW), ("/v1", {})])
async def test_the_query_of_a_message_reaches_no_worker(client: ApiClient, prefix: str, headers: dict[str, Any]) -> None:
    new = not prefix
    done = {"id": "wt", "contextId": "wc", "status": {"state": "TASK_STATE_COMPLETED" if new else "completed"}}
    worker = Played(lambda name, params: {"task": done} if new else {"kind": "task", **done})
    async with enrolled(client.http, worker, "asked", dialect="1.0" if new else "0.3"):
        path = f"{prefix}/message:send?access_token=secret&x=1"
        response = await client.rest("POST", path, send_params("1.0" if new else "0.3", role="asked"), **headers)
    assert response.status_code == 200
    ((request, _),) = worker.calls
    assert b"secret" not in request.body


async def test_a2a_has_a_media_type_of_its_own(client: ApiClient) -> None:
    response = await client.rest("POST", "/message:send", send_params("1.0"), Content_Type="application/a2a+json", **NEW)
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
async def test_another_method_is_not_allowed(client: ApiClient, path: str, allowed: str) -> None:
    for method in {"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"} - {*allowed.split(", ")}:
        response = await client.rest(method, path)
        assert (response.status_code, response.headers["allow"]) == (405, allowed)
        assert (response.content == b"") is (method == "HEAD")
    # A body after a HEAD response would break this next response.
    assert (await client.rest("GET", "/tasks/none")).status_code == 404


@pytest.mark.parametrize(("prefix", "headers"), [("/v1", {}), ("/agents/echo/v1", {}), ("", {"A2A_Version": "0.3"})])
@pytest.mark.parametrize("method", ["message:send", "message:stream"])
async def test_the_protobuf_form_of_0_3_is_refused_with_an_alternative(
    client: ApiClient, prefix: str, headers: dict[str, str], method: str
) -> None:
    proto = {"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "hi"}]}, "configuration": {}}
    response = await client.rest("POST", f"{prefix}/{method}", proto, **headers)
    assert response.status_code == 400
    assert response.json()["message"] == (
        "The hub does not support the protobuf form of 0.3 REST. Use JSON-RPC, or 1.0 with A2A-Version: 1.0."
    )


@pytest.mark.parametrize(
    ("version", "status", "reason"),
    [
        ("2.0", 400, "VERSION_NOT_SUPPORTED"),
        ("0.1", 400, "UNSUPPORTED_OPERATION"),
        ("1.1", 400, "VERSION_NOT_SUPPORTED"),
        ("1.0.1", 404, "TASK_NOT_FOUND"),
    ],
)
async def test_a_version_is_read_from_the_header_or_from_the_query(
    client: ApiClient, version: str, status: int, reason: str
) -> None:
    for response in (
        await client.rest("GET", "/tasks/none", A2A_Version=version),
        await client.rest("GET", f"/tasks/none?historyLength=1&A2A-Version={version}"),
    ):
        assert (response.status_code, response.json()["error"]["details"][0]["reason"]) == (status, reason)


async def test_without_a_version_a_task_is_answered_in_its_own(client: ApiClient) -> None:
    for dialect, state in DONE.items():
        got = await client.rest("GET", f"/tasks/{await done(client, dialect)}")
        assert got.json()["status"]["state"] == state


async def test_an_id_may_hold_what_an_address_cannot(client: ApiClient) -> None:
    name = "a/b 100%25 ä"
    message = {"role": "user", "parts": [{"type": "text", "text": "hi"}]}
    await client.result("tasks/send", {"id": name, "message": message}, "/agents/echo/")
    got = await client.rest("GET", "/v1/tasks/a%2Fb%20100%2525%20%C3%A4")
    assert got.status_code == 200
    assert (await client.rest("GET", "/v1/tasks/a/b")).status_code == 404


async def test_a_tenant_behind_a_roles_address_has_to_agree(client: ApiClient) -> None:
    assert (await client.rest("POST", "/agents/echo/echo/message:send", send_params("1.0"), **NEW)).status_code == 200
    assert (await client.rest("GET", "/agents/echo/tasks?tenant=asker", **NEW)).status_code == 404
