"""One request as the hub's own dispatchers see it: ASGI's three arguments, with what is asked of them again and again."""

from __future__ import annotations

import asyncio

from hub.core.hub import OnDisconnect
from hub.server.asgi import BODY_COMPLETE, JSON, ON_DISCONNECT, Headers, Receive, Scope, Send
from rolecall.errors import BodyTooLarge, BodyTooSlow, ClientGone, MediaTypeNotSupported
from rolecall.model.principal import Principal

_JSON_TYPES = frozenset({JSON, b"application/json-rpc", b"application/a2a+json"})
_BODY_TIMEOUT = 10.0
_LINGER, _LINGER_BYTES = 1.0, 8 * 1024 * 1024


class Request:
    """`heads`: the headers by name, the first of each. ASGI servers hand names over in lower case. `who`: asks, as far as the
    gate found out.
    """

    __slots__ = ("headers", "method", "path", "receive", "scope", "send", "who")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.path: str = scope["path"]
        self.method: str = scope["method"]
        self.headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        self.who: Principal | None = None

    @property
    def on_disconnect(self) -> OnDisconnect | None:
        """None where the server cannot tell that the caller has left."""
        found: OnDisconnect | None = self.scope.get(ON_DISCONNECT)
        return found

    # --- what is asked

    def check_length(self, limit: int) -> None:
        """BodyTooLarge if the head says so already."""
        length = self.headers.get(b"content-length")
        if length is not None and (not length.isdigit() or int(length) > limit):
            raise BodyTooLarge(limit)

    async def json(self, limit: int) -> bytes:
        """The body of a JSON request; refused by its headers before it is read, wherever they tell enough."""
        self.check_length(limit)
        said = self.headers
        if said.get(b"content-encoding", b"identity").strip().lower() != b"identity":
            raise MediaTypeNotSupported
        media = said.get(b"content-type", b"")
        if media != JSON and media.partition(b";")[0].strip().lower() not in _JSON_TYPES:
            raise MediaTypeNotSupported
        if self.scope.get(BODY_COMPLETE):
            return await self._body(limit)
        try:
            async with asyncio.timeout(_BODY_TIMEOUT):
                return await self._body(limit)
        except TimeoutError as error:
            raise BodyTooSlow from error

    async def _body(self, limit: int) -> bytes:
        message = await self.receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            return _within(message.get("body", b""), limit)
        body = bytearray()
        while message["type"] == "http.request":
            body += message.get("body", b"")
            if len(body) > limit:
                raise BodyTooLarge(limit)
            if not message.get("more_body", False):
                return bytes(body)
            message = await self.receive()
        raise ClientGone

    # --- what is answered

    async def answer(self, body: bytes, *, status: int = 200, media: bytes = JSON, headers: Headers = ()) -> None:
        head = [(b"content-type", media), (b"content-length", b"%d" % len(body)), *headers]
        await self.send({"type": "http.response.start", "status": status, "headers": head})
        await self.send({"type": "http.response.body", "body": body})

    async def answer_unread(self, body: bytes, *, status: int, media: bytes = JSON, headers: Headers = ()) -> None:
        """An answer to a request whose body was not read. What is still coming is read and thrown away for a moment: a
        connection that is closed with unread bytes is reset, and the answer would be lost with it.
        """
        head = [(b"content-type", media), (b"content-length", b"%d" % len(body)), (b"connection", b"close"), *headers]
        await self.send({"type": "http.response.start", "status": status, "headers": head})
        await self.send({"type": "http.response.body", "body": body, "more_body": True})
        left = _LINGER_BYTES
        try:
            async with asyncio.timeout(_LINGER):
                while left > 0:
                    message = await self.receive()
                    if message["type"] != "http.request" or not message.get("more_body", False):
                        break
                    left -= len(message.get("body", b""))
        except TimeoutError:
            pass
        await self.send({"type": "http.response.body", "body": b"", "more_body": False})


def _within(body: bytes, limit: int) -> bytes:
    if len(body) > limit:
        raise BodyTooLarge(limit)
    return body
