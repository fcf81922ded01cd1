"""A TCP server on loopback that plays a script: for answers that no correct server gives."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType


@dataclass
class Request:
    line: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Peer:
    """The server's end of one connection. `number` counts connections from 1."""

    number: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    requests: list[Request] = field(default_factory=list)

    async def read_request(self) -> Request | None:
        """None if the client has disconnected."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
            line, *rest = head.decode().split("\r\n")[:-2]
            headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in rest)}
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        self.requests.append(Request(line, headers, body))
        return self.requests[-1]

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def gone(self) -> None:
        """Wait until the client has closed the connection."""
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionError:
            pass

    def reset(self) -> None:
        """Close with RST, as a killed process with unread data does."""
        socket_ = self.writer.get_extra_info("socket")
        socket_.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Script = Callable[[Peer], Awaitable[None]]


class RawServer:
    """An async context manager. A script that returns closes its connection; one that fails, fails the test at exit."""

    def __init__(self, script: Script, *, tls: ssl.SSLContext | None = None) -> None:
        self._script = script
        self._tls = tls
        self._listener: socket.socket | None = None
        self._served: dict[asyncio.Task[None], socket.socket] = {}
        self.failures: list[BaseException] = []
        self.peers: list[Peer] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/"

    @property
    def requests(self) -> list[Request]:
        return [request for peer in self.peers for request in peer.requests]

    async def __aenter__(self) -> RawServer:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        asyncio.get_running_loop().add_reader(self._listener, self._accept)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._listener is not None
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()
        for task in self._served:
            task.cancel()
        await asyncio.gather(*self._served, return_exceptions=True)
        if self.peers:
            # Transports are closed one turn of the loop later; a loop that ends earlier leaves them open.
            closing = [asyncio.ensure_future(peer.writer.wait_closed()) for peer in self.peers]
            _, late = await asyncio.wait(closing, timeout=1)
            for one in late:
                one.cancel()
            await asyncio.gather(*closing, return_exceptions=True)
        # A task that was cancelled before its first step has not closed its connection.
        for accepted in self._served.values():
            accepted.close()
        if kind is None and self.failures:
            raise self.failures[0]

    def _accept(self) -> None:
        """Each connection gets its task, and so its owner, in the same turn of the loop in which it is accepted."""
        assert self._listener is not None
        try:
            accepted, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        accepted.setblocking(False)
        # asyncio sets it only where the socket's protocol number is given, and an accepted one has its listener's: none.
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._served[asyncio.ensure_future(self._serve(accepted))] = accepted

    async def _serve(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=2**20, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        try:
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted, ssl=self._tls)
        except OSError:
            # The TLS handshake failed, or the client disconnected before it.
            return
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        peer = Peer(len(self.peers) + 1, reader, writer)
        self.peers.append(peer)
        try:
            await self._script(peer)
        except asyncio.CancelledError:
            pass
        except ConnectionError:
            # The client disconnected, as many of these tests intend.
            pass
        except Exception as failure:  # noqa: BLE001 - kept for the test, which would not see it otherwise
            self.failures.append(failure)
        finally:
            writer.close()


async def all_read() -> None:
    """Give the readers of this loop enough turns to read everything that was written."""
    for _ in range(5):
        await asyncio.sleep(0)


def answer(body: bytes, *, status: str = "200 OK", kind: str = "application/json", more: str = "") -> bytes:
    """A whole response with a Content-Length."""
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body


def chunked_head(kind: str = "text/event-stream") -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"


def frame(data: bytes, *, id: str = "") -> bytes:
    """One server-sent event."""
    return (f"id: {id}\n".encode() if id else b"") + b"data: " + data + b"\n\n"


def stream(*frames: bytes) -> bytes:
    """A whole event stream, a chunk per frame."""
    return chunked_head() + b"".join(chunk(one) for one in frames) + LAST_CHUNK


def always(data: bytes) -> Script:
    """Answers every request with these bytes, and keeps the connection open."""

    async def script(peer: Peer) -> None:
        while await peer.read_request() is not None:
            await peer.write(data)

    return script
