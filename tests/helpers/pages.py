"""What a page shows: its blocks by name, and a shell that runs them as its reader would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.helpers.processes import ROOT, Process, environment

_BLOCK = re.compile(r"^```\w+ ([\w.-]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks_of(page: str) -> dict[str, str]:
    """The blocks of a page, by the name behind the language: "```sh send". `test_documents` finds those that no test uses."""
    found = _BLOCK.findall((ROOT / page).read_text("utf-8"))
    blocks = dict(found)
    assert len(blocks) == len(found), f"{page}: two blocks have one name"
    return blocks


class Shell:
    """Runs commands as a user would, in one folder beside the hub's data."""

    def __init__(self, folder: Path, hub: str = "") -> None:
        self.folder = folder
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.env = {"ROLECALL_DATA_DIR": str(folder / "data"), "PATH": path, **({"ROLECALL_HUB": hub} if hub else {})}

    def run(self, text: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-euc", text],
            env=environment({**self.env, **env}),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def process(self, text: str, log: str, **env: str) -> Process:
        return Process(["bash", "-c", f"exec env {text}"], log=self.folder / log, env={**self.env, **env}, cwd=self.folder)
