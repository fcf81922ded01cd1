"""Parses the bytes of one connection into requests with httptools. Ambiguous input is refused."""

from __future__ import annotations

import re
from typing import Any, NoReturn, Protocol
from urllib.parse import unquote

import httptools

from hub.server.asgi import MAX_HEADERS, Scope
from hub.server.cycle import RequestCycle
from rolecall.errors import CodingUnknown, HeadEndless, HeadTooLarge, HubError, InvalidRequest

_UNREADABLE = InvalidRequest("The request is malformed or ambiguous. Format it as RFC 9112 requires.")

_MAX_HEADERS_READ = MAX_HEADERS + 56
"""Headers of one request. The application's limit is lower, and its error is better."""


class OnRequest(Protocol):
    def __call__(self, scope: Scope, *, keep_alive: bool, expects_continue: bool) -> RequestCycle: ...


class RequestParser:
    """Calls `on_request` when a request's head is complete. `peers`: the client's and our own address. `max_head`: bytes of a
    head or of trailers. `tls`: the extension of the same name, if the connection is secure.
    """

    def __init__(
        self, on_request: OnRequest, peers: tuple[Any, Any], *, max_head: int, tls: dict[str, Any] | None = None
    ) -> None:
        self.in_head = False
        self.reading: RequestCycle | None = None
        """The request whose body is being received."""
        self._on_request = on_request
        self._peers = peers
        self._tls = tls
        self._max_head = max_head
        self._parser: Any = None
        """None between two requests: most connections are idle, and each parser takes 1 KB."""
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._first_line = bytearray()
        """What was fed since the first line of a request began, as long as that may be incomplete."""
        self._input: bytes | bytearray = b""
        """That, and what is being fed."""
        self._begins_input = False
        """The next request with a complete first line begins where the input begins."""
        self._bytes_since_progress = 0
        """Bytes since the request began, or since the last bytes of its body."""
        self._error: HubError | None = None

    def feed(self, data: bytes) -> HubError | None:
        """Returns the error if the input cannot be parsed; nothing may be fed after that. Endless heads and trailers are
        detected here, because httptools reports a header only when it is complete.
        """
        if self._parser is None:
            self._parser = httptools.HttpRequestParser(self)
        if self._first_line:
            self._first_line += data
            self._input = self._first_line
        else:
            self._input = data
            self._begins_input = self.reading is None and not self.in_head
        try:
            self._feed(data)
        except httptools.HttpParserError:
            return self._error or _UNREADABLE
        if self.in_head and not self._headers:
            if not self._first_line:
                self._first_line += data
        elif self._first_line:
            self._first_line = bytearray()
        self._input = b""
        if self.in_head or self.reading is not None:
            self._bytes_since_progress += len(data)
            if self._bytes_since_progress > self._max_head:
                return HeadEndless(self._max_head)
        else:
            self._parser = None
        return None

    def close(self) -> None:
        self._parser = self.reading = None

    # --- httptools' callbacks

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = []
        self._bytes_since_progress = 0
        self.in_head = True

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.in_head:  # a trailer is ignored: the request was authorized without it
            if not self._headers:
                self._check_protocol(name + b":")
            elif len(self._headers) == _MAX_HEADERS_READ:
                self._fail(HeadTooLarge(MAX_HEADERS, self._max_head // 2))
            self._headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        if not self._headers:
            self._check_protocol(b"\r\n")
        if self._parser.should_upgrade():
            return  # see _feed
        self.in_head = False
        version = self._parser.get_http_version()
        expects_continue = self._check(version)
        scope = self._scope(version)
        self._url, self._headers = b"", []
        self.reading = self._on_request(scope, keep_alive=self._parser.should_keep_alive(), expects_continue=expects_continue)

    def on_body(self, body: bytes) -> None:
        self._bytes_since_progress = 0
        if self.reading is not None and not self.reading.disconnected:
            self.reading.add_body(body)

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
                # A server may ignore an upgrade, and this one does: the request is parsed again without that header.
                (end,) = upgrade.args
                method = self._parser.get_method()
                if method == b"CONNECT":
                    raise httptools.HttpParserError from upgrade
                kept = b"".join(b"%b: %b\r\n" % (name, value) for name, value in self._headers if name != b"upgrade")
                version = self._parser.get_http_version().encode()
                data = b"%b %b HTTP/%b\r\n%b\r\n%b" % (method, self._url, version, kept, data[end:])
                self._parser = httptools.HttpRequestParser(self)

    def _check_protocol(self, rest: bytes) -> None:
        """httptools takes RTSP and ICE for HTTP without saying so, so the first line is looked up in what was received. Where
        that does not begin with it, it is found by what it says and by what follows it.
        """
        if self._begins_input:
            self._begins_input = False
            if self._input.startswith(b" HTTP/", self._input.find(self._url) + len(self._url)):
                return
        if b" RTSP/" in self._input or b" ICE/" in self._input:
            method, url, rest = map(re.escape, (self._parser.get_method(), self._url, rest))
            if re.search(rb"%b +%b +(RTSP|ICE)/[0-9.]+\r\n%b" % (method, url, rest), self._input):
                self._fail()

    def _check(self, version: str) -> bool:
        """Whether the client waits for 100 Continue."""
        names = [name for name, _ in self._headers]
        host_count, coding_count = names.count(b"host"), names.count(b"transfer-encoding")
        expects_continue = False
        if coding_count or b"expect" in names:
            for name, value in self._headers:
                if name == b"transfer-encoding" and value.strip().lower() != b"chunked":
                    self._fail(CodingUnknown())
                elif name == b"expect":
                    expects_continue = value.strip().lower() == b"100-continue"
        if version == "1.1":
            if host_count != 1 or coding_count > 1:
                self._fail()
            return expects_continue
        if version != "1.0" or host_count > 1 or coding_count:
            self._fail()
        return False

    def _scope(self, version: str) -> Scope:
        method = self._parser.get_method().decode("ascii")
        raw, _, query = self._target(method).partition(b"?")
        path = raw.decode("ascii", "replace")
        client, server = self._peers
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "method": method,
            "scheme": "http" if self._tls is None else "https",
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw,
            "query_string": query,
            "root_path": "",
            "headers": self._headers,
            "client": client,
            "server": server,
            "extensions": {} if self._tls is None else {"tls": self._tls},
            "state": {},
        }

    def _target(self, method: str) -> bytes:
        """Path and query. The host of an absolute URL replaces the Host header (RFC 9112, 3.2.2)."""
        url = self._url
        if b"#" in url:
            self._fail()
        if url.startswith(b"/") or (url == b"*" and method == "OPTIONS"):
            return url
        scheme, _, rest = url.partition(b"://")
        host, slash, path = rest.partition(b"/")
        if scheme.lower() not in (b"http", b"https") or not host or b"?" in host:
            self._fail()
        self._headers = [(name, host if name == b"host" else value) for name, value in self._headers]
        return slash + path or b"/"

    def _fail(self, error: HubError = _UNREADABLE) -> NoReturn:
        """Raises out of a callback, so that httptools stops parsing."""
        self._error = error
        raise ValueError
