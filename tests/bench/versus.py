"""`scripts/bench --before REV`: the hub of an earlier revision and the hub of this checkout, in turn, in the same rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from tests.bench.checkouts import CURRENT, Checkout
from tests.bench.figures import Case, Sample
from tests.bench.idle import hold, kib_each, start
from tests.bench.pairs import BEFORE, NOW, Pair, in_order
from tests.bench.proxies import Starter, start_hub
from tests.bench.rig import Rig
from tests.bench.storm import farm, one_round
from tests.bench.targets import BURST, PACED, UNARY
from tests.bench.turns import in_turn, say

Found = tuple[list[Pair], list[str]]
"""Rows, and what was not honest about them."""
Read = Callable[[str], dict[str, float]]
"""From the name of a hub to the values of its rows."""
_FEWER = PACED.replace("500", "200")


class Load(NamedTuple):
    case: Case
    figures: Sequence[tuple[str, Callable[[Sample], float]]]
    """Rows of the case, and what each takes from a sample."""


def loads(seconds: float) -> dict[str, Load]:
    def cpu(sample: Sample) -> float:
        return sample.cpu_us

    def p50(sample: Sample) -> float:
        return sample.p50_ms

    def p99(sample: Sample) -> float:
        return sample.p99_ms

    paced = [("CPU µs/event", cpu), ("p50 ms", p50), ("p99 ms", p99)]
    return {
        "plain": Load(Case(UNARY, "send", 32, 1, seconds=seconds), [("CPU µs/call", cpu), ("p50 ms", p50)]),
        "events": Load(Case(BURST, "stream", 100, 20, seconds=seconds), [("CPU µs/event", cpu), ("p50 ms of a stream", p50)]),
        "paced-500": Load(Case(PACED, "stream", 500, 20, interval_us=100_000, seconds=seconds), paced),
        "paced-200": Load(Case(_FEWER, "stream", 200, 20, interval_us=100_000, seconds=seconds), paced),
    }


LOADS = tuple(loads(0))
ROWS = (*LOADS, "silent", "start", "storm")
"""By these names `--rows` chooses. Some of them are several rows of the table."""


def starters(before: Checkout, now: Checkout = CURRENT) -> dict[str, Starter]:
    return {BEFORE: partial(start_hub, name=BEFORE, checkout=before), NOW: partial(start_hub, name=NOW, checkout=now)}


def compared(rig: Rig, before: Checkout, wanted: Sequence[str], rounds: int, seconds: float) -> Found:
    """The rig's starters are those of `starters`."""
    pairs: list[Pair] = []
    problems: list[str] = []
    others: dict[str, Callable[[], Found]] = {
        "silent": lambda: _silent(rig, rounds),
        "start": lambda: _start(rig, rounds),
        "storm": lambda: _storm(rig, before, rounds, seconds),
    }
    chosen = [load for name, load in loads(seconds).items() if name in wanted]
    parts = ([lambda: _loaded(rig, chosen, rounds)] if chosen else []) + [
        part for name, part in others.items() if name in wanted
    ]
    for part in parts:
        rows, found = part()
        pairs += rows
        problems += found
    return pairs, problems


def _loaded(rig: Rig, chosen: Sequence[Load], rounds: int) -> Found:
    """Both hubs run all the time, and one of them is called."""
    with rig.started([BEFORE, NOW]) as hubs:
        samples, problems = in_turn(rig, hubs, [load.case for load in chosen], rounds, alternating=True)
    pairs = []
    for case, figures in chosen:
        taken = {name: samples[case.title, name] for name in (BEFORE, NOW)}
        for row, figure in figures:
            pairs.append(Pair.of(f"{case.title}: {row}", *([figure(each) for each in taken[name]] for name in (BEFORE, NOW))))
    return pairs, problems


def _silent(rig: Rig, rounds: int) -> Found:
    """A process of its own for each try: what it held earlier would hide what it takes now."""
    problems: list[str] = []

    def read(name: str) -> dict[str, float]:
        say(f"1,000 open streams: {name}")
        with rig.started([name]) as (hub,):
            before, during, found = hold(rig, hub)
        problems.extend(found)
        return {"1,000 streams open, and silent: KiB a stream": kib_each(before, during)}

    return _in_rounds(read, rounds), problems


def _start(rig: Rig, rounds: int) -> Found:
    def read(name: str) -> dict[str, float]:
        say(f"start: {name}")
        ready, held = start(rig, name)
        return {"Start to ready: ms": ready * 1000, "Idle memory: MB": held / 1e6}

    return _in_rounds(read, rounds), []


def _storm(rig: Rig, before: Checkout, rounds: int, seconds: float) -> Found:
    problems: list[str] = []
    case = Case("32 connections", "send", 32, 1, seconds=seconds)
    with rig.place() as place:
        farms = {name: farm(rig, place, f"{name}-storm", of) for name, of in ((BEFORE, before), (NOW, CURRENT))}
        rig.plan(1, 0)

        def read(name: str) -> dict[str, float]:
            hub, lines = farms[name]
            found = one_round(rig, hub, case, lines)
            problems.extend(f"{name}: {problem}" for problem in found["problems"])
            return {f"{UNARY}, 5,000 heartbeats in a second: {part} ms": found[part] for part in ("p50", "p99")}

        return _in_rounds(read, rounds), problems


def _in_rounds(read: Read, rounds: int) -> list[Pair]:
    values: dict[str, dict[str, list[float]]] = {}
    for turn in range(1, rounds + 1):
        for name in in_order(turn, (BEFORE, NOW)):
            for row, value in read(name).items():
                values.setdefault(row, {BEFORE: [], NOW: []})[name].append(value)
    say("")
    return [Pair.of(row, sides[BEFORE], sides[NOW]) for row, sides in values.items()]
