"""Cards and the catalog over HTTP: what a client with an older copy gets, and the card at a role's own address."""

from __future__ import annotations

from collections.abc import AsyncIterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import httpx
import pytest

from hub.app import create_app
from hub.identity.tokens import FILE_NAME, new
from hub.settings.model import Settings
from rolecall.model.principal import Kind, Principal
from tests.helpers.clock import ManualClock

HUB, ROLE, CATALOG = "/.well-known/agent-card.json", "/agents/echo/.well-known/agent-card.json", "/.well-known/ai-catalog.json"
OWN_ADDRESSES = ("/agents/echo", "/agents/echo/")
DOCUMENTS = (HUB, "/.well-known/agent.json", ROLE, "/agents/echo/.well-known/agent.json", *OWN_ADDRESSES, CATALOG)
NOW = 1_700_000_000
"""The second in which the manual clock begins."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def http(clock: ManualClock) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(Settings.of(store="memory:"), port=8420, clock=clock)
    async with app.test_app():
        untyped: Any = app
        transport = httpx.ASGITransport(app=untyped, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            await enrol(http, "one")
            yield http


async def enrol(http: httpx.AsyncClient, skill: str, *, boot: str | None = None, **headers: str) -> None:
    offer = {"url": "http://127.0.0.1:9/", "boot": boot or skill, "card": {"skills": [{"id": skill}]}}
    answer = await http.put("/registry/agents/echo/a", json=offer, headers=headers)
    assert answer.status_code in (200, 201), answer.text


def date(second: int) -> str:
    return formatdate(second, usegmt=True)


async def status(http: httpx.AsyncClient, path: str = ROLE, **known: str) -> int:
    """`known`: headers."""
    headers = {name.replace("_", "-"): value for name, value in known.items()}
    return (await http.get(path, headers=headers)).status_code


# --- conditional requests


@pytest.mark.parametrize("path", DOCUMENTS)
async def test_a_copy_is_recognised_by_its_tag_or_by_its_date(http: httpx.AsyncClient, clock: ManualClock, path: str) -> None:
    first = await http.get(path)
    assert first.headers["last-modified"] == date(NOW)
    clock.advance(5)
    known = [
        {"If-None-Match": first.headers["etag"]},
        {"If-None-Match": f"W/{first.headers['etag']}"},
        {"If-None-Match": f'"other",  {first.headers["etag"]}, W/"third"'},
        {"If-None-Match": "*"},
        {"If-Modified-Since": first.headers["last-modified"]},
        {"If-Modified-Since": "Tuesday, 14-Nov-23 22:13:20 GMT"},
        {"If-Modified-Since": "Tue Nov 14 22:13:20 2023"},
        {"If-Modified-Since": date(NOW + 5)},
    ]
    for headers in known:
        again = await http.get(path, headers=headers)
        assert (again.status_code, again.content) == (304, b""), headers
        for name in ("etag", "last-modified", "cache-control", "vary"):
            assert again.headers[name] == first.headers[name]
        assert (await http.head(path, headers=headers)).status_code == 304
    assert (await http.get(path)).content == first.content


@pytest.mark.parametrize(
    "since",
    [
        "",
        "yesterday",
        date(NOW - 1),
        date(NOW + 6),
        "Tue, 14 Nov 2023 22:13:20 +0100",
        "Tue, 99 Nov 2023 22:13:20 GMT",
        "Tue, 14 Nov 2023 22:13:20",
        "\u00b2",
        "9" * 5000,
    ],
)
async def test_a_date_that_is_older_invalid_or_to_come_counts_for_nothing(
    http: httpx.AsyncClient, clock: ManualClock, since: str
) -> None:
    await http.get(ROLE)
    clock.advance(5)
    assert (await http.get(ROLE, headers={"If-Modified-Since": since.encode("latin-1")})).status_code == 200


@pytest.mark.parametrize("tag", ['"other"', "", '"', "other", 'W/"'])
async def test_a_tag_that_differs_wins_over_the_date(http: httpx.AsyncClient, tag: str) -> None:
    first = await http.get(ROLE)
    assert await status(http, If_None_Match=tag, If_Modified_Since=first.headers["last-modified"]) == 200


async def test_a_tag_without_its_quotes_is_another(http: httpx.AsyncClient) -> None:
    tag = (await http.get(ROLE)).headers["etag"]
    assert await status(http, If_None_Match=tag.strip('"')) == 200


# --- when a document was changed


async def test_a_change_has_the_date_of_the_first_copy_after_it(http: httpx.AsyncClient, clock: ManualClock) -> None:
    assert (await http.get(ROLE)).headers["last-modified"] == date(NOW)
    clock.advance(10)
    await enrol(http, "two")
    clock.advance(10.5)
    changed = await http.get(ROLE)
    assert changed.headers["last-modified"] == date(NOW + 20)
    assert await status(http, If_Modified_Since=date(NOW + 19)) == 200
    assert await status(http, If_Modified_Since=date(NOW + 20)) == 304


async def test_an_enrolment_that_changes_nothing_keeps_the_date(http: httpx.AsyncClient, clock: ManualClock) -> None:
    first = await http.get(ROLE)
    clock.advance(10)
    await enrol(http, "one", boot="another")
    clock.advance(10)
    again = await http.get(ROLE)
    assert (again.headers["etag"], again.headers["last-modified"]) == (first.headers["etag"], date(NOW))


@pytest.mark.parametrize("before", [0, 30])
async def test_a_change_within_a_second_is_never_hidden_by_a_date(
    http: httpx.AsyncClient, clock: ManualClock, before: int
) -> None:
    """Also for who takes the date from another clock than the answer: whoever read it this second may have either copy."""
    await http.get(ROLE)
    clock.advance(before + 0.2)
    copy = await http.get(ROLE)
    dates = {copy.headers["last-modified"], date(NOW + before)}
    clock.advance(0.3)
    await enrol(http, "two")
    for _ in range(3):
        for since in dates:
            changed = await http.get(ROLE, headers={"If-Modified-Since": since})
            assert (changed.status_code, "two" in changed.text) == (200, True)
        clock.advance(1)
    assert changed.headers["last-modified"] == date(NOW + before + 1)
    assert await status(http, If_Modified_Since=date(NOW + before + 1)) == 304


async def test_no_date_is_in_the_future(http: httpx.AsyncClient, clock: ManualClock) -> None:
    for number in range(3):
        await enrol(http, f"skill-{number}")
        assert (await http.get(ROLE)).headers["last-modified"] == date(NOW)
    clock.step_wall(-100)
    changed = await http.get(ROLE)
    assert changed.headers["last-modified"] == date(NOW - 100)
    assert await status(http, If_Modified_Since=date(NOW - 100)) == 200


async def test_a_document_that_was_dropped_is_as_new_as_its_next_copy(
    http: httpx.AsyncClient, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows then whether it has changed."""
    monkeypatch.setattr("hub.inbound.cards.documents._KEPT", 1)
    await http.get(ROLE)
    await http.get(HUB)
    await enrol(http, "two")
    assert await status(http, If_Modified_Since=date(NOW)) == 200
    clock.advance(2)
    assert (await http.get(ROLE)).headers["last-modified"] == date(NOW + 1)
    assert await status(http, If_Modified_Since=date(NOW)) == 200


# --- a role's own address


@pytest.mark.parametrize("path", OWN_ADDRESSES)
async def test_a_roles_own_address_answers_its_card(http: httpx.AsyncClient, path: str) -> None:
    for version in ({}, *({"A2A-Version": name} for name in ("0.3", "1.0", "7"))):
        usual, own = await http.get(ROLE, headers=version), await http.get(path, headers=version)
        assert (own.status_code, own.content, own.headers) == (200, usual.content, usual.headers)
        head = await http.head(path, headers=version)
        assert (head.status_code, head.content, head.headers) == (200, b"", usual.headers)


async def test_one_worker_has_a_card_of_its_own_at_its_address(http: httpx.AsyncClient) -> None:
    other = {"url": "http://127.0.0.1:9/", "boot": "b", "card": {"skills": [{"id": "two"}]}}
    assert (await http.put("/registry/agents/echo/vm:b", json=other)).status_code == 201
    for instance, skill in (("a", "one"), ("vm:b", "two")):
        at = f"/agents/echo:{instance}"
        card, own = await http.get(f"{at}/.well-known/agent-card.json"), await http.get(f"{at}/")
        assert (card.status_code, own.content) == (200, card.content)
        document = card.json()
        assert (document["name"], [one["id"] for one in document["skills"]]) == (f"echo:{instance}", [skill])
        urls = {document["url"], *(one["url"] for one in document["supportedInterfaces"])}
        assert {url.removesuffix("/") for url in urls} == {f"http://127.0.0.1:8420{at}"}
    assert [one["id"] for one in (await http.get(ROLE)).json()["skills"]] == ["one", "two"]
    await http.delete("/registry/agents/echo:vm:b")
    assert (await http.get("/agents/echo:vm:b/")).status_code == 404


@pytest.mark.parametrize("name", ["nobody", "Echo", "echo:b", "echo:", "nobody:a"])
async def test_an_unknown_role_has_no_card_at_either_address(http: httpx.AsyncClient, name: str) -> None:
    usual, own = await http.get(f"/agents/{name}/.well-known/agent-card.json"), await http.get(f"/agents/{name}/")
    assert (own.status_code, own.content, own.headers) == (404, usual.content, usual.headers)
    assert own.json()["reason"] == "ROLE_UNKNOWN"


@pytest.mark.parametrize("path", OWN_ADDRESSES)
async def test_a_roles_own_address_takes_calls_with_post_and_nothing_else(http: httpx.AsyncClient, path: str) -> None:
    called = await http.post(path, json={"jsonrpc": "2.0", "id": 1, "method": "nothing"})
    assert called.json()["error"]["code"] == -32601
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
        refused = await http.request(method, path)
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD, POST")
    for other in ("/agents/echo/a2a", "/a2a"):
        refused = await http.get(other)
        assert (refused.status_code, refused.headers["allow"]) == (405, "POST")


async def test_everybody_gets_the_same_card_at_both_addresses(tmp_path: Path) -> None:
    """With tokens: without one from the workspace `default`, and each holder from its own. A wrong token gets none."""
    tokens = {}
    for workspace in ("default", "acme"):
        name = f"admin-{workspace}"
        holder = Principal(name, Kind.ADMIN, workspace=workspace)
        tokens[workspace], _ = new(tmp_path / FILE_NAME, holder, lasts=None, now=0.0)
    app = create_app(Settings(data_dir=tmp_path), port=8420)
    async with app.test_app():
        untyped: Any = app
        async with httpx.AsyncClient(transport=httpx.ASGITransport(untyped), base_url="http://127.0.0.1") as http:
            for workspace, token in tokens.items():
                await enrol(http, f"of-{workspace}", **{"X-API-Key": token})
            callers = {None: "of-default", **{token: f"of-{name}" for name, token in tokens.items()}}
            for token, skill in callers.items():
                headers = {"X-API-Key": token} if token is not None else {}
                usual, own = [await http.get(path, headers=headers) for path in (ROLE, "/agents/echo/")]
                assert (own.status_code, own.content, own.headers) == (200, usual.content, usual.headers)
                assert [one["id"] for one in own.json()["skills"]] == [skill]
                assert ("private" in own.headers["cache-control"]) is (token is not None)
            wrong = {"X-API-Key": "wrong"}
            for path in (ROLE, "/agents/echo/", "/agents/nobody/"):
                assert (await http.get(path, headers=wrong)).status_code == 401, path
            assert (await http.get("/.well-known/agent-card.json", headers=wrong)).status_code == 200
            of_admin = {"X-API-Key": tokens["acme"], "A2A-Version": "1.0"}
            for name in ("echo", "echo:a"):
                assert (await http.get(f"/agents/{name}/extendedAgentCard", headers=of_admin)).json()["name"] == name
            assert (await http.post("/agents/echo/", json={})).status_code == 401
            assert (await http.put("/agents/echo/", json={})).status_code == 401
