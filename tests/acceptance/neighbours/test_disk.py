"""Bytes on disk: a workspace that stores all it can leaves the other its part."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

from tests.acceptance.neighbours.rig import BUSY, QUIET, Neighbours, neighbours

MIB = 1024 * 1024
LIMITS = {"max_disk": "16MiB", "max_disk_per_workspace": "8MiB"}


def used(pair: Neighbours, workspace: str) -> int:
    return int(pair.ask(workspace, "GET", "/health").json()["disk"]["used"])


def test_a_workspace_that_fills_its_disk_is_refused_and_no_other(tmp_path: Path) -> None:
    with neighbours(tmp_path, **LIMITS) as pair, ExitStack() as closing, pair.unharmed():
        pair.add_worker(closing, "tests.acceptance.loadworkers:echo", "echo:b", BUSY)
        pair.add_worker(closing, "tests.acceptance.loadworkers:page_writer", "page_writer:b", BUSY)
        failed = pair.send(BUSY, "2000 0", role="page_writer")["result"]["status"]
        assert failed["state"] == "failed" and "ROLECALL_MAX_DISK_PER_WORKSPACE" in json.dumps(failed)
        error = pair.send(BUSY)["error"]
        assert error["data"][0]["reason"] == "OVERLOADED" and "ROLECALL_MAX_DISK_PER_WORKSPACE" in error["message"]
        health = pair.ask(BUSY, "GET", "/health").json()
        assert health["disk"]["limit"] == 8 * MIB < health["disk"]["used"] + MIB
        assert "disk" not in pair.http.get(f"{pair.hub.url}/health").json()
        assert used(pair, QUIET) < MIB
        assert "error" not in pair.send(QUIET)
