"""The sources of a measured hub: this checkout, or an earlier revision in its own folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EARLIER = ROOT / ".tools" / "before"
THIS = "."
"""The name of this checkout as a revision."""
_FORGOTTEN = ("ROLECALL_", "A2A_", "PUSH_NOTIFICATION_", "PYTHON")
_SHORT = 12
_OWN = {"rolecall", "pip", "setuptools"}
_VERSIONS = "import json, importlib.metadata as m; print(json.dumps({d.name.lower(): d.version for d in m.distributions()}))"


class NoCheckout(Exception):
    """The revision is unknown, or its environment could not be made."""


@dataclass(frozen=True, slots=True)
class Checkout:
    """A source tree, and the `bin` folder of its environment.

    The hub is started with the command `rolecall`, because the module behind it may move between revisions.
    """

    tree: Path
    bin: Path

    def command(self, *words: str | Path) -> list[str | Path]:
        return [self.bin / "rolecall", *words]

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        """The environment variables without exported settings of other hubs or workers. Packages come from the tree."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_FORGOTTEN)}
        return {**kept, "PYTHONPATH": str(self.tree), **more}

    def libraries(self) -> dict[str, str]:
        """Names and versions of what is installed."""
        argv, env = [self.bin / "python", "-c", _VERSIONS], self.environment({})
        done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=30, check=True)
        found: dict[str, str] = json.loads(done.stdout)
        return found


CURRENT = Checkout(ROOT, Path(sys.executable).parent)


def make_environment(place: Path) -> None:
    """A virtual environment with the library versions of the current hub, if the revision allows them."""
    _run(sys.executable, "-m", "venv", place / "venv")
    pinned = place / "pins.txt"
    pinned.write_text(
        "".join(f"{name}=={version}\n" for name, version in sorted(CURRENT.libraries().items()) if name not in _OWN)
    )
    install = (place / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    wanted = ("-e", f"{place / 'tree'}[hub]")
    try:
        _run(*install, "-c", pinned, *wanted)
    except NoCheckout:
        print(
            "the revision does not accept the libraries of the current hub: installing those that it requires", file=sys.stderr
        )
        _run(*install, *wanted)


def earlier(
    revision: str, *, root: Path = ROOT, folder: Path = EARLIER, prepare: Callable[[Path], None] = make_environment
) -> Checkout:
    """The checkout of a revision. Made if missing; NoCheckout if that fails."""
    if revision == THIS:
        return CURRENT
    commit = _run(
        "git", "-C", root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", failed=f"no revision {revision}"
    )
    place = folder / commit[:_SHORT]
    made = place / "made"
    if not made.exists():
        print(f"making an environment for {revision} in {place}", file=sys.stderr)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        # --force: the folder may be registered already, by an interrupted run or from before `make clean`.
        _run("git", "-C", root, "worktree", "add", "--quiet", "--force", "--detach", place / "tree", commit)
        prepare(place)
        made.touch()
    return Checkout(place / "tree", place / "venv" / "bin")


def changed_libraries(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Libraries with different versions in both: they may explain a difference."""
    return [
        f"{name} {before[name]} → {now[name]}"
        for name in sorted(before.keys() & now.keys() - _OWN)
        if before[name] != now[name]
    ]


def _run(*argv: str | Path, failed: str = "") -> str:
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoCheckout(failed or f"{' '.join(str(word) for word in argv)}: {done.stderr.strip()}")
    return done.stdout.strip()
