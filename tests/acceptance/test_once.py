"""No fault of a worker makes the hub run a call twice, and a message that is sent twice is one call."""

from __future__ import annotations

import asyncio
import random
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from rolecall.protocol.text.jsontext import dump, parse
from tests.acceptance.callers import ClientStream, numbers
from tests.helpers.client import get_task, text_message, texts
from tests.helpers.processes import HubProcess, free_port, start_hub, start_worker, wait_for
from tests.helpers.raw_server import LAST_CHUNK, Peer, RawServer, Request, Script, answer, chunked_head
from tests.helpers.raw_server import chunk as piece
from tests.helpers.tcp_relay import TcpRelay

SILENCE = 1.0
FIRST_CHOICE_COUNT = 3
"""How often the faulty worker must have been the first choice."""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with start_hub(tmp_path_factory.mktemp("hub"), worker_silence=SILENCE, connect_timeout=0.3) as hub:
        yield hub


@pytest.fixture
async def http(hub: HubProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=hub.url, trust_env=False, timeout=20) as client:
        yield client


def message_of(request: Request) -> str:
    return str(parse(request.body)["params"]["message"]["messageId"])


def done(request: Request) -> bytes:
    """The answer of a worker that has completed the call."""
    task = {"kind": "task", "id": str(uuid4()), "contextId": "c", "status": {"state": "completed"}, "artifacts": []}
    return answer(dump({"jsonrpc": "2.0", "id": "1", "result": task}))


async def work(peer: Peer) -> None:
    while request := await peer.read_request():
        await peer.write(done(request))


class Pair:
    """Two workers of one role: `a` is faulty, `b` works."""

    def __init__(self, http: httpx.AsyncClient, a: str, b: RawServer, *, streaming: bool) -> None:
        self.role = f"pair-{uuid4().hex[:8]}"
        self._http, self._urls, self._b = http, {"a": a, "b": b.url}, b
        self._streaming = streaming

    async def enrol(self, *instances: str) -> None:
        for instance in instances:
            offer = {"url": self._urls[instance], "capabilities": {"streaming": self._streaming}}
            response = await self._http.put(f"/registry/agents/{self.role}/{instance}", json=offer)
            assert response.status_code in (200, 201), response.text

    async def withdraw(self, instance: str) -> None:
        (await self._http.delete(f"/registry/agents/{self.role}:{instance}")).raise_for_status()

    async def ask(self) -> tuple[str, dict[str, Any]]:
        """The message id, and the whole answer."""
        params = text_message("hi")
        body = {"jsonrpc": "2.0", "id": "1", "method": "message/send", "params": params}
        return params["message"]["messageId"], (await self._http.post(f"/agents/{self.role}/", json=body)).json()

    async def first_choice(self, task: dict[str, Any]) -> str:
        decision = (await self._http.get(f"/registry/tasks/{task['id']}/decision")).json()
        return str(decision["worker"]).partition(":")[2]

    def run_by_b(self) -> Counter[str]:
        return Counter(message_of(request) for request in self._b.requests)


# --- P6: another worker only if the first one provably did nothing


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("how", ["refuses connections", "takes no connection", "answers 503", "withdraws and answers 503"])
async def test_a_call_that_a_worker_did_not_process_runs_once_on_another(
    http: httpx.AsyncClient, how: str, streaming: bool
) -> None:
    not_processed = answer(b"{}", status="503 Service Unavailable", more="X-Not-Processed: 1\r\n")

    async def refuse(peer: Peer) -> None:
        while await peer.read_request():
            if how == "withdraws and answers 503":
                await pair.withdraw("a")
            await peer.write(not_processed)

    with ExitStack() as sockets:
        async with RawServer(work) as b, RawServer(refuse) as a:
            url = a.url if "503" in how else f"http://127.0.0.1:{dead_port(sockets, listening=how == 'takes no connection')}/"
            pair = Pair(http, url, b, streaming=streaming)
            await pair.enrol("a", "b")
            first_choice_count, asked = 0, list[str]()
            while first_choice_count < FIRST_CHOICE_COUNT:
                assert len(asked) < 80
                await pair.enrol("a")  # and so no longer suspect
                message, reply = await pair.ask()
                asked.append(message)
                assert reply["result"]["status"]["state"] == "completed"
                first_choice_count += await pair.first_choice(reply["result"]) == "a"
            assert pair.run_by_b() == Counter(asked)
            assert len(a.requests) == (first_choice_count if "503" in how else 0)


def dead_port(sockets: ExitStack, *, listening: bool) -> int:
    """A port without a server. With `listening` its queue is full, so that a connection attempt never ends."""
    if not listening:
        return free_port()
    listener = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
    address = listener.getsockname()
    for _ in range(4):
        waiting = sockets.enter_context(socket.socket())
        waiting.setblocking(False)
        waiting.connect_ex(address)
    return int(address[1])


async def abort(peer: Peer) -> None:
    if await peer.read_request():
        peer.reset()


async def disconnect(peer: Peer) -> None:
    await peer.read_request()


async def say_nothing(peer: Peer) -> None:
    await peer.read_request()
    await peer.gone()


async def invalid_page(peer: Peer) -> None:
    while await peer.read_request():
        await peer.write(answer(b"<html>bad gateway</html>", status="502 Bad Gateway", kind="text/html"))


async def unavailable(peer: Peer) -> None:
    while await peer.read_request():
        await peer.write(answer(b"{}", status="503 Service Unavailable"))


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (abort, "WORKER_LOST"),
        (disconnect, "WORKER_LOST"),
        (say_nothing, "WORKER_SILENT"),
        (invalid_page, "-32006"),
        (unavailable, "-32006"),
    ],
)
async def test_a_call_that_may_have_run_is_never_sent_to_another_worker(
    http: httpx.AsyncClient, script: Script, reason: str, streaming: bool
) -> None:
    async with RawServer(work) as b, RawServer(script) as a:
        pair = Pair(http, a.url, b, streaming=streaming)
        await pair.enrol("a", "b")
        replies = await asyncio.gather(*(pair.ask() for _ in range(12)))
        at_a = Counter(message_of(request) for request in a.requests)
        assert at_a
        assert set(at_a.values()) == {1}
        assert at_a + pair.run_by_b() == Counter(message for message, _ in replies)
        for message, reply in replies:
            if message in at_a:
                assert why(reply) == reason
            else:
                assert reply["result"]["status"]["state"] == "completed"


def why(reply: dict[str, Any]) -> str:
    """The code of an error, or the reason why the hub failed the task."""
    if "error" in reply:
        return str(reply["error"]["code"])
    assert reply["result"]["status"]["state"] == "failed"
    return str(reply["result"]["metadata"]["rolecall"]["reason"])


@pytest.mark.parametrize("idle", [None, 0.03])
async def test_a_connection_that_closes_during_the_next_call_runs_nothing_twice(
    http: httpx.AsyncClient, idle: float | None
) -> None:
    """A call on a keep-alive connection that closes may have run. One worker closes at the first byte of a call, the other
    soon after its last answer, while the next call is on its way.
    """
    rng = random.Random(7)
    called: list[str] = []

    async def closing_worker(peer: Peer) -> None:
        while True:
            if peer.requests and idle is None:
                await peer.reader.read(1)
                return
            try:
                async with asyncio.timeout(idle if peer.requests else None):
                    request = await peer.read_request()
            except TimeoutError:
                return
            if request is None:
                return
            called.append(message_of(request))
            await peer.write(done(request))

    async with RawServer(closing_worker) as a, RawServer(work) as b:
        pair = Pair(http, a.url, b, streaming=False)
        await pair.enrol("a", "b")
        replies = []
        for _ in range(100):
            replies.append(await pair.ask())
            await asyncio.sleep(rng.uniform(0, 0.04))
        assert called and (idle is None or any(len(peer.requests) > 1 for peer in a.peers))
    runs, by_b = Counter(called) + pair.run_by_b(), pair.run_by_b()
    for message, reply in replies:
        if "error" not in reply and reply["result"]["status"]["state"] == "completed":
            assert runs[message] == 1
        else:
            assert why(reply) == "WORKER_LOST"
            assert runs[message] <= 1 and not by_b[message]
    assert idle is not None or sum(runs.values()) < len(replies)


# --- P7: a message that is sent twice


@pytest.mark.parametrize("killed", [False, True])
async def test_a_message_repeated_after_a_cut_is_the_same_call(tmp_path: Path, killed: bool) -> None:
    """The caller's connection is cut during both kinds of call. The hub may be killed before the caller returns."""
    with ExitStack() as started:
        hub = start_hub(tmp_path / "hub", heartbeat=0.5, lease_ttl=10)
        started.callback(lambda: hub.end())
        env, log = {"RUNS": str(tmp_path / "runs")}, tmp_path / "worker.log"
        started.enter_context(start_worker("tests.acceptance.workers:counter", "counter:a", hub.url, log=log, env=env))
        way = started.enter_context(TcpRelay(("127.0.0.1", hub.port)))
        async with httpx.AsyncClient(trust_env=False, timeout=20) as http:
            params, text = text_message("30 0.03"), "36 0.03"
            first = ClientStream(way.url, "counter", text)
            calls = [asyncio.create_task(sent(http, way.url, params)), asyncio.create_task(first.begin(http))]
            await asyncio.to_thread(wait_for, lambda: [task["events"] > 5 for task in tasks_of(hub)] == [True, True])
            way.cut()
            cut = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(error, httpx.HTTPError) for error in cut), cut
            assert 0 < len(first.chunks) < 36
            if killed:
                hub.kill9()
                hub = start_hub(hub.data_dir, port=hub.port, heartbeat=0.5, lease_ttl=10)
            again = ClientStream(hub.url, "counter", text)
            again.params = first.params
            answer, _ = await asyncio.gather(sent(http, hub.url, params), again.begin(http))
            assert texts(answer) == numbers(30)
            assert answer == get_task(hub.url, answer["id"]) == await sent(http, hub.url, params)
            assert again.task == first.task
            assert again.frames[: len(first.frames)] == first.frames
            assert again.chunks == numbers(36)
            assert {task["id"] for task in tasks_of(hub)} == {answer["id"], again.task}
    assert len((tmp_path / "runs").read_text().splitlines()) == 2


async def test_a_message_sent_a_thousand_times_at_once_runs_once_also_over_a_kill_of_the_hub(tmp_path: Path) -> None:
    with ExitStack() as started:
        hub = start_hub(tmp_path / "hub", heartbeat=0.5, lease_ttl=10)
        started.callback(lambda: hub.end())
        env, log = {"RUNS": str(tmp_path / "runs")}, tmp_path / "worker.log"
        started.enter_context(start_worker("tests.acceptance.workers:counter", "counter:a", hub.url, log=log, env=env))
        params = text_message("20 0.05")
        async with AsyncExitStack() as closing:
            # A client of httpx with a thousand requests at once is slow.
            clients = [
                httpx.AsyncClient(trust_env=False, timeout=60, limits=httpx.Limits(max_connections=10)) for _ in range(20)
            ]
            await asyncio.gather(*(closing.enter_async_context(client) for client in clients))
            answers = await asyncio.gather(*(sent(client, hub.url, params) for client in clients * 50))
            assert {answer["id"] for answer in answers} == {answers[0]["id"]}
            assert all(texts(answer) == numbers(20) for answer in answers)
        hub.kill9()
        hub = start_hub(hub.data_dir, port=hub.port, heartbeat=0.5, lease_ttl=10)
        async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
            again = await asyncio.gather(*(sent(http, hub.url, params) for _ in range(50)))
            assert all(answer == answers[0] for answer in again)
            assert len(tasks_of(hub)) == 1
            other = {**params, "message": {**params["message"], "parts": text_message("1")["message"]["parts"]}}
            assert (await sent(http, hub.url, other))["id"] != answers[0]["id"]
    assert len((tmp_path / "runs").read_text().splitlines()) == 2


async def test_an_answer_that_is_repeated_after_a_kill_of_the_hub_is_one_turn(tmp_path: Path) -> None:
    with ExitStack() as started:
        hub = start_hub(tmp_path / "hub", heartbeat=0.5, lease_ttl=10)
        started.callback(lambda: hub.end())
        log = tmp_path / "worker.log"
        started.enter_context(start_worker("tests.acceptance.workers:asker", "asker:a", hub.url, log=log))
        async with httpx.AsyncClient(trust_env=False, timeout=20) as http:
            asked = await sent(http, hub.url, text_message("paint"), "asker")
            assert asked["status"]["state"] == "input-required"
            answer = text_message("blue")
            answer["message"]["taskId"] = asked["id"]
            first = await sent(http, hub.url, answer, "asker")
            assert texts(first) == ["blue it is"]
        hub.kill9()
        hub = start_hub(hub.data_dir, port=hub.port, heartbeat=0.5, lease_ttl=10)
        async with httpx.AsyncClient(trust_env=False, timeout=20) as http:
            assert await sent(http, hub.url, answer, "asker") == first
            key, refused = {"Idempotency-Key": "k"}, {**text_message("other"), "configuration": {"blocking": False}}
            keyed = await sent(http, hub.url, text_message("walls"), "asker", key)
            assert keyed["status"]["state"] == "input-required"
            body = {"jsonrpc": "2.0", "id": "1", "method": "message/send", "params": refused}
            conflict = (await http.post(f"{hub.url}/agents/asker/", json=body, headers=key)).json()["error"]
            assert conflict["data"][0]["reason"] == "CONFLICT"
        found = get_task(hub.url, asked["id"])
        asked_ids = [message["messageId"] for message in found["history"] if message["role"] == "user"]
        assert asked_ids.count(answer["message"]["messageId"]) == 1


async def sent(
    http: httpx.AsyncClient, hub: str, params: dict[str, Any], role: str = "counter", headers: dict[str, str] | None = None
) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": "1", "method": "message/send", "params": params}
    found: dict[str, Any] = (await http.post(f"{hub}/agents/{role}/", json=body, headers=headers)).json()["result"]
    return found


def tasks_of(hub: HubProcess) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = httpx.get(f"{hub.url}/registry/tasks", trust_env=False).json()["tasks"]
    return found


# --- a snapshot is not a position


async def test_a_chunk_both_in_a_snapshot_and_after_it_is_not_doubled(http: httpx.AsyncClient) -> None:
    """a2a-sdk 1.3.0 subscribes first and then takes the snapshot: 6 to 11 of 100 subscriptions repeat what it holds."""

    def frame(result: dict[str, Any]) -> bytes:
        return b"data: " + dump({"jsonrpc": "2.0", "id": "1", "result": result}) + b"\n\n"

    def task(state: str, *words: str) -> dict[str, Any]:
        artifacts = [{"artifactId": "text", "parts": [{"text": word} for word in words]}] if words else []
        return {"id": "t", "contextId": "c", "status": {"state": f"TASK_STATE_{state}"}, "artifacts": artifacts}

    def chunk(word: str, append: bool) -> bytes:
        artifact = {"artifactId": "text", "parts": [{"text": word}]}
        return frame({"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": artifact, "append": append}})

    async def overlap(peer: Peer) -> None:
        while request := await peer.read_request():
            method = parse(request.body)["method"]
            if method == "SendStreamingMessage":
                await peer.write(chunked_head() + piece(frame({"task": task("WORKING")}) + chunk("ha", append=False)))
                return
            if method == "SubscribeToTask":
                done = {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}
                frames = frame({"task": task("WORKING", "ha", "ha")}) + chunk("ha", append=True) + frame({"statusUpdate": done})
                await peer.write(chunked_head() + piece(frames) + LAST_CHUNK)
            else:
                body = dump({"jsonrpc": "2.0", "id": "1", "result": task("COMPLETED", "ha", "ha")})
                await peer.write(answer(body))

    async with RawServer(overlap) as server:
        log_dialect = [{"url": server.url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]
        card = {"name": "laughs", "supportedInterfaces": log_dialect, "capabilities": {"streaming": True}}
        (await http.put("/registry/agents/laughs/a", json={"url": server.url, "card": card})).raise_for_status()
        body = {"jsonrpc": "2.0", "id": "1", "method": "message/send", "params": text_message("laugh")}
        reply = (await http.post("/agents/laughs/", json=body)).json()
    assert texts(reply["result"]) == ["ha", "ha"]
