"""A hub with a worker of long tasks, for tests of what they cost others."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx

from tests.acceptance import long_worker
from tests.helpers.client import text_message
from tests.helpers.processes import HubProcess, free_port, start_hub, start_script, start_worker


class LongTasks(NamedTuple):
    """A hub with a worker of long tasks and an echo, each in its own process."""

    hub: HubProcess
    folder: Path

    def stream(self, text: str) -> tuple[str, int]:
        """The id of a new task, and how many events its stream had. It is read as fast as it comes."""
        body = {"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": text_message(text)}
        first, last, count = b"", b"", 0
        with httpx.stream("POST", f"{self.hub.url}/agents/long/", json=body, timeout=60, trust_env=False) as response:
            for data in response.iter_raw():
                first = first if b"\n\n" in first else first + data
                count += data.count(b"\ndata:")
                last = (last + data)[-1000:]
        assert b'"completed"' in last
        _, _, line = first.partition(b"data:")
        return json.loads(line.partition(b"\n")[0])["result"]["id"], count


@contextmanager
def open_long_tasks(folder: Path, *, argv: Sequence[str] = (), **settings: object) -> Iterator[LongTasks]:
    """`argv` and `settings` as in `start_hub`."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    worker = (sys.executable, "-m", long_worker.__name__, str(port))
    with ExitStack() as closing:
        hub = closing.enter_context(start_hub(folder / "hub", argv=argv, **settings))
        closing.callback(shutil.rmtree, hub.data_dir, ignore_errors=True)
        echo = start_worker("tests.acceptance.loadworkers:echo", "echo:a", hub.url, log=folder / "echo.log")
        closing.enter_context(echo)
        closing.enter_context(start_script(worker, log=folder / "long.log", ready_url=url, name="long"))
        offer = {"url": url, "boot": "long", "card": long_worker.CARD}
        httpx.put(f"{hub.url}/registry/agents/long/a", json=offer, trust_env=False).raise_for_status()
        yield LongTasks(hub, folder)
