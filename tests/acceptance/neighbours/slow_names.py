"""`rolecall serve` on a machine whose name server does not answer for some names: `*.slow.test` takes a minute and fails,
`*.quick.test` is this machine.
"""

from __future__ import annotations

import socket
import sys
import time
from typing import Any

_usual = socket.getaddrinfo


def _resolve(host: Any, port: Any, *args: Any, **members: Any) -> Any:
    if str(host).endswith(".slow.test"):
        time.sleep(60)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    return _usual("127.0.0.1" if str(host).endswith(".quick.test") else host, port, *args, **members)


if __name__ == "__main__":
    socket.getaddrinfo = _resolve
    from rolecall.cli import run

    sys.exit(run(["serve"]))
