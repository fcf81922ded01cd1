"""The origin of a web page (RFC 6454): where a browser got it from."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import NamedTuple

_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://(\[[0-9a-f:.]+\]|[^\s/?#@\[\]:\\,*]+)(?::([0-9]{1,5}))?")
_PORTS = {"http": 80, "https": 443}
_MAX_LENGTH = 512


class Origin(NamedTuple):
    """`port` None: the scheme has none, such as a browser extension's."""

    scheme: str
    host: str
    port: int | None

    def __str__(self) -> str:
        shown = "" if self.port == _PORTS.get(self.scheme) else f":{self.port}"
        return f"{self.scheme}://{self.host}{shown}"


def read_origin(text: str) -> Origin | None:
    """None: not an origin, such as `null`. A dot at the end of a host counts: to browsers that is another host."""
    found = _ORIGIN.fullmatch(text.lower()) if len(text) <= _MAX_LENGTH else None
    if found is None:
        return None
    scheme, host, port = found.groups()
    if host.startswith("["):
        try:
            host = f"[{ip_address(host[1:-1])}]"
        except ValueError:
            return None
    return Origin(scheme, host, int(port) if port else _PORTS.get(scheme))
