"""The cards that the hub serves, as the official clients read them, and whether they can be called by what they read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from hub.identity.tokens import new
from rolecall.model.principal import Kind, Principal
from tests.helpers.processes import HubProcess, start_hub
from tests.interop.conftest import AGENTS, MAIN_AGENTS, SDK_CLIENTS, ClientNamed, RoleUrl
from tests.interop.content import Json
from tests.interop.conversation import refusal
from tests.interop.driven import Client

READABLE = [
    *((name, "") for name in SDK_CLIENTS),
    *((name, "0.3") for name in SDK_CLIENTS if not name.endswith("-rest")),
    *((name, "1.0") for name in SDK_CLIENTS if "1.x" in name),
]
"""Who reads which card: merged, and each version's alone. A card of 0.3 alone offers no REST, and one of 1.0 alone cannot be
read by SDKs that are older.
"""


def addresses(card: Json) -> dict[tuple[str, str], str]:
    """Binding and version of every interface that it lists, and where; SDKs of 1.x have read an older card as a newer one."""
    entries = card.get("supportedInterfaces") or ()
    found = {(one["protocolBinding"], one["protocolVersion"]): one["url"] for one in entries}
    if "url" in card:
        found[card["preferredTransport"], "0.3"] = card["url"]
        found |= {(one["transport"], "0.3"): one["url"] for one in card.get("additionalInterfaces") or ()}
    return found


@pytest.mark.parametrize(("name", "version"), READABLE)
def test_every_sdk_reads_the_card_of_a_role_and_calls_by_it(
    client_named: ClientNamed, role_url: RoleUrl, name: str, version: str
) -> None:
    client = client_named(name)
    for role in MAIN_AGENTS:
        url = role_url(role)
        card = client.card(url, version=version)
        assert card["name"] == role
        assert card["capabilities"]["streaming"] is True
        assert card["capabilities"]["pushNotifications"] is True
        assert set(addresses(card).values()) <= {url, url.rstrip("/")}
        task = client.run(url, "count 2", version=version)
        assert (task.state, task.text) == ("completed", "1 2 ")


@pytest.mark.parametrize(("name", "version"), READABLE)
def test_every_sdk_reads_the_card_of_the_hub_and_finds_the_roles_on_it(
    client_named: ClientNamed, hub: HubProcess, role_url: RoleUrl, name: str, version: str
) -> None:
    for role in AGENTS:
        role_url(role)
    card = client_named(name).card(f"{hub.url}/", version=version)
    assert card["name"] == "Rolecall"
    assert {skill["id"] for skill in card["skills"]} >= set(AGENTS)
    assert set(addresses(card).values()) <= {hub.url, f"{hub.url}/a2a"}


@pytest.mark.parametrize(
    ("version", "interfaces"),
    [
        ("", {("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3")}),
        ("0.3", {("JSONRPC", "0.3")}),
        ("1.0", {("JSONRPC", "1.0"), ("HTTP+JSON", "1.0")}),
    ],
)
def test_a_card_offers_what_the_version_has_that_was_asked_for(
    client_named: ClientNamed, role_url: RoleUrl, version: str, interfaces: set[tuple[str, str]]
) -> None:
    name = "javascript-0.3" if version == "0.3" else "javascript-1.x"
    assert addresses(client_named(name).card(role_url("own"), version=version)).keys() == interfaces


def test_skills_of_the_agents_own_card_are_on_the_card_of_its_role(sdk_client: Client, role_url: RoleUrl) -> None:
    for role in ("on-0.3", "on-1.x", "on-1.x-rest"):
        (skill,) = sdk_client.card(role_url(role))["skills"]
        expected: dict[str, Any] = {"id": "obey", "name": "Obey", "description": "Does what it is told.", "tags": ["test"]}
        assert skill.items() >= expected.items()


@pytest.mark.parametrize("name", ["python-0.3", "python-1.x", "python-1.x-rest"])
def test_a_base_url_without_its_last_slash_is_fine_for_the_python_sdks(
    client_named: ClientNamed, role_url: RoleUrl, name: str
) -> None:
    client, url = client_named(name), role_url("own")
    assert client.card(url.rstrip("/")) == client.card(url)
    assert client.run(url.rstrip("/"), "count 1").state == "completed"


def test_every_sdk_finds_the_card_of_a_role_at_its_base_url_too(sdk_client: Client, role_url: RoleUrl) -> None:
    """Where their resolvers are told that the base URL is the card's."""
    for role in MAIN_AGENTS:
        url = role_url(role)
        assert sdk_client.card(url, path="/") == sdk_client.card(url)


# --- the extended card


class Locked(NamedTuple):
    """A hub where tokens are asked for, with a role `here` in its default workspace and `elsewhere` in another."""

    url: str
    here: str
    elsewhere: str


@pytest.fixture(scope="module")
def locked(logs: Path) -> Iterator[Locked]:
    data = logs / "locked"
    data.mkdir()
    holders = {role: Principal(role, Kind.ADMIN, at) for role, at in (("here", "default"), ("elsewhere", "acme"))}
    tokens = {role: new(data / "tokens.json", holder, lasts=None, now=0.0)[0] for role, holder in holders.items()}
    skill = {"id": "dig", "name": "Dig", "description": "Digs.", "tags": ["earth"]}
    with start_hub(data) as hub:
        for role, token in tokens.items():
            offer = {"url": "http://127.0.0.1:9/", "card": {"name": role, "skills": [skill]}}
            shown = {"Authorization": f"Bearer {token}"}
            enrolled = httpx.put(f"{hub.url}/registry/agents/{role}/a", json=offer, headers=shown, trust_env=False)
            assert enrolled.status_code == 201
        yield Locked(hub.url, **tokens)


def test_every_sdk_gets_the_extended_card_that_the_public_one_claims(sdk_client: Client, locked: Locked) -> None:
    """Nobody tells the SDK that there is one: without the claim it would give back the public card."""
    for role, token in (("here", locked.here), ("elsewhere", locked.elsewhere)):
        card = sdk_client.extended_card(f"{locked.url}/", token=token)
        assert card["name"] == "Rolecall"
        assert [skill["id"] for skill in card["skills"]] == [role]
        assert set(addresses(card).values()) <= {locked.url, f"{locked.url}/a2a"}


def test_every_sdk_gets_the_extended_card_of_a_role_and_nobody_that_of_a_foreign_one(
    sdk_client: Client, locked: Locked
) -> None:
    card = sdk_client.extended_card(f"{locked.url}/agents/here/", token=locked.here)
    assert (card["name"], [skill["id"] for skill in card["skills"]]) == ("here", ["dig"])
    refused = refusal(lambda: sdk_client.extended_card(f"{locked.url}/agents/here/", token=locked.elsewhere))
    # One SDK keeps of a 404 over REST that it was one.
    assert 'No role "here". Live: elsewhere.' in refused.message or refused.message.startswith("Resource not found")


def test_an_sdk_without_a_token_sees_the_public_card_and_gets_no_other(sdk_client: Client, locked: Locked) -> None:
    card = sdk_client.card(f"{locked.url}/")
    assert [skill["id"] for skill in card["skills"]] == ["here"]
    assert "bearer" in json.dumps(card["securitySchemes"])
    refused = refusal(lambda: sdk_client.extended_card(f"{locked.url}/"))
    assert "401" in refused.message or "A token is needed" in refused.message
