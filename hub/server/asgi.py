"""The ASGI types that the hot path uses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, NamedTuple, Protocol

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]
"""Frameworks type these three arguments differently."""
Headers = Iterable[tuple[bytes, bytes]]


class Refusal(NamedTuple):
    """The answer to a request that cannot be served. `reason` is the label of the counter; empty: not counted."""

    status: int
    reason: str
    body: bytes
    headers: Headers


MAX_HEADERS = 200
"""Limit per request."""
JSON = b"application/json"
PROBLEM = b"application/problem+json"
STREAM = "rolecall.stream"
"""The ASGI extension with which the application writes an answer without a task: `scope["extensions"][STREAM]`."""


class Drainable(Protocol):
    def on_drain(self, callback: Callable[[], None]) -> None:
        """Calls once, when more may be written, or when the client has disconnected: soon, if that is so now."""


class WritableStream(Drainable, Protocol):
    """An answer that is written piece by piece, without a task."""

    def begin(self, head: Message) -> None:
        """Gives the answer's head, an `http.response.start`. It is sent with the first piece, or with the end."""

    def try_write(self, data: bytes) -> bool:
        """False: nothing was written, because the client has not taken enough of what was written before. After a disconnect
        it drops the data, as `send` does.
        """

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """Calls when the client disconnects: at once, if it has disconnected."""

    async def forget_callbacks(self) -> None:
        """Calls no callback of `on_disconnect` any more. Another reader may call `receive`."""

    async def end(self) -> None:
        """Ends the answer, behind what was written."""


class ServerStream(WritableStream, Protocol):
    """What the hub's own server offers."""

    @property
    def complete(self) -> bool:
        """The whole request has been received: reading its body needs no timeout."""

    def take_body(self) -> bytes | None:
        """The body of a `complete` request, once. None: the client has disconnected."""

    def answer(self, status: int, headers: Headers, body: bytes) -> None:
        """The whole answer. The server adds the Content-Length, and leaves the body out where HTTP has none."""


class SendStream:
    """The same through `receive` and `send`, for a server without the extension. One message is under way at a time, in a
    task; another task waits for the client's disconnect.
    """

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._head: Message | None = None
        self._sending: asyncio.Task[None] | None = None
        self._watch_task: asyncio.Task[None] | None = None
        self._callbacks: list[Callable[[], None]] = []

    def begin(self, head: Message) -> None:
        self._head = head

    def try_write(self, data: bytes) -> bool:
        """It raises what `send` has raised before."""
        if self._sending is not None:
            if not self._sending.done():
                return False
            self._sending.result()
        self._sending = asyncio.create_task(self._write(data, True), name="write of a stream")
        self._sending.add_done_callback(_retrieve)
        return True

    def on_drain(self, callback: Callable[[], None]) -> None:
        if self._sending is None or self._sending.done():
            asyncio.get_running_loop().call_soon(callback)
        else:
            self._sending.add_done_callback(lambda _: callback())

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        if self._watch_task is None:
            self._watch_task = asyncio.create_task(self._watch(), name="client of a stream")
            self._watch_task.add_done_callback(_retrieve)
        if self._watch_task.done():
            callback()
        else:
            self._callbacks.append(callback)

    async def forget_callbacks(self) -> None:
        self._callbacks = []
        if self._watch_task is not None:
            watch_task, self._watch_task = self._watch_task, None
            watch_task.cancel()
            await asyncio.wait([watch_task])

    async def end(self) -> None:
        if self._sending is not None:
            await self._sending
        await self._write(b"", False)

    async def _write(self, data: bytes, more: bool) -> None:
        if self._head is not None:
            head, self._head = self._head, None
            await self._send(head)
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def _watch(self) -> None:
        try:
            while (await self._receive())["type"] != "http.disconnect":
                pass
        finally:
            callbacks, self._callbacks = self._callbacks, []
            for callback in callbacks:
                callback()


def _retrieve(task: asyncio.Task[None]) -> None:
    """An error after which nobody writes or reads is the client's disconnect, and nobody's news."""
    if not task.cancelled():
        task.exception()


async def drained(stream: Drainable) -> None:
    """Returns when `try_write` may be tried again."""
    future = asyncio.get_running_loop().create_future()

    def tell() -> None:
        if not future.done():
            future.set_result(None)

    stream.on_drain(tell)
    await future


def with_send_timeout(app: App, patience: float) -> App:
    """For a server whose `send` waits without limit for a slow client: `send` raises TimeoutError after `patience` seconds."""

    async def app_with_timeout(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_timeout(message: Message) -> None:
            async with asyncio.timeout(patience):
                await send(message)

        await app(scope, receive, send_with_timeout if scope["type"] == "http" else send)

    return app_with_timeout
