"""The hub reads the card of an agent of which it knows the URL alone, from scripted servers on real sockets."""

from __future__ import annotations

import json
import ssl
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from hub.identity.vault import SealingVault, random_key
from hub.outbound.card_source import HttpCards
from hub.outbound.client import Client, ClientLimits
from hub.outbound.worker_guard import Guard
from hub.ports.card_source import CardAnswer, Reach
from hub.ports.shares import Unlimited
from rolecall.errors import Overloaded
from rolecall.model.card import HTTP_JSON, JSONRPC, Interface
from rolecall.model.ids import WorkerId
from rolecall.model.worker import CardState, Offer
from tests.helpers.certificates import new_authority
from tests.helpers.raw_server import Peer, RawServer, Script, always, answer, chunk, chunked_head

pytestmark = pytest.mark.virtual_time

GUARD = Guard([], [], allow_loopback=True)
NEW, OLD = "/.well-known/agent-card.json", "/.well-known/agent.json"
NOT_FOUND = answer(b"{}", status="404 Not Found")
WRONG_SKILLS = "card.skills must be a list of at most 100 objects, with their tags in a list"
CARD = {"name": "Echo", "capabilities": {"streaming": True}, "skills": [{"id": "say", "tags": ["a"]}]}


def an_offer(url: str, **members: Any) -> Offer:
    return Offer(WorkerId("echo", "1"), url, card_by_url=True, **members)


def cards(client: Client, vault: SealingVault | None = None, *, max_card: int = 4096) -> HttpCards:
    return HttpCards(client, GUARD, vault, max_card=max_card, max_depth=32)


def serving(documents: dict[str, bytes]) -> Script:
    """Answers by path, and 404 elsewhere."""

    async def script(peer: Peer) -> None:
        while (request := await peer.read_request()) is not None:
            await peer.write(documents.get(request.line.split()[1], NOT_FOUND))

    return script


def paths(server: RawServer) -> list[str]:
    return [request.line.removesuffix(" HTTP/1.1") for request in server.requests]


def document(card: object, **head: str) -> bytes:
    return answer(json.dumps(card).encode(), **head)


async def read(client: Client, url: str, known: CardState | None = None, **members: Any) -> CardAnswer:
    return await cards(client).read("default", an_offer(url, **members), known)


async def test_the_offer_has_what_the_card_says(client: Client) -> None:
    async with RawServer(
        serving({NEW: document(CARD | {"protocolVersion": "0.3.0", "url": "http://x/"}, more='ETag: "7"\r\n')})
    ) as server:
        found = await read(client, server.url)
    assert (found.reach, found.url, found.etag) == (Reach.ANSWERED, server.url[:-1] + NEW, '"7"')
    assert found.offer is not None
    assert (found.offer.streaming, found.offer.skills) == (True, ({"id": "say", "tags": ["a"]},))
    assert found.offer.interfaces == (Interface(server.url, JSONRPC, "0.3"),)


async def test_both_well_known_paths_are_asked_below_the_url_and_at_the_root(client: Client) -> None:
    async with RawServer(serving({})) as server:
        missing = await read(client, f"{server.url}agents/echo/")
    assert paths(server) == [f"GET {path}" for path in (f"/agents/echo{NEW}", f"/agents/echo{OLD}", NEW, OLD)]
    assert missing == CardAnswer(Reach.ANSWERED, f"{server.url}agents/echo{NEW}: HTTP 404")


async def test_a_card_that_is_there_and_wrong_says_more_than_one_that_is_not(client: Client) -> None:
    async with RawServer(serving({OLD: document([])})) as server:
        assert (await read(client, server.url)).note == f"{server.url[:-1]}{OLD}: it is not a card"


async def test_a_known_card_is_asked_for_where_it_was_and_with_its_etag(client: Client) -> None:
    async with RawServer(serving({OLD: answer(b"", status="304 Not Modified")})) as server:
        known = CardState(server.url, server.url[:-1] + OLD, '"7"')
        same = await read(client, server.url, known)
        assert same == CardAnswer(Reach.ANSWERED, "", None, known.url, '"7"')
        assert paths(server) == [f"GET {OLD}"]
        assert server.requests[0].headers["if-none-match"] == '"7"'
        other = CardState("http://other/", "http://other/card", '"7"')
        assert (await read(client, server.url, other)).offer is None
    assert paths(server)[1:] == [f"GET {NEW}", f"GET {OLD}"]
    assert "if-none-match" not in server.requests[1].headers


async def test_a_card_that_has_moved_is_found_again(client: Client) -> None:
    async with RawServer(serving({NEW: document(CARD)})) as server:
        found = await read(client, server.url, CardState(server.url, server.url[:-1] + OLD, '"7"'))
    assert paths(server) == [f"GET {OLD}", f"GET {NEW}"]
    assert "if-none-match" not in server.requests[1].headers
    assert found.offer is not None


async def test_the_worker_gets_the_credential_that_calls_have(client: Client) -> None:
    vault = SealingVault(random_key())
    sealed = b64encode(vault.seal(b"Bearer s3cret")).decode()
    async with RawServer(always(document(CARD))) as server:
        found = await cards(client, vault).read("default", an_offer(server.url, credential=sealed), None)
        assert found.offer is not None
        assert server.requests[0].headers["authorization"] == "Bearer s3cret"
        unread = await cards(client, SealingVault(random_key())).read("default", an_offer(server.url, credential=sealed), None)
    assert (unread.reach, len(server.requests)) == (Reach.NOT_ASKED, 1)


# --- where calls go


@pytest.mark.parametrize(
    ("path", "card_url", "expected"),
    [
        ("/", "/", "/"),
        ("/", "/a2a/jsonrpc", "/a2a/jsonrpc"),
        ("/agents/echo", "/agents/echo/rpc", "/agents/echo/rpc"),
        ("/agents/echo", "/agents/echo-2/rpc", "/agents/echo"),
        ("/agents/echo/", "/", "/agents/echo/"),
        ("/a2a", "/rpc", "/a2a"),
    ],
)
async def test_calls_go_to_the_cards_path_if_it_is_below_the_url(
    client: Client, path: str, card_url: str, expected: str
) -> None:
    async with RawServer(always(b"")) as server:
        base = server.url[:-1]
    entries = [{"url": f"http://inside:9{card_url}", "protocolBinding": binding} for binding in (JSONRPC, HTTP_JSON)]
    async with RawServer(always(document(CARD | {"supportedInterfaces": entries}))) as server:
        base = server.url[:-1]
        found = await read(client, base + path)
    assert found.offer is not None
    assert [interface.url for interface in found.offer.interfaces] == [base + expected] * 2
    assert found.note == "it names inside:9: calls go to the host of the agent's own URL"


# --- hostile servers


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (document("x" * 5000), "it is larger than 4096 bytes (max_card)"),
        (chunked_head("application/json") + chunk(b" " * 5000), "it is larger than 4096 bytes (max_card)"),
        (answer(b'{"name":' + b"[" * 40 + b"]" * 40 + b"}"), "it is not JSON, or nested too deeply"),
        (answer(b'{"name": "a", "x": 1e999}'), "it is not JSON, or nested too deeply"),
        (answer(b"<html>"), "it is not JSON, or nested too deeply"),
        (document({"name": 7}), "it is not a card"),
        (document({"name": "a", "skills": "many"}), WRONG_SKILLS),
        (document({"name": "a", "skills": [{}] * 101}), WRONG_SKILLS),
        (document({"name": "a", "skills": [{"tags": 5}]}), WRONG_SKILLS),
        (document({"name": "a", "capabilities": []}), "card.capabilities must be an object"),
        (
            answer(b"", status="302 Found", more="Location: http://169.254.169.254/latest/meta-data\r\n"),
            "HTTP 302, and the hub follows no redirects",
        ),
        (answer(b"", status="401 Unauthorized"), "it asks for a credential (HTTP 401), and the hub has none for it"),
        (answer(b"", status="403 Forbidden"), "HTTP 403"),
    ],
)
async def test_what_is_no_card_is_told_and_not_kept(client: Client, given: bytes, why: str) -> None:
    async with RawServer(always(given)) as server:
        found = await read(client, server.url)
    assert found == CardAnswer(Reach.ANSWERED, f"{server.url[:-1]}{NEW}: {why}")


@pytest.mark.parametrize(
    "members",
    [
        {"url": 5, "supportedInterfaces": {"a": 1}, "additionalInterfaces": [7, None]},
        {"capabilities": {"extensions": "x", "streaming": "yes"}, "authentication": {"schemes": 4}},
        {"description": ["x"], "defaultInputModes": True, "securitySchemes": 7, "url": "http://[::1"},
    ],
)
async def test_members_of_wrong_types_mean_nothing(client: Client, members: dict[str, Any]) -> None:
    async with RawServer(always(document({"name": "a"} | members))) as server:
        found = await read(client, server.url)
    assert found.offer is not None
    assert (found.offer.streaming, found.offer.interfaces) == (False, (Interface(server.url, JSONRPC, "0.3"),))


async def test_a_server_that_drips_has_a_few_seconds(client: Client) -> None:
    async def slow(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(chunked_head("application/json"))
        await peer.gone()

    async with RawServer(slow) as server:
        found = await read(client, server.url)
        assert found == CardAnswer(Reach.SILENT, f"no card came from {server.url} within 5 s")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (answer(b"", status="503 Service Unavailable"), f"{NEW}: HTTP 503"),
        (b"SSH-2.0-OpenSSH\r\n", "/: it is not proper HTTP/1.1"),
        (answer(b"x", more="Content-Encoding: gzip\r\n"), "/: it is compressed, which the hub had ruled out"),
    ],
)
async def test_a_server_that_does_not_serve_counts_as_silent(client: Client, given: bytes, why: str) -> None:
    async with RawServer(always(given)) as server:
        assert await read(client, server.url) == CardAnswer(Reach.SILENT, server.url[:-1] + why)


async def test_a_long_etag_is_not_kept(client: Client) -> None:
    async with RawServer(always(document(CARD, more=f"ETag: {'e' * 300}\r\n"))) as server:
        assert (await read(client, server.url)).etag == ""


async def test_nothing_listens_there(client: Client) -> None:
    async with RawServer(always(b"")) as server:
        url = server.url
    assert await read(client, url) == CardAnswer(Reach.REFUSED, f"{url[:-1]}: connection refused")


async def test_an_address_outside_of_the_policy_is_not_asked(client: Client) -> None:
    async with RawServer(always(document(CARD))) as server, Client(Guard([], [], allow_loopback=False)) as strict_client:
        outside = await read(client, server.url, networks=("10.0.0.0/8",))
        refused = await read(strict_client, server.url)
    assert outside == refused == CardAnswer(Reach.SILENT, f"{server.url[:-1]}: address not allowed by policy")
    assert server.requests == []


async def test_a_hub_without_a_connection_blames_nobody() -> None:
    class UsedUp(Unlimited):
        def take(self, workspace: str, amount: int = 1) -> None:
            raise Overloaded("connections", 1, "max_worker_connections")

    async with Client(Guard([], [], allow_loopback=True), ClientLimits(), share=UsedUp()) as client:
        found = await read(client, "http://127.0.0.1:9/")
    assert found == CardAnswer(Reach.NOT_ASKED, "the hub has no connection for it")


# --- addresses


async def test_an_agent_is_asked_at_its_address_under_its_name(client: Client) -> None:
    async with RawServer(always(document(CARD))) as server:
        url = f"http://agents.example:{server.port}/"
        found = await read(client, url, address="127.0.0.1")
        assert found.offer is not None and found.url == f"{url[:-1]}{NEW}"
        assert server.requests[0].headers["host"] == f"agents.example:{server.port}"
        assert await client.probe(url, 1.0, address="127.0.0.1")
        assert not await client.probe(url, 1.0, address="169.254.169.254")
        outside = await read(client, url, address="127.0.0.1", networks=("10.0.0.0/8",))
        assert outside.note == f"{url[:-1]}: address not allowed by policy"
        other = await read(client, url, address="127.0.0.2")
    assert other.reach is Reach.REFUSED, "a connection to another address of the name is not used"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://10.0.0.5/", [("", "10.0.0.5-80")]),
        ("https://[::1]:9000/", [("", "0::1-9000")]),
        ("http://two.example:7/", [("10.0.0.2", "10.0.0.2-7"), ("fd00::9", "fd00::9-7")]),
        ("http://forbidden.example/", None),
        ("http://unknown.example/", None),
        ("http://a b/", None),
    ],
)
async def test_an_agent_per_address_of_its_name(client: Client, url: str, expected: Any) -> None:
    async def resolve(workspace: str, host: str, port: int) -> list[str]:
        names = {"two.example": ["fd00::9", "10.0.0.2"], "forbidden.example": ["10.0.0.2", "169.254.169.254"]}
        if host not in names:
            raise OSError
        return names[host]

    guard = Guard([], [], allow_loopback=True, resolve=resolve)
    source = HttpCards(client, guard, max_card=100, max_depth=32)
    assert await source.addresses("default", url) == expected


async def test_the_certificate_is_for_the_name_and_not_for_the_address(tmp_path: Path) -> None:
    authority = new_authority(tmp_path)
    named, other = authority.certificate("agents.example"), authority.certificate("other.example")
    trust = ssl.create_default_context(cafile=authority.file)
    async with Client(GUARD, tls=trust) as client:
        for certificate, reach in ((named, Reach.ANSWERED), (other, Reach.SILENT)):
            async with RawServer(always(document(CARD)), tls=certificate.server_context()) as server:
                url = f"https://agents.example:{server.port}/"
                assert (await read(client, url, address="127.0.0.1")).reach is reach
