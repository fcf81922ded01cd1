"""A worker with only send and get: its callers get streams, resubscription, lists and push."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx
import pytest

from rolecall.protocol.text.jsontext import parse
from tests.acceptance.wire import ApiClient, Played, SseFrame, enrolled
from tests.helpers.processes import HubProcess, start_hub
from tests.helpers.raw_server import Peer, RawServer, Request, answer

WORDS = ["one ", "two"]
WORKERS = ["0.3", "1.0", "1.0 over REST"]
every_worker = pytest.mark.parametrize("kind", WORKERS)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with start_hub(tmp_path_factory.mktemp("hub"), push_allowed_cidrs="127.0.0.0/8") as hub:
        yield hub


@pytest.fixture
async def client(hub: HubProcess) -> AsyncIterator[ApiClient]:
    async with httpx.AsyncClient(base_url=hub.url, trust_env=False, timeout=20) as http:
        yield ApiClient(http)


class Slow:
    """Each tasks/get adds one word; then the task is completed. It has two methods and no other."""

    def __init__(self, kind: str) -> None:
        self.new = kind != "0.3"
        self.rest = kind.endswith("REST")
        self.looks = -1
        self.worker = Played(self.reply, rest=self.rest)
        self.send, self.get = (
            ("POST /message:send", "GET /tasks/wt")
            if self.rest
            else ("SendMessage", "GetTask")
            if self.new
            else ("message/send", "tasks/get")
        )

    def reply(self, name: str, params: dict[str, Any]) -> Any:
        if name == self.send:
            return {"task": self.task()} if self.new else self.task()
        if name == self.get:
            self.looks += 1
            return self.task()
        raise KeyError(name)

    def task(self) -> dict[str, Any]:
        done = self.looks >= len(WORDS)
        parts = [{"text": word} if self.new else {"kind": "text", "text": word} for word in WORDS[: max(0, self.looks)]]
        state = ("completed" if done else "working") if not self.new else f"TASK_STATE_{'COMPLETED' if done else 'WORKING'}"
        task: dict[str, Any] = {"id": "wt", "contextId": "wc", "status": {"state": state}}
        if parts:
            task["artifacts"] = [{"artifactId": "a", "parts": parts}]
        return task if self.new else {"kind": "task", **task}


@dataclass
class Receiver:
    """A webhook receiver: its requests, in order."""

    received: list[tuple[Request, dict[str, Any]]] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, peer: Peer) -> None:
        while (request := await peer.read_request()) is not None:
            self.received.append((request, parse(request.body)))
            self.came.set()
            await peer.write(answer(b"{}"))

    async def until_received(self, last: str) -> list[dict[str, Any]]:
        async with asyncio.timeout(10):
            while not self.received or last not in str(self.received[-1][1]):
                self.came.clear()
                await self.came.wait()
        return [document for _, document in self.received]


def message(dialect: str, **configuration: Any) -> dict[str, Any]:
    if dialect == "1.0":
        return {
            "message": {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": "go"}]},
            "configuration": configuration,
        }
    part = {"kind": "text", "text": "go"}
    return {"message": {"messageId": str(uuid4()), "role": "user", "parts": [part]}, "configuration": configuration}


def texts(frames: list[SseFrame]) -> list[str]:
    updates = [frame.document.get("artifactUpdate") or frame.document for frame in frames]
    return [part["text"] for update in updates if "artifact" in update for part in update["artifact"]["parts"]]


def state(frames: SseFrame) -> str:
    document = next(iter(frames.document.values())) if len(frames.document) == 1 else frames.document
    return str(document["status"]["state"])


STREAM = {"0.3": "message/stream", "1.0": "SendStreamingMessage"}
RESUME = {"0.3": "tasks/resubscribe", "1.0": "SubscribeToTask"}
DONE = {"0.3": "completed", "1.0": "TASK_STATE_COMPLETED"}
dialects = pytest.mark.parametrize("dialect", ["0.3", "1.0"])


@every_worker
@dialects
async def test_its_callers_get_a_stream(client: ApiClient, dialect: str, kind: str) -> None:
    slow = Slow(kind)
    async with enrolled(client.http, slow.worker, "slow", dialect=kind[:3], rest=slow.rest):
        frames = await client.stream(STREAM[dialect], message(dialect), "/agents/slow/")
    assert [frame.cursor for frame in frames] == list(range(1, len(frames) + 1))
    assert "task" in (frames[0].document.get("kind"), *frames[0].document)
    assert texts(frames) == WORDS
    assert state(frames[-1]) == DONE[dialect]
    assert set(slow.worker.asked) == {slow.send, slow.get}, "the worker got another call"


@every_worker
async def test_its_callers_get_a_stream_under_the_oldest_names(client: ApiClient, kind: str) -> None:
    slow = Slow(kind)
    send_params = {"id": f"old-{kind}", "message": {"role": "user", "parts": [{"type": "text", "text": "go"}]}}
    async with enrolled(client.http, slow.worker, "slow", dialect=kind[:3], rest=slow.rest):
        frames = await client.stream("tasks/sendSubscribe", send_params, "/agents/slow/")
    assert {frame.document["id"] for frame in frames} == {f"old-{kind}"}
    assert texts(frames) == WORDS
    assert (state(frames[-1]), frames[-1].document["final"]) == ("completed", True)


@every_worker
@dialects
async def test_a_reader_that_disconnects_resumes_with_the_rest(client: ApiClient, dialect: str, kind: str) -> None:
    slow = Slow(kind)
    async with enrolled(client.http, slow.worker, "slow", dialect=kind[:3], rest=slow.rest):
        begun = await client.stream(STREAM[dialect], message(dialect), "/agents/slow/", limit=2)
        first = begun[0].document.get("task") or begun[0].document
        again = await client.stream(RESUME[dialect], {"id": first["id"]}, Last_Event_ID=str(begun[-1].cursor))
    assert again[0].cursor == begun[-1].cursor
    assert [frame.cursor for frame in again] == list(range(again[0].cursor, again[-1].cursor + 1))
    assert texts(begun) + texts(again) == WORDS
    assert state(again[-1]) == DONE[dialect]
    assert slow.worker.asked.count(slow.send) == 1


@every_worker
async def test_its_tasks_are_listed(client: ApiClient, kind: str) -> None:
    slow = Slow(kind)
    role = f"listed{WORKERS.index(kind)}"
    async with enrolled(client.http, slow.worker, role, dialect=kind[:3], rest=slow.rest):
        sent = await client.result("SendMessage", message("1.0", returnImmediately=True), f"/agents/{role}/")
        page = await client.result("ListTasks", {"tenant": role})
        assert [task["id"] for task in page["tasks"]] == [sent["task"]["id"]]
        assert (page["totalSize"], page["nextPageToken"]) == (1, "")
        # Cancel is refused, because the hub cannot supply it: only the worker can end its work.
        refused = await client.rpc("CancelTask", {"id": sent["task"]["id"]})
        assert refused["error"]["code"] == (-32603 if slow.rest else -32004)


@every_worker
@dialects
async def test_its_callers_get_webhooks(client: ApiClient, dialect: str, kind: str) -> None:
    slow, receiver = Slow(kind), Receiver()
    async with RawServer(receiver) as hook, enrolled(client.http, slow.worker, "slow", dialect=kind[:3], rest=slow.rest):
        config = {"url": hook.url, "token": "secret"}
        name = "pushNotificationConfig" if dialect == "0.3" else "taskPushNotificationConfig"
        method = "message/send" if dialect == "0.3" else "SendMessage"
        await client.result(method, message(dialect, **{name: config}), "/agents/slow/")
        frames = await receiver.until_received(DONE[dialect])
    if dialect == "0.3":
        assert {document["kind"] for document in frames} == {"task"}
        (artifact,) = frames[-1]["artifacts"]
        assert [part["text"] for part in artifact["parts"]] == WORDS
    else:
        assert all(len(document) == 1 for document in frames)
        assert texts([SseFrame(0, None, document) for document in frames]) == WORDS
    assert {request.headers["x-a2a-notification-token"] for request, _ in receiver.received} == {"secret"}
    assert not any("secret" in str(params) for _, params in slow.worker.calls), "a worker got webhook data"
