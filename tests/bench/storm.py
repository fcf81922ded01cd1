"""Calls before and while 5,000 workers send their heartbeats within one second."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.bench import machine
from tests.bench.checkouts import CURRENT, Checkout
from tests.bench.enrolling import WORKERS_PER_TOKEN, Enrolled, enrol_many, names
from tests.bench.figures import Case, Figure, Section, number, times
from tests.bench.honesty import check_counts
from tests.bench.machine import RestRoute
from tests.bench.proxies import Proxy, enrol, serve
from tests.bench.rig import Bench
from tests.bench.turns import show_progress

_BEATS, _ROLES, _LINES = WORKERS_PER_TOKEN, 50, 200
_NOTE = (
    "A hub of 5,000 workers in 50 roles. Before: seconds without a heartbeat. During: the second in which all 5,000 are sent "
    'at an even pace, over 200 connections; "took" is until the last was answered. The ratio is that of the p99, the median '
    "of rounds."
)


def storm_section(bench: Bench, rounds: int, seconds: float) -> Section:
    table = [["", "p50 ms before", "p99 ms before", "p50 ms during", "p99 ms during", "beats took s", "p99 to before"]]
    values, problems = {}, []
    with bench.place() as place:
        hub, lines = many_workers(bench, place)
        bench.plan(1, 0)
        for connections in (32, 1):
            case = Case(f"{connections} connection{'s' if connections > 1 else ''}", "send", connections, 1, seconds=seconds)
            found = [one_round(bench, hub, case, lines) for _ in range(max(rounds, 3))]
            problems += [problem for one in found for problem in one["problems"]]
            ratio = Figure.of(one["p99"] / one["p99_before"] for one in found)
            median_values = [Figure.of(one[name] for one in found).median_value for name in _COLUMNS]
            ratio_cell = f"{times(ratio.median_value)} ±{ratio.spread:.0%}"
            table.append([case.title, *(number(value) for value in median_values), ratio_cell])
            values[f"storm {connections}"] = ratio.median_value
    return Section("5,000 heartbeats in one second", table, _NOTE, values, problems)


_COLUMNS = ("p50_before", "p99_before", "p50", "p99", "took")


def many_workers(bench: Bench, place: RestRoute, name: str = "storm", checkout: Checkout = CURRENT) -> tuple[Proxy, Path]:
    """A hub with thousands of workers, and their heartbeats in a file."""
    show_progress(f"heartbeat storm: enrolling 5,000 workers: {name}")
    hub = serve(place, name, worker_tokens=2, checkout=checkout)
    enrol(hub, bench.worker_port)
    wanted = [(f"storm-{role}", instance) for role, instance in names(_BEATS, _ROLES)]
    workers = enrol_many(hub, bench.worker_port, wanted, token=hub.enrol_with[1])
    return hub, _lines(bench.folder / f"{name}.beats", workers)


def one_round(bench: Bench, hub: Proxy, case: Case, lines: Path) -> dict[str, Any]:
    """Milliseconds of calls before and during the storm, and the problems."""
    show_progress(f"heartbeat storm: {case.title}: {hub.name}")
    served = bench.served()
    before = bench.load(hub, case)
    with bench.place() as place, lines.open() as beats_file:
        storm = _storm(place, bench, hub, beats_file.read())
        load = bench.begin_load(place, hub, replace(case, seconds=1.0))
        machine.expect(load, "warm")
        machine.send_line(storm)
        machine.send_line(load)
        machine.expect(load, "over")
        machine.send_line(load)
        while_storm = json.loads(machine.first_line(load))
        beats = json.loads(machine.first_line(storm))
    after = bench.served()
    both = {
        name: before[name] + while_storm[name] for name in ("begun", "calls", "events", "bad", "broken", "hung", "repeated_ids")
    }
    counted = {**both, "complaint": before["complaint"] or while_storm["complaint"]}
    problems = check_counts(counted, (after[0] - served[0], after[1] - served[1]), case)
    if beats["answered"] != _BEATS or beats["bad"]:
        problems.append(f"{beats['answered']} of {_BEATS} heartbeats were answered, {beats['bad']} not with 200")
    waited = {f"{part}_before": before[f"call_{part}_us"] / 1000 for part in ("p50", "p99")}
    waited |= {part: while_storm[f"call_{part}_us"] / 1000 for part in ("p50", "p99")}
    return {**waited, "took": beats["seconds"], "problems": [f"heartbeat storm: {problem}" for problem in problems]}


def _storm(place: RestRoute, bench: Bench, hub: Proxy, lines: str) -> subprocess.Popen[str]:
    """The process with its connections open. It begins when it gets a line."""
    words = (hub.port, _LINES, 1000, hub.enrol_with[1])
    argv: list[str | Path] = [bench.folder / "beats", *(str(word) for word in words)]
    process = place.start(argv, log="beats", measured=False, stdin=subprocess.PIPE)
    machine.send_line(process, lines)
    machine.expect(process, "ready")
    return process


def _lines(path: Path, workers: list[Enrolled]) -> Path:
    path.write_text("".join(f"{worker.name}\t{worker.beat()}\n" for worker in workers))
    return path
