"""Virtual environments of their own for tests of what is installed: the wheel of this tree, and packages beside it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.helpers.processes import ROOT, environment

WITHIN = 300.0
_PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


class Environment:
    """An empty environment in `folder`. Its processes start in `folder` and see nothing of this tree."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "env" / "bin" / "python"
        self.variables = {"PYTHONPATH": "", "PYTHONNOUSERSITE": "1"}
        # Without pip: the pip of this process installs into it.
        _finish(sys.executable, "-m", "venv", "--without-pip", folder / "env")

    def run(self, *words: str | Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return _run(*words, cwd=self.folder, env={**self.variables, **(env or {})})

    def finish(self, *words: str | Path, env: Mapping[str, str] | None = None) -> str:
        """The output of a command that must succeed."""
        return _checked(self.run(*words, env=env))

    def install(self, *requirements: str) -> None:
        _finish(*_PIP, "--python", self.python, "install", *requirements)
        _finish(*_PIP, "--python", self.python, "check")

    def resolve(self, *requirements: str) -> list[dict[str, Any]]:
        """The metadata of the packages that would be installed if the environment were empty."""
        report = self.folder / "report.json"
        _finish(*_PIP, "--python", self.python, "install", "--dry-run", "--ignore-installed", "--report", report, *requirements)
        return [package["metadata"] for package in json.loads(report.read_text("utf-8"))["install"]]

    def packages(self) -> list[dict[str, Any]]:
        """The metadata of the packages that are installed."""
        listed = json.loads(_finish(*_PIP, "--python", self.python, "inspect"))
        return [package["metadata"] for package in listed["installed"]]


def build_wheel(folder: Path) -> Path:
    """The wheel of this tree."""
    _finish(*_PIP, "wheel", "--no-deps", "--wheel-dir", folder, ROOT)
    (wheel,) = folder.glob("rolecall-*.whl")
    return wheel


def _finish(*words: str | Path) -> str:
    return _checked(_run(*words, cwd=ROOT, env={}))


def _run(*words: str | Path, cwd: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    argv = [str(word) for word in words]
    return subprocess.run(argv, cwd=cwd, env=environment(env), capture_output=True, text=True, timeout=WITHIN, check=False)


def _checked(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, f"{' '.join(done.args)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
