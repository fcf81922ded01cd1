"""A hub for hostile inputs, and a probe of its latency meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from tests.helpers.processes import HubProcess, start_hub
from tests.hostile.latency import LatencyProbe
from tests.hostile.raw import exchange, get


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with start_hub(tmp_path_factory.mktemp("hub"), worker_silence=2, log_format="json", max_body=1024 * 1024) as hub:
        yield hub


@pytest.fixture(scope="module")
def latency(hub: HubProcess) -> Iterator[LatencyProbe]:
    with LatencyProbe(hub) as latency:
        yield latency


@pytest.fixture
def hub_healthy(hub: HubProcess, latency: LatencyProbe) -> Iterator[None]:
    """After every hostile input: the hub is ready, had no long stall, and logged no bug."""
    latency.reset()
    start = len(hub.output)
    yield
    assert exchange(hub.port, get("/readyz")).status == 200
    new = hub.output[start:]
    assert "Traceback" not in new, new[-3000:]
    assert "request_failed" not in new, new[-3000:]
    latency.check()


@pytest.fixture
async def http(hub: HubProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=hub.url, trust_env=False, verify=False, timeout=30) as client:
        yield client
