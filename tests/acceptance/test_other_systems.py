"""A worker needs nothing that only Unix has: with those names hidden it starts, answers, and stops. What is shown by code, not
run: macOS and Windows themselves.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from rolecall import HubClient
from tests.helpers.processes import Process, is_live, start_hub


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_worker_starts_answers_and_stops(tmp_path: Path, number: signal.Signals) -> None:
    command = (sys.executable, "-m", "tests.acceptance.other_system", "worker", "run", "rolecall.cli.demo:echo")
    with start_hub(tmp_path / "hub") as hub:
        env = {"ROLECALL_HUB": hub.url, "ROLECALL_INSTANCE": "a"}
        with Process(command, log=tmp_path / "log", env=env) as worker:
            worker.wait_until(lambda: is_live(hub.url, "echo:a"))
            async with HubClient(hub.url) as client:
                assert (await client.call("echo", "hello")).text == "hello"
            worker.signal(number)
            assert worker.wait(10) == 0
            assert not is_live(hub.url, "echo:a")
        assert "Traceback" not in worker.output
