"""Dialects over real sockets in JSON-RPC: versions, extensions, batches, calls to workers, and untranslatable events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from rolecall.protocol.text.jsontext import dump
from tests.acceptance.wire import JSON, ApiClient, Played, enrolled
from tests.helpers.processes import HubProcess, start_hub, start_worker
from tests.helpers.raw_server import Peer, RawServer, frame, stream

SEND = {"0.3": "message/send", "1.0": "SendMessage"}
STREAM = {"0.3": "message/stream", "1.0": "SendStreamingMessage"}
GET = {"0.3": "tasks/get", "1.0": "GetTask"}
dialects = pytest.mark.parametrize("dialect", ["0.3", "1.0"])
log_dialects = pytest.mark.parametrize("log_dialect", ["0.3", "1.0"])


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    folder = tmp_path_factory.mktemp("hub")
    with start_hub(folder, worker_silence=5) as hub:
        running = [
            start_worker(f"tests.acceptance.workers:{one}", name, hub.url, log=folder / one)
            for one, name in (("instant", "echo:w"), ("asker", "asker:w"))
        ]
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


def send_params(dialect: str, text: str = "hi", configuration: Any = None, **members: Any) -> dict[str, Any]:
    if dialect == "0.1":
        return {"message": {"role": "user", "parts": [{"type": "text", "text": text}]}, **members}
    new = dialect == "1.0"
    part = {"text": text} if new else {"kind": "text", "text": text}
    message = {"messageId": str(uuid4()), "role": "ROLE_USER" if new else "user", "parts": [part], **members}
    return {"message": message, "configuration": configuration or {}}


def reply(log_dialect: str) -> Any:
    """The answer of a worker that completes at once."""
    task: dict[str, Any] = {"id": str(uuid4()), "contextId": "wc", "status": {"state": "completed"}}
    if log_dialect == "1.0":
        task["status"] = {"state": "TASK_STATE_COMPLETED"}
        return {"task": task}
    return {"kind": "task", **task}


# --- versions


@pytest.mark.parametrize(
    ("method", "version", "code"),
    [
        ("GetTask", "1.0", -32001),
        ("GetTask", "1.0.1", -32001),
        ("GetTask", "1.0, 1.0", -32001),
        ("GetTask", "0.3", -32001),
        ("GetTask", "1", -32009),
        ("GetTask", "1.1", -32009),
        ("GetTask", "0.2", -32009),
        ("GetTask", "0.4", -32009),
        ("GetTask", "1.0, 0.3", -32009),
        ("GetTask", "", -32001),
        ("GetTask", "2.0", -32009),
        ("GetTask", "x", -32009),
        ("tasks/get", "1.0", -32001),
        ("tasks/get", "0.1", -32001),
        ("tasks/get", "2.0", -32009),
        ("tasks/get", "1.1", -32009),
        ("GetSong", "1.0", -32601),
        ("GetSong", "1.1", -32009),
    ],
)
async def test_the_method_names_the_dialect_and_an_unsupported_version_is_refused(
    client: ApiClient, method: str, version: str, code: int
) -> None:
    asked = {"id": "none"}
    answers = [
        await client.rpc(method, asked, A2A_Version=version),
        await client.rpc(method, asked, f"/?x=1&A2A-Version={version}"),
    ]
    assert [answer["error"]["code"] for answer in answers] == [code, code]
    assert (await client.rpc(method, asked, f"/?xA2A-Version={version}"))["error"]["code"] in (-32001, -32601)
    reasons = {-32001: "TASK_NOT_FOUND", -32009: "VERSION_NOT_SUPPORTED"}
    if method == "GetTask":
        (info,) = answers[0]["error"]["data"]
        assert (info["reason"], info["domain"]) == (reasons[code], "a2a-protocol.org")


@pytest.mark.parametrize(
    ("headers", "query", "status"),
    [
        (["1.0", "1.0"], "", 404),
        (["1.0", "0.3"], "", 400),
        (["0.3", "1.0"], "", 400),
        (["1.0", "1.1"], "", 400),
        (["1.0"], "?A2A-Version=2.0", 404),
        (["2.0"], "?A2A-Version=1.0", 400),
        ([""], "?A2A-Version=2.0", 404),
        ([], "?A2A-Version=1.0&A2A-Version=1.0", 404),
        ([], "?A2A-Version=1.0&A2A-Version=0.3", 400),
        (["1.0, " * 100 + "2.0"], "", 400),
    ],
)
async def test_several_versions_have_to_agree_and_the_header_comes_before_the_query(
    client: ApiClient, headers: list[str], query: str, status: int
) -> None:
    response = await client.http.get(f"/tasks/none{query}", headers=[("A2A-Version", version) for version in headers])
    reason = response.json()["error"]["details"][0]["reason"]
    assert (response.status_code, reason) == (status, "TASK_NOT_FOUND" if status == 404 else "VERSION_NOT_SUPPORTED")


@pytest.mark.parametrize(("method", "version"), [("GetTask", "0.3"), ("tasks/get", "1.0"), ("GetTask", None)])
async def test_a_method_with_the_version_of_another_is_answered_in_its_own_dialect(
    client: ApiClient, method: str, version: str | None
) -> None:
    sent = await client.result("SendMessage", {**send_params("1.0"), "tenant": "echo"})
    task = await client.result(method, {"id": sent["task"]["id"]}, **({"A2A_Version": version} if version else {}))
    assert task["status"]["state"] == ("TASK_STATE_COMPLETED" if method == "GetTask" else "completed")


@pytest.mark.parametrize("version", ["1.1", "2.0", "0.2", "new", ""])
async def test_a_card_in_an_unknown_version_is_the_one_for_all(client: ApiClient, version: str) -> None:
    card = (await client.http.get("/.well-known/agent-card.json", headers={"A2A-Version": version})).json()
    assert card["protocolVersion"] == "0.3.0"
    assert {interface["protocolVersion"] for interface in card["supportedInterfaces"]} == {"0.3", "1.0"}


@dialects
async def test_every_address_takes_every_dialect(client: ApiClient, dialect: str) -> None:
    for path in ("/agents/echo", "/agents/echo/", "/agents/echo/a2a", "/agents/echo:w/"):
        result = await client.result(SEND[dialect], send_params(dialect), path)
        assert result.get("kind") == "task" if dialect == "0.3" else list(result) == ["task"]
    for path in ("/", "/a2a", "/a2a/", "/a2a/jsonrpc", "/v1/a2a"):
        named = {**send_params(dialect), "metadata": {"role": "echo"}}
        assert "error" not in await client.rpc(SEND[dialect], named, path)


async def test_one_task_is_read_and_continued_in_every_dialect(client: ApiClient) -> None:
    name = f"mine-{uuid4()}"
    await client.result("tasks/send", send_params("0.1", "paint", id=name, sessionId="s"), "/agents/asker/")
    waiting = await client.stream("tasks/resubscribe", {"id": name})
    assert waiting[-1].document["status"]["state"] == "input-required"
    newest = await client.result("GetTask", {"id": name})
    assert newest["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    answer = send_params("1.0", "blue", taskId=newest["id"], contextId=newest["contextId"])
    frames = await client.stream("SendStreamingMessage", answer)
    assert next(iter(frames[0].document)) == "task"
    assert frames[-1].document["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    oldest = await client.result("tasks/get", {"id": name})
    assert (oldest["id"], oldest["sessionId"], oldest["status"]["state"]) == (name, "s", "completed")
    assert oldest["artifacts"][0]["parts"] == [{"type": "text", "text": "blue it is"}]
    classic = await client.result("tasks/get", {"id": newest["id"]}, A2A_Version="0.3")
    assert [message["parts"][0]["text"] for message in classic["history"]] == ["paint", "Which colour?", "blue"]


# --- what reaches the worker


@dialects
@log_dialects
async def test_extensions_are_forwarded_and_echoed_under_the_callers_header_name(
    client: ApiClient, dialect: str, log_dialect: str
) -> None:
    worker = Played(lambda name, params: reply(log_dialect))
    named = "https://example.org/a, urn:b ,, bad name, https://example.org/a"
    async with enrolled(client.http, worker, "tone", dialect=log_dialect):
        for header in ("A2A-Extensions", "X-A2A-Extensions"):
            body = {"jsonrpc": "2.0", "id": 1, "method": SEND[dialect], "params": send_params(dialect)}
            headers = {**JSON, header: named}
            response = await client.http.post("/agents/tone/", content=dump(body), headers=headers)
            assert response.headers[header] == "https://example.org/a, urn:b"
            other = {"A2A-Extensions", "X-A2A-Extensions"} - {header}
            assert not other & {name.title().replace("2a", "2A") for name in response.headers}
    expected_header, other_header = (
        ("a2a-extensions", "x-a2a-extensions") if log_dialect == "1.0" else ("x-a2a-extensions", "a2a-extensions")
    )
    for request, _ in worker.calls:
        assert request.headers[expected_header] == "https://example.org/a, urn:b"
        assert other_header not in request.headers
        assert request.headers.get("a2a-version") == ("1.0" if log_dialect == "1.0" else None)


@pytest.mark.parametrize("value", [b"https://x\xff\xfe", b"a" * 300, b",".join(b"e%d" % n for n in range(50)), b"a\tb", b""])
async def test_no_extension_smuggles_anything_into_a_header(client: ApiClient, value: bytes) -> None:
    worker = Played(lambda name, params: reply("1.0"))
    async with enrolled(client.http, worker, "tone", dialect="1.0"):
        body = dump({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": send_params("1.0")})
        headers = [(b"content-type", b"application/json"), (b"a2a-extensions", value)]
        response = await client.http.post("/agents/tone/", content=body, headers=headers)
    assert "result" in response.json()
    passed_on = worker.calls[0][0].headers.get("a2a-extensions", "")
    assert response.headers["a2a-extensions"] == passed_on
    assert passed_on.isascii()
    assert len([one for one in passed_on.split(", ") if one]) <= 32


@dialects
@log_dialects
async def test_accepted_modes_reach_the_worker_and_blocking_does_not(client: ApiClient, dialect: str, log_dialect: str) -> None:
    worker = Played(lambda name, params: reply(log_dialect))
    waits = {"blocking": True} if dialect == "0.3" else {"returnImmediately": False}
    async with enrolled(client.http, worker, "modes", dialect=log_dialect):
        configuration = {"acceptedOutputModes": ["text/plain", "image/png"], "historyLength": 0, **waits}
        await client.result(SEND[dialect], send_params(dialect, configuration=configuration), "/agents/modes/")
    ((_, params),) = worker.calls
    asks_not_to_wait = {"blocking": False} if log_dialect == "0.3" else {"returnImmediately": True}
    assert params["configuration"] == {"acceptedOutputModes": ["text/plain", "image/png"], **asks_not_to_wait}


@dialects
async def test_a_call_that_does_not_block_gets_the_working_task(client: ApiClient, dialect: str) -> None:
    configuration = {"blocking": False} if dialect == "0.3" else {"returnImmediately": True}
    result = await client.result(SEND[dialect], send_params(dialect, configuration=configuration), "/agents/asker/")
    task = result.get("task") or result
    assert task["id"]
    await client.result("tasks/cancel", {"id": task["id"]})


@dialects
async def test_a_caller_can_ask_for_no_history(client: ApiClient, dialect: str) -> None:
    result = await client.result(SEND[dialect], send_params(dialect, configuration={"historyLength": 0}), "/agents/echo/")
    task = result.get("task") or result
    assert "history" not in task
    assert len((await client.result(GET[dialect], {"id": task["id"]}))["history"]) == 1
    assert "history" not in await client.result(GET[dialect], {"id": task["id"], "historyLength": 0})
    refused = await client.rpc(GET[dialect], {"id": task["id"], "historyLength": -1})
    assert refused["error"]["code"] == -32602


@dialects
@log_dialects
async def test_a_workers_own_error_is_translated_to_the_callers_dialect(
    client: ApiClient, dialect: str, log_dialect: str
) -> None:
    async def script(peer: Peer) -> None:
        while (request := await peer.read_request()) is not None:
            error = {"code": -32008, "message": "Ask with the extension."}
            await peer.write(stream(frame(dump({"jsonrpc": "2.0", "id": "x", "error": error}))))
            assert request

    async with RawServer(script) as server:
        way = {"url": server.url, "protocolBinding": "JSONRPC", "protocolVersion": log_dialect}
        card = {"name": "picky", "supportedInterfaces": [way], "capabilities": {"streaming": True}}
        await client.http.put("/registry/agents/picky/w", json={"url": server.url, "card": card})
        error = (await client.rpc(SEND[dialect], send_params(dialect), "/agents/picky/"))["error"]
        await client.http.delete("/registry/agents/picky:w")
    assert (error["code"], error["message"]) == (-32008 if dialect == "1.0" else -32004, "Ask with the extension.")
    if dialect == "1.0":
        assert error["data"][0]["reason"] == "EXTENSION_SUPPORT_REQUIRED"


# --- what cannot be translated


async def test_a_stream_sends_all_events_before_an_untranslatable_one_and_then_the_reason(client: ApiClient) -> None:
    """A reader in the worker's dialect gets everything. A reader in another gets an error that names the part."""
    parts: list[Any] = [[{"kind": "text", "text": "one"}], [{"kind": "song", "song": "la"}], [{"kind": "text", "text": "two"}]]
    task = {"kind": "task", "id": "wt", "contextId": "wc", "status": {"state": "working"}}
    updates = [
        {"kind": "artifact-update", "taskId": "wt", "artifact": {"artifactId": str(at), "parts": part}}
        for at, part in enumerate(parts)
    ]
    end = {"kind": "status-update", "taskId": "wt", "status": {"state": "completed"}, "final": True}
    whole = stream(*(frame(dump({"jsonrpc": "2.0", "id": 1, "result": result})) for result in (task, *updates, end)))

    async def script(peer: Peer) -> None:
        while await peer.read_request() is not None:
            await peer.write(whole)

    async with RawServer(script) as server:
        document = {"url": server.url, "capabilities": {"streaming": True}}
        await client.http.put("/registry/agents/singer/w", json=document)
        frames = await client.stream(STREAM["1.0"], send_params("1.0"), "/agents/singer/")
        task_id = frames[0].document["task"]["id"]
        assert [frame.cursor for frame in frames[:2]] == [1, 2]
        error = frames[2].document["error"]
        assert (len(frames), error["code"]) == (3, -32006)
        assert '"artifact.parts[0]" must be a text, file or data part. (from 0.3 to 1.0)' in error["message"]
        over_rest = await client.frames("POST", "/agents/singer/message:stream", send_params("1.0"), A2A_Version="1.0")
        assert (over_rest[-1].event, over_rest[-1].document["error"]["code"]) == ("error", 500)
        own = await client.result("tasks/get", {"id": task_id}, A2A_Version="0.3")
        assert [artifact["parts"] for artifact in own["artifacts"]] == parts
        assert (await client.rpc("GetTask", {"id": task_id}))["error"]["code"] == -32006
        page = await client.result("ListTasks", {"tenant": "singer", "includeArtifacts": True})
        assert {entry["metadata"]["rolecall"]["reason"] for entry in page["tasks"]} == {"INVALID_AGENT_RESPONSE"}
        await client.http.delete("/registry/agents/singer:w")


@dialects
async def test_an_invalid_message_is_refused_and_stores_no_task(client: ApiClient, dialect: str) -> None:
    before = (await client.result("ListTasks", {}))["totalSize"]
    invalid_part: Any = {"raw": "not base64!"} if dialect == "1.0" else {"kind": "file", "file": {"bytes": "not base64!"}}
    refused = await client.rpc(SEND[dialect], send_params(dialect, parts=[invalid_part]), "/agents/echo/")
    place = "message.parts[0].raw" if dialect == "1.0" else "message.parts[0].file.bytes"
    assert (refused["error"]["code"], refused["error"]["message"]) == (-32602, f'"{place}" must be base64.')
    assert (await client.result("ListTasks", {}))["totalSize"] == before


# --- batches, and the oldest stream


async def test_each_entry_of_a_batch_is_answered_in_its_own_dialect(client: ApiClient) -> None:
    name = f"mine-{uuid4()}"
    batch = [
        {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {**send_params("0.3"), "metadata": {"role": "echo"}}},
        {"jsonrpc": "2.0", "id": "two", "method": "SendMessage", "params": {**send_params("1.0"), "tenant": "echo"}},
        {"jsonrpc": "2.0", "id": 3, "method": "tasks/send", "params": send_params("0.1", id=name, metadata={"role": "echo"})},
        {"jsonrpc": "2.0", "id": 4, "method": "GetTask", "params": {"id": "none"}},
        {"jsonrpc": "2.0", "id": 5, "method": "SubscribeToTask", "params": {"id": "none"}},
        {"jsonrpc": "2.0", "id": 6, "method": "GetTask"},
        {"jsonrpc": "2.0", "method": "GetTask"},
        7,
    ]
    response = await client.http.post("/", content=dump(batch), headers=JSON)
    answers = response.json()
    assert [answer["id"] for answer in answers] == [1, "two", 3, 4, 5, 6, None, None]
    assert answers[0]["result"]["kind"] == "task"
    assert list(answers[1]["result"]) == ["task"]
    assert answers[2]["result"]["id"] == name
    assert [answer["error"]["code"] for answer in answers[3:]] == [-32001, -32004, -32602, -32602, -32600]
    assert [answer["error"]["data"][0]["reason"] for answer in answers[3:5]] == ["TASK_NOT_FOUND", "UNSUPPORTED_OPERATION"]


async def test_the_oldest_stream_has_an_address_of_its_own_and_named_frames(client: ApiClient) -> None:
    name = f"mine-{uuid4()}"
    params = send_params("0.1", id=name, sessionId="s", metadata={"role": "echo"})
    frames = await client.stream("tasks/sendSubscribe", params, "/subscribe")
    assert {frame.event for frame in frames} == {"status", "artifact"}
    assert {frame.document["id"] for frame in frames} == {name}
    assert frames[-1].document["final"] is True
    for method in ("tasks/send", "message/stream"):
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        refused = await client.http.post("/subscribe", content=dump(body), headers=JSON)
        assert (refused.status_code, refused.json()) == (400, {"error": "Only tasks/sendSubscribe supported"})
    batch = await client.http.post("/subscribe", content=dump([{}]), headers=JSON)
    assert batch.json()["error"]["code"] == -32600
    response = await client.http.get("/subscribe")
    assert (response.status_code, response.headers["allow"]) == (405, "POST")


async def test_a_task_id_made_by_the_caller_and_an_idempotency_key_work_together(client: ApiClient) -> None:
    name, key = f"mine-{uuid4()}", str(uuid4())
    asked = send_params("0.1", id=name)
    first = await client.result("tasks/send", asked, "/agents/echo/", Idempotency_Key=key)
    again = await client.result("tasks/send", asked, "/agents/echo/", Idempotency_Key=key)
    assert first["id"] == again["id"] == name
    other = await client.rpc("tasks/send", send_params("0.1", "other", id=f"{name}-2"), "/agents/echo/", Idempotency_Key=key)
    assert (other["error"]["code"], other["error"]["data"][0]["reason"]) == (-32000, "CONFLICT")
    unknown = await client.rpc("tasks/get", {"id": f"{name}-2"})
    assert unknown["error"]["code"] == -32001


def test_batches_can_be_refused(tmp_path: Any) -> None:
    with start_hub(tmp_path / "hub", max_batch=0) as hub:
        response = httpx.post(f"{hub.url}/", content=b"[{}]", headers=JSON, trust_env=False)
        error = response.json()["error"]
    assert (error["code"], error["message"]) == (-32600, "Batch requests are not supported.")
