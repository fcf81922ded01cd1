"""One caller's connection: HTTP/1.1 in, one request after the other to the application.

A parser in C reads; what it cannot read in one way only is refused, and the line closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any, Protocol, cast
from urllib.parse import unquote

import httptools

from hub.errors import CodingUnknown, HeadEndless, HubError, InvalidRequest
from hub.web.asgi import WHOLE, App, Scope
from hub.web.exchange import MOST_UNREAD, Exchange, whole_answer
from hub.wire.faults import fault_of
from hub.wire.problem import problem_body

log = logging.getLogger(__name__)

NEVER = float("inf")
_MOST_HEAD = 64 * 1024
_MOST_WAITING = 16
"""Requests that are here before the one before them is answered."""
_MOST_UNSENT = 32 * 1024
"""Bytes of an answer that the caller has not taken; then whoever writes it waits."""
_LAST_WORDS = 1.0
"""Seconds for what is still coming after a refusal: a line that is closed with unread bytes is reset, and its answer lost."""
_UNREADABLE = InvalidRequest("This is no request that can be read in one way only.")


class House(Protocol):
    """Who has opened the line. Times in seconds."""

    app: App
    head_within: float
    idle_for: float
    patience: float

    def opened(self, line: Line) -> HubError | None:
        """The error why there is no room for it."""

    def closed(self, line: Line) -> None: ...


class Line(asyncio.Protocol):
    def __init__(self, house: House, loop: asyncio.AbstractEventLoop) -> None:
        self.due = NEVER
        """When the caller has kept us waiting for too long. The house looks now and then."""
        self.closing = False
        self.task: asyncio.Task[None] | None = None
        self._house = house
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser: Any = None
        self._waiting: deque[Exchange] = deque()
        self._serving: Exchange | None = None
        self._reading: Exchange | None = None
        self._next: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._full = False
        self._client: Any = None
        self._server: Any = None
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_size = 0
        self._in_head = False
        self._wrong: Exception | None = None
        self._deaf = False

    # --- the house's side

    def expire(self) -> None:
        """The caller has had his time."""
        if self._transport is not None and self._transport.is_closing():
            self._transport.abort()  # he does not even take what is left for him
        else:
            self._leave()

    def close(self) -> None:
        """No further request. What has been asked is answered."""
        self.closing = True
        if self._serving is None and not self._waiting and not self._deaf:
            self._leave()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # --- the exchange's side

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    async def drained(self) -> None:
        if not self._full:
            return
        self._room = self._loop.create_future()
        try:
            async with asyncio.timeout(self._house.patience):
                await self._room
        except TimeoutError:
            log.info("line cut", extra={"event": "line_cut", "why": "its other end took nothing for too long"})
            self.abort()
            raise
        finally:
            self._room = None

    def want_more(self) -> None:
        if self._transport is not None and not self._transport.is_reading() and len(self._waiting) < _MOST_WAITING:
            self._transport.resume_reading()

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_MOST_UNSENT)
        self._client = transport.get_extra_info("peername")
        self._server = transport.get_extra_info("sockname")
        self._parser = httptools.HttpRequestParser(self)
        self.due = self._loop.time() + self._house.head_within
        full = self._house.opened(self)
        if full is not None:
            self._refuse(full)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        knew_head = self._in_head
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self._misread(self._wrong or _UNREADABLE)
        if self._in_head and not knew_head and self._serving is None and not self._waiting:
            self.due = self._loop.time() + self._house.head_within

    def eof_received(self) -> bool:
        """A caller who has said all may still be listening; only one whom nobody answers is let go."""
        self.closing = True
        if self._reading is not None and not self._reading.complete:
            self._reading.leave()
            return False
        return self._serving is not None

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._house.closed(self)
        self.closing, self.due = True, NEVER
        # The parser holds this object's methods: without this the pair would wait for the cycle collector.
        self._parser = self._transport = None
        self._waiting.clear()
        if self._serving is not None:
            self._serving.leave()
        self.resume_writing()
        self._wake()

    # --- the parser's callbacks

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = []
        self._head_size = 0
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._grow(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))
        self._grow(len(name) + len(value) + 4)

    def on_headers_complete(self) -> None:
        if self._parser.should_upgrade():
            return  # see _feed
        self._in_head = expects = False
        hosts = 0
        for name, value in self._headers:
            if name == b"host":
                hosts += 1
            elif name == b"transfer-encoding" and value.strip().lower() != b"chunked":
                self._stop(CodingUnknown())
            elif name == b"expect":
                expects = value.strip().lower() == b"100-continue"
        version = self._parser.get_http_version()
        if hosts > 1 or (not hosts and version == "1.1"):
            self._stop(_UNREADABLE)
        keeps = self._parser.should_keep_alive() and not self.closing
        self._reading = Exchange(self, self._loop, self._scope(version), keeps=keeps, expects=expects)
        self._waiting.append(self._reading)
        self.due = NEVER
        if self.task is None:
            self.task = self._loop.create_task(self._serve(), name="line")
        else:
            self._wake()

    def on_body(self, body: bytes) -> None:
        exchange = self._reading
        if exchange is not None and not exchange.gone:
            exchange.take(body)
            if exchange.unread > MOST_UNREAD and self._transport is not None:
                self._transport.pause_reading()

    def on_message_complete(self) -> None:
        if self._reading is not None:
            self._reading.finish()
            self._reading = None

    # --- pieces

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # Nobody has to take such an offer, and we do not: the request is read as if it had not been made.
            (end,) = upgrade.args
            method = self._parser.get_method()
            if method == b"CONNECT":
                raise httptools.HttpParserError from upgrade
            kept = b"".join(b"%b: %b\r\n" % (name, value) for name, value in self._headers if name != b"upgrade")
            head = b"%b %b HTTP/1.1\r\n%b\r\n" % (method, self._url, kept)
            self._parser = httptools.HttpRequestParser(self)
            self._feed(head + data[end:])
        if len(self._waiting) >= _MOST_WAITING and self._transport is not None:
            self._transport.pause_reading()

    def _scope(self, version: str) -> Scope:
        url = self._url
        if not url.startswith(b"/") and url != b"*":
            parsed = httptools.parse_url(url)
            url = (parsed.path or b"/") + (b"?" + parsed.query if parsed.query else b"")
        raw, _, query = url.partition(b"?")
        path = raw.decode("ascii", "replace")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "method": self._parser.get_method().decode("ascii"),
            "scheme": "http",
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw,
            "query_string": query,
            "root_path": "",
            "headers": self._headers,
            "client": self._client,
            "server": self._server,
            "extensions": {},
            "state": {},
        }

    def _grow(self, size: int) -> None:
        self._head_size += size
        if self._head_size > _MOST_HEAD:
            self._stop(HeadEndless(_MOST_HEAD))

    def _stop(self, error: HubError) -> None:
        """Out of a callback; the parser then refuses to go on."""
        self._wrong = error
        raise ValueError

    def _misread(self, error: Exception) -> None:
        """What came before it is answered as it would have been."""
        self.closing = self._deaf = True
        if self._reading is not None:
            self._reading.leave()  # its body will never be whole
        if self._serving is None and not self._waiting:
            self._refuse(error)
        elif self._reading is not None:
            self._wrong = error
        else:
            self._wrong = None

    def _refuse(self, error: Exception) -> None:
        """The last words on this line."""
        self.closing = self._deaf = True
        if self._transport is None:
            return
        fault = fault_of(error)
        wait = getattr(error, "retry_after", None)
        headers = [(b"retry-after", b"%d" % wait)] if wait else []
        self._transport.write(whole_answer(fault.status, problem_body(fault), headers))
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self.due = self._loop.time() + _LAST_WORDS

    async def _serve(self) -> None:
        """One request after the other, until there will be none."""
        while await self._another():
            exchange = self._serving = self._waiting.popleft()
            exchange.scope[WHOLE] = exchange.complete
            try:
                await self._house.app(exchange.scope, exchange.receive, exchange.send)
            except Exception as error:
                log.exception("request failed", extra={"event": "request_failed", "path": exchange.scope["path"][:200]})
                self._wrong = error
            self._serving = None
            self._settle(exchange)

    async def _another(self) -> bool:
        while not self._waiting:
            if self.closing:
                if not self._deaf:
                    self._leave()
                return False
            self.due = self._loop.time() + (self._house.head_within if self._in_head else self._house.idle_for)
            self._next = self._loop.create_future()
            try:
                await self._next
            finally:
                self._next = None
        return True

    def _settle(self, exchange: Exchange) -> None:
        """After an answer: is the line good for another?"""
        if exchange.answered and exchange.keeps and exchange.complete:
            self.want_more()
            return
        self.closing = True
        self._waiting.clear()
        if exchange.answered or self._transport is None:
            return
        if exchange.begun:
            self._transport.abort()  # an answer that was cut has to look cut
        elif self._wrong is not None:
            self._refuse(self._wrong)
        else:
            self._leave()

    def _leave(self) -> None:
        self.closing = True
        if self._transport is not None:
            self.due = self._loop.time() + self._house.patience
            self._transport.close()

    def _wake(self) -> None:
        if self._next is not None and not self._next.done():
            self._next.set_result(None)
