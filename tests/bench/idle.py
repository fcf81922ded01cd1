"""Idle costs: open streams without events, and a process that has just started."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from tests.bench import machine
from tests.bench.figures import Case, Figure, Section, number
from tests.bench.proxies import Proxy
from tests.bench.rig import Bench
from tests.bench.turns import measure, show_progress

_STREAMS = 1000
_FOR_EVER = 3_600_000_000
_SETTLED = 2.0
_STARTS = 5


def open_streams(bench: Bench, proxies: Sequence[str]) -> Section:
    """Each proxy in its own process that has served little before, because freed memory would hide the growth."""
    table = [["", "MB before", "MB with 1,000 open", "KiB a stream"]]
    values, problems = {}, []
    for name in proxies:
        show_progress(f"1,000 open streams: {name}")
        with bench.started([name]) as started:
            before, while_open, found = hold(bench, started[0])
        per_stream = memory_per_stream(before, while_open)
        table.append([name, number(before / 1e6), number(while_open / 1e6), f"{per_stream:.1f}"])
        values[f"stream memory {name}"] = per_stream
        problems += found
    note = "Streams that had their first event, and wait for the next. Resident memory, of a process that had served little."
    return Section("1,000 streams open, and silent", table, note, values, problems)


def memory_per_stream(before: int, while_open: int) -> float:
    return (while_open - before) / 1024 / _STREAMS


def hold(bench: Bench, proxy: Proxy) -> tuple[int, int, list[str]]:
    """Resident bytes before the streams are open and while they are open, and the problems."""
    bench.plan(3, 0)
    _, problems = measure(bench, proxy, Case("a few streams", "stream", 16, 3, seconds=0.5))
    time.sleep(_SETTLED)
    before = machine.memory(proxy.pid)
    bench.plan(3, _FOR_EVER)
    with bench.place() as place:
        load = bench.begin_load(place, proxy, Case("hold", "hold", _STREAMS, 3, seconds=0))
        answer = json.loads(machine.first_line(load))
        time.sleep(_SETTLED)
        while_open = machine.memory(proxy.pid)
        if answer["open"] != _STREAMS or answer["broken"]:
            problems.append(f"{answer['open']} of {_STREAMS} streams were open: {answer['complaint']}")
    return before, while_open, [f"1,000 open streams, {proxy.name}: {problem}" for problem in problems]


def start(bench: Bench, name: str) -> tuple[float, int]:
    """Seconds to the first answer, and resident bytes shortly after."""
    with bench.started([name]) as started:
        time.sleep(_SETTLED)
        return started[0].ready_after, machine.memory(started[0].pid)


def starts(bench: Bench, proxies: Sequence[str]) -> Section:
    table = [["", "start to ready s", "idle MB"]]
    values: dict[str, float] = {}
    for name in proxies:
        show_progress(f"start: {name}")
        found = [start(bench, name) for _ in range(_STARTS)]
        ready, memory = (Figure.of(column) for column in zip(*found, strict=True))
        table.append([name, f"{ready.median_value:.2f} ±{ready.spread:.0%}", number(memory.median_value / 1e6)])
        values |= {f"start {name}": ready.median_value, f"idle memory {name}": memory.median_value / 1e6}
    note = f"To the first answer; memory {_SETTLED:g} s later. Medians of {_STARTS} starts, each without data."
    return Section("Start, and idle memory", table, note, values)
