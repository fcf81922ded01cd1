"""Where webhooks may go: nothing that is refused is ever connected to, and what was judged is what is connected to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_network

import pytest

from hub.outbound.client import Client
from hub.outbound.webhook import HttpWebhooks
from hub.outbound.webhook_guard import PORTS, Resolver, WebhookGuard, read_networks
from hub.ports.webhooks import WebhookRequest, WebhookResult
from rolecall.errors import InvalidParams, WebhookInsecure, WebhookRejected
from rolecall.model.ids import TaskId
from rolecall.model.push import PushConfig
from tests.helpers.raw_server import RawServer, always, answer

OK = always(answer(b"{}"))
PUBLIC = "93.184.215.14"
OWN = [("127.0.0.1", 8420), ("hub.example", 443)]


def a_letter(url: str) -> WebhookRequest:
    return WebhookRequest("t.c.1", PushConfig(TaskId("t"), "c", url, "0.3"), b"{}")


def resolving(*answers: str | Sequence[str]) -> Resolver:
    """Each question gets the next answer; the last one stays."""
    left = [[answer] if isinstance(answer, str) else list(answer) for answer in answers]

    async def resolve(host: str, port: int) -> Sequence[str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return resolve


async def unresolvable(host: str, port: int) -> Sequence[str]:
    raise socket.gaierror


def a_guard(*, hosts: Sequence[str] = (), networks: Sequence[str] = (), resolver: Resolver | None = None) -> WebhookGuard:
    return WebhookGuard(hosts, [ip_network(text) for text in networks], OWN, resolver=resolver)


async def posted(guard: WebhookGuard, url: str) -> WebhookResult:
    async with Client(guard) as client:
        return await HttpWebhooks(client, guard, lambda: 0.0, within=5).post(a_letter(url))


class Canary:
    """Listens on both loopback addresses, and sings if anybody connects."""

    def __init__(self) -> None:
        self.port = 0
        self.touched = 0

    def _touch(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.touched += 1
        writer.close()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Canary]:
        servers = [await asyncio.start_server(self._touch, "127.0.0.1", 0)]
        self.port = servers[0].sockets[0].getsockname()[1]
        if socket.has_ipv6:
            try:
                servers.append(await asyncio.start_server(self._touch, "::1", self.port))
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
async def test_no_spelling_of_an_address_that_is_not_public_causes_a_connection(host: str, scheme: str) -> None:
    """The canary's port counts as a usual one, so that over https nothing but the address is left to refuse."""
    async with Canary().listening() as canary:
        guard = WebhookGuard([], [], OWN, ports=PORTS | {canary.port})
        url = f"{scheme}://{host}:{canary.port}/"
        with pytest.raises(WebhookRejected, match=r"^webhook url rejected: "):
            await guard.check(url)
        assert (await posted(guard, url)).status == 0
        assert canary.touched == 0


async def test_the_canary_sings() -> None:
    """The same way, with the address allowed: else the test above would show nothing."""
    async with Canary().listening() as canary:
        guard = WebhookGuard(["localhost"], [ip_network("127.0.0.0/8")], OWN)
        for host in ("localhost", "127.0.0.1"):
            await guard.check(f"http://{host}:{canary.port}/")
            await posted(guard, f"http://{host}:{canary.port}/")
        assert canary.touched >= 2


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
async def test_tricks_in_a_url_cause_no_connection(url: str) -> None:
    async with Canary().listening() as canary:
        guard = WebhookGuard([], [ip_network("127.0.0.0/8")], OWN)
        hostile = url.format(f"127.0.0.1:{canary.port}")
        with pytest.raises(WebhookRejected):
            await guard.check(hostile)
        assert (await posted(guard, hostile)).status == 0
        assert canary.touched == 0


@pytest.mark.parametrize("port", [22, 25, 80, 5432, 6379, 8420, 65535])
async def test_public_addresses_are_called_on_the_usual_ports_alone(port: int) -> None:
    for resolver, host in ((None, PUBLIC), (resolving(PUBLIC), "app.example"), (None, "[2606:4700::1111]")):
        with pytest.raises(WebhookRejected, match="port"):
            await a_guard(resolver=resolver).check(f"https://{host}:{port}/")
    assert (await posted(a_guard(), f"https://{PUBLIC}:{port}/")).why == "address not allowed by policy"


@pytest.mark.parametrize("address", [PUBLIC, "8.8.8.8", "1.1.1.1", "2606:4700::1111", "64:ff9b::808:808"])
async def test_a_public_address_may_be_named_over_https(address: str) -> None:
    for url in ("https://app.example/hook?a=b", "https://APP.example.:8443/"):
        assert await a_guard(resolver=resolving(address)).check(url) == "app.example"


async def test_plain_http_is_said_to_be_the_only_fault_where_it_is() -> None:
    with pytest.raises(WebhookInsecure, match="https"):
        await a_guard(resolver=resolving(PUBLIC)).check("http://app.example/")
    with pytest.raises(WebhookRejected) as caught:
        await a_guard(resolver=resolving(PUBLIC)).check("https://app.example:25/")
    assert not isinstance(caught.value, WebhookInsecure)
    assert isinstance(caught.value, InvalidParams)


@pytest.mark.parametrize("private", [*NOT_PUBLIC, "::1", "fd12::1", "::ffff:10.0.0.1", "fe80::1%1", "nonsense"])
async def test_one_answer_that_is_not_public_refuses_the_name(private: str) -> None:
    for answers in ([PUBLIC, private], [private, PUBLIC], [private]):
        guard = a_guard(resolver=resolving(answers))
        with pytest.raises(WebhookRejected, match="public addresses only"):
            await guard.check("https://app.example/")
        assert (await posted(guard, "https://app.example/")).status == 0


async def test_a_name_without_an_address_is_refused_in_the_same_words_as_a_private_one() -> None:
    texts = set()
    for resolver in (unresolvable, resolving("10.0.0.1"), resolving([])):
        with pytest.raises(WebhookRejected) as caught:
            await a_guard(resolver=resolver).check("https://app.example/")
        texts.add(caught.value.message)
    assert len(texts) == 1
    for name in ("no-such-host.invalid", "x" * 64 + ".invalid"):
        with pytest.raises(WebhookRejected):
            await a_guard().check(f"https://{name}/")


async def test_a_resolver_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.outbound.webhook_guard._RESOLVE_WITHIN", 0.05)

    async def silent(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return ()

    with pytest.raises(WebhookRejected, match="resolve"):
        await a_guard(resolver=silent).check("https://app.example/")
    assert (await posted(a_guard(resolver=silent), "https://app.example/")).status == 0


async def test_a_name_that_changes_its_meaning_between_set_and_send_is_not_connected_to() -> None:
    async with Canary().listening() as canary:
        resolver = resolving(PUBLIC, "127.0.0.1")
        guard = WebhookGuard([], [], OWN, ports=PORTS | {canary.port}, resolver=resolver)
        await guard.check(f"https://app.example:{canary.port}/")
        receipt = await posted(guard, f"https://app.example:{canary.port}/")
        assert (receipt.status, receipt.why) == (0, "address not allowed by policy")
        assert canary.touched == 0


async def test_the_address_that_was_judged_is_the_one_that_is_connected_to() -> None:
    """Whoever resolves the name once more while connecting gets another address, where the canary sits."""
    async with Canary().listening() as canary, RawServer(OK) as server:
        asked: list[str] = []

        async def resolver(host: str, port: int) -> Sequence[str]:
            asked.append(host)
            return ["127.0.0.1"] if len(asked) == 1 else ["::1"]

        guard = a_guard(networks=["127.0.0.0/8", "::1/128"], resolver=resolver)
        receipt = await posted(guard, f"http://app.example:{server.port}/hook")
        assert (receipt.status, asked) == (200, ["app.example"])
        assert server.requests[0].headers["host"] == f"app.example:{server.port}"
        assert canary.touched == 0


# --- what is allowed explicitly


async def test_an_allowed_host_is_not_judged_at_all() -> None:
    guard = a_guard(hosts=["Receiver", "10.0.0.9"], resolver=unresolvable)
    for url in ("http://receiver/", "https://RECEIVER:6379/", "http://receiver.:80/x", "http://10.0.0.9:99/"):
        await guard.check(url)
    for url in ("http://receiver.example/", "http://xreceiver/", "http://10.0.0.8:99/"):
        with pytest.raises(WebhookRejected):
            await guard.check(url)


async def test_an_allowed_host_is_called_with_plain_http_on_any_port() -> None:
    async with RawServer(OK) as server:
        guard = a_guard(hosts=["localhost"])
        assert (await posted(guard, f"http://localhost:{server.port}/")).status == 200


async def test_an_allowed_network_may_be_called_with_plain_http_and_nothing_else_may() -> None:
    guard = a_guard(networks=["10.1.0.0/16"], resolver=resolving("10.1.2.3"))
    await guard.check("http://app.example:6379/")
    await guard.check("http://10.1.2.3/")
    for answers in (["10.2.0.1"], [PUBLIC], ["10.1.2.3", PUBLIC], ["10.1.2.3", "127.0.0.1"]):
        with pytest.raises(WebhookRejected):
            await a_guard(networks=["10.1.0.0/16"], resolver=resolving(answers)).check("http://app.example/")
    await a_guard(networks=["10.1.0.0/16"], resolver=resolving(["10.1.2.3", PUBLIC])).check("https://app.example/")


async def test_plain_http_does_not_follow_a_name_out_of_the_allowed_network() -> None:
    guard = a_guard(networks=["10.1.0.0/16"], resolver=resolving("10.1.2.3", PUBLIC))
    await guard.check("http://app.example:443/")
    assert (await posted(guard, "http://app.example:443/")).why == "address not allowed by policy"


async def test_the_hub_is_never_made_to_call_itself() -> None:
    """Not by a network that holds its address, nor by its public name; only by a host that is allowed."""
    async with RawServer(OK) as hub:
        own = [("127.0.0.1", hub.port), ("hub.example", 443)]
        guard = WebhookGuard([], [ip_network("127.0.0.0/8")], own, resolver=resolving("127.0.0.1"))
        for url in (f"http://127.0.0.1:{hub.port}/", f"http://app.example:{hub.port}/", "https://hub.example/"):
            with pytest.raises(WebhookRejected, match="own address"):
                await guard.check(url)
            assert (await posted(guard, url)).status == 0
        assert hub.peers == []
        allowed = WebhookGuard(["127.0.0.1"], [], own)
        await allowed.check(f"http://127.0.0.1:{hub.port}/")
        assert (await posted(allowed, f"http://127.0.0.1:{hub.port}/")).status == 200


def test_a_network_that_cannot_be_read_is_left_out_and_told() -> None:
    networks, unread = read_networks(["10.0.0.0/8", "10.0.0.0/33", "nonsense", "192.168.1.7/24", "fd00::/8"])
    assert [str(network) for network in networks] == ["10.0.0.0/8", "192.168.1.0/24", "fd00::/8"]
    assert unread == ["10.0.0.0/33", "nonsense"]
