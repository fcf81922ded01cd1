"""The cards that the hub serves, as the official clients read them."""

from __future__ import annotations

from collections.abc import Callable

from tests.helpers.processes import HubProcess
from tests.interop.conftest import AGENTS
from tests.interop.driven import Client

RoleUrl = Callable[[str], str]


def test_the_card_of_a_role_is_valid_and_leads_to_the_hub(official: Client, agent: str) -> None:
    card = official.call("card", url=agent)
    assert card["url"] == agent
    assert card["protocolVersion"] == "0.3.0"
    assert card["preferredTransport"] == "JSONRPC"
    assert card["capabilities"]["streaming"] is True
    assert card["skills"]


def test_skills_of_the_agents_own_card_are_on_the_card_of_its_role(official: Client, role_url: RoleUrl) -> None:
    (skill,) = official.call("card", url=role_url("stock"))["skills"]
    assert (skill["id"], skill["name"], skill["description"], skill["tags"]) == (
        "obey",
        "Obey",
        "Does what it is told.",
        ["test"],
    )


def test_the_hubs_own_card_is_valid_and_lists_the_roles(official: Client, hub: HubProcess, role_url: RoleUrl) -> None:
    for role in AGENTS:
        role_url(role)
    card = official.call("card", url=f"{hub.url}/")
    assert card["url"].startswith(hub.url)
    assert {skill["id"] for skill in card["skills"]} >= set(AGENTS)


def test_a_base_url_without_its_last_slash_is_fine_for_the_python_sdk(python_client: Client, role_url: RoleUrl) -> None:
    url = role_url("own")
    assert python_client.call("card", url=url.rstrip("/")) == python_client.call("card", url=url)
    assert python_client.call("send", url=url.rstrip("/"), text="count 1")["status"]["state"] == "completed"


def test_no_address_of_a_worker_is_on_the_card_of_its_role(official: Client, hub: HubProcess, role_url: RoleUrl) -> None:
    card = official.call("card", url=role_url("stock"))
    addresses = {card["url"], *(interface["url"] for interface in card.get("additionalInterfaces") or ())}
    assert addresses == {f"{hub.url}/agents/stock/"}
