"""The address policy for workers: which URLs are accepted, and where the hub connects."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from ipaddress import ip_network
from typing import Any

import pytest

from hub.outbound.client import Client, Policy
from hub.outbound.url import read_url
from hub.outbound.worker_guard import Guard, NotAllowed, Nowhere
from rolecall.errors import OfferInvalid, WorkerUnreachable
from rolecall.model.value import replace
from tests.helpers.listening import ask
from tests.helpers.raw_server import RawServer, always, answer

OPEN = Guard([], [], allow_loopback=True)
REMOTE_ONLY = Guard([], [("10.0.0.1", 8420)], allow_loopback=False)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9000",
        "http://127.0.0.1:9000/a2a?x=1",
        "https://worker.example/a2a",
        "http://[::1]:9000/",
        "http://worker_1.internal:9000/",
        "HTTP://Worker.Example",
        "http://10.1.2.3/",
        "http://3com.example/",
        "http://worker-1/",
        "http://8.8.8.8:65535/",
    ],
)
def test_an_ordinary_url_is_accepted(url: str) -> None:
    OPEN.check_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "worker:9000",
        "//worker:9000/",
        "file:///etc/passwd",
        "gopher://worker/",
        "unix:/run/worker.sock",
        "javascript:alert(1)",
        "http://",
        "http:///x",
        "http://:9000/",
        "http://user@worker/",
        "http://user:word@worker/",
        "http://@worker/",
        "http://127.0.0.1#@8.8.8.8/",
        "http://worker/#part",
        "http://worker/#",
        "http://8.8.8.8\\@127.0.0.1/",
        "http://worker/a b",
        "http://worker/\r\nX-Evil: 1",
        "http://worker/\t",
        "http://worker/\x00",
        " http://worker/",
        "http://worker/\n",
        "http://worker:0/",
        "http://worker:65536/",
        "http://worker:-1/",
        "http://worker:x/",
        "http://127。0。0。1/",
        "http://①②⑦.⓪.⓪.①/",
        "http://wörker/",
        "http://[fe80::1%25lo]/",
        "http://[::1/",
        "http://[worker]/",
        "http://.worker/",
        "http://wor%6ber/",
        "http://worker/" + "x" * 2048,
    ],
)
def test_a_malformed_or_deceptive_url_is_refused(url: str) -> None:
    with pytest.raises(OfferInvalid):
        OPEN.check_url(url)


VARIANT_HOSTS = [
    "127.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "0",
    "0x7f.1",
    "127.0.0.1.",
    "127.0.0.01",
    "1.2.3.4.5",
    "a.0x1",
]


@pytest.mark.parametrize("host", VARIANT_HOSTS)
async def test_a_nonstandard_spelling_of_an_address_is_refused(host: str) -> None:
    with pytest.raises(OfferInvalid, match="IPv4"):
        OPEN.check_url(f"http://{host}/")
    async with Client(OPEN) as client:
        with pytest.raises(WorkerUnreachable, match="IPv4"):
            await ask(client, f"http://{host}/", b"{}")


NEVER = [
    "169.254.169.254",
    "169.254.1.1",
    "100.100.100.200",
    "0.0.0.0",
    "0.1.2.3",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "192.88.99.1",
    "::",
    "fe80::1",
    "fec0::1",
    "ff02::1",
    "fd00:ec2::254",
    "::ffff:169.254.169.254",
    "::ffff:a9fe:a9fe",
    "::169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "2002:a9fe:a9fe::1",
    "2001:0:a9fe:a9fe::1",
    "::ffff:0.0.0.0",
    "2002:e000:1::",
]


@pytest.mark.parametrize("address", NEVER)
async def test_some_addresses_are_never_allowed(address: str) -> None:
    everything = Guard([ip_network("0.0.0.0/0"), ip_network("::/0")], [], allow_loopback=True)
    for guard in (OPEN, everything):
        with pytest.raises(NotAllowed):
            await guard.resolve(address, 9000)
        with pytest.raises(OfferInvalid, match="policy"):
            guard.check_url(f"http://{f'[{address}]' if ':' in address else address}:9000/")


LOOPBACK = [
    "127.0.0.1",
    "127.9.9.9",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:7f00:1",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
]


@pytest.mark.parametrize("address", LOOPBACK)
async def test_loopback_is_allowed_only_by_the_option(address: str) -> None:
    assert [found for _, found in await OPEN.resolve(address, 9000)]
    with pytest.raises(NotAllowed):
        await REMOTE_ONLY.resolve(address, 9000)


@pytest.mark.parametrize(
    "address", ["10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "8.8.8.8", "fd12::1", "2606:4700::1111"]
)
async def test_without_networks_any_other_unicast_address_is_allowed(address: str) -> None:
    assert [found for _, found in await REMOTE_ONLY.resolve(address, 9000)] == [address]


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("10.2.0.1", False),
        ("8.8.8.8", False),
        ("127.0.0.1", False),
        ("fd12::1", True),
    ],
)
async def test_only_the_given_networks_are_allowed(address: str, allowed: bool) -> None:
    guard = Guard([ip_network("10.1.0.0/16"), ip_network("fd12::/16")], [], allow_loopback=True)
    if allowed:
        await guard.resolve(address, 9000)
    else:
        with pytest.raises(NotAllowed):
            await guard.resolve(address, 9000)


@pytest.mark.parametrize(
    ("own", "host"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "::ffff:127.0.0.1"),
        ("0.0.0.0", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.2"),
        ("::", "::1"),
        ("[::1]", "::1"),
        ("localhost", "127.0.0.1"),
        ("localhost", "LOCALHOST."),
        ("hub.example", "Hub.Example"),
        ("127.0.0.1", "localhost"),
    ],
)
async def test_the_hub_never_calls_itself(own: str, host: str) -> None:
    guard = Guard([], [(own, 8420)], allow_loopback=True)
    with pytest.raises(NotAllowed):
        await guard.resolve(host, 8420)


async def test_another_port_of_the_hubs_machine_is_allowed() -> None:
    guard = Guard([], [("0.0.0.0", 8420), ("localhost", 8420)], allow_loopback=True)
    assert await guard.resolve("127.0.0.1", 9000) == ((socket.AF_INET, "127.0.0.1"),)


async def test_an_address_of_another_machine_is_not_the_hubs_own() -> None:
    guard = Guard([], [("0.0.0.0", 8420)], allow_loopback=True)
    assert await guard.resolve("203.0.113.7", 8420)


LOOKUP = "hub.outbound.resolver.getaddrinfo"


def resolver_of(*addresses: str) -> Any:
    def getaddrinfo(*_: Any, **__: Any) -> Sequence[tuple[Any, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]

    return getaddrinfo


async def test_one_forbidden_answer_refuses_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LOOKUP, resolver_of("8.8.8.8", "169.254.169.254"))
    with pytest.raises(NotAllowed):
        await OPEN.resolve("worker.example", 80)


async def test_a_name_that_resolves_differently_is_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LOOKUP, resolver_of("8.8.8.8"))
    assert await OPEN.resolve("worker.example", 80)
    monkeypatch.setattr(LOOKUP, resolver_of("169.254.169.254"))
    with pytest.raises(NotAllowed):
        await OPEN.resolve("worker.example", 80)


async def test_the_checked_address_is_the_one_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    async with RawServer(always(answer(b"{}"))) as server, Client(OPEN) as client:
        monkeypatch.setattr(LOOKUP, resolver_of("127.0.0.1"))
        response = await ask(client, f"http://worker.example:{server.port}/", b"{}")
        assert await response.read_all() == b"{}"
        assert server.requests[0].headers["host"] == f"worker.example:{server.port}"


@pytest.mark.parametrize("policy", [REMOTE_ONLY, Nowhere()])
async def test_a_refusal_at_connect_means_that_nothing_was_sent(policy: Policy) -> None:
    async with RawServer(always(answer(b"{}"))) as server, Client(policy) as client:
        with pytest.raises(WorkerUnreachable, match="not allowed by policy"):
            await ask(client, server.url, b"{}")
        assert not await client.probe(server.url, 1)
    assert server.peers == []


async def test_a_name_that_cannot_be_resolved_is_unreachable() -> None:
    async with Client(OPEN) as client:
        for host in ("no-such-host.invalid", "x" * 64 + ".invalid"):
            with pytest.raises(WorkerUnreachable, match="does not resolve"):
                await ask(client, f"http://{host}/", b"{}")


# --- the networks of the token that enrolled it

NEAR, FAR = ("127.0.0.0/8",), ("10.9.0.0/16",)


def test_a_literal_address_outside_a_tokens_networks_is_refused() -> None:
    networks = [ip_network("10.9.0.0/16"), ip_network("fd12::/16")]
    for host in ("10.9.1.1", "[fd12::1]", "[::ffff:10.9.1.1]", "checked-later.example"):
        OPEN.check_url(f"http://{host}:9000/", networks)
    for host in ("10.8.1.1", "[fd13::1]", "[::ffff:10.8.1.1]", "8.8.8.8"):
        with pytest.raises(OfferInvalid, match="networks of the token"):
            OPEN.check_url(f"http://{host}:9000/", networks)


async def test_every_address_of_a_name_must_lie_in_the_tokens_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    target = replace(read_url("http://worker.example/"), within=FAR)
    monkeypatch.setattr(LOOKUP, resolver_of("10.9.1.1", "10.9.1.2"))
    assert len(await OPEN.addresses(target)) == 2
    monkeypatch.setattr(LOOKUP, resolver_of("10.9.1.1", "10.8.1.2"))
    with pytest.raises(NotAllowed):
        await OPEN.addresses(target)


async def test_a_tokens_networks_are_checked_at_connect_despite_pooled_connections() -> None:
    async with RawServer(always(answer(b"{}"))) as server, Client(OPEN) as client:
        for within in ((), NEAR):
            await (await ask(client, server.url, b"{}", within=within)).read_all()
        assert len(server.peers) == 2, "connections under different policies are not shared"
        with pytest.raises(WorkerUnreachable, match="not allowed by policy"):
            await ask(client, server.url, b"{}", within=FAR)
        assert not await client.probe(server.url, 1, FAR)
        assert await client.probe(server.url, 1, NEAR)
        assert len(server.requests) == 2
