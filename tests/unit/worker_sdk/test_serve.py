"""A worker over HTTP: A2A 0.3 in JSON-RPC, streams that replay, refusals with their codes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from rolecall.model.card import REPLAY_EXTENSION, can_replay
from tests.unit.worker_sdk.serving import Caller, message_params, served
from worker_sdk import Message, NeedInput, Worker
from worker_sdk.tasks.task_table import TaskLimits

signals: dict[str, asyncio.Event] = {}

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def caller() -> AsyncIterator[Caller]:
    signals["go"] = asyncio.Event()
    worker = Worker("w", concurrency=3, max_body=50_000)

    @worker.on_message
    async def handler(text: str) -> AsyncGenerator[Any, Message]:
        """Counts, waits, or asks."""
        if text == "wait":
            yield "before"
            await signals["go"].wait()
            yield "after"
        elif text == "ask":
            reply = yield NeedInput("what?")
            yield reply.text
        else:
            for n in range(int(text)):
                yield str(n)

    async with served(worker) as client:
        yield client


async def _nothing() -> None: ...


async def first_of(caller: Caller, method: str, params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Read one event and disconnect."""
    events = caller.stream(method, params)
    event = await anext(events)
    await events.aclose()  # type: ignore[attr-defined] # it is a generator
    return event


async def test_both_card_paths_return_the_same_card_with_the_replay_extension(caller: Caller) -> None:
    new, old = await caller.http.get("/.well-known/agent-card.json"), await caller.http.get("/.well-known/agent.json")
    card = new.json()
    assert new.content == old.content
    assert card["capabilities"]["streaming"] is True
    assert card["url"] == f"{caller.http.base_url}/"
    assert (card["description"], card["skills"][0]["id"]) == ("Counts, waits, or asks.", "w")
    assert can_replay(card)


@pytest.mark.parametrize(
    "card",
    [
        {},
        {"capabilities": None},
        {"capabilities": []},
        {"capabilities": {"extensions": {"uri": REPLAY_EXTENSION}}},
        {"capabilities": {"extensions": [1, None]}},
    ],
)
def test_cards_of_any_shape_can_be_checked_for_replay(card: dict[str, Any]) -> None:
    assert not can_replay(card)


async def test_a_stream_starts_with_the_task_numbers_frames_and_ends_after_the_final_one(caller: Caller) -> None:
    events = await caller.events("message/stream", message_params("2"))
    kinds = [document["kind"] for _, document in events]
    assert kinds == ["task", "artifact-update", "artifact-update", "artifact-update", "status-update"]
    boot_ids, numbers = zip(*(position.split(".") for position, _ in events), strict=True)
    assert len(set(boot_ids)) == 1
    assert numbers == ("1", "2", "3", "4", "5")
    task, final = events[0][1], events[-1][1]
    assert task["history"][0]["parts"] == [{"kind": "text", "text": "2"}]
    assert (final["status"]["state"], final["final"]) == ("completed", True)
    assert all(document["contextId"] == task["contextId"] for _, document in events)


@pytest.mark.parametrize("path", ["/", "/a2a"])
async def test_only_a_blocking_send_waits_for_the_end(caller: Caller, path: str) -> None:
    body = {"jsonrpc": "2.0", "id": "x", "method": "message/send", "params": message_params("3")}
    answer = (await caller.http.post(path, json=body)).json()
    assert (answer["id"], answer["result"]["status"]["state"]) == ("x", "completed")
    early = await caller.result("message/send", {**message_params("wait"), "configuration": {"blocking": False}})
    assert early["status"]["state"] == "working"
    signals["go"].set()
    async with asyncio.timeout(5):
        done = await caller.events("tasks/resubscribe", {"id": early["id"]})
    assert done[-1][1]["status"]["state"] == "completed"


async def test_resubscribing_replays_exactly_what_follows_also_after_the_end(caller: Caller) -> None:
    events = await caller.events("message/stream", message_params("20"))
    task_id = events[0][1]["id"]
    for n in (0, 7, len(events)):
        after = events[n - 1][0] if n else events[0][0].split(".")[0] + ".0"
        assert await caller.events("tasks/resubscribe", {"id": task_id}, after=after) == events[n:]


async def test_resubscribing_without_a_position_of_this_process_gives_the_current_task(caller: Caller) -> None:
    events = await caller.events("message/stream", message_params("2"))
    task_id, (last, _) = events[0][1]["id"], events[-1]
    boot = last.split(".")[0]
    for after in (None, "another.2", f"{boot}.99", f"{boot}.x", "3"):
        (only,) = await caller.events("tasks/resubscribe", {"id": task_id}, after=after)
        assert (only[0], only[1]["kind"], only[1]["status"]["state"]) == (last, "task", "completed")


async def test_resubscribing_before_a_dropped_event_gives_the_current_task() -> None:
    worker = Worker("w", limits=TaskLimits(log=4_000))

    @worker.on_message
    async def count() -> AsyncGenerator[Any, Message]:
        for n in range(50):
            yield f"{n:050}"

    async with served(worker) as caller:
        events = await caller.events("message/stream", message_params("x"))
        task_id, boot = events[0][1]["id"], events[0][0].split(".")[0]
        first = worker.tasks.get(task_id).first
        assert first > 2
        stored = await caller.events("tasks/resubscribe", {"id": task_id}, after=f"{boot}.{first - 1}")
        assert stored == events[first - 1 :]
        (task,) = await caller.events("tasks/resubscribe", {"id": task_id}, after=f"{boot}.{first - 2}")
        assert (task[1]["kind"], task[1]["status"]["state"]) == ("task", "completed")


@pytest.mark.virtual_time
async def test_a_stream_of_many_pages_is_sent_without_a_pause() -> None:
    worker = Worker("w")

    @worker.on_message
    async def count() -> AsyncGenerator[Any, Message]:
        for n in range(600):
            yield str(n)

    loop = asyncio.get_running_loop()
    async with served(worker) as caller:
        began = loop.time()
        assert len(await caller.events("message/stream", message_params("x"))) > 600
        assert loop.time() - began < 0.5


async def test_a_client_that_disconnects_does_not_stop_the_task(caller: Caller) -> None:
    position, task = await first_of(caller, "message/stream", message_params("wait"))
    readers = [asyncio.create_task(caller.events("tasks/resubscribe", {"id": task["id"]}, after=position)) for _ in range(2)]
    await asyncio.sleep(0.05)
    signals["go"].set()
    one, other = await asyncio.gather(*readers)
    assert one == other
    assert [part["text"] for _, document in one[:-1] for part in document["artifact"]["parts"]] == ["before", "after", ""]


async def test_a_question_ends_the_stream_and_the_answer_continues_the_numbering(caller: Caller) -> None:
    asked = await caller.events("message/stream", message_params("ask"))
    assert [document["kind"] for _, document in asked] == ["task", "status-update"]
    assert (asked[-1][1]["final"], asked[-1][1]["status"]["state"]) == (True, "input-required")
    task_id = asked[0][1]["id"]
    answered = await caller.events("message/stream", message_params("this", taskId=task_id))
    assert [int(position.split(".")[1]) for position, _ in answered] == [3, 4, 5, 6]
    assert answered[0][1]["kind"] == "task"
    everything = await caller.events("tasks/resubscribe", {"id": task_id}, after=asked[0][0])
    assert [int(position.split(".")[1]) for position, _ in everything] == [2, 3, 4, 5, 6]


async def test_a_repeated_message_attaches_to_the_start_of_the_running_task(caller: Caller) -> None:
    message = message_params("wait", messageId="m")
    first = asyncio.create_task(caller.events("message/stream", message))
    await asyncio.sleep(0.05)
    again = asyncio.create_task(caller.events("message/stream", message))
    other = asyncio.create_task(
        caller.call("message/send", {**message, "configuration": {"blocking": False}}, **{"idempotency-key": "k"})
    )
    separate = (await other).json()["result"]["id"]
    signals["go"].set()
    events = await first
    assert events == await again
    assert separate != events[0][1]["id"]


async def test_cancel_ends_the_stream_as_canceled(caller: Caller) -> None:
    running = asyncio.create_task(caller.events("message/stream", message_params("wait", messageId="c")))
    await asyncio.sleep(0.05)
    task = await caller.result("message/send", {**message_params("wait", messageId="c"), "configuration": {"blocking": False}})
    canceled = await caller.result("tasks/cancel", {"id": task["id"]})
    assert canceled["status"]["state"] == "canceled"
    events = await running
    assert (events[-1][1]["status"]["state"], events[-1][1]["final"]) == ("canceled", True)
    assert await caller.code("tasks/cancel", {"id": task["id"]}) == -32002


@pytest.mark.parametrize("method", ["message/send", "message/stream"])
async def test_a_busy_worker_refuses_with_503_and_x_not_processed(caller: Caller, method: str) -> None:
    for _ in range(3):
        await caller.call("message/send", {**message_params("wait"), "configuration": {"blocking": False}})
    refused = await caller.call(method, message_params("1"))
    assert (refused.status_code, refused.headers["x-not-processed"]) == (503, "1")
    error = refused.json()["error"]
    assert (error["code"], error["data"][0]["reason"]) == (-32000, "WORKER_BUSY")


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("no/such", {}, -32601),
        ("message/send", {}, -32602),
        ("message/send", {"message": {"parts": []}}, -32602),
        ("message/send", message_params("1", taskId="unknown"), -32001),
        ("tasks/get", {}, -32602),
        ("tasks/get", {"id": "unknown"}, -32001),
        ("tasks/cancel", {"id": "unknown"}, -32001),
        ("tasks/pushNotificationConfig/set", {}, -32003),
        ("agent/getAuthenticatedExtendedCard", {}, -32007),
    ],
)
async def test_each_refused_call_has_its_code_and_http_200(
    caller: Caller, method: str, params: dict[str, Any], code: int
) -> None:
    answer = await caller.call(method, params)
    assert (answer.status_code, answer.json()["id"], answer.json()["error"]["code"]) == (200, 7, code)


@pytest.mark.parametrize(
    ("method", "params", "code"), [("tasks/resubscribe", {"id": "unknown"}, -32001), ("message/stream", {}, -32602)]
)
async def test_an_error_of_a_streaming_call_is_one_event(
    caller: Caller, method: str, params: dict[str, Any], code: int
) -> None:
    ((position, envelope),) = await caller.events(method, params)
    assert (position, envelope["error"]["code"]) == ("", code)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 200, -32700),
        (b"[]", 200, -32600),
        (b"1", 200, -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"tasks/get"}', 200, -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"tasks/get"}', 200, -32600),
        (b'{"jsonrpc":"2.0","method":"tasks/get"}', 200, -32602),
        (b'{"jsonrpc":"2.0","method":"tasks/purge"}', 200, -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":[]}', 200, -32602),
        (b'"' + b"x" * 60_000 + b'"', 413, -32600),
    ],
)
async def test_a_wrong_envelope_is_refused_with_its_code(caller: Caller, body: bytes, status: int, code: int) -> None:
    answer = await caller.http.post("/", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


async def test_a_body_without_length_is_only_read_up_to_the_limit() -> None:
    pieces = 0

    async def endless() -> dict[str, Any]:
        nonlocal pieces
        pieces += 1
        return {"type": "http.request", "body": b"x" * 400, "more_body": True}

    sent: list[dict[str, Any]] = []

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    worker = Worker("w", max_body=1000)
    worker.on_message(_nothing)
    await worker({"type": "http", "method": "POST", "path": "/", "headers": []}, endless, send)
    assert (sent[0]["status"], pieces) == (413, 3)


async def test_other_paths_methods_and_types_have_their_status(caller: Caller) -> None:
    assert (await caller.http.get("/nothing")).status_code == 404
    assert (await caller.http.get("/")).status_code == 405
    assert (await caller.http.post("/.well-known/agent.json")).status_code == 405
    response = await caller.http.post("/", content=b"x", headers={"content-type": "text/plain"})
    assert (response.status_code, response.json()["error"]["code"]) == (415, -32005)


async def test_a_silent_stream_sends_keep_alive_comments() -> None:
    from worker_sdk.serve import Server

    may_end = asyncio.Event()
    worker = Worker("w")

    @worker.on_message
    async def handler() -> None:
        await may_end.wait()

    server = Server(worker.tasks, worker.card, max_body=1000, keep_alive=0.01)
    sent: list[dict[str, Any]] = []
    request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": message_params("x")}).encode()
    received: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    received.put_nowait({"type": "http.request", "body": request})

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)
        if sum(event.get("body") == b": keep-alive\n\n" for event in sent) == 2:
            may_end.set()

    scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
    await asyncio.wait_for(server(scope, received.get, send), 5)
    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
    assert b'"completed"' in sent[-2]["body"]
    assert (b"x-accel-buffering", b"no") in sent[0]["headers"]
