"""A stream's caller, from before its worker's first word to the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest

from hub.core.tasks.stream import TaskStream
from hub.inbound.a2a.sse_response import EventStream
from hub.server.asgi import Message
from rolecall.errors import ClientGone, NoLiveWorker
from rolecall.model.a2a import Logged

SOON = 0.1


class Opened(TaskStream):
    """A reading of nothing."""

    def __init__(self) -> None:
        self.closed = self.broken_off = False
        self._over_now = asyncio.Event()

    async def __anext__(self) -> Sequence[Logged]:
        await self._over_now.wait()
        raise StopAsyncIteration

    def close(self) -> None:
        self.closed = True
        self._over_now.set()


class Client:
    """Stays until he is told to leave. Two who listen to him at once would each miss what the other hears."""

    def __init__(self) -> None:
        self.left = asyncio.Event()
        self.heard: list[Message] = []
        self._listened_to = False

    async def receive(self) -> Message:
        assert not self._listened_to
        self._listened_to = True
        try:
            await self.left.wait()
        finally:
            self._listened_to = False
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.heard.append(message)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.inbound.a2a.sse_response._TAKEN_ON_WITHIN", SOON, raising=False)


def opened(client: Client) -> EventStream:
    return EventStream(client.send, client.receive, 5)


async def test_who_leaves_before_the_first_word_gives_up_his_place_soon_and_not_at_once() -> None:
    """What is just being stored has to be: it would be a task that nobody runs."""
    client, opening = Client(), asyncio.create_task(asyncio.sleep(60, Opened()))
    waiting = asyncio.create_task(opened(client).wait_for(opening))
    await asyncio.sleep(0.01)
    client.left.set()
    with pytest.raises(ClientGone):
        await asyncio.wait_for(waiting, 1)
    assert not opening.cancelled()
    await asyncio.wait([opening], timeout=1)
    assert opening.cancelled()
    assert client.heard == []


async def test_what_opens_after_its_caller_has_left_is_closed() -> None:
    task_stream = Opened()
    client, opening = Client(), asyncio.create_task(asyncio.sleep(SOON / 2, task_stream))
    client.left.set()
    with pytest.raises(ClientGone):
        await asyncio.wait_for(opened(client).wait_for(opening), 1)
    await asyncio.sleep(SOON)
    assert task_stream.closed


async def test_what_fails_after_its_caller_has_left_troubles_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def failing() -> TaskStream:
        await asyncio.sleep(SOON / 2)
        raise NoLiveWorker("echo")

    client, opening = Client(), asyncio.create_task(failing())
    client.left.set()
    with caplog.at_level(logging.ERROR), pytest.raises(ClientGone):
        await asyncio.wait_for(opened(client).wait_for(opening), 1)
    await asyncio.sleep(SOON)
    del opening
    assert not caplog.records


async def test_who_leaves_after_the_first_word_is_missed_as_well() -> None:
    client, task_stream = Client(), Opened()
    stream = opened(client)
    assert await stream.wait_for(asyncio.create_task(asyncio.sleep(0.01, task_stream))) is task_stream
    copying = asyncio.create_task(stream.copy(task_stream, _Mute()))
    await asyncio.sleep(0.01)
    client.left.set()
    with pytest.raises(ClientGone):
        await asyncio.wait_for(copying, 1)
    assert task_stream.closed


async def test_whoever_is_refused_is_not_listened_to_any_longer() -> None:
    async def failing() -> TaskStream:
        raise NoLiveWorker("echo")

    client = Client()
    with pytest.raises(NoLiveWorker):
        await opened(client).wait_for(asyncio.create_task(failing()))
    client.left.set()
    assert (await client.receive())["type"] == "http.disconnect"


class _Mute:
    def frames(self, batch: Sequence[Logged]) -> bytes:
        return b""
