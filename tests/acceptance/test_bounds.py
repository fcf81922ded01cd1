"""Flooded past each of its limits, a hub names the limit, continues to serve, and takes no more memory or disk."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from hub.storage import FILE_NAME
from hub.storage.common.feed import KEPT
from rolecall.protocol.sse import FrameReader
from rolecall.protocol.text.jsontext import parse
from tests.acceptance.syncs import brisk
from tests.helpers.client import text_message
from tests.helpers.processes import HubProcess, Process, start_hub, start_worker, wait_for
from tests.helpers.waiting import until

OWN_WORKERS, PLAIN_WORKERS = "tests.acceptance.syncs.workers", "tests.acceptance.workers"
MOST = 6
AT_ONCE = 40
MOST_LOGGED = 64 * 1024
MIB = 1024 * 1024
PAGES_OF_A_CALL = 4.2
"""A call of the rounds below fills 2.9 pages of the database. Two rounds together must not fit into this limit."""

Answer = dict[str, Any]
Flood = Callable[["Calls", int], Awaitable[list[Answer]]]


class Calls:
    """One client with many requests at once. Every call is new, and every offer is another worker."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self.leases: dict[str, Answer] = {}

    async def call(self, role: str, method: str, params: Answer) -> Answer:
        answer = await self.client.post(f"/agents/{role}/", json=_body(method, params))
        found: Answer = answer.json()
        return found

    async def send(self, role: str, text: str = "", *, wait: bool = True) -> Answer:
        params = {**text_message(text or uuid4().hex), "configuration": {"blocking": wait}}
        return await self.call(role, "message/send", params)

    async def enrol(self, instance: str = "") -> httpx.Response:
        offer = {"url": "http://127.0.0.1:9/", "description": "one of many", "boot": "one"}
        answer = await self.client.put(f"/registry/agents/many/{instance or uuid4().hex}", json=offer)
        if answer.status_code in (200, 201):
            lease = answer.json()
            self.leases[lease["name"]] = {key: lease[key] for key in ("epoch", "lease")}
        return answer

    async def withdraw(self, name: str) -> None:
        answer = await self.client.request("DELETE", f"/registry/agents/{name}", json=self.leases.pop(name))
        assert answer.status_code == 200

    @asynccontextmanager
    async def stream(self, method: str, params: Answer) -> AsyncIterator[Answer]:
        """The first frame of a stream that stays open, or its error."""
        reader = FrameReader(limit=MIB)
        async with self.client.stream("POST", "/agents/counter/", json=_body(method, params)) as answer:
            async for piece in answer.aiter_raw():
                for frame in reader.feed(piece):
                    if frame.data:
                        first: Answer = parse(frame.data)
                        yield first
                        return


def _body(method: str, params: Answer) -> Answer:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


@asynccontextmanager
async def calls_to(hub: HubProcess) -> AsyncIterator[Calls]:
    limits = httpx.Limits(max_connections=4 * AT_ONCE, max_keepalive_connections=AT_ONCE, keepalive_expiry=1)
    async with httpx.AsyncClient(base_url=hub.url, timeout=20, limits=limits, trust_env=False) as client:
        calls = Calls(client)
        yield calls
        for name in list(calls.leases):
            await calls.withdraw(name)


async def at_once(many: int, call: Callable[[], Coroutine[Any, Any, Answer]]) -> list[Answer]:
    return await asyncio.gather(*(call() for _ in range(many)))


def check_refused(answers: list[Answer], setting: str) -> None:
    for answer in answers:
        error = answer["error"]
        assert (error["code"], error["data"][0]["reason"]) == (-32000, "OVERLOADED")
        assert setting in error["message"]


async def until_taken(call: Callable[[], Coroutine[Any, Any, Answer]]) -> None:
    async def is_taken() -> bool:
        return "result" in await call()

    await until(is_taken)


def memory_used(hub: HubProcess) -> int:
    """Bytes of memory."""
    page_count = int(Path(f"/proc/{hub.pid}/statm").read_text().split()[1])
    return page_count * os.sysconf("SC_PAGE_SIZE")


def worker_on(hub: HubProcess, role: str, module: str, folder: Path) -> Process:
    env = {"RUNS": str(folder / "runs"), "ENOUGH": str(folder / "enough")}
    return start_worker(f"{module}:{role}", f"{role}:a", hub.url, log=folder / f"{role}.log", env=env)


# --- how many at once


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bounds")


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[HubProcess]:
    """A hub with a worker that counts until the file `enough` exists, and one that sends as many words as requested."""
    with (
        start_hub(
            folder / "hub",
            max_agents=MOST + 2,
            max_streams=MOST,
            max_open_tasks=2 * MOST,
            max_log=MOST_LOGGED,
        ) as hub,
        worker_on(hub, "counter", OWN_WORKERS, folder),
        worker_on(hub, "word_writer", OWN_WORKERS, folder),
    ):
        yield hub


@pytest.fixture
def hub(running: HubProcess, folder: Path) -> Iterator[HubProcess]:
    """A hub without running tasks before and after the test."""
    (folder / "enough").unlink(missing_ok=True)
    (folder / "runs").write_text("")
    yield running
    (folder / "enough").touch()
    wait_for(lambda: httpx.get(f"{running.url}/health", trust_env=False).json()["running_tasks"] == 0)


def runs(folder: Path) -> int:
    return len((folder / "runs").read_text().splitlines())


async def test_workers_beyond_the_limit_are_refused_and_the_others_stay(hub: HubProcess) -> None:
    async with calls_to(hub) as calls:
        for number in range(MOST):
            assert (await calls.enrol(str(number))).status_code == 201
        for answer in await asyncio.gather(*(calls.enrol() for _ in range(AT_ONCE))):
            assert (answer.status_code, answer.json()["reason"]) == (503, "OVERLOADED")
            assert answer.headers["content-type"] == "application/problem+json"
            assert int(answer.headers["retry-after"]) > 0
            assert "ROLECALL_MAX_AGENTS" in answer.json()["detail"]
        assert (await calls.enrol("0")).status_code == 200
        beat = await calls.client.post("/registry/agents/many:1/heartbeat", json=calls.leases["many:1"])
        assert beat.status_code == 200
        assert (await calls.client.get("/registry/agents")).json()["count"] == MOST + 2
        assert "result" in await calls.send("counter", wait=False)
        await calls.withdraw("many:1")
        assert (await calls.enrol()).status_code == 201


async def test_streams_beyond_the_limit_are_refused_before_anything_runs(hub: HubProcess, folder: Path) -> None:
    async with calls_to(hub) as calls, AsyncExitStack() as open_streams:
        tasks = []
        for _ in range(MOST):
            first = await open_streams.enter_async_context(calls.stream("message/stream", text_message(uuid4().hex)))
            tasks.append(first["result"]["id"])
        sizes = []
        for _ in range(4):
            check_refused(await at_once(AT_ONCE, lambda: _open(calls)), "ROLECALL_MAX_STREAMS")
            check_refused(await at_once(AT_ONCE, lambda: _reopen(calls, tasks[0])), "ROLECALL_MAX_STREAMS")
            sizes.append(memory_used(hub))
        assert sizes[-1] - sizes[0] < 8 * MIB
        assert runs(folder) == MOST
        assert (await calls.call("counter", "tasks/get", {"id": tasks[0]}))["result"]["status"]["state"] == "working"
        assert "result" in await calls.send("counter", wait=False)
        await open_streams.aclose()
        await until_taken(lambda: _open(calls))


async def test_tasks_beyond_the_limit_are_refused_until_others_have_ended(hub: HubProcess, folder: Path) -> None:
    async with calls_to(hub) as calls:
        tasks = [(await calls.send("counter", wait=False))["result"]["id"] for _ in range(2 * MOST)]
        refused = await at_once(AT_ONCE, lambda: calls.send("counter", wait=False))
        refused += await at_once(AT_ONCE, lambda: calls.send("counter"))
        refused += await at_once(MOST, lambda: _open(calls))
        check_refused(refused, "ROLECALL_MAX_OPEN_TASKS")
        assert runs(folder) == len(tasks)
        assert (await calls.call("counter", "tasks/get", {"id": tasks[0]}))["result"]["status"]["state"] == "working"
        (folder / "enough").touch()
        await until_taken(lambda: calls.send("counter"))


async def _open(calls: Calls) -> Answer:
    async with calls.stream("message/stream", text_message(uuid4().hex)) as first:
        return first


async def _reopen(calls: Calls, task: str) -> Answer:
    async with calls.stream("tasks/resubscribe", {"id": task}) as first:
        return first


async def _flood_with_workers(calls: Calls, many: int) -> list[Answer]:
    answers = await asyncio.gather(*(calls.enrol() for _ in range(many)))
    return [{"result": answer.json()} for answer in answers if answer.status_code == 201]


async def _flood_with_tasks(calls: Calls, many: int) -> list[Answer]:
    return await at_once(many, lambda: calls.send("counter", wait=False))


async def _flood_with_streams(calls: Calls, many: int) -> list[Answer]:
    """All stay open until each has its first frame."""
    async with AsyncExitStack() as open_streams:

        async def keep() -> Answer:
            return await open_streams.enter_async_context(calls.stream("message/stream", text_message(uuid4().hex)))

        return await at_once(many, keep)


FLOOD_KINDS: dict[str, tuple[Flood, int]] = {
    "workers": (_flood_with_workers, MOST),
    "tasks": (_flood_with_tasks, 2 * MOST),
    "streams": (_flood_with_streams, MOST),
}


@pytest.mark.parametrize("kind", FLOOD_KINDS)
async def test_a_flood_at_one_moment_does_not_pass_the_limit(hub: HubProcess, kind: str) -> None:
    flood, limit = FLOOD_KINDS[kind]
    async with calls_to(hub) as calls:
        accepted = [answer for answer in await flood(calls, AT_ONCE) if "result" in answer]
    assert len(accepted) == limit


async def test_readers_of_changes_are_bounded_too(hub: HubProcess) -> None:
    async with calls_to(hub) as calls, AsyncExitStack() as open_streams:
        paths = ["/registry/events", "/registry/tasks/events"] * MOST
        feeds = [calls.client.stream("GET", path) for path in paths]
        answers = [await open_streams.enter_async_context(feed) for feed in feeds]
        assert [answer.status_code for answer in answers].count(503) == MOST


# --- size, duration and retention


def count(hub: HubProcess, sql: str) -> int:
    """Read from the database while the hub runs."""
    db = sqlite3.connect(f"{(hub.data_dir / FILE_NAME).as_uri()}?mode=ro", uri=True, timeout=10)
    try:
        return int(db.execute(sql).fetchone()[0])
    finally:
        db.close()


async def test_a_task_with_too_many_events_fails_and_others_continue(hub: HubProcess) -> None:
    async with calls_to(hub) as calls:
        small, large = await asyncio.gather(calls.send("word_writer", "20 words"), calls.send("word_writer", "100000 words"))
        assert small["result"]["status"]["state"] == "completed"
        _check_failed(large, "OVERLOADED", "ROLECALL_MAX_LOG")
    size = count(hub, "select max(size) from (select sum(length(body)) as size from event group by place >> 24)")
    # Events that arrive together are logged together.
    assert MOST_LOGGED < size < 3 * MOST_LOGGED


async def test_a_task_that_takes_too_long_fails_and_the_next_one_is_taken(tmp_path: Path) -> None:
    with start_hub(tmp_path / "hub", task_deadline=1) as hub, worker_on(hub, "counter", OWN_WORKERS, tmp_path):
        async with calls_to(hub) as calls, asyncio.timeout(10):
            _check_failed(await calls.send("counter"), "DEADLINE_EXCEEDED", "ROLECALL_TASK_DEADLINE")
            (tmp_path / "enough").touch()
            assert (await calls.send("counter"))["result"]["status"]["state"] == "completed"


def _check_failed(answer: Answer, reason: str, setting: str) -> None:
    task = answer["result"]
    assert task["status"]["state"] == "failed"
    assert setting in task["status"]["message"]["parts"][0]["text"]
    assert task["metadata"]["rolecall"]["reason"] == reason


def test_ended_tasks_leave_the_disk_after_retention(tmp_path: Path) -> None:
    _come_and_go(tmp_path, rounds=2, calls=100)


@pytest.mark.soak
def test_ended_tasks_leave_the_disk_after_retention_over_many_rounds(tmp_path: Path) -> None:
    _come_and_go(tmp_path, rounds=40, calls=1000)


def _come_and_go(tmp_path: Path, *, rounds: int, calls: int) -> None:
    """Rounds of calls whose tasks and summaries are kept for a second, and of questions without an answer."""
    with (
        start_hub(tmp_path / "hub", argv=brisk.ARGV, retention=1, keep_summaries=1, max_pause=1, same_message=1) as hub,
        worker_on(hub, "word_writer", OWN_WORKERS, tmp_path),
        worker_on(hub, "asker", PLAIN_WORKERS, tmp_path),
    ):
        page_counts, sizes = [], []
        for _ in range(rounds):
            asyncio.run(_one_round(hub, calls))
            page_counts.append(count(hub, "pragma page_count"))
            sizes.append(memory_used(hub))
            wait_for(lambda: count(hub, "select (select count(*) from task) + (select count(*) from event)") == 0, 15)
        assert max(page_counts) < PAGES_OF_A_CALL * calls, page_counts
        assert sizes[-1] - sizes[rounds // 4] < 8 * MIB, sizes


async def _one_round(hub: HubProcess, many: int) -> None:
    async with calls_to(hub) as calls:
        for _ in range(many // 50):
            answers = await at_once(50, lambda: calls.send("word_writer", f"1 {4000 * 'x'}"))
            assert {answer["result"]["status"]["state"] for answer in answers} == {"completed"}
        asked = await at_once(10, lambda: calls.send("asker"))
        assert {answer["result"]["status"]["state"] for answer in asked} == {"input-required"}


@pytest.mark.soak
async def test_the_registrys_changes_are_kept_up_to_a_number(tmp_path: Path) -> None:
    """Workers that enrol and withdraw endlessly leave at most ten thousand changes."""
    sizes = []
    with start_hub(tmp_path / "hub") as hub:
        async with calls_to(hub) as calls:
            for number in range(2 * KEPT // AT_ONCE):
                await asyncio.gather(*(_come_and_leave(calls, f"{number}-{one}") for one in range(AT_ONCE)))
                if number % 25 == 0:
                    sizes.append(memory_used(hub))
                    assert count(hub, "select count(*) from change") <= 1.1 * KEPT
        assert sizes[-1] - sizes[len(sizes) // 2] < 20 * MIB, sizes


async def _come_and_leave(calls: Calls, instance: str) -> None:
    await calls.enrol(instance)
    await calls.withdraw(f"many:{instance}")
