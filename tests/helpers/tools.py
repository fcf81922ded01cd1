"""Finds the tools that `scripts/install-test-tools` installs beside .venv.

A test without its tool is skipped with a reason; in CI it fails.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from tests.helpers.processes import ROOT

INSTALL = "scripts/install-test-tools installs it"


def sdk_python(version: str) -> Path:
    """The interpreter that has the official Python SDK: "0.3" or "1.x"."""
    return _needed(ROOT / f".tools/a2a-{version}/.pins", f"a2a-sdk {version}").parent / "bin/python"


def node() -> Path:
    """Node, if the packages of tests/node are installed."""
    _needed(ROOT / "tests/node/node_modules/.installed-lock", "the JavaScript SDK")
    return _needed(Path(shutil.which("node") or "node is not on the path"), "Node")


def nginx() -> Path:
    return _needed(Path(find_nginx() or "nginx is not on the path"), "nginx")


def find_nginx() -> str | None:
    """Its path. It is often in a folder that is not in a normal user's PATH."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


def _needed(path: Path, what: str) -> Path:
    if not path.exists():
        missing(f"{what} is not installed: {INSTALL}")
    return path


def missing(reason: str) -> NoReturn:
    """Skip a test whose tool is missing; in CI fail it."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
