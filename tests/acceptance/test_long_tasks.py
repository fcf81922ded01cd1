"""Long tasks, and workers and callers that make the hub read them: no other caller waits, and an event costs what it costs in
a short task.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import httpx
import pytest

from tests.acceptance.loadclients import LatencyProbe
from tests.acceptance.long_tasks import LongTasks, open_long_tasks
from tests.bench.machine import cpu_seconds
from tests.helpers.processes import HubProcess
from tests.helpers.waiting import until_still

pytestmark = pytest.mark.soak
MOST_OF_A_CALL = 300
MOST_OF_HEALTH = 200
"""Milliseconds."""
ROUNDS = 3
EVENTS = 16_000
EVENTS_FOR_MANY = 9_000
GETS = 12
LENGTHS = (100, 1_000, 10_000, 50_000)
_UNTIL_READ = 0.01
"""Seconds. A reset discards a request that the hub has not read."""
FLAT = 2.0
"""An event of one length of task may cost so many times what it costs in another."""


class Waits(NamedTuple):
    """The longest waits of two other clients, in milliseconds."""

    calls: float
    health: float

    @property
    def fine(self) -> bool:
        return self.calls < MOST_OF_A_CALL and self.health < MOST_OF_HEALTH

    def __str__(self) -> str:
        return f"a call {self.calls:.0f}, livez {self.health:.0f}"


@pytest.fixture(scope="module")
def long_tasks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LongTasks]:
    with open_long_tasks(tmp_path_factory.mktemp("long")) as long_tasks:
        yield long_tasks


def cpu_of(long_tasks: LongTasks, load: Callable[[], object]) -> float:
    """CPU seconds of the hub for the load, until it is idle."""
    before = cpu_seconds(long_tasks.hub.pid)
    load()
    return until_still(lambda: round(cpu_seconds(long_tasks.hub.pid), 2)) - before


def check_waits(long_tasks: LongTasks, what: str, load: Callable[[], object]) -> None:
    """In the best of some rounds, or the first within the limits, because the machine is shared."""
    hub, folder = long_tasks.hub, long_tasks.folder
    found: list[Waits] = []
    with LatencyProbe("calls", hub, folder) as calls, LatencyProbe("livez", hub, folder) as health:
        while not found or (len(found) < ROUNDS and not found[-1].fine):
            began = time.monotonic() - 0.02  # calls that began just before may be delayed as well
            load()
            time.sleep(0.5)
            found.append(Waits(max(calls.figures(began)), max(health.figures(began))))
    print(f"\n{what}: longest waits in milliseconds: {'; '.join(map(str, found))}")
    assert found[-1].fine


@pytest.fixture(scope="module")
def task(long_tasks: LongTasks) -> str:
    return long_tasks.stream(f"{EVENTS_FOR_MANY} statuses")[0]


@pytest.mark.parametrize("kind", ["statuses", "chunks"])
def test_a_worker_that_repeats_its_long_task_delays_no_other_caller(long_tasks: LongTasks, kind: str) -> None:
    """Each bare Task is compared with the whole log."""
    counts: list[int] = []

    def load() -> None:
        counts.append(long_tasks.stream(f"{EVENTS} {kind} 2 tasks")[1])

    check_waits(long_tasks, f"{EVENTS} {kind}, then two bare tasks", load)
    assert min(counts) >= EVENTS


def test_many_who_ask_for_a_long_task_delay_no_other_caller(long_tasks: LongTasks, task: str) -> None:
    sizes: list[int] = []
    check_waits(
        long_tasks,
        f"{GETS} tasks/get of {EVENTS_FOR_MANY} events",
        lambda: sizes.extend(_read_all(_ask_at_once(long_tasks.hub, task))),
    )
    assert max(sizes) == min(sizes) > 100 * EVENTS_FOR_MANY


@pytest.mark.parametrize("reset", [True, False], ids=["reset", "closed"])
def test_many_who_ask_for_a_long_task_and_disconnect_delay_no_other_caller(
    long_tasks: LongTasks, task: str, reset: bool
) -> None:
    how = "reset" if reset else "closed"
    check_waits(
        long_tasks,
        f"{GETS} tasks/get of {EVENTS_FOR_MANY} events, {how} at once",
        lambda: _disconnect(_ask_at_once(long_tasks.hub, task), reset=reset),
    )


def test_a_task_is_not_read_for_a_caller_whose_connection_is_gone(long_tasks: LongTasks, task: str) -> None:
    """A connection that is only closed may be half closed: its client may still read, so it gets its answer."""
    whole = min(cpu_of(long_tasks, lambda: _get(long_tasks, task, 1)) for _ in range(ROUNDS))
    cost = min(cpu_of(long_tasks, lambda: _disconnect(_ask_at_once(long_tasks.hub, task), reset=True)) for _ in range(ROUNDS))
    print(f"\nCPU: one tasks/get {whole * 1000:.0f} ms; {GETS} whose connections are reset {cost * 1000:.0f} ms")
    assert cost < GETS * whole / 3


@pytest.mark.parametrize("kind", ["statuses", "chunks"])
def test_an_event_of_a_long_task_costs_what_one_of_a_short_task_costs(long_tasks: LongTasks, kind: str) -> None:
    """In the best of some rounds, because the machine is shared. A round reads as many events of each length."""
    tasks = {length: long_tasks.stream(f"{length} {kind}")[0] for length in LENGTHS}
    found: list[dict[int, float]] = []
    while not found or (len(found) < ROUNDS and not _is_flat(found[-1])):
        found.append({length: _event_cost(long_tasks, task, length) for length, task in tasks.items()})
        costs = ", ".join(f"{cost:.2f} of {length:,}" for length, cost in found[-1].items())
        print(f"\nCPU of tasks/get, microseconds an event, of tasks of {kind}: {costs}")
    assert _is_flat(found[-1])


def _event_cost(long_tasks: LongTasks, task: str, length: int) -> float:
    count = LENGTHS[-1] // length
    return cpu_of(long_tasks, lambda: _get(long_tasks, task, count)) / count / length * 1e6


def _is_flat(costs: Mapping[int, float]) -> bool:
    return max(costs.values()) < FLAT * min(costs.values())


def _body(task: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": task}}).encode()


def _get(long_tasks: LongTasks, task: str, count: int) -> None:
    with httpx.Client(trust_env=False, timeout=30) as client:
        for _ in range(count):
            answer = client.post(long_tasks.hub.url, content=_body(task), headers={"Content-Type": "application/json"})
            assert answer.content.startswith(b'{"jsonrpc":"2.0","id":1,"result"')


def _ask_at_once(hub: HubProcess, task: str) -> list[socket.socket]:
    body = _body(task)
    head = f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    sockets = [socket.create_connection(("127.0.0.1", hub.port), timeout=30) for _ in range(GETS)]
    for one in sockets:
        one.sendall(head.encode() + b"Connection: close\r\n\r\n" + body)
    return sockets


def _read_all(sockets: Sequence[socket.socket]) -> list[int]:
    """The sizes of the answers."""
    sizes = []
    for one in sockets:
        with one, one.makefile("rb") as answer:
            sizes.append(len(answer.read()))
    return sizes


def _disconnect(sockets: Sequence[socket.socket], *, reset: bool) -> None:
    time.sleep(_UNTIL_READ)
    for one in sockets:
        if reset:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()
