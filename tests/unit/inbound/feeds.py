"""A reader of the feeds of a whole application, without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from quart import Quart

from hub.server.asgi import Message, Scope

LOCAL = ("127.0.0.1", 8420)


async def read_pieces(
    app: Quart,
    path: str,
    query: str = "",
    header: str | None = None,
    *,
    frames: int,
    takes: Callable[[], Awaitable[None]] | None = None,
) -> Sequence[bytes]:
    """What is sent until there are so many frames with data, by the pieces in which it is sent. `takes`: returns when the
    client takes another piece.
    """
    pieces: list[bytes] = []
    headers = [(b"host", b"localhost"), *([(b"last-event-id", header.encode())] if header is not None else [])]
    address = {"path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": ""}
    scope: Scope = {"type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "headers": headers, **address}
    scope |= {"client": LOCAL, "server": LOCAL}
    unread: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]
    closed = asyncio.Event()
    untyped: Any = app

    async def receive() -> Message:
        if unread:
            return unread.pop()
        await closed.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message.get("body"):
            pieces.append(message["body"])
            if takes is not None:
                await takes()
        if sum(piece.count(b"data: ") for piece in pieces) >= frames:
            closed.set()

    async with asyncio.timeout(10):
        await untyped.asgi_app(scope, receive, send)
    return pieces


async def read_feed(app: Quart, path: str, query: str, header: str | None, frames: int) -> list[list[bytes]]:
    """The first frames with data, by the pieces in which they are sent."""
    pieces = await read_pieces(app, path, query, header, frames=frames)
    found = [[frame for frame in piece.split(b"\n\n") if b"data: " in frame] for piece in pieces]
    return [frames_of_piece for frames_of_piece in found if frames_of_piece]
