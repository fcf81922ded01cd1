"""Large answers of the application below count for their workspace until the client has taken them."""

from __future__ import annotations

import asyncio

import pytest

from hub.core.shares.answers import AnswerShare
from hub.inbound.middleware.unsent_answers import UnsentAnswer
from hub.server.asgi import Message
from rolecall.errors import AnswerNotSent

LARGE = b"x" * 150_000
HEAD = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"150000")]}
STREAM_HEAD = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}


class Client:
    """Takes what is sent, unless it has stopped to."""

    def __init__(self) -> None:
        self.share = AnswerShare("bytes", "max_unsent", 400_000, 200_000)
        self.got: list[Message] = []
        self.takes = asyncio.Event()
        self.takes.set()

    async def send(self, message: Message) -> None:
        await self.takes.wait()
        self.got.append(message)

    async def answer(self, body: bytes, head: Message = HEAD) -> None:
        send = UnsentAnswer(self.send, self.share, "busy")
        await send(head)
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        send.check()

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.got)


async def test_a_large_answer_is_held_until_it_is_taken_and_arrives_whole() -> None:
    client = Client()
    client.takes.clear()
    answer = asyncio.create_task(client.answer(LARGE))
    await asyncio.sleep(0)
    assert client.share.held("busy") == len(LARGE)
    client.takes.set()
    await answer
    assert client.share.held("busy") == 0
    assert client.body == LARGE
    assert [message.get("more_body") for message in client.got[1:]] == [True, True, True, True, False]


async def test_a_second_large_answer_above_the_share_is_refused_before_its_head() -> None:
    client = Client()
    client.takes.clear()
    first = asyncio.create_task(client.answer(LARGE))
    await asyncio.sleep(0)
    with pytest.raises(AnswerNotSent, match="150000 bytes"):
        await client.answer(LARGE)
    assert client.got == []
    client.takes.set()
    await first
    await client.answer(LARGE)


async def test_small_answers_are_not_counted() -> None:
    client = Client()
    client.share.take("busy", 200_000)
    await client.answer(b"{}")
    assert client.body == b"{}"


async def test_the_head_of_a_stream_does_not_wait_for_its_first_event() -> None:
    client = Client()
    await UnsentAnswer(client.send, client.share, "busy")(STREAM_HEAD)
    assert client.got == [STREAM_HEAD]
