"""Sockets that listen."""

from __future__ import annotations

import socket
import sys


def bound_socket(host: str, port: int) -> socket.socket:
    """OSError: the port is taken, or this user may not have it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small writes at once only if the socket names its protocol; uvloop always does.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform != "win32":
            # Connections that have just ended do not keep the port. On Windows they never do, and with this option a second
            # process would get the port too.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # the default of Windows is 1
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound
