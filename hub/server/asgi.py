"""The few shapes of ASGI that the hot path uses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, NamedTuple

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]
"""Each framework types these three for itself."""
Headers = Iterable[tuple[bytes, bytes]]


class Refusal(NamedTuple):
    """The answer to what cannot be served. `reason`: what it is counted under; empty: not at all."""

    status: int
    reason: str
    body: bytes
    headers: Headers


MOST_HEADERS = 200
"""That a request may have."""
JSON = b"application/json"
PROBLEM = b"application/problem+json"
ON_DISCONNECT = "rolecall.leaving"
"""In the scope of a server that can tell: calls what it is given when the caller has left. At once, if he has."""
BODY_COMPLETE = "rolecall.whole"
"""Set in a scope by a server that has all of the body already: nobody need look at the clock while he reads it."""


def with_send_timeout(app: App, patience: float) -> App:
    """For a server that waits for ever until a caller takes what is written to him: TimeoutError out of send."""

    async def timed(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(patience):
                await send(message)

        await app(scope, receive, send_in_time if scope["type"] == "http" else send)

    return timed
