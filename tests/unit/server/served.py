"""The hub's own server on a thread, with an application whose behaviour the path selects, and a client that sends raw bytes."""

from __future__ import annotations

import asyncio
import json
import select
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import uvloop

from hub.core.observe import NullObserver
from hub.inbound.middleware.refusal import refusal_of
from hub.inbound.middleware.request import Request
from hub.server.asgi import STREAM, Receive, Scope, Send, WritableStream, drained
from hub.server.http_server import HttpServer
from hub.server.tls import Certificate
from tests.helpers.processes import wait_for

LOOP_BY_NAME = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
PATIENCE = 0.3


class Counts(NullObserver):
    def __init__(self) -> None:
        self.open = 0
        self.reasons: list[str] = []

    def connections(self, count: int) -> None:
        self.open = count

    def refused(self, reason: str) -> None:
        self.reasons.append(reason)


class ScriptedApp:
    """The application. A path's first segment names the method that answers, `asked` lists the paths, `/wait` waits."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.disconnected: list[str] = []
        self.written = 0
        self.refused = 0
        """How often `try_write` was refused."""
        self.late_stream: WritableStream | None = None
        """The stream of an answer that has ended."""
        self.go = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        self.asked.append(path)
        await getattr(self, path.strip("/").split("/")[0] or "echo", self.echo)(scope, receive, send)

    async def echo(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await self.body(receive)
        if body is None:
            self.disconnected.append(scope["path"])
            return
        await Request(scope, receive, send).answer(
            b"%b %b %d" % (scope["method"].encode(), scope["path"].encode(), len(body)), media=b"text/plain"
        )

    async def headers(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.body(receive)
        await Request(scope, receive, send).answer(b"\n".join(b"%b=%b" % header for header in scope["headers"]))

    async def wait(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.go.wait()
        await self.echo(scope, receive, send)

    async def watch(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Registers two callbacks for the disconnect."""
        for _ in range(2):
            scope["extensions"][STREAM].on_disconnect(lambda: self.disconnected.append(scope["path"]))
        await self.wait(scope, receive, send)

    async def early(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive, send).answer(b"early")

    async def refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive, send).answer_unread(b"no", status=413)

    async def status(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive, send).answer(b"", status=int(scope["path"].split("/")[2]))

    async def sized(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`/sized/10/5`: a Content-Length of 10, and 5 bytes sent."""
        length, sent = map(int, scope["path"].split("/")[2:])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % length)]})
        await send({"type": "http.response.body", "body": b"x" * sent})

    async def broken(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("broken on purpose")

    async def split(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive, send).answer(b"", headers=[(b"x", b"a\r\nset-cookie: b")])

    async def late(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"some", "more_body": True})
        raise RuntimeError("broken on purpose, late")

    async def cancelled(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise asyncio.CancelledError

    async def silent(self, scope: Scope, receive: Receive, send: Send) -> None:
        pass

    async def closing(self, scope: Scope, receive: Receive, send: Send) -> None:
        """So long that the connection stays open for a while after the head with `connection: close`."""
        await Request(scope, receive, send).answer(bytes(6_000_000), headers=[(b"connection", b"close")])

    async def large(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive, send).answer(bytes(int(scope["path"].split("/")[2])))

    async def page(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As frameworks send a page: with a Content-Length, and with its end in a message of its own."""
        size = int(scope["path"].split("/")[2])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
        await send({"type": "http.response.body", "body": bytes(size), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends until the client disconnects."""
        gone = asyncio.create_task(self.until_gone(receive))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            while not gone.done():
                await send({"type": "http.response.body", "body": b"x" * 8192, "more_body": True})
                self.written += 8192
                await asyncio.sleep(0)
        finally:
            gone.cancel()
            self.disconnected.append(scope["path"])

    async def pieces(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As `stream`, through the extension: `/pieces/3` ends after three pieces."""
        limit = int(scope["path"].split("/")[2])
        stream = Request(scope, receive, send).stream
        gone = asyncio.create_task(self.until_gone(receive))
        stream.begin({"type": "http.response.start", "status": 200, "headers": []})
        try:
            for _ in range(limit):
                while not stream.try_write(b"x" * 8192):
                    self.refused += 1
                    await drained(stream)
                self.written += 8192
                if gone.done():
                    self.disconnected.append(scope["path"])
                    return
                await asyncio.sleep(0)
            await stream.end()
        finally:
            gone.cancel()
            self.late_stream = stream

    async def scheme(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What the server reports of the connection."""
        tls = {name: value for name, value in scope["extensions"].get("tls", {}).items() if name != "server_cert"}
        about = {"scheme": scope["scheme"], "version": scope["http_version"], "tls": tls}
        await Request(scope, receive, send).answer(json.dumps(about).encode())

    async def quiet(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends one word, and then nothing until the client disconnects."""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"word", "more_body": True})
        await self.until_gone(receive)
        self.disconnected.append(scope["path"])

    async def until_gone(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def body(self, receive: Receive) -> bytes | None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message["more_body"]:
                return body
        return None


class RunningServer:
    """What runs on the server's thread, as the test's thread sees it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        http_server: HttpServer,
        app: ScriptedApp,
        counts: Counts,
        listener: socket.socket,
    ) -> None:
        self.loop, self.http_server, self.app, self.counts, self.listener = loop, http_server, app, counts, listener
        self.port: int = listener.getsockname()[1]

    def client(self) -> RawClient:
        return RawClient(self.port)

    def forget(self) -> None:
        """Resets everything for the next test."""
        self.release()
        wait_for(lambda: not len(self.http_server))
        asyncio.run_coroutine_threadsafe(self._clear_go(), self.loop).result(5)
        self.app.asked.clear()
        self.app.disconnected.clear()
        self.counts.reasons.clear()

    async def _clear_go(self) -> None:
        self.app.go.clear()

    def release(self) -> None:
        self.loop.call_soon_threadsafe(self.app.go.set)

    def close(self, within: float) -> Future[None]:
        return asyncio.run_coroutine_threadsafe(self.http_server.close(within), self.loop)

    def unsent(self) -> int:
        """Bytes of answers that clients have not taken."""
        return sum(connection._unsent_bytes() for connection in tuple(self.http_server._connections))

    def limit_socket_buffer(self) -> None:
        """On later connections the kernel takes little at a time, as on a slow network: the rest of an answer waits in the
        server.
        """
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)

    def requests_waiting(self) -> int:
        return sum(len(connection._waiting) for connection in tuple(self.http_server._connections))

    def bytes_waiting(self) -> int:
        """Bytes of the bodies of waiting requests."""
        return sum(cycle.unread for connection in tuple(self.http_server._connections) for cycle in tuple(connection._waiting))


class RawClient:
    def __init__(self, port: int) -> None:
        self.connection = socket.socket()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        self.connection.settimeout(5)
        try:
            self.connection.connect(("127.0.0.1", port))
        except OSError:
            self.connection.close()
            raise
        self.received = b""

    def send(self, *data: bytes) -> Self:
        for piece in data:
            self.connection.sendall(piece)
        return self

    def half_close(self) -> Self:
        self.connection.shutdown(socket.SHUT_WR)
        return self

    def receive(self, until: bytes) -> bytes:
        """Everything up to and including these bytes."""
        while until not in self.received:
            piece = self.connection.recv(65536)
            assert piece, f"the connection ended before {until!r}: {self.received[-500:]!r}"
            self.received += piece
        end = self.received.index(until) + len(until)
        received, self.received = self.received[:end], self.received[end:]
        return received

    def gets_nothing(self, within: float) -> bool:
        """Whether no byte arrives in `within` seconds."""
        ready, _, _ = select.select([self.connection], [], [], within)
        return not ready

    def read_with_pauses(self, piece_size: int, *, pause: float) -> int:
        """The number of bytes until the server closes the connection. After each piece it pauses."""
        size = len(self.received)
        while piece := self.connection.recv(piece_size):
            size += len(piece)
            time.sleep(pause)
        return size

    def receive_all(self) -> bytes:
        """Everything until the server closes the connection."""
        while piece := self.connection.recv(65536):
            self.received += piece
        return self.received

    def is_cut(self) -> bool:
        try:
            self.receive_all()
        except ConnectionResetError:
            return True
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.connection.close()


@contextmanager
def running_server(
    loop_kind: str, *, limit: int = 100, certificate: Certificate | None = None, **times: float
) -> Iterator[RunningServer]:
    """`times`: attributes of HttpServer."""
    loop = LOOP_BY_NAME[loop_kind]()
    errors: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: errors.append(context))
    counts = Counts()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    thread = threading.Thread(target=loop.run_forever, daemon=True)

    async def begin() -> tuple[HttpServer, ScriptedApp, asyncio.Task[None]]:
        app = ScriptedApp()
        http_server = HttpServer(
            app,
            counts,
            refusal_of,
            limit=limit,
            refused_at_once=limit,
            patience=PATIENCE,
            max_head=32 * 1024,
            certificate=certificate,
        )
        http_server.check_interval = 0.1
        for name, value in times.items():
            setattr(http_server, name, value)
        await http_server.open(listener, backlog=100)
        return http_server, app, asyncio.create_task(http_server.keep_time())

    async def end() -> None:
        timer.cancel()
        await http_server.close(0.1)
        await asyncio.gather(timer, return_exceptions=True)

    thread.start()
    http_server, app, timer = asyncio.run_coroutine_threadsafe(begin(), loop).result(5)
    try:
        yield RunningServer(loop, http_server, app, counts, listener)
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()
        assert not len(http_server)
        assert not errors, errors
