"""One request as the hub's own dispatchers see it: ASGI's three arguments and common operations on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hub.core.shares.share import SMALL
from hub.core.tasks.reader import OnDisconnect
from hub.core.token_watch import OpenUses
from hub.server.asgi import JSON, STREAM, Headers, Receive, Scope, Send, SendStream, ServerStream, WritableStream
from rolecall.errors import BodyTooLarge, BodyTooSlow, ClientDisconnected, MediaTypeNotSupported, TokenEnded
from rolecall.model.principal import Principal

_JSON_TYPES = frozenset({JSON, b"application/json-rpc", b"application/a2a+json"})
_BODY_TIMEOUT, _SLOWEST = 10.0, 256 * 1024
"""Seconds for any body, and bytes a second for a large one beyond them."""
_MAX_DIGITS = 20
_PIECE = 64 * 1024
_DISCARD_TIMEOUT, _DISCARD_LIMIT = 1.0, 64 * 1024 * 1024


class Request:
    """`headers`: by lower-case name, the first of each. `principal`: set by the Authenticator. `cors`: headers that every
    answer has, where the request comes from a page of an allowed origin. `uses`: where a request that stays open is found by
    its token; None: tokens do not end.
    """

    __slots__ = (
        "_on_end",
        "_server_stream",
        "_uses",
        "cors",
        "headers",
        "method",
        "path",
        "principal",
        "receive",
        "scope",
        "send",
        "token_ended",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send, uses: OpenUses | None = None) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.path: str = scope["path"]
        self.method: str = scope["method"]
        self.headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        self.principal: Principal | None = None
        self.cors: Headers = ()
        self.token_ended = False
        self._uses = uses
        self._on_end: list[Callable[[], object]] | None = None
        self._server_stream: ServerStream | None = (scope.get("extensions") or {}).get(STREAM)
        """Only the hub's own server has it."""

    @property
    def on_disconnect(self) -> OnDisconnect | None:
        """A caller whose token ends counts as one that disconnects. None where neither is reported."""
        return self._on_gone if self._server_stream is not None or self._token else None

    @property
    def stream(self) -> WritableStream:
        """For an answer that is written piece by piece. Ask for it once."""
        return self._server_stream or SendStream(self.receive, self.send)

    # --- the caller that goes

    def on_token_end(self, callback: Callable[[], object]) -> None:
        """Calls when the token is revoked or expires, while the request is open."""
        if self._on_end is not None:
            self._on_end.append(callback)
        elif self._uses is not None and (token := self._token):
            self._on_end = [callback]
            self._uses.add(token, self._end_token)

    def gone(self) -> Exception:
        """Why nobody waits for the answer any more."""
        return TokenEnded() if self.token_ended else ClientDisconnected()

    def close(self) -> None:
        """The request is over."""
        if self._on_end is not None and self._uses is not None and self.principal is not None:
            self._uses.remove(self.principal.token, self._end_token)
            self._on_end = None  # breaks a reference cycle

    @property
    def _token(self) -> str:
        return self.principal.token if self.principal is not None and self._uses is not None else ""

    def _on_gone(self, callback: Callable[[], None]) -> None:
        self.on_token_end(callback)
        if self._server_stream is not None:
            self._server_stream.on_disconnect(callback)

    def _end_token(self) -> None:
        self.token_ended = True
        for callback in self._on_end or ():
            callback()

    # --- the request

    def body_memory(self, limit: int) -> int:
        """What its body may take in memory; 0: so little that it is not counted, or too much to be read at all."""
        length = self.headers.get(b"content-length")
        if length is None:
            return limit if b"transfer-encoding" in self.headers else 0
        size = int(length) if length.isdigit() and len(length) < _MAX_DIGITS else 0
        return size if SMALL < size <= limit else 0

    def check_length(self, limit: int) -> None:
        """BodyTooLarge if the Content-Length is invalid or above `limit`."""
        length = self.headers.get(b"content-length")
        if length is not None and (not length.isdigit() or int(length) > limit):
            raise BodyTooLarge(limit)

    async def json(self, limit: int) -> bytes:
        """The body of a JSON request; refused before it is read where its headers suffice. BodyTooLarge, BodyTooSlow,
        MediaTypeNotSupported, ClientDisconnected.
        """
        headers = self.headers
        if headers.get(b"content-encoding", b"identity").strip().lower() != b"identity":
            raise MediaTypeNotSupported
        media = headers.get(b"content-type", b"")
        if media != JSON and media.partition(b";")[0].strip().lower() not in _JSON_TYPES:
            raise MediaTypeNotSupported
        stream = self._server_stream
        if stream is not None and stream.complete:
            body = stream.take_body()
            if body is None:
                raise ClientDisconnected
            if len(body) > limit:
                raise BodyTooLarge(limit)
            return body
        self.check_length(limit)
        try:
            async with asyncio.timeout(_BODY_TIMEOUT + self.body_memory(limit) / _SLOWEST):
                return await self._body(limit)
        except TimeoutError as error:
            raise BodyTooSlow from error

    async def _body(self, limit: int) -> bytes:
        message = await self.receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            whole: bytes = message.get("body", b"")
            if len(whole) > limit:
                raise BodyTooLarge(limit)
            return whole
        body = bytearray()
        while message["type"] == "http.request":
            body += message.get("body", b"")
            if len(body) > limit:
                raise BodyTooLarge(limit)
            if not message.get("more_body", False):
                return bytes(body)
            message = await self.receive()
        raise ClientDisconnected

    # --- the answer

    async def answer(self, body: bytes, *, status: int = 200, media: bytes = JSON, headers: Headers = ()) -> None:
        if self._server_stream is not None:
            self._server_stream.answer(status, [(b"content-type", media), *headers, *self.cors], body)
            return
        head = [(b"content-type", media), (b"content-length", b"%d" % len(body)), *headers, *self.cors]
        await self.send({"type": "http.response.start", "status": status, "headers": head})
        await self.send({"type": "http.response.body", "body": body})

    async def answer_in_pieces(self, body: bytes, *, headers: Headers = ()) -> None:
        """Returns when the client has taken nearly all of the body, or has disconnected. Until then only one copy exists."""
        head = [(b"content-type", JSON), (b"content-length", b"%d" % len(body)), *headers, *self.cors]
        await self.send({"type": "http.response.start", "status": 200, "headers": head})
        for at in range(0, len(body), _PIECE):
            await self.send({"type": "http.response.body", "body": body[at : at + _PIECE], "more_body": True})
        await self.send({"type": "http.response.body", "body": b"", "more_body": False})

    async def answer_unread(self, body: bytes, *, status: int, media: bytes = JSON, headers: Headers = ()) -> None:
        """Answers a request whose body was not read. The rest of the body is read and discarded for a moment: closing with
        unread bytes would reset the connection, and the answer would be lost.
        """
        about = [(b"content-type", media), (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
        head = [*about, *headers, *self.cors]
        await self.send({"type": "http.response.start", "status": status, "headers": head})
        await self.send({"type": "http.response.body", "body": body, "more_body": True})
        left = _DISCARD_LIMIT
        try:
            async with asyncio.timeout(_DISCARD_TIMEOUT):
                while left > 0:
                    message = await self.receive()
                    if message["type"] != "http.request" or not message.get("more_body", False):
                        break
                    left -= len(message.get("body", b""))
        except TimeoutError:
            pass
        await self.send({"type": "http.response.body", "body": b"", "more_body": False})
