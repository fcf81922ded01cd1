"""Plants random small bugs in named folders, one at a time, and runs the fast tests that can notice each.

No library does this for a suite of asyncio tests with a sample by a seed: mutmut and cosmic-ray plant every mutant of a file,
and choose tests by file or not at all. First all fast tests run once, and what each of them executes is recorded. Then, for
each mutant: the tests that execute its line, the fastest first. A line that no test executes in its own process (it may run at
import, or in a process that a test starts) gets the tests that execute its file, and those that start processes.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from tests.mutation.plant import Mutant, lines_of, mutants_of
from tests.mutation.reach import FOLDER, SOURCES, Reach

ROOT = Path(__file__).resolve().parents[2]
FAST = ("tests/unit", "tests/protocol", "tests/contract", "tests/flow")
DEFAULT = ("hub/core", "hub/storage", "worker_sdk")
_PYTEST = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout=20", "--hypothesis-seed=0")
_LONGEST = 300.0
"""Seconds that one run of tests may take; a mutant that takes longer is caught."""
_SECONDS = count(1_000_000_000)
_ALL_AT_ONCE = 2_000
"""A file's tests beyond this many are taken in two runs: most mutants are caught by the first."""


class Planted(NamedTuple):
    file: str
    mutant: Mutant
    diff: str


class Outcome(NamedTuple):
    planted: Planted
    caught_by: str
    """What noticed it; empty: nothing."""
    seconds: float


def main() -> None:
    options = _options()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rolecall-mutants-") as folder:
        trees = SimpleQueue[Path]()
        for number in range(options.at_once):
            trees.put(tree := _copied(Path(folder) / f"tree-{number}"))
        sample = _sample(tree, options.folders, options.mutants, seed)
        print(f"{len(sample)} mutants in {', '.join(options.folders)}, seed {seed}", flush=True)
        reach = _recorded(trees, Path(folder) / "record", options.folders)
        print(f"{len(reach.seconds)} fast tests, recorded in {time.monotonic() - began:.0f} s", flush=True)

        def judged(planted: Planted) -> Outcome:
            tree = trees.get()
            try:
                outcome = _judge(tree, planted, reach)
            finally:
                trees.put(tree)
            print("." if outcome.caught_by else "S", end="", flush=True)
            return outcome

        with ThreadPoolExecutor(options.at_once) as pool:
            outcomes = list(pool.map(judged, sample))
    share = _report(outcomes, time.monotonic() - began, seed)
    sys.exit(1 if share < options.at_least else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/mutate", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("folders", nargs="*", default=DEFAULT, help="where to plant them (default: %(default)s)")
    parser.add_argument("--mutants", type=int, default=100, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="which ones; printed, if the machine chose it")
    parser.add_argument("--at-least", type=float, default=0.0, metavar="PERCENT", help="exit with 1 if fewer are caught")
    parser.add_argument("--at-once", type=int, default=2, help="how many at a time (default: %(default)s)")
    return parser.parse_args()


def _copied(tree: Path) -> Path:
    """The tracked files as they are in the working tree, and those git would track."""
    told = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    )
    for name in filter(None, told.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    for made in (".venv", ".tools"):
        if (ROOT / made).exists():
            (tree / made).symlink_to(ROOT / made)
    return tree


def _sample(root: Path, folders: Sequence[str], limit: int, seed: int) -> list[Planted]:
    every = [
        (path, mutant)
        for folder in folders
        for path in ([root / folder] if folder.endswith(".py") else sorted((root / folder).rglob("*.py")))
        for mutant in mutants_of(path.read_bytes())
    ]
    chosen = random.Random(seed).sample(range(len(every)), min(limit, len(every)))
    return [_planted(root, *every[number]) for number in sorted(chosen)]


def _planted(root: Path, path: Path, mutant: Mutant) -> Planted:
    return Planted(str(path.relative_to(root)), mutant, "\n".join(lines_of(path.read_bytes(), mutant)))


def _recorded(trees: SimpleQueue[Path], record: Path, folders: Sequence[str]) -> Reach:
    record.mkdir()
    tree = trees.get()
    try:
        more = {FOLDER: str(record), SOURCES: ",".join(str(tree / folder) for folder in folders)}
        arguments = ["-p", "tests.mutation.reach", "-n", "2", "--dist", "loadfile", "--timeout=120", *FAST]
        run = _pytest(tree, arguments, more, longest=3600)
        if run.returncode != 0:
            sys.exit(f"The fast tests fail without any mutant:\n{run.stdout[-4000:]}")
        return Reach(record, tree)
    finally:
        trees.put(tree)


def _judge(tree: Path, planted: Planted, reach: Reach) -> Outcome:
    began = time.monotonic()
    path = tree / planted.file
    source, written = path.read_bytes(), path.stat()
    path.write_bytes(planted.mutant.plant(source))
    # Python takes byte code for current if size and second agree: two mutants of one second would be taken for each other.
    os.utime(path, (0, next(_SECONDS)))
    try:
        return Outcome(planted, _caught_by(tree, planted, source, reach), time.monotonic() - began)
    finally:
        path.write_bytes(source)
        os.utime(path, (0, written.st_mtime))


def _caught_by(tree: Path, planted: Planted, source: bytes, reach: Reach) -> str:
    last = source.count(b"\n", 0, planted.mutant.end) + 1
    tests = reach.of(planted.file, range(planted.mutant.line, last + 1))
    stages = [tests[:_ALL_AT_ONCE], tests[_ALL_AT_ONCE:]]
    if not tests:
        importing = reach.of_whole(planted.file)
        stages = [importing, sorted(reach.starts_processes.difference(importing))]
    for stage in filter(None, stages):
        found = _first_failure(tree, stage)
        if found:
            return found
    return ""


def _first_failure(tree: Path, tests: Sequence[str]) -> str:
    names = tree / ".tests-to-run"
    names.write_text("\n".join(tests))
    try:
        run = _pytest(tree, [f"@{names}"], {}, longest=_LONGEST)
    except subprocess.TimeoutExpired:
        return "the time that tests may take"
    if run.returncode == 0:
        return ""
    failed = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split(" ", 1)[1].split(" - ")[0] if failed else "the start of the tests"


def _pytest(tree: Path, arguments: Sequence[str], more: dict[str, str], *, longest: float) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONPYCACHEPREFIX": str(tree / ".pyc"), **more}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, *_PYTEST, *arguments]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=longest, check=False)


def _report(outcomes: Sequence[Outcome], seconds: float, seed: int) -> float:
    """Prints the survivors; returns the share of the caught, in percent."""
    lived = [outcome for outcome in outcomes if not outcome.caught_by]
    share = 100 * (len(outcomes) - len(lived)) / max(len(outcomes), 1)
    print("\n")
    for number, ((file, mutant, diff), _, _) in enumerate(lived, 1):
        print(f"S{number} {file}:{mutant.line} {mutant.kind}\n{diff}")
    planted_in = Counter(_folder(outcome) for outcome in outcomes)
    lived_in = Counter(_folder(outcome) for outcome in lived)
    for folder, planted in sorted(planted_in.items()):
        print(f"{folder}: {planted - lived_in[folder]} of {planted} caught")
    print(f"{len(outcomes) - len(lived)} of {len(outcomes)} mutants caught, {share:.1f} %, in {seconds:.0f} s, seed {seed}")
    return share


def _folder(outcome: Outcome) -> str:
    return outcome.planted.file.rpartition("/")[0]


if __name__ == "__main__":
    main()
