"""The extended card of a hub with tokens: what its caller may see, in the caller's dialect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from rolecall.protocol.cards import capabilities
from tests.acceptance.access_world import HIDDEN_ROLE, OFFER, ROLE, World, make_tokens
from tests.helpers.processes import HubProcess, start_hub

METHODS = {
    "agent/getAuthenticatedExtendedCard": "0.3",
    "agent/authenticatedExtendedCard": "0.3",
    "GetExtendedAgentCard": "1.0",
}
ADDRESSES = {"/v1/card": "0.3", "/v1/extendedAgentCard": "0.3", "/extendedAgentCard": "1.0"}
ONLY = {"0.3": {"protocolVersion", "url", "supportsAuthenticatedExtendedCard"}, "1.0": {"supportedInterfaces"}}
SKILL = {"id": "dig", "name": "Dig", "description": "Digs.", "tags": ["earth"]}
TOKEN = "t" * 40


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two workspaces with a role each. Public cards have one version only; the extended card has the caller's version."""
    data = tmp_path_factory.mktemp("cards")
    tokens = make_tokens(data)
    with start_hub(data, card_version="0.3") as hub, httpx.Client(trust_env=False, timeout=30) as http:
        found = World(hub, tokens, http)
        for who, role in (("worker", ROLE), ("other-farm", HIDDEN_ROLE)):
            card = {"name": role, "skills": [SKILL]}
            enrolled = found.ask(who, "PUT", f"/registry/agents/{role}/a", {**OFFER, "card": card})
            assert enrolled.status_code == 201
        yield found


def asked(world: World, who: str, method: str, at: str = "/", **params: Any) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    answer: dict[str, Any] = world.ask(who, "POST", at, body).json()
    return answer


def check_pure(card: dict[str, Any], version: str) -> None:
    (other,) = ONLY.keys() - {version}
    assert card.keys() >= ONLY[version] and not card.keys() & ONLY[other]
    assert capabilities(card).extended_card is True
    assert "bearer" in card["securitySchemes"]


def reason_of(answer: dict[str, Any]) -> tuple[int, str]:
    return answer["error"]["code"], answer["error"].get("data", [{}])[0].get("reason", "")


@pytest.mark.parametrize(("method", "version"), METHODS.items())
def test_the_hubs_card_lists_the_roles_of_the_callers_workspace(world: World, method: str, version: str) -> None:
    for who, seen in (("owner", ROLE), ("reader", ROLE), ("worker", ROLE), ("admin", ROLE), ("stranger", HIDDEN_ROLE)):
        card = asked(world, who, method)["result"]
        check_pure(card, version)
        assert [skill["id"] for skill in card["skills"]] == [seen]


@pytest.mark.parametrize(("method", "version"), METHODS.items())
def test_a_role_has_an_extended_card_and_a_foreign_role_is_unknown(world: World, method: str, version: str) -> None:
    for who, own, other in (("owner", ROLE, HIDDEN_ROLE), ("stranger", HIDDEN_ROLE, ROLE)):
        card = asked(world, who, method, f"/agents/{own}/")["result"]
        check_pure(card, version)
        assert (card["name"], [skill["id"] for skill in card["skills"]]) == (own, ["dig"])
        for unknown in (other, "nobody"):
            refused = asked(world, who, method, f"/agents/{unknown}/")
            assert refused["error"]["code"] == -32000
            assert f'No role "{unknown}". Live: {own}.' in refused["error"]["message"]


@pytest.mark.parametrize(("path", "version"), ADDRESSES.items())
def test_rest_serves_the_extended_card_of_the_hub_and_of_a_role(world: World, path: str, version: str) -> None:
    for who, own, other in (("owner", ROLE, HIDDEN_ROLE), ("stranger", HIDDEN_ROLE, ROLE)):
        whole, of_role = (world.ask(who, "GET", f"{base}{path}").json() for base in ("", f"/agents/{own}"))
        check_pure(whole, version)
        check_pure(of_role, version)
        assert ([skill["id"] for skill in whole["skills"]], of_role["name"]) == ([own], own)
        refused = world.ask(who, "GET", f"/agents/{other}{path}")
        assert (refused.status_code, refused.json()["error"]["details"][0]["reason"]) == (404, "ROLE_UNKNOWN")
    assert world.ask("none", "GET", path).status_code == 401


def test_in_1_0_the_tenant_names_the_role(world: World) -> None:
    card = asked(world, "owner", "GetExtendedAgentCard", f"/agents/{ROLE}/")["result"]
    for tenant in (ROLE, f"{ROLE}:a"):
        assert asked(world, "owner", "GetExtendedAgentCard", tenant=tenant)["result"] == card
        assert asked(world, "owner", "GetExtendedAgentCard", f"/agents/{ROLE}/", tenant=tenant)["result"] == card
    assert asked(world, "owner", "GetExtendedAgentCard", tenant="")["result"]["name"] == "Rolecall"
    for path in (f"/{ROLE}/extendedAgentCard", f"/extendedAgentCard?tenant={ROLE}"):
        assert world.ask("owner", "GET", path).json() == card
    for tenant in (HIDDEN_ROLE, "nobody"):
        assert reason_of(asked(world, "owner", "GetExtendedAgentCard", tenant=tenant)) == (-32000, "ROLE_UNKNOWN")
    refused_tenant = asked(world, "owner", "GetExtendedAgentCard", f"/agents/{ROLE}/", tenant="nobody")
    assert reason_of(refused_tenant) == (-32000, "ROLE_UNKNOWN")
    assert asked(world, "owner", "GetExtendedAgentCard", tenant=7)["error"]["code"] == -32602


def test_the_extended_card_equals_the_public_one_of_the_same_version(world: World) -> None:
    """Both in the same version. Without a token the public card is that of the default workspace."""
    public = world.ask("none", "GET", "/.well-known/agent-card.json").json()
    check_pure(public, "0.3")
    assert public == asked(world, "owner", "agent/getAuthenticatedExtendedCard")["result"]
    assert public != asked(world, "stranger", "agent/getAuthenticatedExtendedCard")["result"]


def test_the_extended_card_follows_enrolment_and_withdrawal(world: World) -> None:
    def roles() -> list[str]:
        return [skill["id"] for skill in asked(world, "owner", "GetExtendedAgentCard")["result"]["skills"]]

    lease = world.lease("worker", "mine", "m")
    assert roles() == [ROLE, "mine"]
    proof = {"epoch": lease["epoch"], "lease": lease["lease"]}
    assert world.ask("worker", "DELETE", "/registry/agents/mine:m", proof).status_code == 200
    assert roles() == [ROLE]


def test_public_cards_declare_the_extended_card_only_when_there_are_tokens(tmp_path: Path) -> None:
    def card_flags(hub: HubProcess) -> tuple[bool, bool]:
        card = httpx.get(f"{hub.url}/.well-known/agent-card.json", trust_env=False).json()
        return card["supportsAuthenticatedExtendedCard"], card["capabilities"]["extendedAgentCard"]

    with start_hub(tmp_path / "open") as hub:
        assert card_flags(hub) == (False, False)
        for method, code in (("GetExtendedAgentCard", -32004), ("agent/getAuthenticatedExtendedCard", -32007)):
            body = {"jsonrpc": "2.0", "id": 7, "method": method}
            for at in ("/", "/agents/nobody/"):
                assert httpx.post(hub.url + at, json=body, trust_env=False).json()["error"]["code"] == code
    with start_hub(tmp_path / "locked", admin_token=TOKEN) as hub:
        assert card_flags(hub) == (True, True)
