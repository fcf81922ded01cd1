"""Readers of a log or of a task stream, in either of the two ways."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol

from hub.ports.state.event_log import Deliver
from rolecall.model.a2a import Logged


class Readable(Protocol):
    """A subscription, or a task stream."""

    async def page(self) -> Sequence[Logged]: ...
    def live(self, deliver: Deliver) -> Awaitable[bool]: ...


async def next_batch(source: Readable) -> Sequence[Logged]:
    """The next page, as soon as there is one. Empty: it has waited in vain for `idle`. EOFError: there will be none."""
    while True:
        if page := await source.page():
            return page
        idle = False

        def only_wake(events: Sequence[Logged]) -> bool:
            nonlocal idle
            idle = not events
            return False

        if not await source.live(only_wake):
            raise EOFError
        if idle:
            return ()


async def read_all(source: Readable) -> list[Logged]:
    """All events up to the end: pages first, then live, as a client is served that keeps up."""
    read: list[Logged] = []

    def take(events: Sequence[Logged]) -> bool:
        read.extend(events)
        return True

    more = True
    while more:
        while page := await source.page():
            read += page
        more = await source.live(take)
    return read
