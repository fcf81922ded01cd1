"""The hub's own server with an application that does as it is asked, on a thread of its own; and a caller who sends bytes."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import uvloop

from hub.core.observe import NullObserver
from hub.inbound.middleware.refusal import refusal_of
from hub.inbound.middleware.request import Request
from hub.server.asgi import ON_DISCONNECT, Receive, Scope, Send
from hub.server.http_server import HttpServer
from tests.helpers.processes import wait_for

LOOPS = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
PATIENCE = 0.3


class Counts(NullObserver):
    def __init__(self) -> None:
        self.open = 0
        self.reasons: list[str] = []

    def connections(self, count: int) -> None:
        self.open = count

    def refused(self, reason: str) -> None:
        self.reasons.append(reason)


class Desk:
    """The application. What it was asked stands in `asked`; whoever asks for `/wait` waits for `let_go`."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.left: list[str] = []
        self.written = 0
        self.go = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        self.asked.append(path)
        await getattr(self, path.strip("/").split("/")[0] or "echo", self.echo)(scope, receive, send)

    async def echo(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await self.body(receive)
        if body is None:
            self.left.append(scope["path"])
            return
        await Request(scope, receive, send).answer(
            b"%b %b %d" % (scope["method"].encode(), scope["path"].encode(), len(body)), media=b"text/plain"
        )

    async def heads(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.body(receive)
        await Request(scope, receive, send).answer(b"\n".join(b"%b=%b" % header for header in scope["headers"]))

    async def wait(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.go.wait()
        await self.echo(scope, receive, send)

    async def patient(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wants to know when the caller leaves, twice."""
        for _ in range(2):
            scope[ON_DISCONNECT](lambda: self.left.append(scope["path"]))
        await self.wait(scope, receive, send)

    async def early(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive, send).answer(b"early")

    async def refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive, send).answer_unread(b"no", status=413)

    async def status(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive, send).answer(b"", status=int(scope["path"].split("/")[2]))

    async def said(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`/said/10/5`: ten bytes announced, five sent."""
        announced, sent = map(int, scope["path"].split("/")[2:])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % announced)]})
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

    async def farewell(self, scope: Scope, receive: Receive, send: Send) -> None:
        """So much that the line is not gone as soon as it is said that it closes."""
        await Request(scope, receive, send).answer(bytes(6_000_000), headers=[(b"connection", b"close")])

    async def big(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive, send).answer(bytes(int(scope["path"].split("/")[2])))

    async def page(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As frameworks send one: its length is said, and its end comes apart."""
        size = int(scope["path"].split("/")[2])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
        await send({"type": "http.response.body", "body": bytes(size), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Until the caller leaves."""
        leaving = asyncio.create_task(self.until_gone(receive))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            while not leaving.done():
                await send({"type": "http.response.body", "body": b"x" * 8192, "more_body": True})
                self.written += 8192
                await asyncio.sleep(0)
        finally:
            leaving.cancel()
            self.left.append(scope["path"])

    async def quiet(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One word, and then nothing until the caller leaves."""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"word", "more_body": True})
        await self.until_gone(receive)
        self.left.append(scope["path"])

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


class House:
    """Everything that runs on the server's thread, to be looked at from the test's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, http_server: HttpServer, desk: Desk, counts: Counts, port: int) -> None:
        self.loop, self.http_server, self.desk, self.counts, self.port = loop, http_server, desk, counts, port

    def caller(self) -> Caller:
        return Caller(self.port)

    def forget(self) -> None:
        """As if nobody had been here."""
        self.let_go()
        wait_for(lambda: not len(self.http_server))
        asyncio.run_coroutine_threadsafe(self._hold_back(), self.loop).result(5)
        self.desk.asked.clear()
        self.desk.left.clear()
        self.counts.reasons.clear()

    async def _hold_back(self) -> None:
        self.desk.go.clear()

    def let_go(self) -> None:
        self.loop.call_soon_threadsafe(self.desk.go.set)

    def close(self, within: float) -> Future[None]:
        return asyncio.run_coroutine_threadsafe(self.http_server.close(within), self.loop)

    def unsent(self) -> int:
        """Bytes that wait in the server for somebody to take them."""
        return sum(line._still_unsent() for line in tuple(self.http_server._lines))

    def narrow_the_lines(self) -> None:
        """The system takes little at a time, as on a slow network: the rest of an answer waits in the server."""
        for line in tuple(self.http_server._lines):
            assert line._transport is not None
            line._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)

    def requests_held(self) -> int:
        return sum(len(line._waiting) for line in tuple(self.http_server._lines))

    def bytes_held(self) -> int:
        """Of the bodies of requests that wait."""
        return sum(cycle.unread for line in tuple(self.http_server._lines) for cycle in tuple(line._waiting))


class Caller:
    def __init__(self, port: int) -> None:
        self.line = socket.socket()
        self.line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        self.line.settimeout(5)
        try:
            self.line.connect(("127.0.0.1", port))
        except OSError:
            self.line.close()
            raise
        self.heard = b""

    def say(self, *data: bytes) -> Self:
        for piece in data:
            self.line.sendall(piece)
        return self

    def done_talking(self) -> Self:
        self.line.shutdown(socket.SHUT_WR)
        return self

    def hear(self, until: bytes) -> bytes:
        """Everything up to and with these bytes."""
        while until not in self.heard:
            piece = self.line.recv(65536)
            assert piece, f"the line ended before {until!r}: {self.heard[-500:]!r}"
            self.heard += piece
        end = self.heard.index(until) + len(until)
        heard, self.heard = self.heard[:end], self.heard[end:]
        return heard

    def rest(self) -> bytes:
        """Everything until the server ends the line."""
        while piece := self.line.recv(65536):
            self.heard += piece
        return self.heard

    def is_cut(self) -> bool:
        try:
            self.rest()
        except ConnectionResetError:
            return True
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.line.close()


@contextmanager
def open_house(loop_kind: str, *, most: int = 100, **times: float) -> Iterator[House]:
    """`times`: attributes of Doors."""
    loop = LOOPS[loop_kind]()
    troubles: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: troubles.append(context))
    counts = Counts()
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever, daemon=True)

    async def begin() -> tuple[HttpServer, Desk, asyncio.Task[None]]:
        desk = Desk()
        http_server = HttpServer(desk, counts, refusal_of, most=most, patience=PATIENCE, max_head=32 * 1024)
        http_server.look_every = 0.1
        for name, value in times.items():
            setattr(http_server, name, value)
        await http_server.open(listener, backlog=100)
        return http_server, desk, asyncio.create_task(http_server.keep_time())

    async def end() -> None:
        timekeeper.cancel()
        await http_server.close(0.1)
        await asyncio.gather(timekeeper, return_exceptions=True)

    thread.start()
    http_server, desk, timekeeper = asyncio.run_coroutine_threadsafe(begin(), loop).result(5)
    try:
        yield House(loop, http_server, desk, counts, listener.getsockname()[1])
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()
        assert not len(http_server)
        assert not troubles, troubles
