"""The few shapes of ASGI that the hot path uses, and whole answers in one go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from hub.errors import BodyTooLarge, BodyTooSlow, ClientGone, MediaTypeNotSupported, RouteError

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
_JSON_TYPES = frozenset({JSON, b"application/json-rpc", b"application/a2a+json"})
_BODY_TIMEOUT = 10.0
_LINGER, _LINGER_BYTES = 1.0, 8 * 1024 * 1024


def patient(app: App, patience: float) -> App:
    """For a server that waits for ever until a caller takes what is written to him: TimeoutError out of send."""

    async def timed(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(patience):
                await send(message)

        await app(scope, receive, send_in_time if scope["type"] == "http" else send)

    return timed


_HEADS = "rolecall.headers"
LEAVING = "rolecall.leaving"
"""In the scope of a server that can tell: calls what it is given when the caller has left. At once, if he has."""
WHOLE = "rolecall.whole"
"""Set in a scope by a server that has all of the body already: nobody need look at the clock while he reads it."""


def heads(scope: Scope) -> dict[bytes, bytes]:
    """The headers by name, the first of each. ASGI servers hand names over in lower case."""
    found: dict[bytes, bytes] | None = scope.get(_HEADS)
    if found is None:
        found = scope[_HEADS] = dict(reversed(scope["headers"]))
    return found


def header(scope: Scope, name: bytes) -> bytes | None:
    return heads(scope).get(name)


def when_again(error: BaseException) -> Headers:
    """The header that tells when to try again, where an error says so."""
    wait = error.retry_after if isinstance(error, RouteError) else None
    return [(b"retry-after", b"%d" % max(1, round(wait)))] if wait is not None else ()


def check_length(scope: Scope, limit: int) -> None:
    """BodyTooLarge if the head says so already."""
    length = header(scope, b"content-length")
    if length is not None and (not length.isdigit() or int(length) > limit):
        raise BodyTooLarge(limit)


async def read_json_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The body of a JSON request; refused by its headers before it is read, wherever they tell enough."""
    check_length(scope, limit)
    said = heads(scope)
    media = said.get(b"content-type", b"")
    if said.get(b"content-encoding", b"identity").strip().lower() != b"identity":
        raise MediaTypeNotSupported
    if media != JSON and media.partition(b";")[0].strip().lower() not in _JSON_TYPES:
        raise MediaTypeNotSupported
    if scope.get(WHOLE):
        return await _read_body(receive, limit)
    try:
        async with asyncio.timeout(_BODY_TIMEOUT):
            return await _read_body(receive, limit)
    except TimeoutError as error:
        raise BodyTooSlow from error


async def _read_body(receive: Receive, limit: int) -> bytes:
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body", False):
        return _within(message.get("body", b""), limit)
    body = bytearray()
    while message["type"] == "http.request":
        body += message.get("body", b"")
        if len(body) > limit:
            raise BodyTooLarge(limit)
        if not message.get("more_body", False):
            return bytes(body)
        message = await receive()
    raise ClientGone


def _within(body: bytes, limit: int) -> bytes:
    if len(body) > limit:
        raise BodyTooLarge(limit)
    return body


async def answer(send: Send, body: bytes, *, status: int = 200, media: bytes = JSON, headers: Headers = ()) -> None:
    head = [(b"content-type", media), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def answer_unread(
    send: Send, receive: Receive, body: bytes, *, status: int, media: bytes = JSON, headers: Headers = ()
) -> None:
    """An answer to a request whose body was not read. What is still coming is read and thrown away for a moment: a
    connection that is closed with unread bytes is reset, and the answer would be lost with it.
    """
    head = [(b"content-type", media), (b"content-length", b"%d" % len(body)), (b"connection", b"close"), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    left = _LINGER_BYTES
    try:
        async with asyncio.timeout(_LINGER):
            while left > 0:
                message = await receive()
                if message["type"] != "http.request" or not message.get("more_body", False):
                    break
                left -= len(message.get("body", b""))
    except TimeoutError:
        pass
    await send({"type": "http.response.body", "body": b"", "more_body": False})
