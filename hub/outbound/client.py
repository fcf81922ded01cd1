"""The hub's own HTTP/1.1 client: a stack of idle connections per origin, one write per request, nothing repeated.

A general client spends most of a short call in its pool and its layers; this one does what calls to workers need, and no
more: POST, JSON, no redirects, no cookies, no proxies, no decompression.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from hub.outbound.connection import ClientConnection, Response
from hub.outbound.url import BadUrl, ParsedUrl, read_url
from hub.outbound.worker_guard import NotAllowed
from rolecall.errors import WorkerBroke, WorkerRefused, WorkerUnreachable
from rolecall.model.value import replace

_BREAKS_A_HEAD = re.compile(r"[\r\n\0]")
_HEAD = b"%bContent-Type: %b\r\nAccept: %b\r\nContent-Length: %d\r\n%b\r\n%b"
_CLOSING = 1.0


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """`idle` is shorter than the keep-alive of common servers, so that they do not close what is just being used."""

    per_origin: int = 1024
    overall: int = 8192
    idle: float = 2.0
    connect: float = 5.0
    write: float = 30.0


class Policy(Protocol):
    """Where this client may connect to."""

    async def addresses(self, target: ParsedUrl) -> Sequence[tuple[int, str]]:
        """(family, address) pairs, all of them allowed; these are connected to. NotAllowed, OSError."""


class _Pool:
    """Connections to one origin, all judged alike. The one that came back last is taken first."""

    def __init__(self, client: Client, name: str) -> None:
        self.name = name
        self.connecting = 0
        self.connections: set[ClientConnection] = set()
        self.idle: dict[ClientConnection, None] = {}
        self._client = client

    def opened(self, connection: ClientConnection) -> None:
        self._client.opened(self, connection)

    def rest(self, connection: ClientConnection) -> None:
        self._client.rest(self, connection)

    def forget(self, connection: ClientConnection) -> None:
        self._client.forget(self, connection)


class Client:
    """An async context manager; leaving it closes every connection."""

    def __init__(self, policy: Policy, limits: ClientLimits | None = None, *, tls: ssl.SSLContext | None = None) -> None:
        self._policy = policy
        self._limits = limits or ClientLimits()
        self._tls = tls
        self._pools: dict[str, _Pool] = {}
        self._idle: dict[ClientConnection, tuple[float, _Pool]] = {}
        self._open = 0
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed: asyncio.Event | None = None

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Calls under way break off. Waits briefly for the connections to be gone."""
        self._closed = asyncio.Event()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for pool in list(self._pools.values()):
            for connection in list(pool.connections):
                connection.abort()
        if self._pools:
            try:
                await asyncio.wait_for(self._closed.wait(), _CLOSING)
            except TimeoutError:
                pass

    async def post(
        self,
        url: str,
        body: bytes,
        *,
        worker: str,
        media: bytes = b"application/json",
        accept: bytes = b"application/json",
        headers: Iterable[tuple[str, str]] = (),
        head_timeout: float | None = None,
        http_method: bytes = b"POST",
        within: tuple[str, ...] = (),
    ) -> Response:
        """Returns when the answer's head is in. WorkerUnreachable, WorkerRefused: nothing was sent. `within`: networks that
        the address has to lie in, beside what the policy says.
        """
        try:
            target = _target(url, within)
            extra = b"".join(map(_header, headers))
        except BadUrl as error:
            raise WorkerUnreachable(worker, "its URL", str(error)) from error
        opening = target.opening if http_method == b"POST" else http_method + target.opening.removeprefix(b"POST")
        request = _HEAD % (opening, media, accept, len(body), extra, body)
        connection = self._take(target.pool) or await self._connect(target, worker)
        response = Response(worker)
        try:
            connection.send(request, response)
            if connection.blocked:
                await _until(response, lambda: connection.blocked and not response.status, self._limits.write, "taken")
            if head_timeout is None:
                while not response.status:
                    await response.wait()
            else:
                await _until(response, lambda: not response.status, head_timeout, "answered")
        except BaseException:
            response.close()
            raise
        return response

    async def probe(self, url: str, timeout: float, within: tuple[str, ...] = ()) -> bool:
        """Does anything accept connections there?"""
        try:
            target = _target(url, within)
            async with asyncio.timeout(timeout):
                transport = await self._dial(target, asyncio.Protocol, None)
        except (BadUrl, NotAllowed, OSError):
            return False
        transport.abort()
        return True

    # --- the pools' side

    def opened(self, pool: _Pool, connection: ClientConnection) -> None:
        pool.connections.add(connection)
        self._open += 1

    def rest(self, pool: _Pool, connection: ClientConnection) -> None:
        """A connection is free again."""
        loop = connection.loop
        pool.idle[connection] = None
        self._idle[connection] = (loop.time(), pool)
        if self._sweeper is None:
            self._sweeper = loop.call_later(self._limits.idle, self._sweep, loop)

    def forget(self, pool: _Pool, connection: ClientConnection) -> None:
        """A connection is gone, or is about to be."""
        if connection in pool.connections:
            pool.connections.discard(connection)
            self._open -= 1
            pool.idle.pop(connection, None)
            self._idle.pop(connection, None)
            self._drop_if_empty(pool)

    # --- pieces

    def _take(self, name: str) -> ClientConnection | None:
        pool = self._pools.get(name)
        while pool is not None and pool.idle:
            connection, _ = pool.idle.popitem()
            since, _ = self._idle.pop(connection)
            if connection.usable and connection.loop.time() - since < self._limits.idle:
                return connection
            connection.close()
        return None

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """One timer for all pools: the oldest stand first."""
        self._sweeper = None
        while self._idle:
            connection, (since, _) = next(iter(self._idle.items()))
            left = since + self._limits.idle - loop.time()
            if left > 0:
                self._sweeper = loop.call_later(left, self._sweep, loop)
                return
            self._retire(connection)

    def _retire(self, connection: ClientConnection) -> None:
        _, pool = self._idle[connection]
        self.forget(pool, connection)
        connection.close()

    async def _connect(self, target: ParsedUrl, worker: str) -> ClientConnection:
        pool = self._pools.get(target.pool)
        if pool is None:
            pool = self._pools[target.pool] = _Pool(self, target.pool)
        try:
            self._make_room(pool, worker)
            pool.connecting += 1
            self._open += 1
            try:
                connection = await self._dialled(target, pool, worker)
            finally:
                pool.connecting -= 1
                self._open -= 1
        finally:
            self._drop_if_empty(pool)
        if self._closed is not None:
            connection.abort()
        if not connection.usable:
            raise WorkerUnreachable(worker, target.origin, "it closed the connection at once")
        return connection

    def _make_room(self, pool: _Pool, worker: str) -> None:
        if self._closed is not None:
            raise WorkerRefused(worker, "the hub is closing")
        if pool.connecting + len(pool.connections) >= self._limits.per_origin:
            raise WorkerRefused(worker, f"the hub has {self._limits.per_origin} connections open to it, its limit")
        if self._open >= self._limits.overall:
            oldest = next(iter(self._idle), None)
            if oldest is None:
                raise WorkerRefused(worker, f"the hub has {self._limits.overall} connections open to workers, its limit")
            self._retire(oldest)

    async def _dialled(self, target: ParsedUrl, pool: _Pool, worker: str) -> ClientConnection:
        loop = asyncio.get_running_loop()
        connection = ClientConnection(loop, pool)
        try:
            async with asyncio.timeout(self._limits.connect):
                await self._dial(target, lambda: connection, self._context() if target.secure else None)
        except NotAllowed as error:
            raise WorkerUnreachable(worker, target.origin, "address not allowed by policy") from error
        except (OSError, UnicodeError) as error:
            raise WorkerUnreachable(worker, target.origin, self._said(error)) from error
        return connection

    async def _dial(
        self, target: ParsedUrl, factory: Callable[[], asyncio.Protocol], tls: ssl.SSLContext | None
    ) -> asyncio.Transport:
        """Connect to one of the checked addresses; they share the time, so that a dead one does not use it up."""
        loop = asyncio.get_running_loop()
        addresses = await self._policy.addresses(target)
        share = self._limits.connect / max(1, len(addresses))
        failure: OSError = OSError()
        for _, address in addresses:
            try:
                async with asyncio.timeout(share):
                    transport, _ = await loop.create_connection(
                        factory, address, target.port, ssl=tls, server_hostname=target.host if tls else None
                    )
                    return transport
            except OSError as error:
                failure = error
        raise failure

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls

    def _said(self, error: Exception) -> str:
        """An operating system's failure in our words."""
        if isinstance(error, ConnectionRefusedError):
            return "connection refused"
        if isinstance(error, TimeoutError):
            return f"no connection within {self._limits.connect:g} s"
        if isinstance(error, ssl.SSLError):
            return "the TLS handshake failed, or its certificate is not trusted"
        if isinstance(error, (socket.gaierror, UnicodeError)):
            return "its name does not resolve"
        return "the connection failed"

    def _drop_if_empty(self, pool: _Pool) -> None:
        if not pool.connecting and not pool.connections:
            self._pools.pop(pool.name, None)
            if self._closed is not None and not self._pools:
                self._closed.set()


async def _until(response: Response, waiting: Callable[[], bool], timeout: float, done: str) -> None:
    try:
        async with asyncio.timeout(timeout):
            while waiting():
                await response.wait()
    except TimeoutError as error:
        raise WorkerBroke(response.worker, f"it has not {done} the call within {timeout:g} s") from error


def _target(url: str, within: tuple[str, ...]) -> ParsedUrl:
    target = read_url(url)
    return replace(target, within=within) if within else target


def _header(pair: tuple[str, str]) -> bytes:
    name, value = pair
    if not value.isprintable() and _BREAKS_A_HEAD.search(value):
        raise BadUrl(f"the header {name} would hold a line break")
    return f"{name}: {value}\r\n".encode()
