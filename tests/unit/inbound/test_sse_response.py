"""A stream's client that disconnects, before the worker's first event or later."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

import pytest

from hub.core.shares.table import Shares
from hub.core.tasks.stream import TaskStream
from hub.inbound.a2a.sse_response import EventStream
from hub.inbound.middleware.request import Request
from hub.server.asgi import Message
from rolecall.errors import ClientDisconnected, HubError, NoLiveWorker
from rolecall.model.a2a import Logged
from tests.contract.words import admitted
from tests.helpers.cycles import no_cycles_of
from tests.unit.inbound.streams import memory_engine, stream_of

SOON = 0.1

pytestmark = pytest.mark.virtual_time


class Client:
    """Disconnects when `disconnected` is set. Only one reader at a time may wait in `receive`."""

    def __init__(self) -> None:
        self.disconnected = asyncio.Event()
        self.received: list[Message] = []
        self._has_reader = False

    async def receive(self) -> Message:
        assert not self._has_reader
        self._has_reader = True
        try:
            await self.disconnected.wait()
        finally:
            self._has_reader = False
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.received.append(message)


async def empty_stream() -> TaskStream:
    """Has no events; ends when it is closed."""
    engine = memory_engine()
    return stream_of(engine, await admitted(engine))


@pytest.fixture(autouse=True)
def short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.inbound.a2a.sse_response._STORE_TIMEOUT", SOON)


def opened(client: Client) -> EventStream:
    scope = {"type": "http", "path": "/", "method": "POST", "headers": [], "extensions": {}}
    return EventStream(Request(scope, client.receive, client.send), 5, Shares().unsent)


async def test_a_disconnect_before_the_first_event_cancels_the_opening_soon_and_not_at_once() -> None:
    """A message that is being stored must be stored: otherwise it could be a task that nothing runs."""
    client, opening = Client(), asyncio.create_task(asyncio.sleep(60, await empty_stream()))
    waiting = asyncio.create_task(opened(client).wait_for(opening))
    await asyncio.sleep(0.01)
    client.disconnected.set()
    with pytest.raises(ClientDisconnected):
        await asyncio.wait_for(waiting, 1)
    assert not opening.cancelled()
    await asyncio.wait([opening], timeout=1)
    assert opening.cancelled()
    assert client.received == []


async def test_a_stream_that_opens_after_the_disconnect_is_closed() -> None:
    task_stream = await empty_stream()
    client, opening = Client(), asyncio.create_task(asyncio.sleep(SOON / 2, task_stream))
    client.disconnected.set()
    with pytest.raises(ClientDisconnected):
        await asyncio.wait_for(opened(client).wait_for(opening), 1)
    await asyncio.sleep(SOON)
    assert task_stream.closed


async def test_an_opening_that_fails_after_the_disconnect_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def failing() -> TaskStream:
        await asyncio.sleep(SOON / 2)
        raise NoLiveWorker("echo")

    client, opening = Client(), asyncio.create_task(failing())
    client.disconnected.set()
    with caplog.at_level(logging.ERROR), pytest.raises(ClientDisconnected):
        await asyncio.wait_for(opened(client).wait_for(opening), 1)
    await asyncio.sleep(SOON)
    del opening
    assert not caplog.records


async def test_a_disconnect_after_the_first_event_closes_the_stream() -> None:
    client, task_stream = Client(), await empty_stream()
    stream = opened(client)
    assert await stream.wait_for(asyncio.create_task(asyncio.sleep(0.01, task_stream))) is task_stream
    copy = asyncio.create_task(stream.copy(task_stream, _NullEncoder()))
    await asyncio.sleep(0.01)
    client.disconnected.set()
    with pytest.raises(ClientDisconnected):
        await asyncio.wait_for(copy, 1)
    assert task_stream.closed


async def test_after_a_refusal_another_reader_may_receive() -> None:
    async def failing() -> TaskStream:
        raise NoLiveWorker("echo")

    client = Client()
    with pytest.raises(NoLiveWorker):
        await opened(client).wait_for(asyncio.create_task(failing()))
    client.disconnected.set()
    assert (await client.receive())["type"] == "http.disconnect"


async def test_a_refusal_is_freed_at_once() -> None:
    async def failing() -> TaskStream:
        await asyncio.sleep(0)
        raise NoLiveWorker("echo")

    with no_cycles_of(HubError, EventStream):
        for _ in range(3):
            with suppress(NoLiveWorker):
                await opened(Client()).wait_for(asyncio.create_task(failing()))


class _NullEncoder:
    def frames(self, batch: Sequence[Logged]) -> bytes:
        return b""
