"""Sends content from the disk piece by piece, no faster than its client takes it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from functools import partial

from hub.inbound.middleware.request import Request
from hub.server.asgi import Headers, WritableStream
from rolecall.errors import HubError

log = logging.getLogger(__name__)


async def send_content(request: Request, status: int, headers: Headers, pieces: AsyncGenerator[bytes, None]) -> None:
    """Returns early, so that the client sees that its answer is not whole: it has disconnected, its token has ended, or the
    content cannot be read to its end. An error before the first piece is raised.
    """
    stream = request.stream
    piece = await anext(pieces, b"")
    stream.begin({"type": "http.response.start", "status": status, "headers": [*headers, *request.cors]})
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    request.on_token_end(partial(_settle, gone))
    stream.on_disconnect(partial(_settle, gone))
    try:
        while piece:
            while not gone.done() and not stream.try_write(piece):
                await _drained(stream, gone)
            if gone.done():
                return
            piece = await anext(pieces, b"")
        await stream.end()
    except TimeoutError:
        pass  # the client took no data for too long
    except HubError as error:
        log.warning("a download was broken off", extra={"event": "download_broken", "why": type(error).__name__})
    finally:
        await pieces.aclose()
        await stream.forget_callbacks()


async def _drained(stream: WritableStream, gone: asyncio.Future[None]) -> None:
    """Returns when more may be written, or nobody is to get more."""
    drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    stream.on_drain(partial(_settle, drained))
    await asyncio.wait({drained, gone}, return_when=asyncio.FIRST_COMPLETED)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
