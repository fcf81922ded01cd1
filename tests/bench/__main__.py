"""The run: every case in front of every proxy, in turn, for some rounds; then what grows and what idles; then the tables.

With --before: the hub beside an earlier revision of itself.
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
from tests.bench.checkouts import CURRENT, THIS, Checkout, NoCheckout, differing, earlier
from tests.bench.figures import Case, Samples, Section, rows, table_of, text_table
from tests.bench.growth import grown
from tests.bench.honesty import complaints
from tests.bench.idle import open_streams, starts
from tests.bench.pairs import table_of_pairs
from tests.bench.proxies import ROOT, STARTERS, Starter, has_server_setting
from tests.bench.rig import Missing, Rig
from tests.bench.storm import storms
from tests.bench.targets import BURST, PACED, UNARY, compared, table_of_targets
from tests.bench.turns import in_turn

RESULTS = ROOT / "bench-results"
# The agents cannot keep that pace: they would be measured for minutes, on their way ever further behind.
_WITHOUT_AGENTS = ("sdk-",)
_HUBS_ALONE = ("sdk-", "nginx")
_ENOUGH = 3
_UNTRANSLATED = ", 0.3 to 0.3"
Part = Callable[[Rig], list[Section]]


def cases(seconds: float, unary: Sequence[int]) -> list[Case]:
    plain = [Case(f"Plain calls, {n} connection{'s' if n > 1 else ''}", "send", n, 1, seconds=seconds) for n in unary]
    return [
        *plain,
        Case(BURST, "stream", 100, 20, seconds=seconds),
        Case(PACED, "stream", 500, 20, interval_us=100_000, seconds=seconds, without=_WITHOUT_AGENTS),
        Case(f"{UNARY}, from 0.3 to 1.0", "send", 32, 1, 0, seconds, "apart", without=_HUBS_ALONE, beside=UNARY),
        Case(f"{BURST}, from 0.3 to 1.0", "stream", 100, 20, 0, seconds, "apart", without=_HUBS_ALONE, beside=BURST),
    ]


def parts(options: argparse.Namespace) -> dict[str, Part]:
    """What comes after the cases, each by the words that `--only` finds it under."""
    if options.quick:
        return {}
    rounds, seconds, proxies = options.rounds, options.seconds, options.proxies
    return {
        "growth: 10,000 workers, 1,000,000 tasks stored": lambda rig: grown(rig, rounds, seconds),
        "5,000 heartbeats in one second": lambda rig: [storms(rig, rounds, seconds)],
        "1,000 streams open, and silent": lambda rig: [open_streams(rig, proxies)],
        "start, and idle memory": lambda rig: [starts(rig, proxies)],
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
    load = machine.load_average()
    with _rig({name: STARTERS[name] for name in options.proxies}, keep=options.keep) as rig:
        with rig.started(options.proxies if wanted else []) as proxies:
            samples, problems = in_turn(rig, proxies, wanted, options.rounds)
        sections = _sections(wanted, samples)
        sections += [each for title, part in parts(options).items() if options.only in title for each in part(rig)]
        problems += [problem for section in sections for problem in section.problems] + complaints(rig.folder)
    _print_conditions(rig.cores, options.rounds, load)
    _print(sections)
    _print_problems(problems)
    if options.write and not problems:
        run = page.Run(rig.cores, options.rounds, options.seconds, command, load)
        written = page.write(sections, run)
        print(f"\nWritten: {written.relative_to(ROOT)}")
    return 1 if problems else 0


def _beside_earlier(options: argparse.Namespace) -> int:
    load = machine.load_average()
    before = earlier(options.before)
    with _rig(versus.starters(before), keep=options.keep) as rig:
        pairs, problems = versus.compared(rig, before, options.rows, options.rounds, options.seconds)
        problems += complaints(rig.folder)
    _print_conditions(rig.cores, options.rounds, load)
    _print_libraries(before)
    print(text_table(table_of_pairs(pairs)))
    _print_problems(problems)
    worse = [pair for pair in pairs if options.fail_above and pair.is_worse(options.fail_above)]
    for pair in worse:
        print(f"WORSE: {pair.row}: {pair.ratio:.2f}×, beyond {options.fail_above:g}× and ±{pair.spread:.0%}", file=sys.stderr)
    return 1 if problems or worse else 0


@contextmanager
def _rig(starters: Mapping[str, Starter], *, keep: bool) -> Iterator[Rig]:
    """This process goes to the core of the load. The folder goes with the block, unless it is to be kept."""
    cores = machine.Cores.choose()
    os.sched_setaffinity(0, {cores.rig})
    RESULTS.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=RESULTS))
    try:
        with Rig(folder, cores, starters) as rig:
            yield rig
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _sections(wanted: Sequence[Case], samples: Samples) -> list[Section]:
    found = []
    for case in wanted:
        floor, peer = "nginx", "sdk-1.3"
        taken = samples
        if case.beside:
            floor = peer = f"hub{_UNTRANSLATED}"
            taken = _with_untranslated(case, samples)
        made = rows(case, taken, floor=floor, peer=peer)
        note = "p50 and p99: from the worker's write to the client's read." if case.interval_us else ""
        values = {f"{case.title}/{row.proxy}/{name}": figure.middle for row in made for name, figure in row.figures()}
        if made:
            found.append(Section(case.title, table_of(case, made, floor=floor, peer=peer), note, values))
    return found


def _with_untranslated(case: Case, samples: Samples) -> Samples:
    """The same proxies as they did where the caller and the worker spoke alike, first."""
    proxies = [proxy for title, proxy in samples if title == case.title]
    alike = {(case.title, f"{proxy}{_UNTRANSLATED}"): samples.get((case.beside, proxy), []) for proxy in proxies}
    return {title: found for title, found in {**alike, **samples}.items() if found}


def _print_conditions(cores: machine.Cores, rounds: int, load: float) -> None:
    print(f"{machine.describe()}; load {load:.1f} at the start; medians of {rounds}, ± half the range")
    if not cores.apart:
        print("Only one core: nothing could be kept apart, so take the figures as a smoke test.")


def _print_libraries(before: Checkout) -> None:
    if other := differing(before.libraries(), CURRENT.libraries()):
        print(f"Not the same libraries: {', '.join(other)}")


def _print_problems(problems: Sequence[str]) -> None:
    for problem in problems:
        print(f"NOT HONEST: {problem}", file=sys.stderr)


def _print(sections: Sequence[Section]) -> None:
    for section in sections:
        print(f"\n{section.title}\n{section.note}".rstrip())
        print(text_table(section.table))
    if reached := [each for each in compared(sections) if each.measured]:
        print(f"\nTargets\n{text_table(table_of_targets(reached))}")


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round of two cases: does it work at all")
    parser.add_argument("--rounds", type=int, help="rounds in turn (3)")
    parser.add_argument("--seconds", type=float, help="how long one measurement calls (3)")
    parser.add_argument("--only", default="", help="what has this text in its title")
    parser.add_argument("--proxies", default="all", help=f"which of {','.join(STARTERS)} (all)")
    parser.add_argument("--write", action="store_true", help="write docs/reference/benchmarks.md and its picture")
    parser.add_argument("--keep", action="store_true", help="keep logs and data in bench-results/")
    parser.add_argument("--before", metavar="REV", help=f"only the hub, beside that of a git revision ({THIS}: beside itself)")
    parser.add_argument("--rows", default="all", help=f"with --before: which of {','.join(versus.ROWS)} (all)")
    parser.add_argument("--fail-above", type=float, metavar="RATIO", help="with --before: status 1 for a ratio beyond this")
    options = parser.parse_args(argv)
    options.rows = _named(parser, "--rows", options.rows, versus.ROWS)
    options.proxies = _proxies(parser, options.proxies)
    options.rounds = options.rounds or (1 if options.quick else 5 if options.before else 3)
    options.seconds = options.seconds or (1.0 if options.quick else 2.0 if options.before else 3.0)
    if options.fail_above and not options.before:
        parser.error("--fail-above needs --before")
    if options.fail_above and options.rounds < _ENOUGH:
        parser.error(f"--fail-above needs --rounds {_ENOUGH} or more: fewer say nothing of the spread")
    return options


def _proxies(parser: argparse.ArgumentParser, text: str) -> list[str]:
    wanted = _named(parser, "--proxies", text, STARTERS)
    if "hub-hypercorn" in wanted and not has_server_setting():
        print("hub-hypercorn left out: this hub has no setting `server`, so `hub` is it.", file=sys.stderr)
        wanted.remove("hub-hypercorn")
    return wanted


def _named(parser: argparse.ArgumentParser, option: str, text: str, known: Collection[str]) -> list[str]:
    wanted = list(known) if text == "all" else text.split(",")
    if unknown := [name for name in wanted if name not in known]:
        parser.error(f"{option}: no {', '.join(unknown)}; there are {', '.join(known)}")
    return wanted


def _command(argv: Sequence[str] | None) -> str:
    return " ".join(["scripts/bench", *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    sys.exit(main())
