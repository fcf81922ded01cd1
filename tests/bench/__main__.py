"""The run: every case with every proxy, in turn, for some rounds; then growth, idle streams and starts; then the tables.

With --before: this hub compared with an earlier revision of itself.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.bench import machine, page, versus
from tests.bench.checkouts import CURRENT, THIS, Checkout, NoCheckout, changed_libraries, earlier
from tests.bench.feeds import feed_section
from tests.bench.figures import Case, Samples, Section, rows, table_of, text_table
from tests.bench.growth import grown
from tests.bench.honesty import log_problems
from tests.bench.idle import open_streams, starts
from tests.bench.pairs import table_of_pairs
from tests.bench.proxies import FLOOR, ROOT, START_FUNCTIONS, StartFunction
from tests.bench.rig import Bench, Missing
from tests.bench.storm import storm_section
from tests.bench.targets import BACK_TO_BACK, PLAIN_CALLS, WITH_INTERVAL, compared, table_of_targets
from tests.bench.turns import in_turn

RESULTS = ROOT / "bench-results"
# The agents cannot keep that pace: their measurement would take minutes and fall ever further behind.
_WITHOUT_AGENTS = ("sdk-",)
_HUBS_ALONE = ("sdk-", "nginx", FLOOR)
_ENOUGH = 3
_SAME_DIALECT = ", 0.3 to 0.3"
Part = Callable[[Bench], list[Section]]


def cases(seconds: float, connection_counts: Sequence[int]) -> list[Case]:
    plain = [
        Case(f"Plain calls, {n} connection{'s' if n > 1 else ''}", "send", n, 1, seconds=seconds) for n in connection_counts
    ]
    return [
        *plain,
        Case(BACK_TO_BACK, "stream", 100, 20, seconds=seconds),
        Case(WITH_INTERVAL, "stream", 500, 20, interval_us=100_000, seconds=seconds, without=_WITHOUT_AGENTS),
        Case(f"{PLAIN_CALLS}, from 0.3 to 1.0", "send", 32, 1, 0, seconds, "apart", without=_HUBS_ALONE, beside=PLAIN_CALLS),
        Case(
            f"{BACK_TO_BACK}, from 0.3 to 1.0", "stream", 100, 20, 0, seconds, "apart", without=_HUBS_ALONE, beside=BACK_TO_BACK
        ),
    ]


def parts(options: argparse.Namespace) -> dict[str, Part]:
    """The parts after the cases, by the title that `--only` searches."""
    if options.quick:
        return {}
    rounds, seconds, proxies = options.rounds, options.seconds, options.proxies
    return {
        "growth: 10,000 workers, 1,000,000 tasks stored": lambda bench: grown(bench, rounds, seconds),
        "5,000 heartbeats in one second": lambda bench: [storm_section(bench, rounds, seconds)],
        "feed of tasks: 20 readers": lambda bench: [feed_section(bench, rounds, seconds)],
        "1,000 streams open, and silent": lambda bench: [open_streams(bench, proxies)],
        "start, and idle memory": lambda bench: [starts(bench, proxies)],
    }


def main(argv: Sequence[str] | None = None) -> int:
    options = _options(argv)
    try:
        return _beside_earlier(options) if options.before else _beside_others(options, _command(argv))
    except (Missing, NoCheckout) as error:
        print(error, file=sys.stderr)
        return 2


def _beside_others(options: argparse.Namespace, command: str) -> int:
    wanted = cases(options.seconds, (1, 32, 256))
    if options.quick:
        wanted = [wanted[1], wanted[3]]
    wanted = [case for case in wanted if options.only in case.title]
    load = machine.system_load()
    with _bench_in_folder({name: START_FUNCTIONS[name] for name in options.proxies}, keep=options.keep) as bench:
        with bench.started(options.proxies if wanted else []) as proxies:
            samples, problems = in_turn(bench, proxies, wanted, options.rounds)
        sections = _case_sections(wanted, samples)
        sections += [section for title, part in parts(options).items() if options.only in title for section in part(bench)]
        problems += [problem for section in sections for problem in section.problems] + log_problems(bench.folder)
    _print_conditions(bench.cores, options.rounds, load)
    _print(sections)
    _print_problems(problems)
    if options.write and not problems:
        run = page.Run(bench.cores, options.rounds, options.seconds, command, load)
        written = page.write(sections, run)
        print(f"\nWritten: {written.relative_to(ROOT)}")
    return 1 if problems else 0


def _beside_earlier(options: argparse.Namespace) -> int:
    load = machine.system_load()
    before = earlier(options.before)
    with _bench_in_folder(versus.start_functions(before), keep=options.keep) as bench:
        pairs, problems = versus.compared(bench, before, options.rows, options.rounds, options.seconds)
        problems += log_problems(bench.folder)
    _print_conditions(bench.cores, options.rounds, load)
    _print_libraries(before)
    print(text_table(table_of_pairs(pairs)))
    _print_problems(problems)
    worse = [pair for pair in pairs if options.fail_above and pair.is_worse(options.fail_above)]
    for pair in worse:
        print(f"WORSE: {pair.row}: {pair.ratio:.2f}×, beyond {options.fail_above:g}× and ±{pair.spread:.0%}", file=sys.stderr)
    return 1 if problems or worse else 0


@contextmanager
def _bench_in_folder(start_functions: Mapping[str, StartFunction], *, keep: bool) -> Iterator[Bench]:
    """This process runs on the core of the load. The folder is deleted after the block, unless `keep` is set."""
    cores = machine.Cores.choose()
    os.sched_setaffinity(0, {cores.load})
    RESULTS.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=RESULTS))
    try:
        with Bench(folder, cores, start_functions) as bench:
            yield bench
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _case_sections(wanted: Sequence[Case], samples: Samples) -> list[Section]:
    found = []
    for case in wanted:
        bases, peer = ("nginx", FLOOR), "sdk-1.3"
        taken = samples
        if case.beside:
            peer = f"hub{_SAME_DIALECT}"
            bases = (peer,)
            taken = _with_same_dialect(case, samples)
        made = rows(case, taken, bases=bases, peer=peer)
        note = "p50 and p99: from the worker's write to the client's read." if case.interval_us else ""
        values = {f"{case.title}/{row.proxy}/{name}": figure.median_value for row in made for name, figure in row.figures()}
        if made:
            found.append(Section(case.title, table_of(case, made, bases=bases, peer=peer), note, values))
    return found


def _with_same_dialect(case: Case, samples: Samples) -> Samples:
    """First the same proxies in the case where caller and worker have the same dialect."""
    proxies = [proxy for title, proxy in samples if title == case.title]
    same_dialect = {(case.title, f"{proxy}{_SAME_DIALECT}"): samples.get((case.beside, proxy), []) for proxy in proxies}
    return {title: found for title, found in {**same_dialect, **samples}.items() if found}


def _print_conditions(cores: machine.Cores, rounds: int, load: float) -> None:
    print(f"{machine.describe()}; load {load:.1f} at the start; medians of {rounds}, ± half the range")
    if not cores.apart:
        print("Only one core: load and hub share it, so the figures are only a smoke test.")


def _print_libraries(before: Checkout) -> None:
    if other := changed_libraries(before.libraries(), CURRENT.libraries()):
        print(f"Not the same libraries: {', '.join(other)}")


def _print_problems(problems: Sequence[str]) -> None:
    for problem in problems:
        print(f"NOT HONEST: {problem}", file=sys.stderr)


def _print(sections: Sequence[Section]) -> None:
    for section in sections:
        print(f"\n{section.title}\n{section.note}".rstrip())
        print(text_table(section.table))
    if reached := [section for section in compared(sections) if section.measured]:
        print(f"\nTargets\n{text_table(table_of_targets(reached))}")


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round of two cases, as a smoke test")
    parser.add_argument("--rounds", type=int, help="rounds in turn (3)")
    parser.add_argument("--seconds", type=float, help="seconds of each measurement (3)")
    parser.add_argument("--only", default="", help="only titles with this text")
    parser.add_argument("--proxies", default="all", help=f"which of {','.join(START_FUNCTIONS)} (all)")
    parser.add_argument("--write", action="store_true", help="write docs/reference/benchmarks.md and its picture")
    parser.add_argument("--keep", action="store_true", help="keep logs and data in bench-results/")
    parser.add_argument("--before", metavar="REV", help=f"only the hub, compared with a git revision ({THIS}: with itself)")
    parser.add_argument("--rows", default="all", help=f"with --before: which of {','.join(versus.ROWS)} (all)")
    parser.add_argument("--fail-above", type=float, metavar="RATIO", help="with --before: exit with 1 for a ratio above this")
    options = parser.parse_args(argv)
    options.rows = _named(parser, "--rows", options.rows, versus.ROWS)
    options.proxies = _proxies(parser, options.proxies)
    options.rounds = options.rounds or (1 if options.quick else 5 if options.before else 3)
    options.seconds = options.seconds or (1.0 if options.quick else 2.0 if options.before else 3.0)
    if options.fail_above and not options.before:
        parser.error("--fail-above needs --before")
    if options.fail_above and options.rounds < _ENOUGH:
        parser.error(f"--fail-above needs --rounds {_ENOUGH} or more: fewer give no spread")
    return options


def _proxies(parser: argparse.ArgumentParser, text: str) -> list[str]:
    return _named(parser, "--proxies", text, START_FUNCTIONS)


def _named(parser: argparse.ArgumentParser, option: str, text: str, known: Collection[str]) -> list[str]:
    wanted = list(known) if text == "all" else text.split(",")
    if unknown := [name for name in wanted if name not in known]:
        parser.error(f"{option}: no {', '.join(unknown)}; there are {', '.join(known)}")
    return wanted


def _command(argv: Sequence[str] | None) -> str:
    return " ".join(["scripts/bench", *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    sys.exit(main())
