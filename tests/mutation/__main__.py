"""Plants random small bugs in the given folders, one at a time, and runs the fast tests that can catch each.

No library does this for asyncio tests with a seeded sample: mutmut and cosmic-ray plant every mutant of a file, and select
tests by file or not at all. First all fast tests run once, and the lines that each executes are recorded. Then, for each
mutant, the tests that execute its line run, fastest first. If no test executes the line in its own process (it may run at
import, or in a process that a test starts), the tests that execute its file and those that start processes run.
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

from tests.mutation.plant import Mutant, is_in_function, lines_of, mutants_of
from tests.mutation.reach import FOLDER, SOURCES, Reach

ROOT = Path(__file__).resolve().parents[2]
FAST = ("tests/unit", "tests/protocol", "tests/contract", "tests/flow")
DEFAULT = ("hub/core", "hub/storage", "worker_sdk")
_ABOUT_THE_CHECKOUT = "tests/unit/test_documents.py"
"""It asks git which pages there are; the trees of mutants are no checkouts."""
_PYTEST = (
    "-m",
    "pytest",
    "-q",
    "-x",
    "-p",
    "no:cacheprovider",
    "--timeout=20",
    "--hypothesis-seed=0",
    f"--ignore={_ABOUT_THE_CHECKOUT}",
)
_LONGEST = 300.0
"""Seconds that one run of tests may take. A mutant that takes longer is caught."""
_SECONDS = count(1_000_000_000)
_ALL_AT_ONCE = 2_000
"""More tests than this run in two groups: the first catches most mutants."""


class MutantInFile(NamedTuple):
    file: str
    mutant: Mutant
    diff: str


class Outcome(NamedTuple):
    target: MutantInFile
    caught_by: str
    """The test that caught it; empty if none did."""
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

        def test_one(target: MutantInFile) -> Outcome:
            tree = trees.get()
            try:
                outcome = _run_tests(tree, target, reach)
            finally:
                trees.put(tree)
            print("." if outcome.caught_by else "S", end="", flush=True)
            return outcome

        with ThreadPoolExecutor(options.at_once) as pool:
            outcomes = list(pool.map(test_one, sample))
    share = _report(outcomes, time.monotonic() - began, seed)
    sys.exit(1 if share < options.at_least else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/mutate", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("folders", nargs="*", default=DEFAULT, help="folders to plant them in (default: %(default)s)")
    parser.add_argument("--mutants", type=int, default=100, help="number of mutants (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="seed of the sample; printed if not given")
    parser.add_argument(
        "--at-least", type=float, default=0.0, metavar="PERCENT", help="exit with 1 if a smaller share is caught"
    )
    parser.add_argument("--at-once", type=int, default=2, help="number of parallel runs (default: %(default)s)")
    return parser.parse_args()


def _copied(tree: Path) -> Path:
    """Tracked files as in the working tree, and untracked files that git does not ignore."""
    file_list = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    )
    for name in filter(None, file_list.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    for made in (".venv", ".tools"):
        if (ROOT / made).exists():
            (tree / made).symlink_to(ROOT / made)
    return tree


def _sample(root: Path, folders: Sequence[str], limit: int, seed: int) -> list[MutantInFile]:
    every = [
        (path, mutant)
        for folder in folders
        for path in ([root / folder] if folder.endswith(".py") else sorted((root / folder).rglob("*.py")))
        for mutant in mutants_of(path.read_bytes())
    ]
    chosen = random.Random(seed).sample(range(len(every)), min(limit, len(every)))
    return [_placed(root, *every[number]) for number in sorted(chosen)]


def _placed(root: Path, path: Path, mutant: Mutant) -> MutantInFile:
    return MutantInFile(str(path.relative_to(root)), mutant, "\n".join(lines_of(path.read_bytes(), mutant)))


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


def _run_tests(tree: Path, target: MutantInFile, reach: Reach) -> Outcome:
    began = time.monotonic()
    path = tree / target.file
    source, written = path.read_bytes(), path.stat()
    path.write_bytes(target.mutant.replace_in(source))
    # Python uses cached byte code if size and second agree, so each mutant needs its own second.
    os.utime(path, (0, next(_SECONDS)))
    try:
        return Outcome(target, _caught_by(tree, target, source, reach), time.monotonic() - began)
    finally:
        path.write_bytes(source)
        os.utime(path, (0, written.st_mtime))


def _caught_by(tree: Path, target: MutantInFile, source: bytes, reach: Reach) -> str:
    last = source.count(b"\n", 0, target.mutant.end) + 1
    tests = reach.of(target.file, range(target.mutant.line, last + 1)) if is_in_function(source, target.mutant.line) else []
    test_groups = [tests[:_ALL_AT_ONCE], tests[_ALL_AT_ONCE:]]
    if not tests:  # it may run at import, which the recording attributes to whichever test came first
        tests_of_file = reach.of_whole(target.file)
        test_groups = [tests_of_file, sorted(reach.starts_processes.difference(tests_of_file))]
    for group in filter(None, test_groups):
        found = _first_failure(tree, group)
        if found:
            return found
    return ""


def _first_failure(tree: Path, tests: Sequence[str]) -> str:
    names = tree / ".tests-to-run"
    names.write_text("\n".join(tests))
    try:
        run = _pytest(tree, [f"@{names}"], {}, longest=_LONGEST)
    except subprocess.TimeoutExpired:
        return "the time limit of tests"
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
    """Prints the survivors and returns the caught share in percent."""
    lived = [outcome for outcome in outcomes if not outcome.caught_by]
    share = 100 * (len(outcomes) - len(lived)) / max(len(outcomes), 1)
    print("\n")
    for number, ((file, mutant, diff), _, _) in enumerate(lived, 1):
        print(f"S{number} {file}:{mutant.line} {mutant.kind}\n{diff}")
    mutants_in = Counter(_folder(outcome) for outcome in outcomes)
    lived_in = Counter(_folder(outcome) for outcome in lived)
    for folder, target in sorted(mutants_in.items()):
        print(f"{folder}: {target - lived_in[folder]} of {target} caught")
    print(f"{len(outcomes) - len(lived)} of {len(outcomes)} mutants caught, {share:.1f} %, in {seconds:.0f} s, seed {seed}")
    return share


def _folder(outcome: Outcome) -> str:
    return outcome.target.file.rpartition("/")[0]


if __name__ == "__main__":
    main()
