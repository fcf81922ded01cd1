"""The event loop of tests marked `virtual_time`: pauses take no time, and a loaded machine does not affect timeouts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from tests.helpers.virtual_time import VirtualTimeLoop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual": VirtualTimeLoop} if item.get_closest_marker("virtual_time") else {"real": asyncio.new_event_loop}
