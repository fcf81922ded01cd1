"""Through which proxy a hub is reached: HTTP_PROXY, HTTPS_PROXY or ALL_PROXY, unless NO_PROXY names the hub. Never one on this
machine.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from worker_sdk.config import is_here, no_proxy_entries
from worker_sdk.errors import ConfigError


class HubProxy(NamedTuple):
    """`setting`: what names it. `host`: the hub's, for which NO_PROXY would switch it off."""

    url: str
    setting: str
    host: str

    @property
    def name(self) -> str:
        """Without a password."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    @property
    def hint(self) -> str:
        return f"The proxy comes from {self.setting}. For a direct connection set NO_PROXY={self.host}."


def proxy_towards(url: str) -> HubProxy | None:
    """None: the hub is reached directly. ConfigError: there is a proxy of a kind that is not supported."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_here(host) or _without_proxy(host, parts.port):
        return None
    found = getproxies()
    scheme = next((name for name in (parts.scheme, "all") if found.get(name)), None)
    if scheme is None:
        return None
    address, setting = found[scheme], f"{scheme.upper()}_PROXY"
    proxy = HubProxy(address if "://" in address else f"http://{address}", setting, host)
    kind = urlsplit(proxy.url)
    if kind.scheme not in ("http", "https") or not kind.hostname:
        raise ConfigError(
            f"{setting}: {proxy.name} is no http or https proxy, and no other is supported. Set another, or NO_PROXY={host}."
        )
    return proxy


def _without_proxy(host: str, port: int | None) -> bool:
    """By name, suffix or address as everywhere, and by network."""
    if proxy_bypass(host if port is None else f"{host}:{port}"):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return any(_holds(entry, address) for entry in no_proxy_entries() if "/" in entry)


def _holds(network: str, address: object) -> bool:
    try:
        return address in ip_network(network, strict=False)
    except ValueError:
        return False
