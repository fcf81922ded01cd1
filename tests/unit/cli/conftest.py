"""Fixtures of the command line's tests."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.scripted_hub import Response, ScriptedHub, scripted_hub


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings from the environment, and no file in the working folder."""
    for name in tuple(os.environ):
        if name.startswith(("ROLECALL_", "A2A_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def ahead_of_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This machine is two hours before UTC."""
    with monkeypatch.context() as within:
        within.setenv("TZ", "EAST-2")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture(autouse=True)
def keep_logging() -> Iterator[None]:
    """Commands log to stderr, whose capture is closed with the test, so no handler may remain."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedHub]:
    with scripted_hub() as hub:
        monkeypatch.setenv("ROLECALL_HUB", hub.url)
        hub.on("GET /registry/tasks", Response({"tasks": [{"id": "t1", "role": "echo", "worker": "echo:demo"}], "total": 1}))
        yield hub
