"""`rolecall serve` on a machine where the name `agents.test` has two addresses, both of this machine."""

from __future__ import annotations

import socket
import sys
from typing import Any

_usual = socket.getaddrinfo


def _resolve(host: Any, port: Any, *args: Any, **members: Any) -> Any:
    if host != "agents.test":
        return _usual(host, port, *args, **members)
    return [answer for address in ("127.0.0.1", "127.0.0.2") for answer in _usual(address, port, *args, **members)]


if __name__ == "__main__":
    socket.getaddrinfo = _resolve
    from rolecall.cli import run

    sys.exit(run(["serve"]))
