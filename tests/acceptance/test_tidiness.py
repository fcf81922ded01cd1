"""Everything that a call allocates is freed when it ends, so that the garbage collector never stops the hub for long."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.loadclients import StreamReader, open_files, open_stream, resume
from tests.acceptance.test_heartbeat_storm import ask_all, enrolment, heartbeat
from tests.acceptance.tidy import COMMAND
from tests.helpers.client import send
from tests.helpers.processes import HubProcess, start_hub, start_worker, wait_for
from tests.helpers.waiting import until_still

TIMES = 20
SETTLED = 0.5
"""Seconds without a change of the open files: the hub has noticed every client that disconnected."""


@pytest.fixture
def garbage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GARBAGE", str(tmp_path / "garbage.json"))
    return tmp_path / "garbage.json"


@pytest.fixture
def hub(garbage: Path, tmp_path: Path) -> Iterator[HubProcess]:
    with start_hub(tmp_path / "hub", argv=COMMAND) as hub:
        yield hub


def test_calls_streams_and_beats_leave_nothing_to_the_collector(hub: HubProcess, garbage: Path, tmp_path: Path) -> None:
    with start_worker("tests.acceptance.workers:counter", "counter:a", hub.url, log=tmp_path / "worker.log"):
        _everything(hub)  # allocates what is made once
        os.kill(hub.pid, signal.SIGUSR1)
        for _ in range(TIMES):
            _everything(hub)
        until_still(lambda: open_files(hub), quiet=SETTLED)
        os.kill(hub.pid, signal.SIGUSR2)
        wait_for(garbage.exists)
    left = json.loads(garbage.read_text())
    assert {kind: many for kind, many in left.items() if many >= TIMES} == {}


def _everything(hub: HubProcess) -> None:
    assert send(hub.url, "counter", "1 0")["status"]["state"] == "completed"
    with StreamReader(hub.port, open_stream("counter", "2 0")) as whole:
        whole.read_until(lambda reader: reader.ended)
    with StreamReader(hub.port, open_stream("counter", "2 0.05")) as cut:
        cut.read_until(lambda reader: bool(reader.task))
    with StreamReader(hub.port, resume(cut.task, 0)) as again:
        again.read()
        again.close(reset=True)
    lease = ask_all(hub.port, [enrolment(1)], within=0.1).answers[0].document
    assert ask_all(hub.port, [heartbeat(1, lease)], within=0.1).answers[0].status == 200
