"""The extended card: where tokens are asked for, what its caller may see, in the dialect that he speaks."""

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
    """Two workspaces with a role each; public cards are of one version alone, which binds nobody who asks in another."""
    data = tmp_path_factory.mktemp("cards")
    tokens = make_tokens(data)
    with start_hub(data, card_version="0.3") as hub, httpx.Client(trust_env=False, timeout=30) as http:
        found = World(hub, tokens, http)
        for who, role in (("worker", ROLE), ("abroad", HIDDEN_ROLE)):
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
def test_a_caller_gets_the_hubs_card_with_his_workspaces_roles(world: World, method: str, version: str) -> None:
    for who, seen in (("owner", ROLE), ("reader", ROLE), ("worker", ROLE), ("admin", ROLE), ("stranger", HIDDEN_ROLE)):
        card = asked(world, who, method)["result"]
        check_pure(card, version)
        assert [skill["id"] for skill in card["skills"]] == [seen]


@pytest.mark.parametrize(("method", "version"), METHODS.items())
def test_a_role_has_one_too_and_anothers_is_unknown(world: World, method: str, version: str) -> None:
    for who, own, other in (("owner", ROLE, HIDDEN_ROLE), ("stranger", HIDDEN_ROLE, ROLE)):
        card = asked(world, who, method, f"/agents/{own}/")["result"]
        check_pure(card, version)
        assert (card["name"], [skill["id"] for skill in card["skills"]]) == (own, ["dig"])
        for unknown in (other, "nobody"):
            refused = asked(world, who, method, f"/agents/{unknown}/")
            assert refused["error"]["code"] == -32000
            assert f'No role "{unknown}". Live: {own}.' in refused["error"]["message"]


@pytest.mark.parametrize(("path", "version"), ADDRESSES.items())
def test_rest_has_it_for_the_hub_and_below_a_role(world: World, path: str, version: str) -> None:
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
    disagreed = asked(world, "owner", "GetExtendedAgentCard", f"/agents/{ROLE}/", tenant="nobody")
    assert reason_of(disagreed) == (-32000, "ROLE_UNKNOWN")
    assert asked(world, "owner", "GetExtendedAgentCard", tenant=7)["error"]["code"] == -32602


def test_it_is_what_the_public_card_would_be_and_that_claims_it(world: World) -> None:
    """In the version that both are asked for in. Without a token the public one is that of the default workspace."""
    public = world.ask("none", "GET", "/.well-known/agent-card.json").json()
    check_pure(public, "0.3")
    assert public == asked(world, "owner", "agent/getAuthenticatedExtendedCard")["result"]
    assert public != asked(world, "stranger", "agent/getAuthenticatedExtendedCard")["result"]


def test_roles_come_and_go_on_it(world: World) -> None:
    def roles() -> list[str]:
        return [skill["id"] for skill in asked(world, "owner", "GetExtendedAgentCard")["result"]["skills"]]

    lease = world.lease("worker", "mine", "m")
    assert roles() == [ROLE, "mine"]
    proof = {"epoch": lease["epoch"], "lease": lease["lease"]}
    assert world.ask("worker", "DELETE", "/registry/agents/mine:m", proof).status_code == 200
    assert roles() == [ROLE]


def test_merged_public_cards_claim_it_in_both_spellings_once_there_are_tokens(tmp_path: Path) -> None:
    def claimed(hub: HubProcess) -> tuple[bool, bool]:
        card = httpx.get(f"{hub.url}/.well-known/agent-card.json", trust_env=False).json()
        return card["supportsAuthenticatedExtendedCard"], card["capabilities"]["extendedAgentCard"]

    with start_hub(tmp_path / "open") as hub:
        assert claimed(hub) == (False, False)
        for method, code in (("GetExtendedAgentCard", -32004), ("agent/getAuthenticatedExtendedCard", -32007)):
            body = {"jsonrpc": "2.0", "id": 7, "method": method}
            for at in ("/", "/agents/nobody/"):
                assert httpx.post(hub.url + at, json=body, trust_env=False).json()["error"]["code"] == code
    with start_hub(tmp_path / "locked", admin_token=TOKEN) as hub:
        assert claimed(hub) == (True, True)
