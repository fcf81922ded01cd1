"""Bodies of files in both directions: they come and go as fast as the slower side, and end with their client or its token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from hub.core.token_watch import OpenUses
from hub.inbound.files import upload_body
from hub.inbound.files.sending import send_content
from hub.inbound.files.upload_body import UploadBody
from hub.inbound.middleware.request import Request
from rolecall.errors import BodyTooSlow, ClientDisconnected, FileLost, HubDraining, TokenEnded
from rolecall.model.principal import Kind, Principal

Messages = asyncio.Queue[dict[str, Any]]
GONE = {"type": "http.disconnect"}


def piece(body: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


class Client:
    """The other side of one request. `uses`: where the hub finds it by its token."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.messages: Messages = asyncio.Queue()
        for message in messages:
            self.messages.put_nowait(message)
        self.sent: list[dict[str, Any]] = []
        self.takes = asyncio.Event()
        self.takes.set()
        self.uses = OpenUses()
        scope = {"type": "http", "path": "/", "method": "GET", "headers": []}
        self.request = Request(scope, self.messages.get, self._send, self.uses)
        self.request.principal = Principal("anna", Kind.CLIENT, token="t")

    async def _send(self, message: Any) -> None:
        await self.takes.wait()
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    @property
    def whole(self) -> bool:
        """It has got the end of the answer."""
        return bool(self.sent) and self.sent[-1].get("more_body") is False


# --- uploads


async def test_a_body_is_read_to_its_end() -> None:
    body = UploadBody(Client(piece(b"ab"), piece(b""), piece(b"c"), piece(b"", more=False)).request)
    assert [await body.read() for _ in range(4)] == [b"ab", b"c", b"", b""]


async def test_a_client_that_disconnects_ends_its_body() -> None:
    body = UploadBody(Client(piece(b"ab"), GONE).request)
    assert await body.read() == b"ab"
    with pytest.raises(ClientDisconnected):
        await body.read()


async def test_a_body_that_is_stopped_ends_whoever_reads_it() -> None:
    body = UploadBody(Client(piece(b"ab")).request)
    assert await body.read() == b"ab"
    reading = asyncio.create_task(body.read())
    await asyncio.sleep(0)
    body.stop(HubDraining())
    body.stop(BodyTooSlow())
    for read in (reading, body.read()):
        with pytest.raises(HubDraining):
            await read


async def test_the_end_of_its_token_ends_an_upload() -> None:
    client = Client()
    reading = asyncio.create_task(UploadBody(client.request).read())
    await asyncio.sleep(0)
    client.uses.end("t")
    with pytest.raises(TokenEnded):
        await reading


async def test_a_client_that_sends_nothing_is_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload_body, "_SILENCE", 0.01)
    client = Client(piece(b"ab"))
    body = UploadBody(client.request)
    assert await body.read() == b"ab"
    with pytest.raises(BodyTooSlow):
        await body.read()
    assert client.messages.empty()  # the reader has left: what comes now is not lost to it
    client.messages.put_nowait(piece(b"c", more=False))
    assert (await client.request.receive())["body"] == b"c"


async def test_a_client_that_sends_too_little_is_too_slow_and_one_that_waits_for_the_hub_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upload_body, "_WINDOW", 0.05)
    client = Client()
    body = UploadBody(client.request)

    async def read(size: int, *, after: float) -> bytes:
        asyncio.get_running_loop().call_later(after, client.messages.put_nowait, piece(b"x" * size))
        return await body.read()

    for _ in range(3):
        await read(upload_body._PROGRESS, after=0.03)
    for _ in range(3):
        await read(1, after=0.0)
        await asyncio.sleep(0.03)  # the disk is slow
    with pytest.raises(BodyTooSlow):
        for _ in range(10):
            await read(1, after=0.02)


# --- downloads


async def pieces(*content: bytes, error: Exception | None = None) -> AsyncGenerator[bytes, None]:
    for one in content:
        yield one
    if error is not None:
        raise error


async def test_content_is_sent_piece_by_piece() -> None:
    client = Client()
    await send_content(client.request, 206, [(b"content-length", b"3")], pieces(b"a", b"b", b"c"))
    assert client.sent[0] == {"type": "http.response.start", "status": 206, "headers": [(b"content-length", b"3")]}
    assert (client.body, client.whole) == (b"abc", True)


async def test_no_content_is_an_answer_too() -> None:
    client = Client()
    await send_content(client.request, 200, [], pieces())
    assert (client.body, client.whole) == (b"", True)


async def test_no_more_is_read_than_a_slow_client_takes() -> None:
    client, read = Client(), 0
    client.takes.clear()

    async def counted() -> AsyncGenerator[bytes, None]:
        nonlocal read
        for _ in range(100):
            read += 1
            yield b"x"

    sending = asyncio.create_task(send_content(client.request, 200, [], counted()))
    for _ in range(20):
        await asyncio.sleep(0)
    assert read == 2
    client.takes.set()
    await sending
    assert (len(client.body), client.whole) == (100, True)


@pytest.mark.parametrize("end", ["its token ends", "it disconnects"])
async def test_a_download_ends_with_its_client(end: str) -> None:
    client, closed = Client(), asyncio.Event()
    client.takes.clear()

    async def watched() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield b"x"
        finally:
            closed.set()

    sending = asyncio.create_task(send_content(client.request, 200, [], content := watched()))
    for _ in range(5):
        await asyncio.sleep(0)
    if end == "its token ends":
        client.uses.end("t")
    else:
        client.messages.put_nowait(GONE)
    await asyncio.wait_for(sending, 1)
    assert closed.is_set() and content.ag_frame is None  # its file is not held
    client.takes.set()
    await asyncio.sleep(0)
    assert not client.whole


async def test_a_file_that_is_lost_on_the_way_leaves_its_answer_without_an_end(caplog: pytest.LogCaptureFixture) -> None:
    client = Client()
    await send_content(client.request, 200, [], pieces(b"x", error=FileLost()))
    assert not client.whole and "broken off" in caplog.text
    with pytest.raises(FileLost):
        await send_content(Client().request, 200, [], pieces(error=FileLost()))
