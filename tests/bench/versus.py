"""`scripts/bench --before REV`: the hub of an earlier revision and the hub of this checkout, in turn, in the same rounds.

The floor takes part where events are paced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from tests.bench.checkouts import CURRENT, Checkout
from tests.bench.figures import Case, Sample
from tests.bench.idle import hold, memory_per_stream, start
from tests.bench.pairs import BEFORE, NOW, Pair, in_order
from tests.bench.proxies import FLOOR, StartFunction, start_floor, start_hub
from tests.bench.rig import Bench
from tests.bench.storm import many_workers, one_round
from tests.bench.targets import BACK_TO_BACK, PLAIN_CALLS, WITH_INTERVAL
from tests.bench.turns import in_turn, show_progress

Found = tuple[list[Pair], list[str]]
"""Rows and problems."""
Read = Callable[[str], dict[str, float]]
"""From the name of a hub to the values of its rows."""
_LESS_LOAD = WITH_INTERVAL.replace("500", "200")
_HUBS_ALONE = (FLOOR,)


class Load(NamedTuple):
    case: Case
    figures: Sequence[tuple[str, Callable[[Sample], float]]]
    """The rows of the case, and the figure that each takes from a sample."""


def loads(seconds: float) -> dict[str, Load]:
    def cpu(sample: Sample) -> float:
        return sample.cpu_us

    def p50(sample: Sample) -> float:
        return sample.p50_ms

    def p99(sample: Sample) -> float:
        return sample.p99_ms

    interval_figures = [("CPU µs/event", cpu), ("p50 ms", p50), ("p99 ms", p99)]
    return {
        "plain": Load(
            Case(PLAIN_CALLS, "send", 32, 1, seconds=seconds, without=_HUBS_ALONE), [("CPU µs/call", cpu), ("p50 ms", p50)]
        ),
        "events": Load(
            Case(BACK_TO_BACK, "stream", 100, 20, seconds=seconds, without=_HUBS_ALONE),
            [("CPU µs/event", cpu), ("p50 ms of a stream", p50)],
        ),
        "paced-500": Load(Case(WITH_INTERVAL, "stream", 500, 20, interval_us=100_000, seconds=seconds), interval_figures),
        "paced-200": Load(Case(_LESS_LOAD, "stream", 200, 20, interval_us=100_000, seconds=seconds), interval_figures),
    }


LOADS = tuple(loads(0))
ROWS = (*LOADS, "silent", "start", "storm")
"""The names for `--rows`. Some stand for several rows of the table."""


def start_functions(before: Checkout, now: Checkout = CURRENT) -> dict[str, StartFunction]:
    return {
        BEFORE: partial(start_hub, name=BEFORE, checkout=before),
        NOW: partial(start_hub, name=NOW, checkout=now),
        FLOOR: start_floor,
    }


def compared(bench: Bench, before: Checkout, wanted: Sequence[str], rounds: int, seconds: float) -> Found:
    """`bench` must have the functions of `start_functions`."""
    pairs: list[Pair] = []
    problems: list[str] = []
    others: dict[str, Callable[[], Found]] = {
        "silent": lambda: _silent(bench, rounds),
        "start": lambda: _start(bench, rounds),
        "storm": lambda: _storm(bench, before, rounds, seconds),
    }
    chosen = [load for name, load in loads(seconds).items() if name in wanted]
    parts = ([lambda: _loaded(bench, chosen, rounds)] if chosen else []) + [
        part for name, part in others.items() if name in wanted
    ]
    for part in parts:
        rows, found = part()
        pairs += rows
        problems += found
    return pairs, problems


def _loaded(bench: Bench, chosen: Sequence[Load], rounds: int) -> Found:
    """All run all the time; one at a time gets calls. The floor is always the second: each hub is the first as often."""
    with bench.started([BEFORE, FLOOR, NOW]) as proxies:
        samples, problems = in_turn(bench, proxies, [load.case for load in chosen], rounds, swap_order=True)
    pairs = []
    for case, figures in chosen:
        taken = [samples.get((case.title, name), []) for name in (BEFORE, NOW, FLOOR)]
        for row, figure in figures:
            pairs.append(Pair.of(f"{case.title}: {row}", *([figure(sample) for sample in found] for found in taken)))
    return pairs, problems


def _silent(bench: Bench, rounds: int) -> Found:
    """A new process for each round, because freed memory would hide the growth."""
    problems: list[str] = []

    def read(name: str) -> dict[str, float]:
        show_progress(f"1,000 open streams: {name}")
        with bench.started([name]) as (hub,):
            before, while_open, found = hold(bench, hub)
        problems.extend(found)
        return {"1,000 streams open, and silent: KiB a stream": memory_per_stream(before, while_open)}

    return _in_rounds(read, rounds), problems


def _start(bench: Bench, rounds: int) -> Found:
    def read(name: str) -> dict[str, float]:
        show_progress(f"start: {name}")
        ready, memory = start(bench, name)
        return {"Start to ready: ms": ready * 1000, "Idle memory: MB": memory / 1e6}

    return _in_rounds(read, rounds), []


def _storm(bench: Bench, before: Checkout, rounds: int, seconds: float) -> Found:
    problems: list[str] = []
    case = Case("32 connections", "send", 32, 1, seconds=seconds)
    with bench.place() as place:
        worker_tokens = {
            name: many_workers(bench, place, f"{name}-storm", of) for name, of in ((BEFORE, before), (NOW, CURRENT))
        }
        bench.plan(1, 0)

        def read(name: str) -> dict[str, float]:
            hub, lines = worker_tokens[name]
            found = one_round(bench, hub, case, lines)
            problems.extend(f"{name}: {problem}" for problem in found["problems"])
            return {f"{PLAIN_CALLS}, 5,000 heartbeats in a second: {part} ms": found[part] for part in ("p50", "p99")}

        return _in_rounds(read, rounds), problems


def _in_rounds(read: Read, rounds: int) -> list[Pair]:
    values: dict[str, dict[str, list[float]]] = {}
    for turn in range(1, rounds + 1):
        for name in in_order(turn, (BEFORE, NOW)):
            for row, value in read(name).items():
                values.setdefault(row, {BEFORE: [], NOW: []})[name].append(value)
    show_progress("")
    return [Pair.of(row, values_of[BEFORE], values_of[NOW]) for row, values_of in values.items()]
