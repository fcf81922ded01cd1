"""A hub to be ill-treated, and somebody who feels its pulse meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from tests.helpers.processes import HubProcess, start_hub
from tests.hostile.pulse import Pulse
from tests.hostile.raw import exchange, get


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with start_hub(tmp_path_factory.mktemp("hub"), worker_silence=2, log_format="json") as hub:
        yield hub


@pytest.fixture(scope="module")
def pulse(hub: HubProcess) -> Iterator[Pulse]:
    with Pulse(hub) as pulse:
        yield pulse


@pytest.fixture
def unharmed(hub: HubProcess, pulse: Pulse) -> Iterator[None]:
    """For every hostile input: the hub lives, was never long away, and has no bug to report."""
    pulse.forget()
    said = len(hub.output)
    yield
    assert exchange(hub.port, get("/readyz")).status == 200
    new = hub.output[said:]
    assert "Traceback" not in new, new[-3000:]
    assert "request_failed" not in new, new[-3000:]
    pulse.check()


@pytest.fixture
async def http(hub: HubProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=hub.url, trust_env=False, verify=False, timeout=30) as client:
        yield client
