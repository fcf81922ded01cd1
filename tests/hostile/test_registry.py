"""Inputs 29 to 40: faults in an enrolment, its sender, or a heartbeat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.acceptance.test_tokens import new_token
from tests.helpers.client import text_message
from tests.helpers.processes import HubProcess, start_hub
from tests.helpers.raw_server import Peer, RawServer, Script, always, answer, chunk, chunked_head
from tests.helpers.waiting import until

pytestmark = pytest.mark.usefixtures("hub_healthy")

HTML = "<img src=x onerror=alert(1)>"
DONE = answer(b'{"jsonrpc":"2.0","id":"1","result":{"kind":"task","id":"t","contextId":"c","status":{"state":"completed"}}}')
LIMIT = 20


@dataclass
class Tokens:
    """A hub with tokens; `first` and `second` may enrol under the same roles, `near` and `far` in one network each."""

    hub: HubProcess
    first: str
    second: str
    other: str
    near: str
    far: str
    client: str


PUBLIC_TOKEN = "t" * 40


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokens]:
    data = tmp_path_factory.mktemp("tokens")
    worker = ("--kind", "worker", "--role", "r*")
    first, second = new_token(data, "--name", "first", *worker), new_token(data, "--name", "second", *worker)
    other = new_token(data, "--name", "other", "--kind", "worker", "--role", "s")
    near = new_token(data, "--name", "near", *worker, "--network", "127.0.0.0/8")
    far = new_token(data, "--name", "far", *worker, "--network", "10.9.0.0/16")
    client = new_token(data, "--name", "client")
    with start_hub(data, max_agents_per_token=LIMIT, max_rate=0) as hub:
        yield Tokens(hub, first, second, other, near, far, client)


@asynccontextmanager
async def client_of(hub: HubProcess, token: str | None = None) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    async with httpx.AsyncClient(base_url=hub.url, trust_env=False, verify=False, timeout=20, headers=headers) as client:
        yield client


async def enrol(http: httpx.AsyncClient, name: str, url: str = "http://127.0.0.1:9/", **members: Any) -> httpx.Response:
    role, _, instance = name.partition(":")
    return await http.put(f"/registry/agents/{role}/{instance}", json={"url": url, **members})


async def test_29_and_30_markup_is_data(http: httpx.AsyncClient) -> None:
    card = {
        "name": HTML,
        "description": HTML,
        "documentationUrl": "javascript:alert(1)",
        "provider": {"organization": HTML, "url": "javascript:alert(1)"},
        "skills": [{"id": HTML, "name": HTML, "description": HTML, "tags": [HTML]}],
    }
    assert (await enrol(http, "xss:a", card=card, description=HTML)).status_code == 201
    for path in ("/registry/agents", "/registry/agents/xss:a", "/agents/xss/.well-known/agent-card.json", "/metrics"):
        page = await http.get(path)
        assert page.status_code == 200
        assert not page.headers["content-type"].startswith("text/html")
    for path in ("/", "/dashboard/"):
        page = await http.get(path, headers={"Accept": "text/html"}, follow_redirects=True)
        assert HTML not in page.text
        assert "javascript:" not in page.text
    await http.delete("/registry/agents/xss:a")


async def test_one_wrong_card_does_not_break_the_card_of_its_role(http: httpx.AsyncClient) -> None:
    good = {"name": "good", "defaultInputModes": ["image/png"], "skills": [{"id": "draw", "tags": ["art"]}]}
    assert (await enrol(http, "mixed:good", card=good)).status_code == 201
    members = ("defaultInputModes", "defaultOutputModes", "name", "provider", "url", "preferredTransport", "protocolVersion")
    members += ("supportedInterfaces", "additionalInterfaces", "securitySchemes", "security", "version", "iconUrl")
    for wrong in (True, 7, "text", {"a": 1}, [True, {"url": "http://[::1"}], None):
        card = {
            **dict.fromkeys(members, wrong),
            "capabilities": {"extensions": wrong},
            "skills": [{"id": wrong, "name": wrong}],
        }
        assert (await enrol(http, "mixed:wrong", card=card)).status_code in (200, 201)
        for path in (
            "/agents/mixed/.well-known/agent-card.json",
            "/registry/agents?role=mixed",
            "/.well-known/ai-catalog.json",
        ):
            assert (await http.get(path)).status_code == 200, (wrong, path)
        served = (await http.get("/agents/mixed/.well-known/agent-card.json")).json()
        assert "image/png" in served["defaultInputModes"]
    assert (await enrol(http, "mixed:worse", "http://[::1")).status_code == 422
    for instance in ("good", "wrong"):
        await http.delete(f"/registry/agents/mixed:{instance}")


@pytest.mark.parametrize(
    "card",
    [
        pytest.param({"name": "x" * 5_000_000}, id="5 MB"),
        pytest.param({"name": "x" * 70_000}, id="70 kB"),
        pytest.param({"skills": [{"id": "s"}] * 100_000}, id="100,000 skills"),
        pytest.param({"skills": [{"id": "s"}] * 101}, id="101 skills"),
    ],
)
async def test_31_a_card_that_is_too_large_is_refused(http: httpx.AsyncClient, card: dict[str, Any]) -> None:
    assert (await enrol(http, "large:a", card=card)).status_code in (413, 422)
    assert (await http.get("/registry/agents", params={"role": "large"})).json()["count"] == 0


async def test_32_enrolling_needs_a_token_for_the_role(tokens: Tokens) -> None:
    for token, status in ((None, 401), ("rc_made_up", 401), (tokens.client, 403), (tokens.other, 403)):
        async with client_of(tokens.hub, token) as http:
            assert (await enrol(http, "r32:a")).status_code == status
            flat = {"role": "r32", "instance_id": "a", "url": "http://127.0.0.1:9/"}
            assert (await http.post("/registry/agents", json=flat)).status_code == status


async def test_33_a_live_name_stays_with_its_holder(tokens: Tokens) -> None:
    async with (
        RawServer(always(DONE)) as server,
        client_of(tokens.hub, tokens.first) as first,
        client_of(tokens.hub, tokens.second) as second,
    ):
        lease = (await enrol(first, "r33:a", server.url, boot="b1")).json()
        for url in ("http://127.0.0.1:9/", server.url):
            for boot in ("b1", "b2", ""):
                assert (await enrol(second, "r33:a", url, boot=boot)).status_code == 409
        proof = {"epoch": lease["epoch"], "lease": lease["lease"]}
        for method, path in (("POST", "/registry/agents/r33:a/heartbeat"), ("DELETE", "/registry/agents/r33:a")):
            assert (await second.request(method, path, json=proof)).status_code == 404
        async with client_of(tokens.hub, tokens.client) as client:
            body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": text_message("hi")}
            assert (await client.post("/agents/r33/", json=body)).json()["result"]["status"]["state"] == "completed"
        await first.request("DELETE", "/registry/agents/r33:a", json=proof)


async def test_34_and_35_an_old_lease_neither_renews_nor_revives(http: httpx.AsyncClient) -> None:
    old = (await enrol(http, "beats:a", boot="b1", ttl_seconds=100)).json()
    new = (await enrol(http, "beats:a", boot="b2", ttl_seconds=10)).json()
    assert new["epoch"] > old["epoch"]
    for proof in (
        {"epoch": old["epoch"], "lease": old["lease"]},
        {"epoch": new["epoch"], "lease": old["lease"]},
        {"epoch": new["epoch"] + 1, "lease": new["lease"]},
        {"epoch": new["epoch"], "lease": "é"},
    ):
        assert (await http.post("/registry/agents/beats:a/heartbeat", json=proof)).status_code == 409
        assert (await http.request("DELETE", "/registry/agents/beats:a", json=proof)).status_code == 409
    assert (await http.get("/registry/agents/beats:a")).json()["expires_in"] <= 10
    good = {"epoch": new["epoch"], "lease": new["lease"]}
    assert (await http.request("DELETE", "/registry/agents/beats:a", json=good)).status_code == 200
    assert (await http.post("/registry/agents/beats:a/heartbeat", json=good)).status_code == 404
    assert (await http.get("/registry/agents/beats:a")).status_code == 404


@pytest.mark.parametrize(
    ("text", "granted"),
    [
        ("0", 10),
        ("1e9", 3600),
        ("0.5", 10),
        ("1e-320", 10),
        ("-1", None),
        ("-0.001", None),
        ('"120"', None),
        ("NaN", None),
        ("1e999", None),
        ("1e10", None),
        ("9" * 400, None),
        ("true", None),
        ("[120]", None),
    ],
)
async def test_36_a_ttl_is_a_number_within_limits(http: httpx.AsyncClient, text: str, granted: int | None) -> None:
    body = f'{{"url":"http://127.0.0.1:9/","ttl_seconds":{text}}}'
    response = await http.put("/registry/agents/odd/a", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code in ((200, 201) if granted else (400, 422))
    if granted:
        assert response.json()["ttl_seconds"] == granted
    await http.delete("/registry/agents/odd:a")


async def test_37_one_token_has_a_limit_of_workers_and_does_not_affect_others(tokens: Tokens) -> None:
    async with client_of(tokens.hub, tokens.first) as first, client_of(tokens.hub, tokens.second) as second:
        answers = await asyncio.gather(*(enrol(first, f"r37:{n}") for n in range(3 * LIMIT)))
        refused = [answer for answer in answers if answer.status_code != 201]
        assert len(answers) - len(refused) == LIMIT
        for answer_ in refused:
            assert (answer_.status_code, answer_.json()["reason"]) == (429, "OVERLOADED")
            assert int(answer_.headers["retry-after"]) >= 1
        assert (await enrol(second, "r37:bobs")).status_code == 201
        enrolled = [n for n, answer_ in enumerate(answers) if answer_.status_code == 201]
        lease = answers[enrolled[0]].json()
        assert (await enrol(first, f"r37:{enrolled[0]}")).status_code == 200, "an enrolled worker may renew"
        gone = {"epoch": lease["epoch"], "lease": lease["lease"]}
        assert (await first.request("DELETE", f"/registry/agents/r37:{enrolled[0]}", json=gone)).status_code == 200
        assert (await enrol(first, "r37:another")).status_code == 201
        assert (await enrol(first, "r37:yet-another")).status_code == 429


FORBIDDEN = [
    "http://169.254.169.254/latest/meta-data/",
    "http://[fd00:ec2::254]/",
    "http://[::ffff:169.254.169.254]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://100.100.100.200/",
    "http://0.0.0.0:9/",
    "http://[::]:9/",
    "http://255.255.255.255/",
    "http://224.0.0.1/",
    "http://2852039166/",
    "http://0xa9fea9fe/",
    "http://user:word@127.0.0.1:9/",
    "http://user@127.0.0.1:9/",
    "http://127.0.0.1:9/#part",
    "file:///etc/passwd",
    "gopher://127.0.0.1:9/",
    "unix:/run/worker.sock",
    "javascript:alert(1)",
    "//127.0.0.1:9/",
    "http://127.0.0.1:9\\@169.254.169.254/",
    "http://127.0.0.1:9/\r\nX-Evil: 1",
    "http://127.0.0.1:9/\0",
    "http://①②⑦.⓪.⓪.①:9/",
    "http://127.0.0.1:99999/",
    "",
]


@pytest.mark.parametrize("url", FORBIDDEN)
async def test_38_and_40_a_forbidden_url_cannot_enrol(http: httpx.AsyncClient, url: str) -> None:
    response = await enrol(http, "bad:a", url)
    assert (response.status_code, response.json()["reason"]) == (422, "OFFER_INVALID")


async def test_38_urls_in_a_card_are_not_called(http: httpx.AsyncClient) -> None:
    async with RawServer(always(DONE)) as forbidden_target, RawServer(always(DONE)) as server:
        interfaces = [{"url": forbidden_target.url, "protocolBinding": "JSONRPC", "protocolVersion": v} for v in ("0.3", "1.0")]
        card = {
            "url": forbidden_target.url,
            "supportedInterfaces": interfaces,
            "additionalInterfaces": [{"url": forbidden_target.url, "transport": "JSONRPC"}],
        }
        assert (await enrol(http, "lured:a", server.url, card=card)).status_code == 201
        for method, version in (("message/send", "0.3"), ("SendMessage", "1.0")):
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": text_message("hi")}
            await http.post("/agents/lured/", json=body, headers={"A2A-Version": version})
        assert server.requests
        assert forbidden_target.peers == []
        await http.delete("/registry/agents/lured:a")


async def _endless(peer: Peer) -> None:
    """A card without an end."""
    await peer.read_request()
    await peer.write(chunked_head("application/json") + chunk(b'{"name": "a", "skills": ['))
    while True:
        await peer.write(chunk(b"[" * 50_000))


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (_endless, "it is larger than 65536 bytes (max_card)"),
        (always(answer(b'{"name":' + b"[" * 30_000 + b"]" * 30_000 + b"}")), "it is not JSON, or nested too deeply"),
        (
            always(answer(b"", status="302 Found", more="Location: http://169.254.169.254/latest/meta-data\r\n")),
            "HTTP 302, and the hub follows no redirects",
        ),
        (always(answer(b'{"name": "a", "skills": [5]}')), "card.skills must be a list"),
    ],
    ids=["endless", "deep", "redirect", "wrong"],
)
async def test_a_card_that_the_hub_reads_harms_it_no_more_than_one_that_is_sent(
    http: httpx.AsyncClient, hub_healthy: None, script: Script, why: str
) -> None:
    async with RawServer(script) as server:
        assert (await enrol(http, "lured:a", server.url)).status_code == 201

        async def after_reading() -> Any:
            agent = (await http.get("/registry/agents/lured:a")).json()
            return agent if agent["card_read"]["note"] != "it is being read" else None

        shown = await until(after_reading)
        assert why in shown["card_read"]["note"] and shown["card_read"]["at"] is None
        assert (shown["skills"], shown["card"]["name"]) == ([], "lured:a")
        await http.delete("/registry/agents/lured:a")


async def test_38_the_networks_of_a_token_are_checked_at_enrolment_and_at_connect(tokens: Tokens) -> None:
    async with (
        RawServer(always(DONE)) as server,
        client_of(tokens.hub, tokens.near) as near,
        client_of(tokens.hub, tokens.far) as far,
    ):
        plain = {"streaming": False}  # so that the hub does not ask for a card
        named = f"http://localhost:{server.port}/"
        assert (await enrol(far, "r38:literal", server.url)).status_code == 422
        assert (await enrol(far, "r38far:name", named)).status_code == 201, "a name is resolved and checked when it is called"
        async with client_of(tokens.hub, tokens.client) as client:
            body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": text_message("hi")}
            error = (await client.post("/agents/r38far/", json=body)).json()["error"]
            assert error["data"][0]["reason"] == "WORKER_UNREACHABLE"
            assert server.peers == []
            assert (await enrol(near, "r38near:a", f"http://127.0.0.1:{server.port}/", capabilities=plain)).status_code == 201
            assert "result" in (await client.post("/agents/r38near/", json=body)).json()
            assert "error" in (await client.post("/agents/r38far/", json=body)).json()
        assert len(server.requests) == 1


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST", "localhost.", "[::ffff:127.0.0.1]", "0.0.0.0"])
async def test_39_the_hub_cannot_enrol_itself_under_any_of_its_names(
    http: httpx.AsyncClient, hub: HubProcess, name: str
) -> None:
    assert (await enrol(http, "loop:a", f"http://{name}:{hub.port}/agents/loop/")).status_code == 422


@pytest.mark.parametrize(
    "url", ["https://hub.example/", "https://HUB.example.:443/a2a", "http://hub.example/", "https://hub.example/agents/x/"]
)
async def test_39_the_hub_cannot_enrol_itself_under_its_public_name(public: HubProcess, url: str) -> None:
    async with client_of(public, PUBLIC_TOKEN) as http:
        assert (await enrol(http, "loop:a", url)).status_code == 422
        assert (await enrol(http, "fine:a", "https://worker.hub.example/")).status_code in (200, 201)


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with start_hub(tmp_path_factory.mktemp("public"), public_url="https://hub.example", admin_token=PUBLIC_TOKEN) as hub:
        yield hub
