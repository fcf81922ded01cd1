"""What a call costs where much is enrolled or stored, beside a hub where little is."""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import median

from tests.bench import machine
from tests.bench.asking import ask
from tests.bench.enrolling import EACH_FARM, enrol_many, names
from tests.bench.figures import Case, Row, Section, number, rows, table_of, times
from tests.bench.filling import fill
from tests.bench.machine import RestRoute
from tests.bench.proxies import Proxy, resume, serve
from tests.bench.rig import Rig, StoredTasks
from tests.bench.stalls import HEADS, held
from tests.bench.turns import in_turn, measure, say

FEW, WORKERS, TASKS = "10 workers", "10,000 workers", "1,000,000 tasks"
_WORKERS, _ROLES, _TASKS = 10_000, 1_000, 1_000_000
_ASKED = 30
_FORGETS_AFTER = 30.0
_HELD = (
    "GET /livez of hubs that get nothing else, a millisecond after each answer: what it waits at most is how long a sweep of "
    "leases, or retention at work, holds the loop. The longest is the median of three tries, that of retention of one."
)


def grown(rig: Rig, rounds: int, seconds: float) -> list[Section]:
    case = Case("Plain calls, 32 connections, in hubs that hold much", "send", 32, 1, seconds=seconds)
    say("growth: storing 1,000,000 tasks")
    full = _filled(rig)
    with rig.place() as place:
        say("growth: enrolling 10,000 workers")
        hubs = [_with_few(rig, place), _with_workers(rig, place), resume(place, full)]
        samples, problems = in_turn(rig, hubs, [case], rounds)
        made = rows(case, samples, floor=FEW, peer=FEW)
        asked = _questions(hubs)
        say("growth: how long the loop is held")
        waits = [held(hub, tries=3, seconds=3) for hub in hubs]
    line, longest, lost = _forgetting(rig, full)
    note = (
        "Three hubs, in turn. The role that is called has 10 workers in each; one knows 10,000 in 1,000 roles; one holds "
        "1,000,000 tasks that ended in the last 20 hours, all of the same caller. Leases are swept as usual."
    )
    calls = Section(case.title, table_of(case, made, floor=FEW, peer=FEW), note, _values(made), problems)
    values = {f"held {hub.name}": wait for hub, (_, wait) in zip(hubs, waits, strict=True)} | {"held retention": longest}
    stalls = Section("How long the loop is held", [HEADS, *(cells for cells, _ in waits), line], _HELD, values, lost)
    return [calls, asked, stalls]


def _forgetting(rig: Rig, full: Proxy) -> tuple[list[str], float, list[str]]:
    """The same tasks again, most of them now beyond retention. It begins after half a minute."""
    say("growth: what retention holds up")
    with rig.place() as place:
        hub = resume(place, replace(full, name=f"{TASKS}, being forgotten"), {"ROLECALL_RETENTION": "3600"})
        before = StoredTasks(hub).total()
        time.sleep(max(0.0, _FORGETS_AFTER - 1 - machine.age(hub.pid)))
        line, longest = held(hub, tries=1, seconds=4)
        gone = before - StoredTasks(hub).total()
    return line, longest, [] if gone else ["growth: retention dropped nothing, so its cost is not known"]


def _values(made: list[Row]) -> dict[str, float]:
    return {f"growth {row.proxy}": row.cpu_to_floor for row in made}


def _with_few(rig: Rig, place: RestRoute) -> Proxy:
    hub = serve(place, FEW)
    enrol_many(hub, rig.worker_port, list(names(10, 1)), token=hub.enrol_with[0])
    return hub


def _with_workers(rig: Rig, place: RestRoute) -> Proxy:
    hub = serve(place, WORKERS, farms=_WORKERS // EACH_FARM)
    wanted = list(names(_WORKERS, _ROLES))
    for farm, token in enumerate(hub.enrol_with):
        enrol_many(hub, rig.worker_port, wanted[farm * EACH_FARM : (farm + 1) * EACH_FARM], token=token)
    return hub


def _filled(rig: Rig) -> Proxy:
    """A hub takes one call, goes down, and finds a million tasks like that one when it comes back."""
    with rig.place() as place:
        hub = serve(place, TASKS)
        enrol_many(hub, rig.worker_port, list(names(10, 1)), token=hub.enrol_with[0])
        rig.plan(1, 0)
        measure(rig, hub, Case("one", "send", 1, 1, seconds=0.01))
    fill(next(hub.data.glob("*.db")), _TASKS)
    return hub


def _questions(hubs: list[Proxy]) -> Section:
    """What people and clients ask between calls, and how long they wait."""
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
