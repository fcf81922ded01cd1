"""A worker that can only take a message, and be asked for its task: its callers get streams, resubscription, lists and push."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx
import pytest

from rolecall.protocol.text.jsontext import parse
from tests.acceptance.wire import Played, Told, Wire, enrolled
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
async def wire(hub: HubProcess) -> AsyncIterator[Wire]:
    async with httpx.AsyncClient(base_url=hub.url, trust_env=False, timeout=20) as http:
        yield Wire(http)


class Slow:
    """One more word each time it is asked for its task, and then it is done. It knows two methods and no other."""

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
    """A webhook's end: what it was told, in order."""

    told: list[tuple[Request, dict[str, Any]]] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, peer: Peer) -> None:
        while (request := await peer.read_request()) is not None:
            self.told.append((request, parse(request.body)))
            self.came.set()
            await peer.write(answer(b"{}"))

    async def until_told(self, last: str) -> list[dict[str, Any]]:
        async with asyncio.timeout(10):
            while not self.told or last not in str(self.told[-1][1]):
                self.came.clear()
                await self.came.wait()
        return [document for _, document in self.told]


def message(dialect: str, **configuration: Any) -> dict[str, Any]:
    if dialect == "1.0":
        return {
            "message": {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": "go"}]},
            "configuration": configuration,
        }
    part = {"kind": "text", "text": "go"}
    return {"message": {"messageId": str(uuid4()), "role": "user", "parts": [part]}, "configuration": configuration}


def texts(told: list[Told]) -> list[str]:
    updates = [frame.document.get("artifactUpdate") or frame.document for frame in told]
    return [part["text"] for update in updates if "artifact" in update for part in update["artifact"]["parts"]]


def state(told: Told) -> str:
    document = next(iter(told.document.values())) if len(told.document) == 1 else told.document
    return str(document["status"]["state"])


STREAM = {"0.3": "message/stream", "1.0": "SendStreamingMessage"}
RESUBSCRIBE = {"0.3": "tasks/resubscribe", "1.0": "SubscribeToTask"}
DONE = {"0.3": "completed", "1.0": "TASK_STATE_COMPLETED"}
dialects = pytest.mark.parametrize("dialect", ["0.3", "1.0"])


@every_worker
@dialects
async def test_its_callers_get_a_stream_of_what_it_does(wire: Wire, dialect: str, kind: str) -> None:
    slow = Slow(kind)
    async with enrolled(wire.http, slow.worker, "slow", dialect=kind[:3], rest=slow.rest):
        told = await wire.stream(STREAM[dialect], message(dialect), "/agents/slow/")
    assert [frame.cursor for frame in told] == list(range(1, len(told) + 1))
    assert "task" in (told[0].document.get("kind"), *told[0].document)
    assert texts(told) == WORDS
    assert state(told[-1]) == DONE[dialect]
    assert set(slow.worker.asked) == {slow.send, slow.get}, "nothing else was ever asked of it"


@every_worker
async def test_its_callers_get_a_stream_under_the_oldest_names(wire: Wire, kind: str) -> None:
    slow = Slow(kind)
    said = {"id": f"old-{kind}", "message": {"role": "user", "parts": [{"type": "text", "text": "go"}]}}
    async with enrolled(wire.http, slow.worker, "slow", dialect=kind[:3], rest=slow.rest):
        told = await wire.stream("tasks/sendSubscribe", said, "/agents/slow/")
    assert {frame.document["id"] for frame in told} == {f"old-{kind}"}
    assert texts(told) == WORDS
    assert (state(told[-1]), told[-1].document["final"]) == ("completed", True)


@every_worker
@dialects
async def test_who_leaves_its_stream_comes_back_to_the_rest_of_it(wire: Wire, dialect: str, kind: str) -> None:
    slow = Slow(kind)
    async with enrolled(wire.http, slow.worker, "slow", dialect=kind[:3], rest=slow.rest):
        begun = await wire.stream(STREAM[dialect], message(dialect), "/agents/slow/", most=2)
        first = begun[0].document.get("task") or begun[0].document
        again = await wire.stream(RESUBSCRIBE[dialect], {"id": first["id"]}, Last_Event_ID=str(begun[-1].cursor))
    assert again[0].cursor == begun[-1].cursor
    assert [frame.cursor for frame in again] == list(range(again[0].cursor, again[-1].cursor + 1))
    assert texts(begun) + texts(again) == WORDS
    assert state(again[-1]) == DONE[dialect]
    assert slow.worker.asked.count(slow.send) == 1


@every_worker
async def test_its_tasks_are_listed(wire: Wire, kind: str) -> None:
    slow = Slow(kind)
    role = f"listed{WORKERS.index(kind)}"
    async with enrolled(wire.http, slow.worker, role, dialect=kind[:3], rest=slow.rest):
        sent = await wire.result("SendMessage", message("1.0", returnImmediately=True), f"/agents/{role}/")
        page = await wire.result("ListTasks", {"tenant": role})
        assert [task["id"] for task in page["tasks"]] == [sent["task"]["id"]]
        assert (page["totalSize"], page["nextPageToken"]) == (1, "")
        # What the hub cannot make up for is refused: nobody but the worker can end its work.
        refused = await wire.rpc("CancelTask", {"id": sent["task"]["id"]})
        assert refused["error"]["code"] == (-32603 if slow.rest else -32004)


@every_worker
@dialects
async def test_its_callers_are_told_by_webhook(wire: Wire, dialect: str, kind: str) -> None:
    slow, receiver = Slow(kind), Receiver()
    async with RawServer(receiver) as hook, enrolled(wire.http, slow.worker, "slow", dialect=kind[:3], rest=slow.rest):
        config = {"url": hook.url, "token": "secret"}
        name = "pushNotificationConfig" if dialect == "0.3" else "taskPushNotificationConfig"
        method = "message/send" if dialect == "0.3" else "SendMessage"
        await wire.result(method, message(dialect, **{name: config}), "/agents/slow/")
        told = await receiver.until_told(DONE[dialect])
    if dialect == "0.3":
        assert {document["kind"] for document in told} == {"task"}
        (artifact,) = told[-1]["artifacts"]
        assert [part["text"] for part in artifact["parts"]] == WORDS
    else:
        assert all(len(document) == 1 for document in told)
        assert texts([Told(0, None, document) for document in told]) == WORDS
    assert {request.headers["x-a2a-notification-token"] for request, _ in receiver.told} == {"secret"}
    assert not any("secret" in str(params) for _, params in slow.worker.told), "no worker hears of a webhook"
