"""Waits for conditions, for tests that cannot be given an event."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
_POLL = 0.01


async def until(condition: Callable[[], Awaitable[T]], timeout: float = 10.0) -> T:
    """The first true value of `condition`. TimeoutError if there is none within `timeout` seconds."""
    async with asyncio.timeout(timeout):
        while not (value := await condition()):  # noqa: ASYNC110  the condition becomes true in another process
            await asyncio.sleep(_POLL)
    return value


def until_still(read: Callable[[], T], *, quiet: float = 0.1, timeout: float = 10.0) -> T:
    """The value of `read` once it has not changed for `quiet` seconds. TimeoutError if it keeps changing."""
    deadline = time.monotonic() + timeout
    before = read()
    while True:
        time.sleep(quiet)
        if (value := read()) == before:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"still changing after {timeout:g} s: {value!r}")
        before = value
