"""Every case with every proxy, in turn, for some rounds."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tests.bench.figures import Case, Sample, Samples
from tests.bench.honesty import check_counts, check_stored
from tests.bench.pairs import in_order
from tests.bench.proxies import Proxy
from tests.bench.rig import Bench, stored_by


def in_turn(
    bench: Bench, proxies: Sequence[Proxy], cases: Sequence[Case], rounds: int, *, swap_order: bool = False
) -> tuple[Samples, list[str]]:
    """The samples and the problems. With `swap_order` every second round begins with the last proxy."""
    samples: Samples = {}
    problems: list[str] = []
    for turn in range(1, rounds + 1):
        for case in cases:
            bench.plan(case.events, case.interval_us)
            for proxy in in_order(turn, proxies) if swap_order else proxies:
                if case.is_skipped_for(proxy.name):
                    continue
                show_progress(f"round {turn} of {rounds}: {case.title}: {proxy.name}")
                sample, found = measure(bench, proxy, case)
                samples.setdefault((case.title, proxy.name), []).append(sample)
                problems += [f"round {turn}, {case.title}, {proxy.name}: {problem}" for problem in found]
    show_progress("")
    return samples, problems


def measure(bench: Bench, proxy: Proxy, case: Case) -> tuple[Sample, list[str]]:
    stored = stored_by(proxy)
    tasks = stored.total() if stored else 0
    calls, events = bench.served()
    answer = bench.load(proxy, case)
    calls_after, events_after = bench.served()
    problems = check_counts(answer, (calls_after - calls, events_after - events), case)
    if stored:
        problems += check_stored(answer, tasks, stored, case)
    units = answer[f"window_{case.unit}s"]
    timed = "event" if case.interval_us else "call"
    sample = Sample(
        rate=units / answer["seconds"],
        cpu_us=answer["cpu"] * 1e6 / max(units, 1),
        p50_ms=answer.get(f"{timed}_p50_us", 0) / 1000,
        p99_ms=answer.get(f"{timed}_p99_us", 0) / 1000,
    )
    return sample, problems


def show_progress(progress: str) -> None:
    """A progress line on a terminal that overwrites itself."""
    if sys.stderr.isatty():
        print(f"\r{progress:79}", end="" if progress else "\r", file=sys.stderr, flush=True)
