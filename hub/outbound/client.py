"""The hub's own HTTP/1.1 client: a stack of idle connections per origin, one write per request, no retries.

A general client spends most of a short call in its pool and its layers. This one does only what calls to workers need: POST,
JSON, no redirects, no cookies, no proxies, no decompression.
"""

from __future__ import annotations

import asyncio
import errno
import re
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Protocol, TypeVar

from hub.outbound.connection import ClientConnection, Request, Response
from hub.outbound.url import BadUrl, ParsedUrl, read_url
from hub.outbound.worker_guard import NotAllowed
from hub.ports.shares import Descriptors, Share, Unlimited
from rolecall.errors import (
    ConfigError,
    HubError,
    NoDescriptors,
    Overloaded,
    WorkerFull,
    WorkerRefused,
    WorkerUnreachable,
)
from rolecall.model.value import replace

_JSON = b"application/json"
_LINE_BREAK = re.compile(r"[\r\n\0]")
_HEAD = b"%bContent-Type: %b\r\nAccept: %b\r\nContent-Length: %d\r\n%b\r\n"
_CLOSE_TIMEOUT = 1.0

P = TypeVar("P", bound=asyncio.Protocol)


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """`per_origin`: connections of one workspace to one server. `overall`: those that are open, idle ones included. `idle` is
    shorter than the keep-alive of common servers, so that they do not close a connection just as it is used.
    """

    per_origin: int = 5_500
    overall: int = 12_000
    idle: float = 2.0
    connect: float = 5.0
    write: float = 30.0


class Policy(Protocol):
    """Where this client may connect to."""

    async def addresses(self, target: ParsedUrl, workspace: str) -> Sequence[tuple[int, str]]:
        """(family, address) pairs, all of them allowed; the client connects only to these. NotAllowed, OSError, Overloaded."""


class _Pool:
    """Connections of one workspace to one origin under one policy. The last one released is used first."""

    def __init__(self, client: Client, key: tuple[str, str]) -> None:
        self.key = key
        self.workspace, self.name = key
        self.connecting = 0
        self.connections: set[ClientConnection] = set()
        self.idle: dict[ClientConnection, None] = {}
        self._client = client

    def release(self, connection: ClientConnection) -> None:
        self._client.release(self, connection)

    def remove(self, connection: ClientConnection) -> None:
        self._client.remove(self, connection)


class _HeadResponse(Response):
    """An answer of which only the head matters."""

    __slots__ = ("head",)

    def __init__(self, worker: str) -> None:
        super().__init__(worker)
        self.head: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def changed(self) -> None:
        if not self.head.done() and (self.failure is not None or self.status):
            self.head.set_result(None)


class Client:
    """An async context manager; its exit closes every connection. A call holds one of `share`; an idle connection belongs to
    nobody.
    """

    def __init__(
        self,
        policy: Policy,
        limits: ClientLimits | None = None,
        *,
        share: Share | None = None,
        descriptors: Descriptors | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._policy = policy
        self._share: Share = share or Unlimited()
        self._descriptors = descriptors
        self._limits = limits or ClientLimits()
        self._tls = tls  # None: made when it is needed, which takes some 20 ms
        self._pools: dict[tuple[str, str], _Pool] = {}
        self._idle: dict[ClientConnection, tuple[float, _Pool]] = {}
        self._open = 0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._connecting: set[asyncio.Task[None]] = set()
        self._closed: asyncio.Event | None = None

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Aborts open calls, and waits up to a second until the connections are closed."""
        self._closed = asyncio.Event()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for connecting in self._connecting:
            connecting.cancel()
        for pool in list(self._pools.values()):
            for connection in list(pool.connections):
                connection.abort()
        if self._pools:
            try:
                await asyncio.wait_for(self._closed.wait(), _CLOSE_TIMEOUT)
            except TimeoutError:
                pass

    def send(
        self,
        url: str,
        body: bytes,
        response: Response,
        *,
        media: bytes = _JSON,
        accept: bytes = _JSON,
        headers: Iterable[tuple[str, str]] = (),
        http_method: bytes = b"POST",
        within: tuple[str, ...] = (),
        address: str = "",
        workspace: str = "",
    ) -> None:
        """Sends a request; what comes of it is told to `response`, never from within this call. WorkerUnreachable,
        WorkerRefused, Overloaded: nothing was sent. WorkerBroke, InvalidAnswer: it may have been sent.
        `within`: networks that must contain the address, in addition to the policy. `address`: the only one to connect to.
        `workspace`: whose call it is.
        """
        try:
            target = _target(url, within, address)
            extra = _lines(headers)
        except BadUrl as error:
            response.fail_soon(WorkerUnreachable(response.worker, "its URL", str(error)))
            return
        opening = target.opening if http_method == b"POST" else http_method + target.opening.removeprefix(b"POST")
        request = _HEAD % (opening, media, accept, len(body), extra), body
        try:
            self._share.take(workspace)
        except Overloaded as error:
            response.fail_soon(error)
            return
        key = (workspace, target.pool)
        connection = self._take(key)
        if connection is not None:
            connection.send(request, response, self._limits.write)
        else:
            self._start_connecting(target, key, request, response)

    async def post(
        self,
        url: str,
        body: bytes,
        *,
        worker: str,
        media: bytes,
        accept: bytes,
        headers: Iterable[tuple[str, str]],
        workspace: str = "",
    ) -> Response:
        """Returns when the answer's head has been received. Raises what `send` tells."""
        response = _HeadResponse(worker)
        self.send(url, body, response, media=media, accept=accept, headers=headers, workspace=workspace)
        try:
            await response.head
            if response.failure is not None:
                raise response.failure.copy()
        except BaseException:
            response.close()
            raise
        return response

    async def probe(
        self, url: str, timeout: float, within: tuple[str, ...] = (), workspace: str = "", *, address: str = ""
    ) -> bool:
        """Whether a connection to that URL is accepted. It is closed at once, so it counts nowhere. Overloaded."""
        try:
            target = _target(url, within, address)
            async with asyncio.timeout(timeout):
                transport, _ = await self._open_transport(target, workspace, asyncio.Protocol, None)
        except (BadUrl, NotAllowed, OSError) as error:
            self._check_descriptors(error)
            return False
        transport.abort()
        return True

    # --- called by the pools

    def release(self, pool: _Pool, connection: ClientConnection) -> None:
        """The connection is idle again."""
        self._share.give_back(pool.workspace)
        loop = connection.loop
        pool.idle[connection] = None
        self._idle[connection] = (loop.time(), pool)
        if self._idle_timer is None:
            self._idle_timer = loop.call_later(self._limits.idle, self._close_idle, loop)

    def remove(self, pool: _Pool, connection: ClientConnection) -> None:
        """The connection is closed, or about to be."""
        if connection in pool.connections:
            pool.connections.discard(connection)
            if self._idle.pop(connection, None) is not None:
                del pool.idle[connection]
            else:
                self._share.give_back(pool.workspace)
            self._open -= 1
            self._drop_if_empty(pool)

    # --- pieces

    def _take(self, key: tuple[str, str]) -> ClientConnection | None:
        """An idle connection, which is then no longer idle."""
        pool = self._pools.get(key)
        while pool is not None and pool.idle:
            connection = next(reversed(pool.idle))
            since, _ = self._idle[connection]
            if connection.usable and connection.loop.time() - since < self._limits.idle:
                del pool.idle[connection], self._idle[connection]
                return connection
            self._close_idle_one(connection)
        return None

    def _close_idle(self, loop: asyncio.AbstractEventLoop) -> None:
        """Closes connections that were idle for too long. One timer serves all pools, because the oldest come first."""
        self._idle_timer = None
        while self._idle:
            connection, (since, _) = next(iter(self._idle.items()))
            left = since + self._limits.idle - loop.time()
            if left > 0:
                self._idle_timer = loop.call_later(left, self._close_idle, loop)
                return
            self._close_idle_one(connection)

    def _close_idle_one(self, connection: ClientConnection) -> None:
        _, pool = self._idle[connection]
        self.remove(pool, connection)
        connection.close()

    def _start_connecting(self, target: ParsedUrl, key: tuple[str, str], request: Request, response: Response) -> None:
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = _Pool(self, key)
        refusal = self._refusal(pool, response.worker)
        if refusal is not None:
            self._give_back(pool)
            response.fail_soon(refusal)
            return
        # They count from now on: the task begins later, and may be cancelled before it does.
        pool.connecting += 1
        self._open += 1
        connecting = asyncio.get_running_loop().create_task(
            self._connect(target, pool, request, response), name=f"connect to {target.origin}"
        )
        self._connecting.add(connecting)
        response.connect(connecting)
        connecting.add_done_callback(partial(self._connected, pool, response))

    async def _connect(self, target: ParsedUrl, pool: _Pool, request: Request, response: Response) -> None:
        connection = await self._open_connection(target, pool, response.worker)
        if not connection.usable:
            raise WorkerUnreachable(response.worker, target.origin, "it closed the connection at once")
        pool.connecting -= 1
        pool.connections.add(connection)
        connection.send(request, response, self._limits.write)

    def _connected(self, pool: _Pool, response: Response, connecting: asyncio.Task[None]) -> None:
        """The task has ended, and its connection counts in its place; or the response gets the failure."""
        self._connecting.discard(connecting)
        error = WorkerRefused(response.worker, "the hub is closing") if connecting.cancelled() else connecting.exception()
        if error is None:
            return
        pool.connecting -= 1
        self._open -= 1
        self._give_back(pool)
        if not isinstance(error, HubError):
            response.fail(WorkerUnreachable(response.worker, pool.name, "the connection failed"))
            raise error
        response.fail(error.copy())

    def _refusal(self, pool: _Pool, worker: str) -> HubError | None:
        """Why no connection may be opened now. An idle one makes room."""
        if self._closed is not None:
            return WorkerRefused(worker, "the hub is closing")
        if pool.connecting + len(pool.connections) >= self._limits.per_origin:
            return WorkerFull(worker, self._limits.per_origin)
        if self._open >= self._limits.overall:
            oldest = next(iter(self._idle), None)
            if oldest is None:
                return Overloaded("connections", self._limits.overall, "max_worker_connections")
            self._close_idle_one(oldest)
        return None

    def _give_back(self, pool: _Pool) -> None:
        """No connection came of what was taken for it."""
        self._share.give_back(pool.workspace)
        self._drop_if_empty(pool)

    async def _open_connection(self, target: ParsedUrl, pool: _Pool, worker: str) -> ClientConnection:
        tls = self._tls_context() if target.secure else None
        # A connection for each address that is tried: one that came too late must not share the state of the next.
        factory = partial(ClientConnection, asyncio.get_running_loop(), pool)
        try:
            async with asyncio.timeout(self._limits.connect):
                _, connection = await self._open_transport(target, pool.workspace, factory, tls)
        except NotAllowed as error:
            raise WorkerUnreachable(worker, target.origin, "address not allowed by policy") from error
        except (OSError, UnicodeError) as error:
            self._check_descriptors(error)
            refused = isinstance(error, ConnectionRefusedError)
            raise WorkerUnreachable(worker, target.origin, self._failure_text(error), refused=refused) from error
        return connection

    async def _open_transport(
        self, target: ParsedUrl, workspace: str, factory: Callable[[], P], tls: ssl.SSLContext | None
    ) -> tuple[asyncio.Transport, P]:
        """Connects to one of the checked addresses. They share the time, so that a dead one does not use all of it."""
        loop = asyncio.get_running_loop()
        addresses = await self._policy.addresses(target, workspace)
        share = self._limits.connect / max(1, len(addresses))
        failure: OSError = OSError()
        for _, address in addresses:
            try:
                async with asyncio.timeout(share):
                    return await loop.create_connection(
                        factory, address, target.port, ssl=tls, server_hostname=target.host if tls else None
                    )
            except OSError as error:
                failure = error
        try:
            raise failure
        finally:
            del failure  # it refers to this frame

    def _check_descriptors(self, error: Exception) -> None:
        """NoDescriptors: it is the hub's own error, and not the server's."""
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            if self._descriptors is not None:
                self._descriptors.none_left("a connection to another server")
            raise NoDescriptors from error

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = trust_of(None)
        return self._tls

    def _failure_text(self, error: Exception) -> str:
        """A connection failure as text, without the operating system's message."""
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
            self._pools.pop(pool.key, None)
            if self._closed is not None and not self._pools:
                self._closed.set()


def trust_of(ca_file: Path | None) -> ssl.SSLContext:
    """Whose certificates are accepted: the system's authorities', and those of that file. ConfigError: it holds none, or cannot
    be read.
    """
    context = ssl.create_default_context()
    if ca_file is None:
        return context
    try:
        context.load_verify_locations(cafile=ca_file)
    except OSError as error:
        problem = "holds no certificate in PEM" if isinstance(error, ssl.SSLError) else f"cannot be read ({error.strerror})"
        raise ConfigError([f"ca_file: {ca_file} {problem}."]) from error
    return context


@lru_cache(maxsize=8192)
def _target(url: str, within: tuple[str, ...], address: str) -> ParsedUrl:
    target = read_url(url)
    return replace(target, within=within, address=address) if within or address else target


def _lines(headers: Iterable[tuple[str, str]]) -> bytes:
    lines = ""
    for name, value in headers:
        if not value.isprintable() and _LINE_BREAK.search(value):
            raise BadUrl(f"the header {name} would hold a line break")
        lines += f"{name}: {value}\r\n"
    return lines.encode()
