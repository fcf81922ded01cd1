"""The common errors of binding a port, for people."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rolecall.cli.output import CommandError

if TYPE_CHECKING:
    from hub.settings.model import Settings

_OTHER_PORT = "or choose another port: --port 8421 or ROLECALL_PORT=8421, 0 for any"


@contextmanager
def socket_errors(settings: Settings) -> Iterator[None]:
    """Explain the common errors of binding a port."""
    try:
        yield
    except OSError as error:
        address = f"{settings.host}:{settings.port}"
        if error.errno == errno.EADDRINUSE:
            hint = f"is a hub already running? check: rolecall ping\n{_OTHER_PORT}"
            raise CommandError(f"port {settings.port} of {settings.host} is taken", "PORT_TAKEN", 2, hint) from error
        if error.errno == errno.EACCES:
            raise CommandError(f"this user may not use {address}", "PORT_FORBIDDEN", 2, "choose a --port above 1023") from error
        if error.errno == errno.EADDRNOTAVAIL or type(error).__name__ == "gaierror":
            raise CommandError(f"{settings.host} is not an address of this machine", "HOST_UNKNOWN", 2, "see --host") from error
        raise
