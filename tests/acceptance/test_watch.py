"""`rolecall logs` and `rolecall top` on a real terminal, with a hub that restarts."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.processes import ROLECALL, HubProcess, Process, environment, free_port, start_hub, start_worker, wait_for
from tests.helpers.terminal import Terminal


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def hub(tmp_path: Path, port: int) -> Iterator[HubProcess]:
    with start_hub(tmp_path / "hub", port=port) as hub:
        workers = [
            start_worker(f"rolecall.cli.demo:{demo}", f"{demo}:one", hub.url, log=tmp_path / f"{demo}.log")
            for demo in ("echo", "booking")
        ]
        yield hub
        for worker in workers:
            worker.end()


def send(hub: HubProcess, role: str) -> None:
    env = environment({"ROLECALL_HUB": hub.url})
    subprocess.run([*ROLECALL, "send", role, "hi"], env=env, capture_output=True, timeout=60, check=False)


def test_logs_tell_what_happens_also_after_a_kill_of_the_hub(hub: HubProcess, tmp_path: Path, port: int) -> None:
    with Terminal([*ROLECALL, "logs"], env={"ROLECALL_HUB": hub.url}, columns=200) as terminal:
        terminal.expect("watching http://")
        wait_for(lambda: send(hub, "echo") or "✓" in terminal.text, 30)
        send(hub, "booking")
        terminal.expect("asks: A table for “hi”. Shall I book it? (yes/no)")
        assert re.search(r"^\d\d:\d\d:\d\d  echo:one [0-9a-f]{4} ✓ \d+ ms$", terminal.text, re.MULTILINE)
        hub.kill9()
        seen = len(terminal.text)
        with start_hub(tmp_path / "hub", port=port) as again:
            send(again, "echo")
            wait_for(lambda: "✓" in terminal.text[seen:], 30)
            terminal.press("\x03")
            assert terminal.wait() == 130


def test_logs_are_json_lines_on_request_and_of_one_role(hub: HubProcess, tmp_path: Path) -> None:
    argv = [*ROLECALL, "logs", "--json", "--role", "echo"]
    with Process(argv, log=tmp_path / "logs", env={"ROLECALL_HUB": hub.url}, name="logs") as logs:
        wait_for(lambda: send(hub, "booking") or send(hub, "echo") or '"ended"' in logs.output, 40)
    changes = [json.loads(line) for line in logs.output.splitlines() if line.startswith("{")]
    assert {change["task"]["role"] for change in changes} == {"echo"}
    assert "completed" in {change["task"]["state"] for change in changes if change["event"] == "ended"}


@pytest.mark.parametrize(("columns", "shown"), [(60, False), (200, True)])
def test_top_is_drawn_in_place_and_cut_at_the_width(hub: HubProcess, columns: int, shown: bool) -> None:
    send(hub, "booking")
    argv = [*ROLECALL, "top", "--interval", "0.3"]
    with Terminal(argv, env={"ROLECALL_HUB": hub.url}, columns=columns) as terminal:
        wait_for(lambda: terminal.output.count("\x1b[H") > 2, 20)
        assert ("EVENTS/S" in terminal.text, "FAILED" in terminal.text) == (shown, True)
        assert re.search(r"^booking +1 +1 +0 +0 +1", terminal.text, re.MULTILINE)
        table = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", terminal.output.split("\x1b[H")[2])
        assert max(len(line) for line in table.splitlines()) <= columns
        terminal.press("\x03")
        assert terminal.wait() == 130
        assert "\x1b[?25h" in terminal.output[-40:]
