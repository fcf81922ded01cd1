"""Calls before and while 5,000 workers send their heartbeats within one second."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.bench import machine
from tests.bench.checkouts import CURRENT, Checkout
from tests.bench.enrolling import EACH_FARM, Enrolled, enrol_many, names
from tests.bench.figures import Case, Figure, Section, number, times
from tests.bench.honesty import check_counts
from tests.bench.machine import RestRoute
from tests.bench.proxies import Proxy, enrol, serve
from tests.bench.rig import Rig
from tests.bench.turns import say

_BEATS, _ROLES, _LINES = EACH_FARM, 50, 200
_NOTE = (
    "A hub of 5,000 workers in 50 roles. Before: seconds without a heartbeat. During: the second in which all 5,000 are sent "
    'at an even pace, over 200 connections; "took" is until the last was answered. The ratio is that of the p99, the median '
    "of rounds."
)


def storms(rig: Rig, rounds: int, seconds: float) -> Section:
    table = [["", "p50 ms before", "p99 ms before", "p50 ms during", "p99 ms during", "beats took s", "p99 to before"]]
    values, problems = {}, []
    with rig.place() as place:
        hub, lines = farm(rig, place)
        rig.plan(1, 0)
        for connections in (32, 1):
            case = Case(f"{connections} connection{'s' if connections > 1 else ''}", "send", connections, 1, seconds=seconds)
            found = [one_round(rig, hub, case, lines) for _ in range(max(rounds, 3))]
            problems += [problem for each in found for problem in each["problems"]]
            ratio = Figure.of(each["p99"] / each["p99_before"] for each in found)
            middles = [Figure.of(each[name] for each in found).middle for name in _COLUMNS]
            table.append([case.title, *(number(middle) for middle in middles), f"{times(ratio.middle)} ±{ratio.spread:.0%}"])
            values[f"storm {connections}"] = ratio.middle
    return Section("5,000 heartbeats in one second", table, _NOTE, values, problems)


_COLUMNS = ("p50_before", "p99_before", "p50", "p99", "took")


def farm(rig: Rig, place: RestRoute, name: str = "storm", checkout: Checkout = CURRENT) -> tuple[Proxy, Path]:
    """A hub with thousands of workers, and their heartbeats in a file."""
    say(f"heartbeat storm: enrolling 5,000 workers: {name}")
    hub = serve(place, name, farms=2, checkout=checkout)
    enrol(hub, rig.worker_port)
    wanted = [(f"storm-{role}", instance) for role, instance in names(_BEATS, _ROLES)]
    workers = enrol_many(hub, rig.worker_port, wanted, token=hub.enrol_with[1])
    return hub, _lines(rig.folder / f"{name}.beats", workers)


def one_round(rig: Rig, hub: Proxy, case: Case, lines: Path) -> dict[str, Any]:
    """Milliseconds that calls take before and during the storm, and what was not honest about it."""
    say(f"heartbeat storm: {case.title}: {hub.name}")
    served = rig.served()
    before = rig.load(hub, case)
    with rig.place() as place, lines.open() as told:
        storm = _storm(place, rig, hub, told.read())
        load = rig.begin_load(place, hub, replace(case, seconds=1.0))
        machine.expect(load, "warm")
        machine.tell(storm)
        machine.tell(load)
        machine.expect(load, "over")
        machine.tell(load)
        during = json.loads(machine.first_line(load))
        beats = json.loads(machine.first_line(storm))
    after = rig.served()
    both = {name: before[name] + during[name] for name in ("begun", "calls", "events", "bad", "broken", "hung", "repeated_ids")}
    counted = {**both, "complaint": before["complaint"] or during["complaint"]}
    problems = check_counts(counted, (after[0] - served[0], after[1] - served[1]), case)
    if beats["answered"] != _BEATS or beats["bad"]:
        problems.append(f"{beats['answered']} of {_BEATS} heartbeats were answered, {beats['bad']} not with 200")
    waited = {f"{part}_before": before[f"call_{part}_us"] / 1000 for part in ("p50", "p99")}
    waited |= {part: during[f"call_{part}_us"] / 1000 for part in ("p50", "p99")}
    return {**waited, "took": beats["seconds"], "problems": [f"heartbeat storm: {problem}" for problem in problems]}


def _storm(place: RestRoute, rig: Rig, hub: Proxy, lines: str) -> subprocess.Popen[str]:
    """Connected, and waiting for the word."""
    words = (hub.port, _LINES, 1000, hub.enrol_with[1])
    argv: list[str | Path] = [rig.folder / "beats", *(str(word) for word in words)]
    process = place.start(argv, log="beats", measured=False, stdin=subprocess.PIPE)
    machine.tell(process, lines)
    machine.expect(process, "ready")
    return process


def _lines(path: Path, workers: list[Enrolled]) -> Path:
    path.write_text("".join(f"{worker.name}\t{worker.beat()}\n" for worker in workers))
    return path
