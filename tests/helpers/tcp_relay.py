"""A TCP proxy between a client and a server, which can delay, stall, cut and half-close connections."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from types import TracebackType
from typing import Self

_PIECE = 65536


class TcpRelay:
    """Listens on a free port of loopback and forwards to `target`. Runs in its own thread."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._open = threading.Event()
        self._open.set()
        self._delay = 0.0
        self._quiet = 0.0
        self._servers: set[socket.socket] = set()
        self._kept: dict[socket.socket, tuple[bytes, float]] = {}
        self._orders: list[str] = []
        self._ended = False
        self.passed = 0
        """Bytes that came, in both directions."""
        self._thread = threading.Thread(target=self._run, name="tcp relay", daemon=True)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def delay(self, seconds: float) -> None:
        """Delay every piece of data by that long."""
        self._delay = seconds

    def collect(self, quiet: float) -> None:
        """Buffer the data of a server until it has sent nothing for that long, then forward it at once."""
        self._quiet = quiet

    def stall(self) -> None:
        """Forward nothing in either direction; connections stay open."""
        self._open.clear()

    def flow(self) -> None:
        self._open.set()

    def cut(self) -> None:
        """Reset every connection."""
        self._orders.append("cut")

    def half_close(self) -> None:
        """Send the client an end of stream; its own data is still forwarded."""
        self._orders.append("half-close")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended = True
        self._open.set()
        self._thread.join(2)
        for end in list(self._pairs):
            end.close()
        self._listener.close()
        self._selector.close()

    def _run(self) -> None:
        while not self._ended:
            while self._orders:
                self._run_order(self._orders.pop())
            if not self._open.is_set():
                time.sleep(0.01)
                continue
            for key, _ in self._selector.select(0.02):
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket):
                    self._pass_on(key.fileobj)
            for server, (_, since) in tuple(self._kept.items()):
                if time.monotonic() - since >= self._quiet:
                    self._let_go(server)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(self._target, timeout=1)
        except OSError:
            client.close()
            return
        server.settimeout(5)
        client.settimeout(5)
        self._servers.add(server)
        for end, other in ((client, server), (server, client)):
            self._pairs[end] = other
            self._selector.register(end, selectors.EVENT_READ)

    def _pass_on(self, end: socket.socket) -> None:
        other = self._pairs.get(end)
        if other is None:
            return
        try:
            piece = end.recv(_PIECE)
            self.passed += len(piece)
            if not piece:
                self._let_go(end)
                self._close(end)
                return
            if self._delay:
                time.sleep(self._delay)
            if self._quiet and end in self._servers:
                self._kept[end] = self._kept.get(end, (b"", 0.0))[0] + piece, time.monotonic()
            else:
                other.sendall(piece)
        except OSError:
            self._close(end)

    def _let_go(self, server: socket.socket) -> None:
        kept, _ = self._kept.pop(server, (b"", 0.0))
        client = self._pairs.get(server)
        try:
            if kept and client is not None:
                client.sendall(kept)
        except OSError:
            self._close(server)

    def _run_order(self, order: str) -> None:
        for end in list(self._pairs):
            if order == "cut":
                self._close(end, reset=True)
            else:
                try:
                    end.shutdown(socket.SHUT_WR)
                except OSError:
                    self._close(end)

    def _close(self, end: socket.socket, *, reset: bool = False) -> None:
        for one in (end, self._pairs.get(end)):
            if one is None or one not in self._pairs:
                continue
            if reset:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            self._pairs.pop(one)
            self._kept.pop(one, None)
            self._servers.discard(one)
            self._selector.unregister(one)
            one.close()
