"""The address policy for workers. A worker chooses its URL, so the address is checked at connect, when it is known."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

from hub.outbound.resolver import Resolve, Resolver
from hub.outbound.url import BadUrl, ParsedUrl, literal, read_url
from rolecall.errors import OfferInvalid

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_METADATA = (
    "169.254.0.0/16",
    "fd00:ec2::254/128",
    "100.100.100.200/32",
    "168.63.129.16/32",
    "192.0.0.192/32",
)
_NEVER_ALLOWED = (
    "0.0.0.0/8",
    "192.88.99.0/24",
    "240.0.0.0/4",
    "fec0::/10",
    # Teredo and local NAT64 contain an address in a form that only their operator knows.
    "2001::/32",
    "64:ff9b:1::/48",
)
_REFUSED = tuple(ip_network(text) for text in (*_METADATA, *_NEVER_ALLOWED))
_NAT64 = IPv6Network("64:ff9b::/96")
_COMPATIBLE = IPv6Network("::/96")
_MAX_CACHED = 8192


class NotAllowed(Exception):
    """The policy refuses this address."""


class Nowhere:
    """The policy of a hub in quarantine."""

    async def addresses(self, target: ParsedUrl, workspace: str) -> Sequence[tuple[int, str]]:
        raise NotAllowed("this hub is in quarantine")


class OwnAddresses:
    """The hub's own addresses: the hub must never call itself."""

    def __init__(self, own: Sequence[tuple[str, int]]) -> None:
        self._own = frozenset((plain_name(host), port) for host, port in own)

    def named(self, host: str, port: int) -> bool:
        return (plain_name(host), port) in self._own

    def include(self, address: Address, port: int) -> bool:
        for host, own_port in self._own:
            if port != own_port:
                continue
            own = literal(host)
            if own is not None and (_is_local(address) if own.is_unspecified else own == address):
                return True
            if own is None and host == "localhost" and address.is_loopback:
                return True
        return False


class Guard:
    """`networks`: where workers may be; if empty, any private or public unicast address, and loopback only with
    `allow_loopback`. `own`: the hub's own addresses, which are refused. `resolve`: the addresses of a name.
    """

    def __init__(
        self,
        networks: Sequence[Network],
        own: Sequence[tuple[str, int]],
        *,
        allow_loopback: bool,
        resolve: Resolve | None = None,
    ) -> None:
        self._resolve = resolve or Resolver().resolve
        self._networks = tuple(networks)
        self._own = OwnAddresses(own)
        self._allow_loopback = allow_loopback
        self._cached: dict[tuple[str, int], tuple[int, str]] = {}

    def check_url(self, url: str, networks: Sequence[Network] = ()) -> None:
        """The check at enrolment, without DNS. `networks`: those of the enrolling token. OfferInvalid."""
        try:
            target = read_url(url)
        except BadUrl as error:
            raise OfferInvalid("url", str(error)) from error
        address = literal(target.host)
        if self._own.named(target.host, target.port) or (address and not self._allowed(address, target.port)):
            raise OfferInvalid("url", "that address is not allowed by policy ({setting})", setting="worker_networks")
        if networks and address and not any(_inner(address) in network for network in networks):
            raise OfferInvalid("url", "it must lie in the networks of the token that enrols it")

    async def addresses(self, target: ParsedUrl, workspace: str = "") -> Sequence[tuple[int, str]]:
        found = await self.resolve(target.address or target.host, target.port, workspace)
        if target.within:
            networks = _read(target.within)
            for _, text in found:
                address = literal(text)
                if address is None or not any(_inner(address) in network for network in networks):
                    raise NotAllowed
        return found

    async def resolve(self, host: str, port: int, workspace: str = "") -> Sequence[tuple[int, str]]:
        """(family, address) pairs, all of them allowed; connect to exactly these. NotAllowed, OSError, Overloaded."""
        cached = self._cached.get((host, port))
        if cached is not None:
            return (cached,)
        if self._own.named(host, port):
            raise NotAllowed
        address = literal(host)
        if address is not None:
            if not self._allowed(address, port):
                raise NotAllowed
            return (self._cache_literal(address, host, port),)
        found: list[tuple[int, str]] = []
        for text in await self._resolve(workspace, host, port):
            resolved = literal(text)
            if resolved is None or not self._allowed(resolved, port):
                raise NotAllowed
            found.append((family_of(resolved), text))
        return found

    def _cache_literal(self, address: Address, host: str, port: int) -> tuple[int, str]:
        """Caches literal addresses only: a name may resolve differently next time."""
        if len(self._cached) >= _MAX_CACHED:
            self._cached.clear()
        self._cached[host, port] = (family_of(address), str(address))
        return self._cached[host, port]

    def _allowed(self, address: Address, port: int) -> bool:
        if isinstance(address, IPv6Address) and address.scope_id is not None:
            return False
        inner = _inner(address)
        if any(inner in network or address in network for network in _REFUSED):
            return False
        if inner.is_link_local or inner.is_multicast or inner.is_unspecified:
            return False
        if inner.is_reserved and not inner.is_loopback:
            return False
        if self._own.include(inner, port):
            return False
        if self._networks:
            return any(inner in network for network in self._networks)
        return self._allow_loopback or not inner.is_loopback


def family_of(address: Address) -> int:
    return int(socket.AF_INET if address.version == 4 else socket.AF_INET6)


@lru_cache(maxsize=1024)
def _read(networks: tuple[str, ...]) -> tuple[Network, ...]:
    return tuple(ip_network(network) for network in networks)


def plain_name(host: str) -> str:
    return host.strip("[]").rstrip(".").lower()


def _inner(address: Address) -> Address:
    """The IPv4 address that an IPv6 address contains, if any."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def _is_local(address: Address) -> bool:
    """Whether this machine has the address: only then can a socket bind to it."""
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True
