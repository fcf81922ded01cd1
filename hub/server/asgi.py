"""The ASGI types that the hot path uses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, NamedTuple

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
ON_DISCONNECT = "rolecall.leaving"
"""Scope key of a function that registers a callback for the client's disconnect; called at once if it has disconnected.
Only servers that notice a disconnect set it.
"""
BODY_COMPLETE = "rolecall.whole"
"""Scope key that a server sets when it has received the whole body: reading it needs no timeout."""


def with_send_timeout(app: App, patience: float) -> App:
    """For a server whose `send` waits without limit for a slow client: `send` raises TimeoutError after `patience` seconds."""

    async def app_with_timeout(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_timeout(message: Message) -> None:
            async with asyncio.timeout(patience):
                await send(message)

        await app(scope, receive, send_with_timeout if scope["type"] == "http" else send)

    return app_with_timeout
