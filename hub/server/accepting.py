"""Accepts connections one by one, where asyncio's own server cannot: with TLS, whose handshakes are counted, and on Windows.

There its server stops for good when a client is gone before its connection is accepted (python/cpython#93821), and lets the
system hold small writes back.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import sys
from collections.abc import Callable

log = logging.getLogger(__name__)

ONE_BY_ONE = sys.platform == "win32"
"""Also without TLS."""
_PAUSE = 0.5
"""After an error that the next connection would have too, such as a lack of descriptors."""
_GONE = frozenset({errno.ECONNABORTED, errno.ECONNRESET, errno.ENOTCONN})
_NAME_DELETED = 64
"""What Windows says of a client that is gone."""


async def next_connection(listener: socket.socket) -> socket.socket:
    """That of a client that is still there. Errors are logged."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            connection, _ = await loop.sock_accept(listener)
        except OSError as error:
            await _after(error)
            continue
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            connection.close()
        else:
            return connection


async def accept_plain(listener: socket.socket, protocol: Callable[[], asyncio.Protocol]) -> None:
    """Serve each client without TLS. Runs until it is cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        connection = await next_connection(listener)
        try:
            await loop.connect_accepted_socket(protocol, connection)
        except OSError:
            connection.close()


async def _after(error: OSError) -> None:
    if error.errno in _GONE or getattr(error, "winerror", None) == _NAME_DELETED:
        return
    if error.errno in (errno.EMFILE, errno.ENFILE):
        context = {"message": "no descriptor for a connection", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)
    else:
        log.warning("connection not accepted", extra={"event": "accept_failed", "why": error.strerror})
    await asyncio.sleep(_PAUSE)
