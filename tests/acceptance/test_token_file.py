"""A hub of a service user, whose token file root changes."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest

from hub.identity.tokens import FILE_NAME, new
from rolecall.cli import run
from rolecall.model.principal import Kind, Principal
from tests.helpers.processes import start_hub, status_of, wait_for

_SERVE = """
import asyncio, httpx, os, pwd, tempfile
from hub.app import create_app
from hub.settings.model import Settings
from rolecall.cli import main
import hub.run, rolecall.cli.server.serve

async def load(folder):
    async with create_app(Settings.of(data_dir=folder), port=1).test_app() as running:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(running.app), base_url="http://127.0.0.1") as http:
            for path in ("/readyz?verbose=1", "/health", "/registry/agents"):
                assert (await http.get(path)).status_code == 200

with tempfile.TemporaryDirectory() as folder:
    asyncio.run(load(folder))
nobody = pwd.getpwnam("nobody")
os.setgroups([])
os.setgid(nobody.pw_gid)
os.setuid(nobody.pw_uid)
main(["serve"])
"""
"""`rolecall serve` of the user `nobody`. What it imports is loaded before: that user may not be able to read this tree."""


@pytest.fixture
def data() -> Iterator[Path]:
    """A data folder of the user `nobody`."""
    if os.geteuid() != 0:
        pytest.skip("only root can run a hub as another user")
    with TemporaryDirectory(dir="/tmp") as name:
        nobody = pwd.getpwnam("nobody")
        os.chown(name, nobody.pw_uid, nobody.pw_gid)
        yield Path(name)


def test_root_revokes_a_token_of_a_hub_of_another_user_and_a_file_that_it_cannot_read_is_told_everywhere(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = data / FILE_NAME
    kept, _ = new(path, Principal("me", Kind.ADMIN), lasts=None, now=0.0)
    gone, _ = new(path, Principal("anna", Kind.CLIENT), lasts=None, now=0.0)
    with start_hub(data, argv=(sys.executable, "-c", _SERVE)) as hub:

        def statuses() -> list[int]:
            return [status_of(f"{hub.url}/registry/agents", token) for token in (kept, gone)]

        def checks() -> tuple[int, bool]:
            answer = httpx.get(f"{hub.url}/readyz?verbose=1", trust_env=False)
            return answer.status_code, answer.json()["checks"]["tokens"]

        assert (statuses(), checks()) == ([200, 200], (200, True))
        assert run(["tokens", "--data-dir", str(data), "revoke", "anna"]) == 0
        wait_for(lambda: statuses() == [200, 401], 3)
        # As a program that writes the file anew would leave it.
        os.chown(path, 0, 0)
        wait_for(lambda: checks() == (503, False), 5)
        assert statuses() == [401, 401]
        cause = f"{path} cannot be read: Permission denied. It belongs to root, and this process runs as nobody."
        wait_for(lambda: cause in hub.output, 2)
        assert run(["doctor", "--hub", hub.url]) == 3
        assert "not healthy: tokens" in capsys.readouterr().out
        assert run(["tokens", "--data-dir", str(data), "new", "--name", "bert"]) == 1
        assert f"the hub runs as nobody, which cannot read {path}" in capsys.readouterr().err
        os.chown(path, data.stat().st_uid, 0)
        wait_for(lambda: (statuses(), checks()) == ([200, 401], (200, True)), 3)
        assert hub.output.count(cause) == 1 and "Traceback" not in hub.output
