"""The address policy for webhooks: no connection to a refused address, and only to the checked one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_network

import pytest

from hub.outbound.client import Client
from hub.outbound.resolver import Resolve
from hub.outbound.webhook import HttpWebhooks
from hub.outbound.webhook_guard import PORTS, WebhookGuard, read_networks
from hub.ports.webhooks import WebhookRequest, WebhookResult
from rolecall.errors import InvalidParams, WebhookInsecure, WebhookRejected
from rolecall.model.ids import TaskId
from rolecall.model.push import PushConfig
from tests.helpers.raw_server import RawServer, always, answer

OK = always(answer(b"{}"))
PUBLIC = "93.184.215.14"
OWN = [("127.0.0.1", 8420), ("hub.example", 443)]


def webhook_request(url: str) -> WebhookRequest:
    return WebhookRequest("default", "t.c.1", PushConfig(TaskId("t"), "c", url, "0.3"), b"{}")


def resolver_of(*answers: str | Sequence[str]) -> Resolve:
    """Each lookup gets the next answer; the last one is repeated."""
    left = [[answer] if isinstance(answer, str) else list(answer) for answer in answers]

    async def resolve(workspace: str, host: str, port: int) -> Sequence[str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return resolve


async def failing_resolver(workspace: str, host: str, port: int) -> Sequence[str]:
    raise socket.gaierror


def guard_with(*, hosts: Sequence[str] = (), networks: Sequence[str] = (), resolver: Resolve | None = None) -> WebhookGuard:
    return WebhookGuard(hosts, [ip_network(text) for text in networks], OWN, resolve=resolver)


async def post(guard: WebhookGuard, url: str) -> WebhookResult:
    async with Client(guard) as client:
        return await HttpWebhooks(client, guard, lambda: 0.0, within=5).post(webhook_request(url))


class ConnectionCounter:
    """Listens on both loopback addresses, and counts connections."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.close()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[ConnectionCounter]:
        servers = [await asyncio.start_server(self._accept, "127.0.0.1", 0)]
        self.port = servers[0].sockets[0].getsockname()[1]
        if socket.has_ipv6:
            try:
                servers.append(await asyncio.start_server(self._accept, "::1", self.port))
            except OSError:
                pass
        try:
            yield self
        finally:
            for server in servers:
                server.close()
                await server.wait_closed()


LOOPBACK = ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0", "127.0.0.2", "127.255.255.254"]
LOOPBACK_6 = ["[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]"]
HIDDEN_6 = [
    "[64:ff9b::7f00:1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b:1::7f00:1]",
    "[2002:7f00:1::]",
    "[2001:0:7f00:1::]",
    "[fe80::1%25lo]",
    "[fe80::1]",
    "[fec0::1]",
    "[fd00:ec2::254]",
    "[ff02::1]",
    "[2001:db8::1]",
]
NOT_PUBLIC = [
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "198.18.0.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "192.88.99.1",
    "169.254.169.254",
    "168.63.129.16",
    "192.0.0.192",
    "192.0.2.1",
    "198.51.100.1",
    "203.0.113.1",
    "0.0.0.0",
]
NAMES = ["localhost", "localhost.", "LOCALHOST", "127。0。0。1", "①②⑦.⓪.⓪.①"]
EVERY_HOST = [*LOOPBACK, *LOOPBACK_6, *HIDDEN_6, *NOT_PUBLIC, *NAMES]


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("host", EVERY_HOST)
async def test_no_spelling_of_a_private_address_causes_a_connection(host: str, scheme: str) -> None:
    """The counter's port is allowed, so that over https only the address can be refused."""
    async with ConnectionCounter().listening() as counter:
        guard = WebhookGuard([], [], OWN, ports=PORTS | {counter.port})
        url = f"{scheme}://{host}:{counter.port}/"
        with pytest.raises(WebhookRejected, match=r"^webhook url rejected: "):
            await guard.check(url)
        assert (await post(guard, url)).status == 0
        assert counter.connections == 0


async def test_the_counter_counts_connections() -> None:
    """The same with the address allowed: otherwise the test above would prove nothing."""
    async with ConnectionCounter().listening() as counter:
        guard = WebhookGuard(["localhost"], [ip_network("127.0.0.0/8")], OWN)
        for host in ("localhost", "127.0.0.1"):
            await guard.check(f"http://{host}:{counter.port}/")
            await post(guard, f"http://{host}:{counter.port}/")
        assert counter.connections >= 2


@pytest.mark.parametrize(
    "url",
    [
        "https://{}#@8.8.8.8/",
        "https://8.8.8.8\\@{}/",
        "https://a@{}/",
        "https://a:b@{}/",
        "https://@{}/",
        "https:///x",
        "https://{}/#",
        "//{}/",
        "ftp://{}/",
        "file:///etc/passwd",
        "https://{}/a b",
        "https://{}/\r\nX-Evil: 1",
        "https://8.8.8.8:443@{}/",
        "https://{}\t/",
        "",
    ],
)
async def test_deceptive_urls_cause_no_connection(url: str) -> None:
    async with ConnectionCounter().listening() as counter:
        guard = WebhookGuard([], [ip_network("127.0.0.0/8")], OWN)
        full_url = url.format(f"127.0.0.1:{counter.port}")
        with pytest.raises(WebhookRejected):
            await guard.check(full_url)
        assert (await post(guard, full_url)).status == 0
        assert counter.connections == 0


@pytest.mark.parametrize("port", [22, 25, 80, 5432, 6379, 8420, 65535])
async def test_public_addresses_are_called_only_on_the_usual_ports(port: int) -> None:
    for resolver, host in ((None, PUBLIC), (resolver_of(PUBLIC), "app.example"), (None, "[2606:4700::1111]")):
        with pytest.raises(WebhookRejected, match="port"):
            await guard_with(resolver=resolver).check(f"https://{host}:{port}/")
    refused = await post(guard_with(), f"https://{PUBLIC}:{port}/")
    assert (refused.status, refused.why.startswith("webhook url rejected: its port must be ")) == (0, True)


@pytest.mark.parametrize("address", [PUBLIC, "8.8.8.8", "1.1.1.1", "2606:4700::1111", "64:ff9b::808:808"])
async def test_a_public_address_may_be_named_over_https(address: str) -> None:
    for url in ("https://app.example/hook?a=b", "https://APP.example.:8443/"):
        assert await guard_with(resolver=resolver_of(address)).check(url) == "app.example"


async def test_plain_http_has_an_error_of_its_own_if_it_is_the_only_fault() -> None:
    with pytest.raises(WebhookInsecure, match="https"):
        await guard_with(resolver=resolver_of(PUBLIC)).check("http://app.example/")
    with pytest.raises(WebhookRejected) as caught:
        await guard_with(resolver=resolver_of(PUBLIC)).check("https://app.example:25/")
    assert not isinstance(caught.value, WebhookInsecure)
    assert isinstance(caught.value, InvalidParams)


@pytest.mark.parametrize("private", [*NOT_PUBLIC, "::1", "fd12::1", "::ffff:10.0.0.1", "fe80::1%1", "nonsense"])
async def test_one_private_address_refuses_the_name(private: str) -> None:
    for answers in ([PUBLIC, private], [private, PUBLIC], [private]):
        guard = guard_with(resolver=resolver_of(answers))
        with pytest.raises(WebhookRejected, match="public addresses only"):
            await guard.check("https://app.example/")
        assert (await post(guard, "https://app.example/")).status == 0


async def test_an_unresolved_name_has_the_same_error_as_a_private_one() -> None:
    texts = set()
    for resolver in (failing_resolver, resolver_of("10.0.0.1"), resolver_of([])):
        with pytest.raises(WebhookRejected) as caught:
            await guard_with(resolver=resolver).check("https://app.example/")
        texts.add(caught.value.message)
    assert len(texts) == 1
    for name in ("no-such-host.invalid", "x" * 64 + ".invalid"):
        with pytest.raises(WebhookRejected):
            await guard_with().check(f"https://{name}/")


async def test_a_resolver_that_never_answers_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.outbound.webhook_guard._RESOLVE_TIMEOUT", 0.05)

    async def silent(workspace: str, host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return ()

    with pytest.raises(WebhookRejected, match="resolve"):
        await guard_with(resolver=silent).check("https://app.example/")
    assert (await post(guard_with(resolver=silent), "https://app.example/")).status == 0


async def test_a_name_that_turns_private_between_set_and_send_is_not_connected_to() -> None:
    async with ConnectionCounter().listening() as counter:
        resolver = resolver_of(PUBLIC, "127.0.0.1")
        guard = WebhookGuard([], [], OWN, ports=PORTS | {counter.port}, resolve=resolver)
        await guard.check(f"https://app.example:{counter.port}/")
        result = await post(guard, f"https://app.example:{counter.port}/")
        assert (result.status, result.why.startswith("webhook url rejected: its name must resolve")) == (0, True)
        assert counter.connections == 0


async def test_the_checked_address_is_the_one_connected_to() -> None:
    """A second lookup while connecting would return the counter's address."""
    async with ConnectionCounter().listening() as counter, RawServer(OK) as server:
        asked: list[str] = []

        async def resolver(workspace: str, host: str, port: int) -> Sequence[str]:
            asked.append(host)
            return ["127.0.0.1"] if len(asked) == 1 else ["::1"]

        guard = guard_with(networks=["127.0.0.0/8", "::1/128"], resolver=resolver)
        result = await post(guard, f"http://app.example:{server.port}/hook")
        assert (result.status, asked) == (200, ["app.example"])
        assert server.requests[0].headers["host"] == f"app.example:{server.port}"
        assert counter.connections == 0


@pytest.mark.parametrize(
    "url",
    ["http://app.example/", "https://app.example:9/", "https://10.0.0.1/", "https://app.example/", "http://127.0.0.1:8745/"],
)
async def test_a_refusal_names_the_setting_that_would_allow_it(url: str) -> None:
    with pytest.raises(WebhookRejected) as caught:
        await guard_with(resolver=resolver_of("10.0.0.1")).check(url)
    assert "unless ROLECALL_PUSH_ALLOWED_HOSTS on the hub names its host" in caught.value.message
    named = guard_with(hosts=["app.example", "10.0.0.1", "127.0.0.1"], resolver=resolver_of("10.0.0.1"))
    await named.check(url)


# --- what is allowed explicitly


async def test_an_allowed_host_is_not_checked() -> None:
    guard = guard_with(hosts=["Receiver", "10.0.0.9"], resolver=failing_resolver)
    for url in ("http://receiver/", "https://RECEIVER:6379/", "http://receiver.:80/x", "http://10.0.0.9:99/"):
        await guard.check(url)
    for url in ("http://receiver.example/", "http://xreceiver/", "http://10.0.0.8:99/"):
        with pytest.raises(WebhookRejected):
            await guard.check(url)


async def test_an_allowed_host_is_called_with_plain_http_on_any_port() -> None:
    async with RawServer(OK) as server:
        guard = guard_with(hosts=["localhost"])
        assert (await post(guard, f"http://localhost:{server.port}/")).status == 200


async def test_only_an_allowed_network_may_be_called_with_plain_http() -> None:
    guard = guard_with(networks=["10.1.0.0/16"], resolver=resolver_of("10.1.2.3"))
    await guard.check("http://app.example:6379/")
    await guard.check("http://10.1.2.3/")
    for answers in (["10.2.0.1"], [PUBLIC], ["10.1.2.3", PUBLIC], ["10.1.2.3", "127.0.0.1"]):
        with pytest.raises(WebhookRejected):
            await guard_with(networks=["10.1.0.0/16"], resolver=resolver_of(answers)).check("http://app.example/")
    await guard_with(networks=["10.1.0.0/16"], resolver=resolver_of(["10.1.2.3", PUBLIC])).check("https://app.example/")


async def test_plain_http_does_not_follow_a_name_out_of_the_allowed_network() -> None:
    guard = guard_with(networks=["10.1.0.0/16"], resolver=resolver_of("10.1.2.3", PUBLIC))
    await guard.check("http://app.example:443/")
    assert (await post(guard, "http://app.example:443/")).why.startswith("webhook url rejected: it must be https")


async def test_the_hub_never_calls_itself_unless_its_host_is_allowed() -> None:
    """Neither an allowed network with its address nor its public name suffices."""
    async with RawServer(OK) as hub:
        own = [("127.0.0.1", hub.port), ("hub.example", 443)]
        guard = WebhookGuard([], [ip_network("127.0.0.0/8")], own, resolve=resolver_of("127.0.0.1"))
        for url in (f"http://127.0.0.1:{hub.port}/", f"http://app.example:{hub.port}/", "https://hub.example/"):
            with pytest.raises(WebhookRejected, match="own address"):
                await guard.check(url)
            assert (await post(guard, url)).status == 0
        assert hub.peers == []
        allowed = WebhookGuard(["127.0.0.1"], [], own)
        await allowed.check(f"http://127.0.0.1:{hub.port}/")
        assert (await post(allowed, f"http://127.0.0.1:{hub.port}/")).status == 200


def test_an_invalid_network_is_skipped_and_reported() -> None:
    networks, unread = read_networks(["10.0.0.0/8", "10.0.0.0/33", "nonsense", "192.168.1.7/24", "fd00::/8"])
    assert [str(network) for network in networks] == ["10.0.0.0/8", "192.168.1.0/24", "fd00::/8"]
    assert unread == ["10.0.0.0/33", "nonsense"]
