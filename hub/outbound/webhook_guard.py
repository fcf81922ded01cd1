"""The address policy for webhooks. Callers choose the URL: it is checked when it is set, and its address again at connect."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_network

from hub.outbound.resolver import Resolve, Resolver
from hub.outbound.url import BadUrl, ParsedUrl, literal, read_url
from hub.outbound.worker_guard import Address, Network, NotAllowed, OwnAddresses, family_of, plain_name
from rolecall.errors import WebhookInsecure, WebhookRejected

PORTS = frozenset({443, 8443})
_GLOBAL = IPv6Network("2000::/3")
# Everything in IANA's special-purpose registries that is not public unicast, and what only looks public.
_NOT_PUBLIC = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",  # a cloud's internal service address
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",
        "2001::/23",
        "2001:db8::/32",
        "2002::/16",  # 6to4: contains an IPv4 address
        "2620:4f:8000::/48",
        "3fff::/20",
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")
_RESOLVE_TIMEOUT = 5.0
_UNLESS = ", unless {setting} on the hub names its host"
_NOT_RESOLVED = f"its name must resolve, and to public addresses only{_UNLESS}"


def read_networks(texts: Sequence[str]) -> tuple[Sequence[Network], Sequence[str]]:
    """The networks, and the texts that are not networks."""
    networks: list[Network] = []
    unread: list[str] = []
    for text in texts:
        try:
            networks.append(ip_network(text, strict=False))
        except ValueError:
            unread.append(text)
    return networks, unread


class WebhookGuard:
    """`hosts`: names that are not checked at all. `networks`: addresses that may be called with plain http, on any port. All
    others must be https, on one of `ports`, and every address of the name must be public.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        networks: Sequence[Network],
        own: Sequence[tuple[str, int]],
        *,
        ports: frozenset[int] = PORTS,
        resolve: Resolve | None = None,
    ) -> None:
        self._hosts = frozenset(plain_name(host) for host in hosts)
        self._networks = tuple(networks)
        self._own = OwnAddresses(own)
        self._ports = ports
        self._resolve = resolve or Resolver().resolve

    async def check(self, url: str, workspace: str = "") -> str:
        """The check when a URL is set. Returns the host's name. WebhookRejected, Overloaded."""
        try:
            target = read_url(url)
        except BadUrl as error:
            raise WebhookRejected(str(error)) from error
        host = plain_name(target.host)
        if host in self._hosts:
            return host
        if not self._networks:
            self._check_scheme_and_port(target)
        try:
            addresses = await self._resolved(target, workspace)
        except OSError as error:
            raise WebhookRejected(_NOT_RESOLVED) from error
        for address in addresses:
            self._check(address, target)
        return host

    async def addresses(self, target: ParsedUrl, workspace: str = "") -> Sequence[tuple[int, str]]:
        """(family, address) pairs, all of them allowed now; connect to exactly these. NotAllowed, OSError, Overloaded."""
        found = await self._resolved(target, workspace)
        if plain_name(target.host) not in self._hosts:
            try:
                for address in found:
                    self._check(address, target)
            except WebhookRejected as error:
                raise NotAllowed from error
        return [(family_of(address), str(address)) for address in found]

    def _check(self, address: Address, target: ParsedUrl) -> None:
        if self._own.named(target.host, target.port) or self._own.include(address, target.port):
            raise WebhookRejected("it is the hub's own address")
        if any(address in network for network in self._networks):
            return
        self._check_scheme_and_port(target)
        if not _is_public(address):
            raise WebhookRejected(_NOT_RESOLVED if literal(target.host) is None else f"its address must be public{_UNLESS}")

    def _check_scheme_and_port(self, target: ParsedUrl) -> None:
        """Scheme and port of a public receiver."""
        if not target.secure:
            raise WebhookInsecure
        if target.port not in self._ports:
            raise WebhookRejected(f"its port must be {' or '.join(map(str, sorted(self._ports)))}{_UNLESS}")

    async def _resolved(self, target: ParsedUrl, workspace: str) -> Sequence[Address]:
        own = literal(target.host)
        if own is not None:
            return (own,)
        async with asyncio.timeout(_RESOLVE_TIMEOUT):
            texts = await self._resolve(workspace, target.host, target.port)
        found = [address for text in texts if (address := literal(text)) is not None]
        if not found or len(found) < len(texts):
            raise OSError
        return found


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return False
        if address in _NAT64:
            address = IPv4Address(int(address) & 0xFFFF_FFFF)
        elif address not in _GLOBAL:
            return False
    return not any(address in network for network in _NOT_PUBLIC)
