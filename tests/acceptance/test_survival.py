"""kill -9 of a worker or the hub during a stream: real processes."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.helpers.client import Reader, call, get_task, send, text_message, texts
from tests.helpers.processes import HubProcess, Process, is_live, start_hub, start_worker, wait_for

WORKERS = "tests.acceptance.workers"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    with start_hub(tmp_path / "hub", lease_ttl=4, heartbeat=0.5, worker_silence=3) as hub:
        yield hub


def worker(hub: HubProcess, name: str, tmp_path: Path, attribute: str | None = None) -> Process:
    role, _, instance = name.partition(":")
    env = {"RUNS": str(tmp_path / "runs")}
    return start_worker(f"{WORKERS}:{attribute or role}", name, hub.url, log=tmp_path / f"{role}-{instance}.log", env=env)


def restarted(hub: HubProcess, **settings: object) -> HubProcess:
    return start_hub(hub.data_dir, port=hub.port, lease_ttl=4, heartbeat=0.5, worker_silence=3, **settings)


def test_a_stream_survives_a_kill_of_the_hub_exactly(hub: HubProcess, tmp_path: Path) -> None:
    """Some streams of numbers, some of one repeated word: new events cannot be recognised by their content."""
    rng = random.Random(11)
    with worker(hub, "counter:a", tmp_path), worker(hub, "same:a", tmp_path):
        readers = [Reader(hub.url, "counter" if n % 2 else "same", "60 0.02") for n in range(8)]
        threads = [reader.start() for reader in readers]
        wait_for(lambda: all(reader.chunks for reader in readers))
        time.sleep(rng.uniform(0.1, 0.5))
        hub.kill9()
        for thread in threads:
            thread.join(5)
        seen = [len(reader.frames) for reader in readers]
        with restarted(hub) as again:
            threads = [reader.start_again() for reader in readers]
            for thread in threads:
                thread.join(15)
            for reader in readers:
                expected = [f"{n} " for n in range(60)] if reader.role == "counter" else ["ha"] * 60
                assert reader.chunks == expected
                assert [cursor for cursor, _ in reader.frames] == list(range(1, len(reader.frames) + 1))
                assert reader.state == "completed"
                assert texts(get_task(again.url, reader.task)) == expected
            assert any(0 < count < len(reader.frames) for count, reader in zip(seen, readers, strict=True))
    runs = (tmp_path / "runs").read_text().split("\n")
    assert len([run for run in runs if run]) == len(readers)


def test_a_worker_that_is_killed_ends_its_stream_with_a_reason(hub: HubProcess, tmp_path: Path) -> None:
    with worker(hub, "counter:a", tmp_path) as killed:
        reader = Reader(hub.url, "counter", "1000 0.02")
        thread = reader.start()
        wait_for(lambda: len(reader.chunks) > 5)
        killed.kill9()
        killed_at = time.monotonic()
        thread.join(5)
        assert time.monotonic() - killed_at < 3
        assert reader.state == "failed"
        assert reader.events[-1]["final"] is True
        assert reader.events[-1]["metadata"]["rolecall"]["reason"] == "WORKER_LOST"
        assert texts(get_task(hub.url, reader.task)) == reader.chunks


@pytest.mark.parametrize(("silence", "lease_ttl"), [(3, 4), (4, 2)], ids=["before its lease", "after its lease"])
def test_a_worker_that_hangs_ends_its_stream_after_the_silence(tmp_path: Path, silence: float, lease_ttl: float) -> None:
    """Its address still takes connections, so it is silent and not lost, also when its lease runs out first."""
    with (
        start_hub(tmp_path / "hub", lease_ttl=lease_ttl, heartbeat=0.5, worker_silence=silence) as hub,
        worker(hub, "counter:a", tmp_path) as killed,
    ):
        reader = Reader(hub.url, "counter", "400 0.02")
        thread = reader.start()
        wait_for(lambda: len(reader.chunks) > 5)
        killed.pause()
        paused = time.monotonic()
        thread.join(10)
        assert silence - 1 < time.monotonic() - paused < silence + 2
        assert reader.events[-1]["metadata"]["rolecall"]["reason"] == "WORKER_SILENT"


def test_two_readers_of_one_task_get_the_same_events_as_its_caller(hub: HubProcess, tmp_path: Path) -> None:
    with worker(hub, "counter:a", tmp_path):
        first = Reader(hub.url, "counter", "80 0.02")
        thread = first.start()
        wait_for(lambda: len(first.chunks) > 5)
        second = Reader(hub.url, "counter", "", task=first.task, frames=list(first.frames[:3]))
        another = Reader(hub.url, "counter", "", task=first.task, frames=list(first.frames[:5]))
        others = [second.start_again(), another.start_again()]
        for reading in (thread, *others):
            reading.join(10)
        assert first.frames == second.frames == another.frames
        assert first.chunks == [f"{n} " for n in range(80)]


def test_calls_go_on_when_one_of_three_workers_is_killed(hub: HubProcess, tmp_path: Path) -> None:
    a, b, c = (worker(hub, f"echo:{name}", tmp_path, "instant") for name in "abc")
    with a, b:
        for n in range(30):
            assert send(hub.url, "echo", str(n))["status"]["state"] == "completed"
        shares = _shares(tmp_path)
        assert len(shares) == 3
        assert min(shares.values()) >= 3
        c.kill9()
        killed_at = time.monotonic()
        for n in range(30):
            assert send(hub.url, "echo", str(n))["status"]["state"] == "completed"
        assert _shares(tmp_path)[c.pid] == shares[c.pid]
        asked = time.monotonic()
        wait_for(lambda: not is_live(hub.url, "echo:c"), 8)
        assert time.monotonic() - max(killed_at + 4, asked) < 2


def test_a_worker_paused_longer_than_its_lease_enrols_again_by_itself(hub: HubProcess, tmp_path: Path) -> None:
    with worker(hub, "echo:a", tmp_path, "instant") as paused:
        paused.pause()
        wait_for(lambda: not is_live(hub.url, "echo:a"), 8)
        assert send(hub.url, "echo", "x")["error"]["data"][0]["reason"] == "NO_LIVE_WORKER"
        paused.resume()
        wait_for(lambda: is_live(hub.url, "echo:a"), 8)
        assert texts(send(hub.url, "echo", "back")) == ["back"]


def test_a_restarted_hub_keeps_tasks_logs_and_leases(hub: HubProcess, tmp_path: Path) -> None:
    with worker(hub, "echo:a", tmp_path, "instant"), worker(hub, "asker:a", tmp_path):
        before = send(hub.url, "echo", "remember")
        asked = send(hub.url, "asker", "hello")
        assert asked["status"]["state"] == "input-required"
        assert hub.stop() == 0
        with restarted(hub) as again:
            assert is_live(again.url, "echo:a")
            assert get_task(again.url, before["id"]) == before
            assert texts(send(again.url, "echo", "still here")) == ["still here"]
            answer = send(again.url, "asker", "blue", taskId=asked["id"])
            assert texts(answer) == ["blue it is"]
            assert [turn["role"] for turn in answer["history"]] == ["user", "agent", "user"]


def test_stopping_a_worker_fails_no_call(hub: HubProcess, tmp_path: Path) -> None:
    with worker(hub, "counter:a", tmp_path) as leaving, worker(hub, "counter:b", tmp_path):
        readers = [Reader(hub.url, "counter", "40 0.02") for _ in range(6)]
        threads = [reader.start() for reader in readers]
        wait_for(lambda: all(reader.chunks for reader in readers))
        assert leaving.stop(15) == 0
        assert not is_live(hub.url, "counter:a")
        threads += [(late := Reader(hub.url, "counter", "3")).start()]
        for thread in threads:
            thread.join(10)
        assert {reader.state for reader in (*readers, late)} == {"completed"}


def test_readers_of_a_stopping_hub_resume_by_cursor(hub: HubProcess, tmp_path: Path) -> None:
    """The worker counts until a file exists: no stream ends before its hub, also on a slow machine."""
    env = {"ENOUGH": str(tmp_path / "enough")}
    counter = start_worker("tests.acceptance.syncs.workers:counter", "counter:a", hub.url, log=tmp_path / "a.log", env=env)
    with counter:
        readers = [Reader(hub.url, "counter", "count") for _ in range(10)]
        threads = [reader.start() for reader in readers]
        wait_for(lambda: all(len(reader.chunks) > 5 for reader in readers), 30)
        assert hub.stop(10) == 0
        for thread in threads:
            thread.join(10)
        assert [(reader.done, reader.errors) for reader in readers] == [(False, [])] * len(readers)
        with restarted(hub):
            threads = [reader.start_again() for reader in readers]
            (tmp_path / "enough").touch()
            for thread in threads:
                thread.join(30)
            for reader in readers:
                many = len(reader.chunks) - 1
                assert reader.chunks == [*(f"{n} " for n in range(many)), f"that was {many}"]
                assert reader.state == "completed"


def test_a_hub_that_was_paused_expires_no_lease(hub: HubProcess, tmp_path: Path) -> None:
    """The pause is longer than the leases and the silence. No worker could reach the hub meanwhile."""
    with worker(hub, "echo:a", tmp_path, "instant"), worker(hub, "counter:a", tmp_path):
        reader = Reader(hub.url, "counter", "200 0.05")
        thread = reader.start()
        wait_for(lambda: len(reader.chunks) > 3)
        hub.pause()
        time.sleep(6)
        hub.resume()
        assert is_live(hub.url, "echo:a")
        assert texts(send(hub.url, "echo", "awake")) == ["awake"]
        thread.join(15)
        assert reader.chunks == [f"{n} " for n in range(200)]
        feed = httpx.get(f"{hub.url}/metrics", trust_env=False).text
        assert "lease_expirations_total{" not in feed


def test_a_call_repeated_after_a_kill_of_the_hub_is_the_same_call(hub: HubProcess, tmp_path: Path) -> None:
    message = text_message("30 0.02")
    with worker(hub, "counter:a", tmp_path):
        first = threading.Thread(target=_ask, args=(hub, message), daemon=True)
        first.start()
        wait_for(lambda: (tmp_path / "runs").exists())
        hub.kill9()
        with restarted(hub) as again:
            answers = [_ask(again, message) for _ in range(2)]
            assert answers[0] == answers[1]
            assert answers[0]["status"]["state"] == "completed"
            assert texts(answers[0]) == [f"{n} " for n in range(30)]
    assert len((tmp_path / "runs").read_text().splitlines()) == 1


def _ask(hub: HubProcess, params: dict[str, Any]) -> dict[str, Any]:
    try:
        found: dict[str, Any] = call(f"{hub.url}/agents/counter/", "message/send", params)["result"]
    except httpx.HTTPError:
        return {}
    return found


@pytest.mark.soak
def test_sixteen_streams_survive_ten_kills_of_the_hub(hub: HubProcess, tmp_path: Path) -> None:
    rng = random.Random(16)
    with worker(hub, "counter:a", tmp_path), worker(hub, "same:a", tmp_path):
        readers = [Reader(hub.url, "counter" if n % 2 else "same", "1200 0.02") for n in range(16)]
        threads = [reader.start() for reader in readers]
        wait_for(lambda: all(reader.chunks for reader in readers))
        running = hub
        for _ in range(10):
            time.sleep(rng.uniform(0.2, 1.5))
            running.kill9()
            for thread in threads:
                thread.join(5)
            running = restarted(hub)
            threads = [reader.start_again() for reader in readers]
        for thread in threads:
            thread.join(60)
        running.end()
    for reader in readers:
        expected = [f"{n} " for n in range(1200)] if reader.role == "counter" else ["ha"] * 1200
        assert reader.chunks == expected
        assert [cursor for cursor, _ in reader.frames] == list(range(1, len(reader.frames) + 1))
    assert len((tmp_path / "runs").read_text().splitlines()) == len(readers)


def _shares(tmp_path: Path) -> dict[int, int]:
    """The number of calls that each process has run."""
    process_ids = [int(line.split()[1]) for line in (tmp_path / "runs").read_text().splitlines()]
    return {pid: process_ids.count(pid) for pid in process_ids}
