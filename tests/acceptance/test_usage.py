"""Usage through real hubs and workers: the page does what it shows, and kills lose and repeat no report."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.helpers.processes import ROOT, environment

PAGE = (ROOT / "docs/howto/usage-and-budgets.md").read_text("utf-8")


def block(kind: str) -> str:
    found = re.search(rf"```\w+ {kind}\n(.*?)```", PAGE, re.DOTALL)
    assert found, kind
    return found[1]


def test_the_test_of_the_page_passes(tmp_path: Path) -> None:
    (tmp_path / "writer.py").write_text(block("worker"))
    (tmp_path / "test_writer.py").write_text(block("test"))
    (name,) = re.findall(r"async def (test_\w+)", block("test"))
    script = f"import asyncio, test_writer; asyncio.run(test_writer.{name}())"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment({}), capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
