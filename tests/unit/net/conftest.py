from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from hub.net.guard import Guard
from hub.net.http1 import Client


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with Client(Guard([], [], allow_loopback=True)) as client:
        yield client
