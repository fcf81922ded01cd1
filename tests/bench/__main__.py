"""The run: every case in front of every proxy, in turn, for some rounds; then the tables."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.bench import machine, page
from tests.bench.figures import Case, Row, Sample, Samples, rows, table_of, text_table
from tests.bench.honesty import check_counts, check_stored
from tests.bench.proxies import ROOT, STARTERS, Proxy, has_server_setting
from tests.bench.rig import Missing, Rig, StoredTasks

RESULTS = ROOT / "bench-results"


def cases(seconds: float, unary: Sequence[int]) -> list[Case]:
    plain = [Case(f"Plain calls, {n} connection{'s' if n > 1 else ''}", "send", n, 1, seconds=seconds) for n in unary]
    return [
        *plain,
        Case("100 streams of 20 events, back to back", "stream", 100, 20, seconds=seconds),
        Case("100 streams of 20 events, 50 ms apart", "stream", 100, 20, interval_us=50_000, seconds=seconds),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    options = _options(argv)
    unary = (32,) if options.quick else (1, 32, 256)
    wanted = cases(options.seconds, unary)
    if options.quick:
        wanted = wanted[:-1]
    if options.only:
        wanted = [case for case in wanted if options.only in case.title]
    cores, load = machine.Cores.choose(), machine.load_average()
    os.sched_setaffinity(0, {cores.rig})
    RESULTS.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=RESULTS))
    try:
        with Rig(folder, cores, options.proxies) as rig:
            samples, problems = _run(rig, wanted, options.rounds)
            memory = {proxy.name: machine.memory_mb(proxy.pid) for proxy in rig.proxies}
        problems += _complaints(folder)
    except Missing as error:
        print(error, file=sys.stderr)
        return 2
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    results = [(case, rows(case, samples, floor="nginx", peer="sdk-1.3", proxies=options.proxies)) for case in wanted]
    _print(results, cores, options.rounds, load)
    for problem in problems:
        print(f"NOT HONEST: {problem}", file=sys.stderr)
    if options.write and not problems:
        written = page.write(results, cores=cores, rounds=options.rounds, command=_command(argv), load=load, memory=memory)
        print(f"\nWritten: {written.relative_to(ROOT)}")
    return 1 if problems else 0


def _run(rig: Rig, wanted: Sequence[Case], rounds: int) -> tuple[Samples, list[str]]:
    samples: Samples = {(case.title, proxy.name): [] for case in wanted for proxy in rig.proxies}
    problems: list[str] = []
    for turn in range(1, rounds + 1):
        for case in wanted:
            rig.plan(case.events, case.interval_us)
            for proxy in rig.proxies:
                _say(f"round {turn} of {rounds}: {case.title}: {proxy.name}")
                sample, found = _measure(rig, proxy, case)
                samples[case.title, proxy.name].append(sample)
                problems += [f"round {turn}, {case.title}, {proxy.name}: {problem}" for problem in found]
    _say("")
    return samples, problems


def _measure(rig: Rig, proxy: Proxy, case: Case) -> tuple[Sample, list[str]]:
    stored = StoredTasks(proxy) if proxy.is_hub else None
    tasks = stored.total() if stored else 0
    calls, events = rig.served()
    answer = rig.load(proxy, case)
    calls_after, events_after = rig.served()
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


def _say(progress: str) -> None:
    """One line that overwrites itself, for people."""
    if sys.stderr.isatty():
        print(f"\r{progress:79}", end="" if progress else "\r", file=sys.stderr, flush=True)


def _complaints(folder: Path) -> list[str]:
    """Warnings and errors in the logs of what was measured."""
    found = []
    for log in (*folder.glob("hub*.err"), *folder.glob("sdk-*.err"), *folder.glob("nginx.log")):
        lines = [
            line for line in log.read_text().splitlines() if any(w in line for w in ("rror", "arning", "warn", "Traceback"))
        ]
        if lines:
            found.append(f"{log.name} holds {len(lines)} complaints, the first: {lines[0][:200]}")
    return found


def _print(results: Sequence[tuple[Case, Sequence[Row]]], cores: machine.Cores, rounds: int, load: float) -> None:
    print(f"{machine.describe()}; load {load:.1f} at the start; medians of {rounds}, ± half the range")
    if not cores.apart:
        print("Only one core: nothing could be kept apart, so take the figures as a smoke test.")
    for case, made in results:
        note = "; p50 and p99: from the worker's write to the client's read" if case.interval_us else ""
        print(f"\n{case.title}{note}\n{text_table(table_of(case, made))}")


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round of two cases: does it work at all")
    parser.add_argument("--rounds", type=int, help="rounds in turn (3)")
    parser.add_argument("--seconds", type=float, help="how long one measurement calls (3)")
    parser.add_argument("--only", help="cases whose title holds this text")
    parser.add_argument("--proxies", default="all", help=f"which of {','.join(STARTERS)} (all)")
    parser.add_argument("--write", action="store_true", help="write docs/reference/benchmarks.md")
    parser.add_argument("--keep", action="store_true", help="keep logs and data in bench-results/")
    options = parser.parse_args(argv)
    options.proxies = _proxies(parser, options.proxies)
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.seconds = options.seconds or (1.0 if options.quick else 3.0)
    return options


def _proxies(parser: argparse.ArgumentParser, text: str) -> list[str]:
    wanted = list(STARTERS) if text == "all" else text.split(",")
    if unknown := [name for name in wanted if name not in STARTERS]:
        parser.error(f"--proxies: no {', '.join(unknown)}; there are {', '.join(STARTERS)}")
    if "hub-hypercorn" in wanted and not has_server_setting():
        print("hub-hypercorn left out: this hub has no setting `server`, so `hub` is it.", file=sys.stderr)
        wanted.remove("hub-hypercorn")
    return wanted


def _command(argv: Sequence[str] | None) -> str:
    return " ".join(["scripts/bench", *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    sys.exit(main())
