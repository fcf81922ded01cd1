"""Figures of the tests and the tree: python scripts/suite_figures.py [--time].

* Private reaches of tests: `x._name` where x is not self, cls or super(); `_name` imported from a module; and a private name
  that is patched as a string (monkeypatch, mock, setattr, getattr). Documented names such as `_replace` do not count.
* Sleeps in tests: asyncio.sleep and time.sleep, except sleep(0). Below a second (in brackets, by file), a second or more, and
  those whose length is computed. asyncio.sleep on virtual time is counted apart, because it costs nothing: in tests/flow
  and in files with the mark `virtual_time`, except in files with the mark `real_time`.
* Python files in each folder of hub/, rolecall/ and worker_sdk/.
* With --time: the seconds of `make quick`, if there is such a target, and of `make test`.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("hub", "rolecall", "worker_sdk")
_DOCUMENTED = {"_replace", "_asdict", "_make", "_fields", "_field_defaults", "_exit", "_getframe"}
_OWN = {"self", "cls"}
_PATCHES = {"setattr", "delattr", "getattr", "hasattr", "patch", "object"}
_CLOCKS = {"asyncio", "time"}


@dataclass(frozen=True, slots=True)
class Sleep:
    line: int
    seconds: float | None
    """None: it is computed."""


@dataclass(slots=True)
class Figures:
    """Of one file: the lines of its private reaches, and its sleeps."""

    attributes: list[int] = field(default_factory=list)
    imports: list[int] = field(default_factory=list)
    patches: list[int] = field(default_factory=list)
    sleeps: list[Sleep] = field(default_factory=list)
    virtual: list[Sleep] = field(default_factory=list)
    """Sleeps that cost nothing."""

    @property
    def reaches(self) -> int:
        return len(self.attributes) + len(self.imports) + len(self.patches)

    @property
    def short(self) -> int:
        return sum(sleep.seconds is not None and sleep.seconds < 1 for sleep in self.sleeps)

    @property
    def long(self) -> int:
        return sum(sleep.seconds is not None and sleep.seconds >= 1 for sleep in self.sleeps)

    @property
    def computed(self) -> int:
        return sum(sleep.seconds is None for sleep in self.sleeps)


def figures_of(text: str, *, flow: bool = False) -> Figures:
    """Figures of a file's source. `flow`: the file is one of tests/flow."""
    tree, found = ast.parse(text), Figures()
    numbers, bare, marks = _numbers(tree), _bare_sleeps(tree), _marks(tree)
    virtual = "virtual_time" in marks or (flow and "real_time" not in marks)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and not _is_own(node.value):
            found.attributes.append(node.lineno)
        elif isinstance(node, ast.ImportFrom):
            found.imports += [node.lineno for name in node.names if _is_private(name.name)]
        elif isinstance(node, ast.Call):
            if _name_of(node.func) in _PATCHES and any(_is_private(text.rpartition(".")[2]) for text in _texts(node.args[:2])):
                found.patches.append(node.lineno)
            if _is_sleep(node.func, bare):
                seconds = _seconds(node.args, numbers)
                if seconds != 0:
                    costs = not virtual or _blocks(node.func)
                    (found.sleeps if costs else found.virtual).append(Sleep(node.lineno, seconds))
    return found


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_" and name not in _DOCUMENTED


def _is_own(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "super"
    return isinstance(value, ast.Name) and value.id in _OWN


def _name_of(called: ast.expr) -> str:
    if isinstance(called, ast.Attribute):
        return called.attr
    return called.id if isinstance(called, ast.Name) else ""


def _texts(values: Iterable[ast.expr]) -> Iterator[str]:
    return (value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str))


def _is_sleep(called: ast.expr, bare: set[str]) -> bool:
    if isinstance(called, ast.Attribute):
        return called.attr == "sleep" and isinstance(called.value, ast.Name) and called.value.id in _CLOCKS
    return isinstance(called, ast.Name) and called.id in bare


def _blocks(called: ast.expr) -> bool:
    """Whether it is time.sleep, which no event loop can shorten."""
    return isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "time"


def _marks(tree: ast.Module) -> set[str]:
    """The names in the file's `pytestmark`."""
    marks = [node.value for node in tree.body if isinstance(node, ast.Assign) and _is_pytestmark(node.targets[0])]
    return {node.attr for mark in marks for node in ast.walk(mark) if isinstance(node, ast.Attribute)}


def _is_pytestmark(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and target.id == "pytestmark"


def _bare_sleeps(tree: ast.Module) -> set[str]:
    """The local names of `from time import sleep`."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module in _CLOCKS]
    return {name.asname or name.name for node in imports for name in node.names if name.name == "sleep"}


def _numbers(tree: ast.Module) -> dict[str, float]:
    """The file's own constants."""
    found: dict[str, float] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and (value := _number(node.value)) is not None:
            found |= {target.id: value for target in node.targets if isinstance(target, ast.Name)}
    return found


def _seconds(args: list[ast.expr], numbers: Mapping[str, float]) -> float | None:
    if args and isinstance(args[0], ast.Name):
        return numbers.get(args[0].id)
    return _number(args[0]) if args else None


def _number(value: ast.expr) -> float | None:
    if isinstance(value, ast.Constant) and isinstance(value.value, int | float) and not isinstance(value.value, bool):
        return float(value.value)
    return None


def files_by_folder(root: Path) -> dict[str, int]:
    files = [path for folder in SOURCES for path in (root / folder).rglob("*.py")]
    return dict(sorted(Counter(str(path.parent.relative_to(root)) for path in files).items()))


def _figures_of_file(root: Path, path: Path) -> Figures:
    return figures_of(path.read_text(encoding="utf-8"), flow=path.is_relative_to(root / "tests" / "flow"))


def report(root: Path) -> list[str]:
    paths = [path for path in sorted((root / "tests").rglob("*.py")) if "node_modules" not in path.parts]
    found = {str(path.relative_to(root)): _figures_of_file(root, path) for path in paths}
    attributes, imports, patches = (sum(len(getattr(figures, kind)) for figures in found.values()) for kind in _KINDS)
    short, long, computed = (
        sum(getattr(figures, kind) for figures in found.values()) for kind in ("short", "long", "computed")
    )
    virtual = sum(len(figures.virtual) for figures in found.values())
    folders = files_by_folder(root)
    return [
        f"private reaches of tests: {attributes + imports + patches} "
        f"({attributes} attributes, {imports} imports, {patches} patched by name)",
        *_by_file(found, lambda figures: figures.reaches),
        "",
        f"sleeps in tests: {short + long + computed} ({short} below a second, {long} of a second or more, {computed} computed)",
        f"virtual, cost nothing: {virtual}",
        *(f"{line} ({found[line.split()[1]].short})" for line in _by_file(found, lambda figures: len(figures.sleeps))),
        "",
        f"files: {sum(folders.values())} in {len(folders)} folders",
        *(f"{count:5}  {folder}" for folder, count in folders.items()),
    ]


_KINDS = ("attributes", "imports", "patches")


def _by_file(found: Mapping[str, Figures], count: Callable[[Figures], int]) -> list[str]:
    """A line for each file, the largest count first."""
    counted = [(count(figures), name) for name, figures in found.items() if count(figures)]
    return [f"{times:5}  {name}" for times, name in sorted(counted, key=lambda item: (-item[0], item[1]))]


def timed(root: Path) -> list[str]:
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    targets = [target for target in ("quick", "test") if re.search(rf"^{target}\s*:", makefile, re.MULTILINE)]
    return ["", *(_timed(root, target) for target in targets)]


def _timed(root: Path, target: str) -> str:
    began = time.monotonic()
    done = subprocess.run(["make", "-C", str(root), target], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    failed = f", and failed with {done.returncode}" if done.returncode else ""
    return f"make {target}: {time.monotonic() - began:.0f} s{failed}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time", action="store_true", help="also run the suites")
    options = parser.parse_args()
    lines = report(ROOT) + (timed(ROOT) if options.time else [])
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
