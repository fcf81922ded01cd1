"""The few shapes of ASGI that the hot path uses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from hub.errors import RouteError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]
"""Each framework types these three for itself."""
Headers = Iterable[tuple[bytes, bytes]]

MOST_HEADERS = 200
"""That a request may have."""
JSON = b"application/json"
PROBLEM = b"application/problem+json"
LEAVING = "rolecall.leaving"
"""In the scope of a server that can tell: calls what it is given when the caller has left. At once, if he has."""
WHOLE = "rolecall.whole"
"""Set in a scope by a server that has all of the body already: nobody need look at the clock while he reads it."""


def patient(app: App, patience: float) -> App:
    """For a server that waits for ever until a caller takes what is written to him: TimeoutError out of send."""

    async def timed(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(patience):
                await send(message)

        await app(scope, receive, send_in_time if scope["type"] == "http" else send)

    return timed


def when_again(error: BaseException) -> Headers:
    """The header that tells when to try again, where an error says so."""
    wait = error.retry_after if isinstance(error, RouteError) else None
    return [(b"retry-after", b"%d" % max(1, round(wait)))] if wait is not None else ()
