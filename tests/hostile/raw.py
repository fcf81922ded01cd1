"""Requests as raw bytes, which no correct client would send."""

from __future__ import annotations

import select
import socket
import time
from typing import NamedTuple

GET_X = b'{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"x"}}'


class RawAnswer(NamedTuple):
    """The status (0: none), all bytes received, and whether and when the hub closed the connection."""

    status: int
    text: bytes
    closed: bool
    seconds: float


def post(*headers: str, body: bytes = GET_X, path: str = "/", host: str = "localhost", length: bool = True) -> bytes:
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json", *headers]
    if length:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def get(path: str, *headers: str, host: str = "localhost") -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", f"Host: {host}", "Connection: close", *headers, "", ""]).encode("latin-1")


def exchange(port: int, data: bytes, *, wait: float = 10.0, repeat: bytes = b"", every: float = 0.2) -> RawAnswer:
    """Sends, and reads until the hub closes or `wait` is over. `repeat`: bytes sent again and again meanwhile."""
    began, received = time.monotonic(), b""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        try:
            connection.sendall(data)
            connection.settimeout(every if repeat else wait)
            while time.monotonic() - began < wait:
                try:
                    piece = connection.recv(65536)
                except TimeoutError:
                    if repeat and not _is_readable(connection):
                        connection.sendall(repeat)
                    continue
                if not piece:
                    return _read(received, True, began)
                received += piece
        except ConnectionError:
            return _read(received, True, began)
    return _read(received, False, began)


def _is_readable(connection: socket.socket) -> bool:
    """An answer that has come meanwhile is read first: a byte sent after the hub has closed would reset the connection, and the
    answer would be lost.
    """
    return bool(select.select([connection], [], [], 0)[0])


def _read(received: bytes, closed: bool, began: float) -> RawAnswer:
    status = int(received[9:12]) if received.startswith(b"HTTP/1.1 ") else 0
    return RawAnswer(status, received, closed, time.monotonic() - began)
