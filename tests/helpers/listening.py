"""A listener for a worker's answer that keeps what it is told, and clients of the raw HTTP client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from sys import maxsize
from typing import Any

from hub.outbound.client import Client
from hub.outbound.connection import Response
from hub.ports.forwarder import AnswerListener, OpenCall
from rolecall.errors import HubError
from rolecall.model.a2a import WorkerEvent


class Listener:
    """`batches`: what was told, and not taken by `next`. `closed_with`: what `closed` was called with, each time."""

    def __init__(self) -> None:
        self.batches: list[Sequence[WorkerEvent]] = []
        self.closed_with: list[HubError | None] = []
        self.on_change: Callable[[], None] = lambda: None
        """Called each time it is told something."""
        self._changed = asyncio.Event()

    @property
    def events(self) -> list[WorkerEvent]:
        return [worker_event for batch in self.batches for worker_event in batch]

    def received(self, batch: Sequence[WorkerEvent]) -> None:
        assert not self.closed_with, "told after the end"
        self.batches.append(batch)
        self._changed.set()
        self.on_change()

    def closed(self, error: HubError | None) -> None:
        self.closed_with.append(error)
        self._changed.set()
        self.on_change()

    async def until(self, reached: Callable[[], Any]) -> None:
        while not reached():
            self._changed.clear()
            await self._changed.wait()

    async def next(self) -> Sequence[WorkerEvent]:
        """The next batch. Raises the error of a call that ended without one."""
        await self.until(lambda: self.batches or self.closed_with)
        if not self.batches:
            await self.end()
        return self.batches.pop(0)

    async def end(self) -> None:
        """Waits for the end, and raises its error."""
        await self.until(lambda: self.closed_with)
        if self.closed_with[0] is not None:
            raise self.closed_with[0]


async def collect_events(start: Callable[[AnswerListener], OpenCall]) -> list[WorkerEvent]:
    """All events of a call that ends properly."""
    listener = Listener()
    call = start(listener)
    try:
        await listener.end()
    finally:
        call.hang_up()
    return listener.events


class BodyResponse(Response):
    """A whole answer of the HTTP client. With `reads` its body is used as it arrives, otherwise from `read_all` on."""

    def __init__(self, worker: str = "echo:1", *, reads: bool = True) -> None:
        super().__init__(worker)
        self.body = bytearray()
        self.reads = reads
        self._changed = asyncio.Event()

    def changed(self) -> None:
        if self.reads:
            self.body += self.take(maxsize)
        self._changed.set()

    async def head(self) -> None:
        await self._until(lambda: self.status)

    async def read_all(self) -> bytes:
        self.reads = True
        self.changed()
        await self._until(lambda: self.complete)
        return bytes(self.body)

    async def _until(self, reached: Callable[[], Any]) -> None:
        while not reached():
            if self.failure is not None:
                raise self.failure
            self._changed.clear()
            await self._changed.wait()


async def ask(client: Client, url: str, body: bytes = b"{}", *, reads: bool = True, **options: Any) -> BodyResponse:
    """Sends a request, and waits for the head of its answer. A failure or a cancellation closes it."""
    response = BodyResponse(reads=reads)
    client.send(url, body, response, **options)
    try:
        await response.head()
    except BaseException:
        response.close()
        raise
    return response
