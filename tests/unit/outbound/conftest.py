from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import certifi
import pytest
import uvloop

from hub.outbound.client import Client
from hub.outbound.worker_guard import Guard
from tests.helpers.virtual_time import VirtualTimeLoop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Transports differ between the loops, and the hub runs on either. Only time on asyncio's can be virtual, which does not
    wait for the threads that resolve names.
    """
    virtual = item.get_closest_marker("virtual_time") and not item.get_closest_marker("real_time")
    return {"asyncio": VirtualTimeLoop if virtual else asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True)
def one_authority(monkeypatch: pytest.MonkeyPatch) -> None:
    """The authorities of this system are many, and each client reads them for its first call with TLS."""
    monkeypatch.setenv("SSL_CERT_FILE", certifi.where())


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with Client(Guard([], [], allow_loopback=True)) as client:
        yield client
