"""Crowds: many readers of one task, many callers at once, and workers that enrol and withdraw without end."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.acceptance.neighbours.load import line_of, start_callers
from tests.acceptance.neighbours.rig import BUSY, WORKERS, Neighbours, neighbours
from tests.helpers.client import text_message

PAUSE = 0.05
CHURN_SECONDS = 2.0


@pytest.mark.parametrize("readers", [100, pytest.param(1000, marks=pytest.mark.soak)])
def test_many_readers_of_one_task_all_get_its_end_and_delay_nobody_else(tmp_path: Path, readers: int) -> None:
    count = 40 if readers == 100 else 200  # p99 is of ten seconds, as elsewhere
    with neighbours(tmp_path) as pair, ExitStack() as closing:
        pair.add_worker(closing, f"{WORKERS}:page_writer", "page_writer:b", BUSY)
        idle = pair.idle(1.0)
        with pair.unharmed() as harm:
            params = {**text_message(f"{count} {PAUSE}"), "configuration": {"blocking": False}}
            task = pair.rpc(BUSY, "message/send", params, "page_writer")["result"]["id"]
            words = (pair.hub.port, readers, "page_writer", task)
            load = start_callers(tmp_path / "load.log", "follow", *words, token=pair.tokens[BUSY, "client"])
            closing.enter_context(load)
            assert line_of(load, 60)["ended"] == readers
        if readers > 100:
            print(harm.check_latency(idle))


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("callers", [20, pytest.param(200, marks=pytest.mark.soak)])
def test_many_callers_at_once_do_not_slow_a_neighbour(tmp_path: Path, callers: int, asks: bool) -> None:
    """Where no limit on callers is set. `asks`: for a task; no worker has a part in that, so all of it is the hub's work."""
    seconds = 0.5 if callers < 100 else 10.0
    with neighbours(tmp_path, max_rate=0, max_at_once=0) as pair, ExitStack() as closing:
        pair.add_worker(closing, f"{WORKERS}:echo", "echo:b", BUSY)
        idle = pair.idle(0.0 if callers < 100 else 3.0)
        words = [pair.send(BUSY)["result"]["id"]] if asks else []
        with pair.unharmed() as harm:
            token = pair.tokens[BUSY, "client"]
            load = start_callers(tmp_path / "load.log", "repeat", pair.hub.port, callers, seconds, *words, token=token)
            closing.enter_context(load)
            answered = line_of(load, seconds + 30)["answered"]
        assert answered > callers
        if callers > 100:
            print(answered, harm.check_latency(idle))


def _churn(pair: Neighbours, number: int, seconds: float) -> int:
    """Enrols and withdraws one worker, again and again, as fast as the hub lets it. Returns how often."""
    requests, until = 0, time.monotonic() + seconds
    card = {"name": "x" * 20_000}
    with httpx.Client(trust_env=False, timeout=30, headers=pair.headers(BUSY, "worker"), base_url=pair.hub.url) as http:
        while time.monotonic() < until:
            offer = {"url": f"http://127.0.0.1:{10_000 + number}/", "boot": f"b{requests}", "card": card}
            answer = http.put(f"/registry/agents/churn/{number}", json=offer)
            if answer.is_success:
                proof = {"epoch": answer.json()["epoch"], "lease": answer.json()["lease"]}
                answer = http.request("DELETE", f"/registry/agents/churn:{number}", json=proof)
            assert answer.is_success or "ROLECALL_MAX_RATE" in answer.text, answer.text
            requests += 1
    return requests


@pytest.mark.parametrize("seconds", [CHURN_SECONDS, pytest.param(20.0, marks=pytest.mark.soak)])
def test_workers_that_enrol_and_withdraw_without_end_delay_nobody_else(tmp_path: Path, seconds: float) -> None:
    at_once = 4
    with neighbours(tmp_path) as pair:
        idle = pair.idle(1.0)
        with pair.unharmed() as harm, ThreadPoolExecutor(at_once) as threads:
            requests = sum(threads.map(lambda number: _churn(pair, number, seconds), range(at_once)))
        assert requests > 10 * at_once
        if seconds > CHURN_SECONDS:
            print(requests, harm.check_latency(idle))
