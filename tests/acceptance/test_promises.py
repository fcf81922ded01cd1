"""The promises to callers, in numbers, while workers, connections and hubs fail: real processes, sockets and clocks.

Promises that need only a kill during a stream are in test_survival.py.
"""

from __future__ import annotations

import asyncio
import random
import re
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.callers import ClientStream, Frame, Load, numbers
from tests.helpers.client import call, get_task, send, text_message, texts
from tests.helpers.processes import HubProcess, Process, free_port, is_live, start_hub, start_worker, wait_for
from tests.helpers.tcp_relay import TcpRelay

TTL, HEARTBEAT, SILENCE, KEEP_ALIVE = 4.0, 0.5, 2.5, 1.0


def hub_at(folder: Path, port: int = 0, **others: object) -> HubProcess:
    settings: dict[str, Any] = {
        "lease_ttl": TTL,
        "heartbeat": HEARTBEAT,
        "worker_silence": SILENCE,
        "keep_alive": KEEP_ALIVE,
        **others,
    }
    return start_hub(folder, port=port, **settings)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    with hub_at(tmp_path / "hub") as hub:
        yield hub


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(trust_env=False, timeout=30, limits=limits) as client:
        yield client


def worker(hub: HubProcess, name: str, tmp_path: Path, *, enrolled: bool = True, at: int = 0, via: str = "") -> Process:
    """`at`: its port. `via`: the URL under which it enrols."""
    attribute = name.partition(":")[0].replace("echo", "instant")
    log, env = tmp_path / f"{name.replace(':', '-')}.log", {"RUNS": str(tmp_path / "runs"), "PORT": str(at)}
    env |= {"ROLECALL_ADVERTISE_URL": f"{via}/"} if via else {}
    return start_worker(f"tests.acceptance.workers:{attribute}", name, hub.url, log=log, env=env, enrolled=enrolled)


def workers(started: ExitStack, hub: HubProcess, names: list[str], tmp_path: Path) -> dict[str, Process]:
    """Start all at once, then wait until all are live."""
    found = {name: started.enter_context(worker(hub, name, tmp_path, enrolled=False)) for name in names}
    wait_for(lambda: all(is_live(hub.url, name) for name in names), 20)
    return found


def begun(hub: HubProcess, role: str, text: str) -> str:
    """The id of a task that its caller does not wait for."""
    params = {**text_message(text), "configuration": {"blocking": False}}
    return str(call(f"{hub.url}/agents/{role}/", "message/send", params)["result"]["id"])


def tasks_of(hub: HubProcess, **query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = httpx.get(f"{hub.url}/registry/tasks", params=query, trust_env=False).json()["tasks"]
    return found


def state_of(hub: HubProcess, name: str) -> str:
    answer = httpx.get(f"{hub.url}/registry/agents/{name}", trust_env=False)
    return str(answer.json()["state"]) if answer.status_code == 200 else "gone"


# --- P5: never silence


async def test_a_stream_is_kept_alive_while_its_worker_is_silent_and_ends_in_time(
    http: httpx.AsyncClient, tmp_path: Path
) -> None:
    """One worker is paused, the connection to the other is stalled, and a third caller has no event yet."""
    port = free_port()
    with ExitStack() as started:
        hub = started.enter_context(hub_at(tmp_path / "hub", lease_ttl=60))
        way = started.enter_context(TcpRelay(("127.0.0.1", port)))
        far = started.enter_context(worker(hub, "counter:far", tmp_path, at=port, via=way.url))
        paused = started.enter_context(worker(hub, "counter:hangs", tmp_path))
        streams = [ClientStream(hub.url, name, "1000 0.05") for name in ("counter:hangs", "counter:far")]
        reading = [asyncio.create_task(stream.begin(http)) for stream in streams]
        await asyncio.to_thread(wait_for, lambda: all(len(stream.chunks) > 3 for stream in streams))
        paused.pause()
        way.stall()
        paused_at = time.monotonic()
        streams.append(ClientStream(hub.url, "counter:hangs", "5"))
        reading.append(asyncio.create_task(streams[-1].begin(http)))
        async with asyncio.timeout(SILENCE * 3):
            await asyncio.gather(*reading)
        for stream in streams:
            assert stream.frames[-1][1]["metadata"]["rolecall"]["reason"] == "WORKER_SILENT"
            assert stream.ended
            assert stream.came[-1] - paused_at <= SILENCE + 2
            assert stream.longest_gap <= KEEP_ALIVE + 1
        for process in (paused, far):
            process.kill9()


# --- P8: a restarted hub has its workers and its tasks


@pytest.mark.parametrize("away", [1.0, 2.5])
def test_a_restarted_hub_has_its_workers_at_once_and_every_task_has_an_owner(tmp_path: Path, away: float) -> None:
    """The hub is back before or after the leases ran out. Calls succeed at once, without any help."""
    names = ["echo:a", "echo:b", "echo:c", "counter:lives"]
    with ExitStack() as started, hub_at(tmp_path / "hub", lease_ttl=1.5) as hub:
        killed = workers(started, hub, [*names, "counter:dies"], tmp_path)["counter:dies"]
        many = int(away * 20) + 16
        completed_task, failing_task = (begun(hub, name, f"{many} 0.05") for name in ("counter:lives", "counter:dies"))
        hub.kill9()
        killed.kill9()
        time.sleep(away)
        with hub_at(hub.data_dir, hub.port, lease_ttl=1.5) as hub:
            ready = time.monotonic()
            for name in names[:3]:
                assert texts(send(hub.url, name, "there?")) == ["there?"]
            wait_for(lambda: all(state_of(hub, name) == "ready" for name in names))
            assert time.monotonic() - ready < HEARTBEAT * 1.1 + 2
            wait_for(lambda: get_task(hub.url, failing_task)["status"]["state"] == "failed", 6)
            assert {task["worker"] for task in tasks_of(hub, state="working")} <= {"counter:lives"}
            wait_for(lambda: tasks_of(hub, state="working") == [])
            done = get_task(hub.url, completed_task)
            assert (done["status"]["state"], texts(done)) == ("completed", numbers(many))


# --- P10, P11, P12: workers that are killed, suspect, or restarted under load


def test_a_worker_killed_under_load_fails_only_its_own_calls(tmp_path: Path) -> None:
    ttl = 2.0
    with hub_at(tmp_path / "hub", lease_ttl=ttl) as hub, ExitStack() as started:
        names = ["counter:a", "counter:b", "counter:c"]
        killed = workers(started, hub, names, tmp_path)["counter:c"]
        with Load(hub, "counter", callers=8) as load:
            killed.kill9()
            killed_at = time.monotonic()
            wait_for(lambda: not is_live(hub.url, "counter:c"), ttl + 5)
            assert time.monotonic() - killed_at < ttl + 2
            load.more(40)
        lost = load.failures()
        assert len(lost) <= 8
        for began, answer in lost:
            assert began < killed_at
            assert answer["result"]["metadata"]["rolecall"]["reason"] == "WORKER_LOST"
        runs = [line.split()[0] for line in (tmp_path / "runs").read_text().splitlines()]
        assert len(runs) == len(set(runs))


def test_calls_go_on_when_most_of_a_role_is_suspect(tmp_path: Path) -> None:
    """Ten addresses of one role, six of which close: suspects are tried too, and no call fails."""
    port, names = free_port(), [f"many:i{n}" for n in range(10)]
    with ExitStack() as kept, ExitStack() as closing:
        hub = kept.enter_context(hub_at(tmp_path / "hub", lease_ttl=60, heartbeat=20))
        http = kept.enter_context(httpx.Client(base_url=hub.url, trust_env=False))
        kept.enter_context(worker(hub, "echo:real", tmp_path, at=port))

        def answered(role: str) -> str:
            body = {"jsonrpc": "2.0", "id": "1", "method": "message/send", "params": text_message("hi")}
            task = http.post(f"/agents/{role}/", json=body).json()["result"]
            assert texts(task) == ["hi"]
            return str(task["id"])

        def suspects() -> set[str]:
            agents = http.get("/registry/agents", params={"role": "many", "state": "suspect"}).json()["agents"]
            return {agent["name"] for agent in agents}

        def enough_are_suspect() -> bool:
            answered("many")
            return len(suspects()) == 6

        for name in names:
            way = (closing if name < "many:i6" else kept).enter_context(TcpRelay(("127.0.0.1", port)))
            offer = {"url": f"{way.url}/", "capabilities": {"streaming": True}}
            http.put(f"/registry/agents/many/{name[5:]}", json=offer).raise_for_status()
            answered(name)
        closing.close()
        wait_for(enough_are_suspect, 20)
        made = [http.get(f"/registry/tasks/{answered('many')}/decision").json() for _ in range(40)]
        assert {(one["rule"], one["candidates"]) for one in made} == {("panic", 10)}
        assert any(one["worker"] in suspects() for one in made)
        assert re.search(r'route_decisions_total\{[^}]*policy="panic"[^}]*role="many"', http.get("/metrics").text)


def test_restarting_ten_workers_one_after_the_other_costs_no_call(hub: HubProcess, tmp_path: Path) -> None:
    names = [f"counter:{letter}" for letter in "abcdefghij"]
    with ExitStack() as started:
        running = workers(started, hub, names, tmp_path)
        with Load(hub, "counter", callers=4) as load:
            for name in names:
                assert running[name].stop(10) == 0
                started.enter_context(worker(hub, name, tmp_path, enrolled=False))
            wait_for(lambda: all(is_live(hub.url, name) for name in names))
            load.more(40)
        assert load.failures() == []
        assert len((tmp_path / "runs").read_text().splitlines()) == len(load.answers)


# --- P13, P16: cursors


async def test_two_hundred_streams_resume_after_a_stop_of_the_hub(
    hub: HubProcess, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    streams = [ClientStream(hub.url, "counter", "22 0.2") for _ in range(200)]
    with ExitStack() as started:
        workers(started, hub, [f"counter:{letter}" for letter in "abcd"], tmp_path)
        reading = [asyncio.create_task(stream.begin(http)) for stream in streams]
        await asyncio.to_thread(wait_for, lambda: all(stream.chunks for stream in streams))
        began = time.monotonic()
        assert await asyncio.to_thread(hub.stop, 20) == 0
        assert time.monotonic() - began < 10
        async with asyncio.timeout(5):
            await asyncio.gather(*reading)
        for stream in streams:
            assert not stream.ended and stream.cursor
            assert re.search(rb"\nretry: \d+\n\n$", stream.tail)
        with hub_at(hub.data_dir, hub.port):
            async with asyncio.timeout(30):
                await asyncio.gather(*(stream.come_back(http) for stream in streams))
    for stream in streams:
        assert stream.ended and stream.chunks == numbers(22)
        assert [cursor for cursor, _ in stream.frames] == list(range(1, len(stream.frames) + 1))
    assert len((tmp_path / "runs").read_text().splitlines()) == len(streams)


async def test_a_hundred_returns_with_a_cursor_give_exactly_what_follows(
    hub: HubProcess, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    await _come_back_often(hub, http, tmp_path, returns=104, chunks=110)


@pytest.mark.soak
async def test_a_thousand_returns_with_a_cursor_give_exactly_what_follows(
    hub: HubProcess, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    await _come_back_often(hub, http, tmp_path, returns=1000, chunks=1500)


async def _come_back_often(hub: HubProcess, http: httpx.AsyncClient, tmp_path: Path, *, returns: int, chunks: int) -> None:
    """Readers that stay get the whole logs. Others resume at a random cursor, read a little, and disconnect."""
    streams = [ClientStream(hub.url, "counter" if n % 2 else "same", f"{chunks} 0.02") for n in range(8)]
    with worker(hub, "counter:a", tmp_path), worker(hub, "same:a", tmp_path):
        reading = [asyncio.create_task(stream.begin(http)) for stream in streams]
        await asyncio.to_thread(wait_for, lambda: all(stream.chunks for stream in streams))
        async with asyncio.timeout(chunks * 0.02 + 20):
            seen = await asyncio.gather(
                *(_short_reads(http, stream, returns // len(streams), n) for n, stream in enumerate(streams))
            )
            await asyncio.gather(*reading)
    for stream, reads in zip(streams, seen, strict=True):
        assert stream.chunks == (numbers(chunks) if stream.role == "counter" else ["ha"] * chunks)
        assert [cursor for cursor, _ in stream.frames] == list(range(1, len(stream.frames) + 1))
        for at, frames in reads:
            if at:
                (cursor, task), *frames = frames
                assert (cursor, task["kind"]) == (at, "task")
                assert texts(task) == texts({"artifacts": [e["artifact"] for _, e in stream.frames[:at] if "artifact" in e]})
            assert frames == stream.frames[at : at + len(frames)]


async def _short_reads(http: httpx.AsyncClient, stream: ClientStream, times: int, number: int) -> list[tuple[int, list[Frame]]]:
    """The cursor at which each reader began, and the frames that it got."""
    rng, found = random.Random(number), list[tuple[int, list[Frame]]]()
    while len(found) < times:
        at, enough = rng.randint(0, stream.cursor), rng.randint(1, 30)
        frames: list[Frame] = []
        async with aclosing(stream.resume(http, at)) as coming:
            async for frame in coming:
                frames.append(frame)
                if len(frames) == enough:
                    break
        found.append((at, frames))
    return found


# --- a caller that waits


def test_a_blocking_call_can_be_listed_canceled_and_found_after_a_restart(hub: HubProcess, tmp_path: Path) -> None:
    answers: list[dict[str, Any]] = []

    def wait(text: str) -> threading.Thread:
        def run() -> None:
            try:
                answers.append(send(hub.url, "counter", text))
            except httpx.HTTPError:
                answers.append({})

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        wait_for(lambda: len(tasks_of(hub, state="working")) == 1)
        return thread

    with worker(hub, "counter:a", tmp_path):
        waiting = wait("1000 0.05")
        (task,) = tasks_of(hub, state="working")
        assert (task["role"], task["worker"]) == ("counter", "counter:a")
        canceled = call(f"{hub.url}/", "tasks/cancel", {"id": task["id"]})["result"]
        waiting.join(3)
        assert answers.pop() == canceled
        assert canceled["status"]["state"] == "canceled"

        waiting = wait("100 0.05")  # longer than a hub takes to come up on a busy machine
        (task,) = tasks_of(hub, state="working")
        hub.kill9()
        waiting.join(3)
        assert answers == [{}]
        with hub_at(hub.data_dir, hub.port) as hub:
            (found,) = tasks_of(hub, state="working")
            assert (found["id"], found["worker"]) == (task["id"], "counter:a")
            wait_for(lambda: tasks_of(hub, state="working") == [])
            assert texts(get_task(hub.url, task["id"])) == numbers(100)
