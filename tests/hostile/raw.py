"""Requests as bytes: what no proper client would send."""

from __future__ import annotations

import socket
import time
from typing import NamedTuple

GET_X = b'{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"x"}}'


class RequestCycle(NamedTuple):
    """What came back: the status (0: nothing), all of it, and whether and when the hub closed the connection."""

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


def exchange(port: int, data: bytes, *, wait: float = 10.0, drip: bytes = b"", every: float = 0.2) -> RequestCycle:
    """Send, and read until the hub closes or `wait` is over. `drip`: what is sent again and again meanwhile."""
    began, heard = time.monotonic(), b""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as line:
        try:
            line.sendall(data)
            line.settimeout(every if drip else wait)
            while time.monotonic() - began < wait:
                try:
                    piece = line.recv(65536)
                except TimeoutError:
                    if drip:
                        line.sendall(drip)
                    continue
                if not piece:
                    return _read(heard, True, began)
                heard += piece
        except ConnectionError:
            return _read(heard, True, began)
    return _read(heard, False, began)


def _read(heard: bytes, closed: bool, began: float) -> RequestCycle:
    status = int(heard[9:12]) if heard.startswith(b"HTTP/1.1 ") else 0
    return RequestCycle(status, heard, closed, time.monotonic() - began)
