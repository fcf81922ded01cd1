"""Strict parsing of the URLs that the hub calls."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from rolecall import __version__
from rolecall.model.value import Value

MAX_URL = 2048
_PORTS = {"http": 80, "https": 443}
_VISIBLE = re.compile(r"[!-~]+")
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,252})")
# Other spellings of an IPv4 address that some resolvers accept: 127.1, 2130706433, 0x7f000001, 0177.0.0.1.
_ADDRESS_VARIANT = re.compile(r"(.*\.)?([0-9]+|0[xX][0-9A-Fa-f]*)\.?")


class BadUrl(ValueError):
    """The text contains the reason, but not the URL."""


class ParsedUrl(Value, frozen=True):
    """The target of a request. `opening`: the part of the head that all requests to this URL share."""

    secure: bool
    host: str
    port: int
    origin: str
    opening: bytes
    within: tuple[str, ...] = ()
    """Networks that must contain the address, in addition to the policy."""
    address: str = ""
    """The only address to connect to; the host is then a name alone. Empty: wherever the host leads."""

    @property
    def pool(self) -> str:
        """The key of the connection pool: connections are shared only under the same policy."""
        return " ".join((self.origin, *self.within, self.address)) if self.within or self.address else self.origin


def literal(host: str) -> IPv4Address | IPv6Address | None:
    """The address, if `host` is one in standard notation."""
    try:
        return ip_address(host)
    except ValueError:
        return None


@lru_cache(maxsize=8192)
def read_url(url: str) -> ParsedUrl:
    if len(url) > MAX_URL:
        raise BadUrl(f"longer than {MAX_URL} characters")
    if not _VISIBLE.fullmatch(url) or "\\" in url:
        raise BadUrl("spaces, backslashes, control characters and everything beyond ASCII must be percent-encoded")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadUrl("not a URL") from error
    if parts.scheme not in _PORTS:
        raise BadUrl("the scheme must be http or https")
    if "@" in parts.netloc:
        raise BadUrl("user names and passwords do not belong in a URL")
    if "#" in url:
        raise BadUrl("a fragment has no meaning here")
    if port == 0:
        raise BadUrl("the port must be 1 to 65535")
    host = _checked_host(parts.hostname or "")
    return _target(parts.scheme, host, port or _PORTS[parts.scheme], parts.path or "/", parts.query)


def _checked_host(host: str) -> str:
    if not host:
        raise BadUrl("no host")
    if ":" in host:
        if "%" in host or literal(host) is None:
            raise BadUrl("not an IPv6 address")
        return host
    if _ADDRESS_VARIANT.fullmatch(host):
        if literal(host) is None:
            raise BadUrl("an IPv4 address is four decimal numbers without leading zeros")
    elif not _NAME.fullmatch(host):
        raise BadUrl("not a host name")
    return host


def _target(scheme: str, host: str, port: int, path: str, query: str) -> ParsedUrl:
    shown = f"[{host}]" if ":" in host else host
    authority = shown if port == _PORTS[scheme] else f"{shown}:{port}"
    opening = (
        f"POST {path}{'?' + query if query else ''} HTTP/1.1\r\n"
        f"Host: {authority}\r\n"
        f"User-Agent: rolecall/{__version__}\r\n"
        "Accept-Encoding: identity\r\n"
    )
    return ParsedUrl(scheme == "https", host, port, f"{scheme}://{shown}:{port}", opening.encode())
