"""What is held while nothing happens: open streams that say nothing, and a process that has just started."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from tests.bench import machine
from tests.bench.figures import Case, Figure, Section, number
from tests.bench.proxies import Proxy
from tests.bench.rig import Rig
from tests.bench.turns import measure, say

_STREAMS = 1000
_FOR_EVER = 3_600_000_000
_SETTLED = 2.0
_STARTS = 5


def open_streams(rig: Rig, proxies: Sequence[str]) -> Section:
    """Each in a process of its own, which has served a little before: what it held earlier would hide what it takes now."""
    table = [["", "MB before", "MB with 1,000 open", "KiB a stream"]]
    values, problems = {}, []
    for name in proxies:
        say(f"1,000 open streams: {name}")
        with rig.started([name]) as started:
            before, during, found = hold(rig, started[0])
        each = kib_each(before, during)
        table.append([name, number(before / 1e6), number(during / 1e6), f"{each:.1f}"])
        values[f"stream memory {name}"] = each
        problems += found
    note = "Streams that had their first event, and wait for the next. Resident memory, of a process that had served little."
    return Section("1,000 streams open, and silent", table, note, values, problems)


def kib_each(before: int, during: int) -> float:
    return (during - before) / 1024 / _STREAMS


def hold(rig: Rig, proxy: Proxy) -> tuple[int, int, list[str]]:
    """Resident bytes before the streams are open and while they are, and what went wrong."""
    rig.plan(3, 0)
    _, problems = measure(rig, proxy, Case("a few streams", "stream", 16, 3, seconds=0.5))
    time.sleep(_SETTLED)
    before = machine.memory(proxy.pid)
    rig.plan(3, _FOR_EVER)
    with rig.place() as place:
        load = rig.begin_load(place, proxy, Case("hold", "hold", _STREAMS, 3, seconds=0))
        answer = json.loads(machine.first_line(load))
        time.sleep(_SETTLED)
        during = machine.memory(proxy.pid)
        if answer["open"] != _STREAMS or answer["broken"]:
            problems.append(f"{answer['open']} of {_STREAMS} streams were open: {answer['complaint']}")
    return before, during, [f"1,000 open streams, {proxy.name}: {problem}" for problem in problems]


def start(rig: Rig, name: str) -> tuple[float, int]:
    """Seconds to the first answer, and resident bytes a little later."""
    with rig.started([name]) as started:
        time.sleep(_SETTLED)
        return started[0].ready_after, machine.memory(started[0].pid)


def starts(rig: Rig, proxies: Sequence[str]) -> Section:
    table = [["", "start to ready s", "idle MB"]]
    values: dict[str, float] = {}
    for name in proxies:
        say(f"start: {name}")
        found = [start(rig, name) for _ in range(_STARTS)]
        ready, held = (Figure.of(column) for column in zip(*found, strict=True))
        table.append([name, f"{ready.middle:.2f} ±{ready.spread:.0%}", number(held.middle / 1e6)])
        values |= {f"start {name}": ready.middle, f"idle memory {name}": held.middle / 1e6}
    note = f"To the first answer; memory {_SETTLED:g} s later. Medians of {_STARTS} starts, each without data."
    return Section("Start, and idle memory", table, note, values)
