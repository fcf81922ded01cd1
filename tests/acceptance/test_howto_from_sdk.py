"""docs/howto/from-a2a-sdk.md: its agent, its client and its worker run as they are, with the real SDK."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.helpers.pages import Shell, blocks_of
from tests.helpers.processes import Process, environment, free_port, has_read_card, is_live, start_hub
from tests.helpers.tools import sdk_python

BLOCKS = blocks_of("docs/howto/from-a2a-sdk.md")


@pytest.mark.parametrize("kept", [True, False], ids=["announced", "rewritten"])
def test_the_client_of_the_page_is_answered(tmp_path: Path, kept: bool) -> None:
    for name in ("agent", "client", "worker"):
        (tmp_path / f"{name}.py").write_text(BLOCKS[name])
    with ExitStack() as started:
        hub = started.enter_context(start_hub(tmp_path / "hub"))
        shell = Shell(tmp_path, hub.url)
        shell.env |= {"ROLECALL_INSTANCE": "a"}
        if kept:
            port = free_port()
            started.enter_context(Process((sdk_python("1.x"), "agent.py", str(port)), log=tmp_path / "agent.log", cwd=tmp_path))
            last = started.enter_context(shell.process(BLOCKS["announce"].replace("9999", str(port)).strip(), "announce.log"))
        else:
            last = started.enter_context(
                Process((sys.executable, "worker.py"), log=tmp_path / "log", env=shell.env, cwd=tmp_path)
            )
        ready = has_read_card if kept else is_live
        last.wait_until(lambda: ready(hub.url, "shouter:a"), 30)
        argv, env = (sdk_python("1.x"), "client.py"), environment({"ROLECALL_HUB": hub.url})
        done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=30, check=False)
        assert (done.returncode, done.stdout) == (0, BLOCKS["printed"]), done.stderr
