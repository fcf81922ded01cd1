"""A disk that is full or takes no writes: refusals with a reason, no acknowledged data lost, and recovery without help."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hub.identity.tokens import new, read, revoke
from rolecall.model.principal import Kind, Principal
from rolecall.protocol.text.jsontext import dump, parse
from tests.acceptance.syncs.rooms import OWN_MOUNTS, ROOMS, ReadOnlyDisk, Room, SmallDisk, check_mounts
from tests.acceptance.syncs.stored import lost
from tests.helpers.client import Reader, call, get_task, send, text_message, texts
from tests.helpers.processes import ROLECALL, HubProcess, Process, start_worker, status_of, wait_for
from tests.helpers.raw_server import LAST_CHUNK, Peer, RawServer, answer, chunk, chunked_head, frame

RECOVER_WITHIN = 5.0
REFUSED = "OVERLOADED"
MANY = 60


def worker(hub: HubProcess, name: str, attribute: str, folder: Path) -> Process:
    env = {"RUNS": str(folder / f"runs-{attribute}")}
    return start_worker(f"tests.acceptance.workers:{attribute}", name, hub.url, log=folder / f"{attribute}.log", env=env)


@pytest.fixture(params=ROOMS)
def room(request: pytest.FixtureRequest, tmp_path: Path) -> Room:
    return ROOMS[request.param](tmp_path)


@pytest.fixture
def hub(room: Room) -> Iterator[HubProcess]:
    with room.start(silence=1) as hub:
        yield hub


def test_a_hub_that_cannot_write_refuses_loses_nothing_and_recovers_by_itself(hub: HubProcess, room: Room) -> None:
    """The outage is longer than the silence allowed to a worker. It does not count as the worker's silence."""
    with worker(hub, "counter:a", "counter", room.folder), worker(hub, "echo:a", "instant", room.folder):
        old = send(hub.url, "echo", "old")
        readers = [Reader(hub.url, "counter", "100 0.02") for _ in range(4)]
        threads = [reader.start() for reader in readers]
        wait_for(lambda: all(len(reader.chunks) > 5 for reader in readers))
        _take(room, hub)
        began = time.monotonic()
        _check_refusals(hub, small_writes_pass=room.full)
        assert get_task(hub.url, old["id"]) == old
        assert httpx.get(f"{hub.url}/registry/agents", trust_env=False).json()["count"] == 2
        full = room.stored(hub)
        assert (full.integrity, full.incomplete, lost(full, readers)) == ("ok", [], [])
        time.sleep(max(0.0, began + 2 - time.monotonic()))
        assert not any(reader.done for reader in readers)
        _give_back(room, hub)
        for thread in threads:
            thread.join(RECOVER_WITHIN)
        for reader in readers:
            assert reader.chunks == texts(get_task(hub.url, reader.task)) == [f"{n} " for n in range(100)]
            assert [cursor for cursor, _ in reader.frames] == list(range(1, len(reader.frames) + 1))
        assert texts(send(hub.url, "echo", "new")) == ["new"]
        after = room.stored(hub)
        assert (after.integrity, after.incomplete, lost(after, readers)) == ("ok", [], [])
    calls_run = (room.folder / "runs-instant").read_text().splitlines()
    assert len(calls_run) == 2, "a refused call has run"


def _take(room: Room, hub: HubProcess) -> None:
    room.take(hub)
    wait_for(lambda: status_of(f"{hub.url}/readyz") == 503)


def _give_back(room: Room, hub: HubProcess) -> None:
    room.give_back(hub)
    wait_for(lambda: status_of(f"{hub.url}/readyz") == 200, RECOVER_WITHIN)


def _check_refusals(hub: HubProcess, *, small_writes_pass: bool) -> None:
    """Each names the cause in the hub's own words, not the library's."""
    refusals = [call(f"{hub.url}/agents/echo/", "message/send", text_message("refused"))["error"]]
    streaming = Reader(hub.url, "echo", "refused")
    streaming.begin()
    assert streaming.frames == []
    for error in [*refusals, *streaming.errors]:
        assert (error["code"], error["data"][0]["reason"]) == (-32000, REFUSED)
        _check_words(error["message"], small_writes_pass)
    offer = {"url": "http://127.0.0.1:9/", "description": "refused", "boot": "one"}
    enrolled = httpx.put(f"{hub.url}/registry/agents/late/a", json=offer, trust_env=False)
    drained = httpx.post(f"{hub.url}/registry/agents/counter:a/drain", json={}, trust_env=False)
    for answered in [enrolled] if small_writes_pass else [enrolled, drained]:
        assert (answered.status_code, answered.json()["reason"]) == (503, REFUSED)
        assert answered.headers["content-type"] == "application/problem+json"
        _check_words(answered.text, small_writes_pass)
    assert drained.status_code == (200 if small_writes_pass else 503)
    ready = httpx.get(f"{hub.url}/readyz", trust_env=False)
    assert (ready.status_code, ready.text) == (503, f"not ready: {'disk' if small_writes_pass else 'store'}\n")
    assert status_of(f"{hub.url}/livez") == 200


def _check_words(text: str, small_writes_pass: bool) -> None:
    assert ("ROLECALL_DISK_RESERVE" if small_writes_pass else "store cannot write") in text
    assert not [word for word in ("Traceback", "sqlite", "Errno", "disk I/O") if word in text]


def test_a_full_disk_stops_no_end_of_a_task_no_withdrawal_and_no_revocation(tmp_path: Path) -> None:
    room = SmallDisk(tmp_path)
    with room.start() as hub:
        tokens = room.seen_from_outside(hub) / "tokens.json"
        mine, _ = new(tokens, Principal("me", Kind.ADMIN), lasts=None, now=0.0)
        theirs, _ = new(tokens, Principal("they", Kind.CLIENT), lasts=None, now=0.0)
        wait_for(lambda: status_of(f"{hub.url}/registry/tasks") == 401)  # until then, every caller is the local one
        with httpx.Client(base_url=hub.url, headers={"Authorization": f"Bearer {mine}"}, trust_env=False) as http:

            def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
                body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
                document: dict[str, Any] = http.post("/agents/counter/", json=body).json()
                return document

            def status_with(token: str) -> int:
                headers = {"Authorization": f"Bearer {token}"}
                return httpx.get(f"{hub.url}/registry/tasks", headers=headers, trust_env=False).status_code

            def begin() -> str:
                started = ask("message/send", {**text_message("2 600"), "configuration": {"blocking": False}})
                return str(started["result"]["id"])

            def state(task: str) -> str:
                return str(ask("tasks/get", {"id": task})["result"]["status"]["state"])

            wait_for(lambda: status_with("none") == 401)  # the hub has read the tokens
            env = {"ROLECALL_TOKEN": mine, "RUNS": str(tmp_path / "runs")}
            source = "tests.acceptance.workers"
            idle = start_worker(f"{source}:instant", "echo:a", hub.url, log=tmp_path / "a.log", env=env, enrolled=False)
            killed = start_worker(f"{source}:counter", "counter:b", hub.url, log=tmp_path / "b.log", env=env, enrolled=False)
            with idle, killed:
                wait_for(lambda: http.get("/registry/agents").json().get("count") == 2)
                canceled = [begin() for _ in range(MANY)]
                _take(room, hub)
                assert ask("message/send", text_message("no"))["error"]["data"][0]["reason"] == REFUSED
                for task in canceled[: MANY // 2]:
                    assert ask("tasks/cancel", {"id": task})["result"]["status"]["state"] == "canceled"
                killed.kill9()
                idle.stop()
                wait_for(lambda: {state(task) for task in canceled[MANY // 2 :]} == {"failed"}, 15)
                wait_for(lambda: http.get("/registry/agents").json()["count"] == 0, 15)
                assert status_with(theirs) == 200
                began = time.monotonic()
                revoke(tokens, "they")
                wait_for(lambda: status_with(theirs) == 401, 2)
                print(f"\na full disk: {MANY} tasks ended, a token revoked after {time.monotonic() - began:.1f} s")
                assert status_with(mine) == 200
                assert [entry.principal.name for entry in read(tokens)] == ["me"]
                _give_back(room, hub)
                assert {state(task) for task in canceled} == {"canceled", "failed"}


def test_a_task_whose_worker_was_killed_during_the_outage_fails_after_it(tmp_path: Path) -> None:
    room = ReadOnlyDisk(tmp_path)
    with room.start() as hub, worker(hub, "counter:a", "counter", tmp_path) as killed:
        reader = Reader(hub.url, "counter", "1000 0.02")
        thread = reader.start()
        wait_for(lambda: len(reader.chunks) > 5)
        _take(room, hub)
        killed.kill9()
        # Long enough for the hub to be refused twice. Nothing of that is visible from outside.
        time.sleep(1.5)
        _give_back(room, hub)
        thread.join(3)
        assert reader.state == "failed"
        assert reader.events[-1]["metadata"]["rolecall"]["reason"] == "WORKER_LOST"
        stored = room.stored(hub)
        assert (stored.integrity, stored.incomplete, lost(stored, [reader])) == ("ok", [], [])


class PlainAgent:
    """Streams a chunk, and its end once `finish` is set. It replays nothing, but answers tasks/get."""

    def __init__(self) -> None:
        self.finish = asyncio.Event()

    async def __call__(self, peer: Peer) -> None:
        while (request := await peer.read_request()) is not None:
            document = parse(request.body)
            if document["method"] == "tasks/get":
                await peer.write(answer(_result(document, self._task())))
                continue
            update = {"kind": "artifact-update", "taskId": "t", "contextId": "c", "artifact": self._task()["artifacts"][0]}
            begun = (frame(_result(document, found)) for found in (self._task(), update))
            await peer.write(chunked_head() + b"".join(map(chunk, begun)))
            await self.finish.wait()
            ended = {"kind": "status-update", "taskId": "t", "contextId": "c", "status": self._task()["status"], "final": True}
            await peer.write(chunk(frame(_result(document, ended))) + LAST_CHUNK)

    def _task(self) -> dict[str, Any]:
        state = "completed" if self.finish.is_set() else "working"
        artifact = {"artifactId": "a", "parts": [{"kind": "text", "text": "all"}]}
        return {"kind": "task", "id": "t", "contextId": "c", "status": {"state": state}, "artifacts": [artifact]}


def _result(call: dict[str, Any], result: dict[str, Any]) -> bytes:
    return dump({"jsonrpc": "2.0", "id": call["id"], "result": result})


async def test_a_result_that_came_during_a_long_outage_is_fetched_from_a_worker_that_replays_nothing(tmp_path: Path) -> None:
    room, agent = ReadOnlyDisk(tmp_path), PlainAgent()
    async with RawServer(agent) as server:
        with room.start(silence=1) as hub:
            offer = {"url": server.url, "boot": "one", "card": {"name": "plain", "capabilities": {"streaming": True}}}
            async with httpx.AsyncClient(trust_env=False) as client:
                (await client.put(f"{hub.url}/registry/agents/plain/a", json=offer)).raise_for_status()
            reader = Reader(hub.url, "plain", "x")
            thread = reader.start()
            await asyncio.to_thread(wait_for, lambda: reader.chunks == ["all"])
            await asyncio.to_thread(_take, room, hub)
            agent.finish.set()
            await asyncio.sleep(2)
            await asyncio.to_thread(_give_back, room, hub)
            await asyncio.to_thread(thread.join, 3)
            assert (reader.state, reader.chunks) == ("completed", ["all"])


@pytest.mark.parametrize("option, words", [("ro", "Read-only file system"), ("size=4k", "disk is full")])
def test_a_hub_that_cannot_write_at_its_start_reports_it_and_exits(tmp_path: Path, option: str, words: str) -> None:
    check_mounts(tmp_path)
    command = f'mount -t tmpfs -o size=1m tmpfs "$0" && mount -o "remount,{option}" "$0" && exec "$@"'
    argv = (*OWN_MOUNTS, "sh", "-c", command, tmp_path, *ROLECALL, "serve")
    env = {"ROLECALL_PORT": "0", "ROLECALL_DATA_DIR": str(tmp_path)}
    with Process(argv, log=tmp_path.with_name("start.log"), env=env, name="hub without room") as hub:
        assert hub.wait() == 2
        assert words in hub.output
        assert "Traceback" not in hub.output
