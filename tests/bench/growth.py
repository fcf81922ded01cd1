"""What a call costs in a hub with many workers or tasks, compared with a hub with few."""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import median

from tests.bench import machine
from tests.bench.asking import ask
from tests.bench.enrolling import WORKERS_PER_TOKEN, enrol_many, names
from tests.bench.figures import Case, Row, Section, number, rows, table_of, times
from tests.bench.filling import fill
from tests.bench.machine import RestRoute
from tests.bench.proxies import Proxy, resume, serve
from tests.bench.rig import Bench, HubTasks
from tests.bench.stalls import HEADS, loop_waits
from tests.bench.turns import in_turn, measure, show_progress

FEW, WORKERS, TASKS = "10 workers", "10,000 workers", "1,000,000 tasks"
_WORKERS, _ROLES, _TASKS = 10_000, 1_000, 1_000_000
_ASKED = 30
_RETENTION_STARTS_AFTER = 30.0
_LOOP_NOTE = (
    "GET /livez of hubs without other load, a millisecond after each answer. Its longest wait is how long a sweep of "
    "leases, or retention, blocks the loop. The longest is the median of three tries, that of retention of one."
)


def grown(bench: Bench, rounds: int, seconds: float) -> list[Section]:
    case = Case("Plain calls, 32 connections, in hubs that hold much", "send", 32, 1, seconds=seconds)
    show_progress("growth: storing 1,000,000 tasks")
    full = _filled(bench)
    with bench.place() as place:
        show_progress("growth: enrolling 10,000 workers")
        hubs = [_with_few(bench, place), _with_workers(bench, place), resume(place, full)]
        samples, problems = in_turn(bench, hubs, [case], rounds)
        made = rows(case, samples, bases=(FEW,), peer=FEW)
        asked = _questions(hubs)
        show_progress("growth: how long the loop is blocked")
        waits = [loop_waits(hub, repeats=3, seconds=3) for hub in hubs]
    row, longest, lost = _retention_cost(bench, full)
    note = (
        "Three hubs, in turn. The role that is called has 10 workers in each; one knows 10,000 in 1,000 roles; one holds "
        "1,000,000 tasks that ended in the last 20 hours, all of the same caller. Leases are swept as usual."
    )
    calls = Section(case.title, table_of(case, made, bases=(FEW,), peer=FEW), note, _values(made), problems)
    values = {f"held {hub.name}": wait for hub, (_, wait) in zip(hubs, waits, strict=True)} | {"held retention": longest}
    loop_section = Section("How long the loop is held", [HEADS, *(cells for cells, _ in waits), row], _LOOP_NOTE, values, lost)
    return [calls, asked, loop_section]


def _retention_cost(bench: Bench, full: Proxy) -> tuple[list[str], float, list[str]]:
    """The same tasks, most of them now older than the retention. Retention begins after half a minute."""
    show_progress("growth: how long retention blocks the loop")
    with bench.place() as place:
        hub = resume(place, replace(full, name=f"{TASKS}, being forgotten"), {"ROLECALL_RETENTION": "3600"})
        before = HubTasks(hub).total()
        time.sleep(max(0.0, _RETENTION_STARTS_AFTER - 1 - machine.age(hub.pid)))
        row, longest = loop_waits(hub, repeats=1, seconds=4)
        gone = before - HubTasks(hub).total()
    return row, longest, [] if gone else ["growth: retention dropped nothing, so its cost is unknown"]


def _values(made: list[Row]) -> dict[str, float]:
    return {f"growth {row.proxy}": row.cpu_to_floor for row in made}


def _with_few(bench: Bench, place: RestRoute) -> Proxy:
    hub = serve(place, FEW)
    enrol_many(hub, bench.worker_port, list(names(10, 1)), token=hub.enrol_with[0])
    return hub


def _with_workers(bench: Bench, place: RestRoute) -> Proxy:
    hub = serve(place, WORKERS, worker_tokens=_WORKERS // WORKERS_PER_TOKEN)
    wanted = list(names(_WORKERS, _ROLES))
    for many_workers, token in enumerate(hub.enrol_with):
        enrol_many(
            hub,
            bench.worker_port,
            wanted[many_workers * WORKERS_PER_TOKEN : (many_workers + 1) * WORKERS_PER_TOKEN],
            token=token,
        )
    return hub


def _filled(bench: Bench) -> Proxy:
    """A hub takes one call and stops. When it starts again, its database has a million copies of that task."""
    with bench.place() as place:
        hub = serve(place, TASKS)
        enrol_many(hub, bench.worker_port, list(names(10, 1)), token=hub.enrol_with[0])
        bench.plan(1, 0)
        measure(bench, hub, Case("one", "send", 1, 1, seconds=0.01))
    fill(next(hub.data.glob("*.db")), _TASKS)
    return hub


def _questions(hubs: list[Proxy]) -> Section:
    """Queries of users and clients, and how long they take."""
    few, workers, tasks = hubs
    asked = [
        ("the newest 50 tasks", "/registry/tasks?limit=50", tasks),
        ("the newest 50 tasks of a role", "/registry/tasks?limit=50&role=bench", tasks),
        ("the workers of one role", "/registry/agents?role=bench", workers),
        ("the role's card", "/agents/bench/.well-known/agent-card.json", workers),
        ("the hub's card", "/.well-known/agent-card.json", workers),
    ]
    table = [["", f"{FEW}: p50 ms", "much: p50 ms", "to little"]]
    values = {}
    for what, path, much in asked:
        before, after = _waits(few, path), _waits(much, path)
        table.append([f"{what}, of {much.name}", number(before), number(after), times(after / before)])
        values[f"ask {what}"] = after / before
    return Section("Questions to the same hubs", table, "One at a time. The small hub holds but this run's tasks.", values)


def _waits(hub: Proxy, path: str) -> float:
    """The median, in milliseconds."""
    waited = []
    for _ in range(_ASKED):
        began = time.perf_counter()
        ask(hub.port, path, token=hub.calls_with)
        waited.append((time.perf_counter() - began) * 1000)
    return median(waited)
