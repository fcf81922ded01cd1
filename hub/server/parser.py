"""Bytes of one connection to requests. A parser in C reads; what can be read in more than one way is no request."""

from __future__ import annotations

from typing import Any, NoReturn, Protocol
from urllib.parse import unquote

import httptools

from hub.server.asgi import MOST_HEADERS, Scope
from hub.server.cycle import RequestCycle
from rolecall.errors import CodingUnknown, HeadEndless, HeadTooLarge, HubError, InvalidRequest

_UNREADABLE = InvalidRequest("This is no request that can be read in one way only.")

_MOST_KEPT = MOST_HEADERS + 56
"""Headers of one request. The application refuses fewer, and says it better."""


class OnRequest(Protocol):
    def __call__(self, scope: Scope, *, keeps: bool, expects: bool) -> RequestCycle: ...


class RequestParser:
    """`asked` is called for every request as soon as its head is whole. `ends`: the caller's address, and ours. `most_head`:
    bytes of a head, or of trailers.
    """

    def __init__(self, asked: OnRequest, peers: tuple[Any, Any], *, max_head: int) -> None:
        self.in_head = False
        self.reading: RequestCycle | None = None
        """Whose body is on its way."""
        self._asked = asked
        self._ends = peers
        self._most_head = max_head
        self._parser: Any = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._since = 0
        """Bytes since a request began, or since there was something of its body."""
        self._wrong: HubError | None = None

    def feed(self, data: bytes) -> HubError | None:
        """Why this cannot be read, nor anything after it. A head, or trailers, that never end are seen here: the parser
        tells of a header when it is whole.
        """
        try:
            self._feed(data)
        except httptools.HttpParserError:
            return self._wrong or _UNREADABLE
        if self.in_head or self.reading is not None:
            self._since += len(data)
            if self._since > self._most_head:
                return HeadEndless(self._most_head)
        return None

    def end(self) -> None:
        self._parser = self.reading = None

    # --- the parser's callbacks

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = []
        self._since = 0
        self.in_head = True

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.in_head:  # else it is a trailer: who may do what has been looked at without it
            if len(self._headers) == _MOST_KEPT:
                self._stop(HeadTooLarge(MOST_HEADERS, self._most_head // 2))
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._parser.should_upgrade():
            return  # see _feed
        self.in_head = False
        version = self._parser.get_http_version()
        expects = self._check(version)
        scope = self._scope(version)
        self.reading = self._asked(scope, keeps=self._parser.should_keep_alive(), expects=expects)

    def on_body(self, body: bytes) -> None:
        self._since = 0
        if self.reading is not None and not self.reading.gone:
            self.reading.take(body)

    def on_message_complete(self) -> None:
        if self.reading is not None:
            self.reading.finish()
            self.reading = None

    # --- pieces

    def _feed(self, data: bytes) -> None:
        while True:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                # Nobody has to take such an offer, and we do not: the request is read as if it had not been made.
                (end,) = upgrade.args
                method = self._parser.get_method()
                if method == b"CONNECT":
                    raise httptools.HttpParserError from upgrade
                kept = b"".join(b"%b: %b\r\n" % (name, value) for name, value in self._headers if name != b"upgrade")
                version = self._parser.get_http_version().encode()
                data = b"%b %b HTTP/%b\r\n%b\r\n%b" % (method, self._url, version, kept, data[end:])
                self._parser = httptools.HttpRequestParser(self)

    def _check(self, version: str) -> bool:
        """Whether he waits to be told to go on."""
        hosts = codings = 0
        expects = False
        for name, value in self._headers:
            if name == b"host":
                hosts += 1
            elif name == b"transfer-encoding":
                codings += 1
                if value.strip().lower() != b"chunked":
                    self._stop(CodingUnknown())
            elif name == b"expect":
                expects = value.strip().lower() == b"100-continue"
        if version == "1.1":
            if hosts != 1 or codings > 1:
                self._stop()
            return expects
        if version != "1.0" or hosts > 1 or codings:
            self._stop()
        return False

    def _scope(self, version: str) -> Scope:
        method = self._parser.get_method().decode("ascii")
        raw, _, query = self._target(method).partition(b"?")
        path = raw.decode("ascii", "replace")
        client, server = self._ends
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "method": method,
            "scheme": "http",
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw,
            "query_string": query,
            "root_path": "",
            "headers": self._headers,
            "client": client,
            "server": server,
            "extensions": {},
            "state": {},
        }

    def _target(self, method: str) -> bytes:
        """Path and query. What a whole address says of the host holds, not the header."""
        url = self._url
        if b"#" in url:
            self._stop()
        if url.startswith(b"/") or (url == b"*" and method == "OPTIONS"):
            return url
        scheme, _, rest = url.partition(b"://")
        host, slash, path = rest.partition(b"/")
        if scheme.lower() not in (b"http", b"https") or not host or b"?" in host:
            self._stop()
        self._headers = [(name, host if name == b"host" else value) for name, value in self._headers]
        return slash + path or b"/"

    def _stop(self, error: HubError = _UNREADABLE) -> NoReturn:
        """Out of a callback; the parser then refuses to go on."""
        self._wrong = error
        raise ValueError
