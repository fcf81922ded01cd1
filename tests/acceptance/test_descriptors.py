"""A hub with few file descriptors, or with none left: it takes fewer connections, says so, and blames no worker."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.acceptance.loadclients import open_files
from tests.acceptance.neighbours.load import ROLE, line_of, start_agent, start_callers
from tests.helpers.client import text_message
from tests.helpers.processes import HubProcess, start_hub, start_worker, status_of, wait_for

LIMIT = 400
WITH_LIMIT = ("sh", "-c", f'ulimit -Sn 100 && ulimit -Hn {LIMIT} && exec "$0" -m rolecall.cli serve', sys.executable)


@contextmanager
def no_descriptors(hub: HubProcess) -> Iterator[None]:
    """The hub keeps what it has open, and gets no more."""
    before = resource.prlimit(hub.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(hub.pid, resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        yield
    finally:
        resource.prlimit(hub.pid, resource.RLIMIT_NOFILE, before)


def test_a_hub_with_few_descriptors_takes_fewer_connections_and_keeps_a_reserve(tmp_path: Path) -> None:
    with start_hub(tmp_path / "hub", argv=WITH_LIMIT, max_at_once=0, max_rate=0) as hub:
        assert resource.prlimit(hub.pid, resource.RLIMIT_NOFILE) == (LIMIT, LIMIT)
        assert hub.output.count('"few_descriptors"') == 1
        agent, url = start_agent(tmp_path / "agent.log")
        with agent:
            offer = {"url": url, "boot": "b", "capabilities": {"streaming": True}}
            httpx.put(f"{hub.url}/registry/agents/{ROLE}/a", json=offer, trust_env=False).raise_for_status()
            with start_callers(tmp_path / "hold.log", "hold", hub.port, 120, token="") as kept:
                answer = line_of(kept, 30)
                ((text, count),) = answer["refused"].items()
                assert answer["open"] + count == 120
                assert 60 < answer["open"] < 75
                assert "ROLECALL_MAX_CONNECTIONS_PER_WORKER)" in text
                # Connections beyond those that it takes are refused, and none is left without an answer.
                with start_callers(tmp_path / "more.log", "hold", hub.port, 100, token="") as more:
                    refused = line_of(more, 30)["refused"]
                    assert any("ROLECALL_MAX_CONNECTIONS)" in text for text in refused), refused
                assert open_files(hub) < LIMIT - 50
            wait_for(lambda: status_of(f"{hub.url}/readyz") == 200, 10)
            assert '"no_descriptors"' not in hub.output
            (worker,) = httpx.get(f"{hub.url}/registry/agents", trust_env=False).json()["agents"]
            assert worker["state"] == "ready"


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_hub_without_a_descriptor_says_so_and_blames_no_worker(tmp_path: Path, loop: str) -> None:
    with (
        start_hub(tmp_path / "hub", loop=loop) as hub,
        start_worker("tests.acceptance.loadworkers:echo", "echo:a", hub.url, log=tmp_path / "echo.log"),
        httpx.Client(base_url=hub.url, trust_env=False, timeout=10) as client,
    ):
        body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": text_message("hi")}
        client.get("/livez")
        with no_descriptors(hub):
            error = client.post("/agents/echo/", json=body).json()["error"]
            assert "no file descriptor left" in error["message"]
            assert error["data"][0]["reason"] == "OVERLOADED"
            ready = client.get("/readyz?verbose")
            assert (ready.status_code, ready.json()["checks"]["descriptors"]) == (503, False)
            with pytest.raises(httpx.HTTPError):
                httpx.get(f"{hub.url}/livez", trust_env=False, timeout=0.5)
            time.sleep(0.5)
            assert client.get("/registry/agents/echo:a").json()["state"] == "ready"
        wait_for(lambda: client.post("/agents/echo/", json=body).json()["result"]["status"]["state"] == "completed", 10)
        assert hub.output.count('"no_descriptors"') == 1
        assert "Traceback" not in hub.output
