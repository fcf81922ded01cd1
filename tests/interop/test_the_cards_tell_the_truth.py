"""What the hub's cards claim, against what the wire does: that works, and what they do not claim is refused as specified."""

from __future__ import annotations

import pytest

from rolecall.model.card import FILES_EXTENSION, REPLAY_EXTENSION, SEQUENCE_EXTENSION, USAGE_EXTENSION
from rolecall.model.usage import read_reports
from tests.helpers.processes import HubProcess
from tests.interop.conftest import RoleUrl
from tests.interop.content import STATES, Json
from tests.interop.conversation import check_stream, streamed_text
from tests.interop.listener import Listener
from tests.interop.wire import Interface, card_of, interfaces_of

OURS = [SEQUENCE_EXTENSION, USAGE_EXTENSION, FILES_EXTENSION, REPLAY_EXTENSION]
EXTENSION = "https://example.com/extensions/loud/v1"
_REFUSALS = {
    "1.0": (-32004, "UNSUPPORTED_OPERATION"),
    "0.3": (-32007, ""),
}


@pytest.fixture(params=["the hub", "own", "on-0.3", "on-1.x", "on-1.x-rest"])
def place(request: pytest.FixtureRequest, hub: HubProcess, role_url: RoleUrl) -> tuple[str, str]:
    """A base URL that has a card, and the role that is meant there: on the hub's own every call names it."""
    role = "own" if request.param == "the hub" else request.param
    url = role_url(role)
    return (f"{hub.url}/" if request.param == "the hub" else url), role


@pytest.mark.parametrize("version", ["", "0.3", "1.0"])
def test_every_interface_answers_in_the_version_and_binding_that_it_claims(place: tuple[str, str], version: str) -> None:
    url, role = place
    card = card_of(url, version=version)
    interfaces = interfaces_of(card)
    assert interfaces and (not version or {one.version for one in interfaces} == {version})
    assert card["capabilities"]["streaming"] is True
    for interface in interfaces:
        task, _ = interface.send("count 2", role=role)
        assert (task.state, task.text) == ("completed", "1 2 "), interface
        events = interface.stream("count 2", role=role)
        check_stream(events, state="completed")
        assert streamed_text(events) == "1 2 ", interface


def test_push_notifications_are_claimed_and_come(place: tuple[str, str]) -> None:
    url, role = place
    card = card_of(url)
    assert card["capabilities"]["pushNotifications"] is True
    with Listener() as listener:
        for interface in interfaces_of(card):
            task, _ = interface.send("count 1", role=role)
            hook = listener.url()
            interface.set_push(task.id, hook)
            listener.wait_until_received(hook, STATES["completed"] if interface.version == "1.0" else "completed")


def test_an_extended_card_is_not_claimed_and_not_there(place: tuple[str, str]) -> None:
    card = card_of(place[0])
    assert card["capabilities"]["extendedAgentCard"] is card["supportsAuthenticatedExtendedCard"] is False
    for interface in interfaces_of(card):
        code, reason = _REFUSALS[interface.version]
        assert interface.refused("card") == (400 if interface.rest else code, reason)


def test_nothing_else_is_claimed_that_nobody_tries_here(place: tuple[str, str]) -> None:
    card = card_of(place[0])
    found = {name for name, value in card["capabilities"].items() if value}
    assert found - {"extensions"} == {"streaming", "pushNotifications"}
    assert "security" not in card and "securitySchemes" not in card and "securityRequirements" not in card
    assert "signatures" not in card
    assert {one.binding for one in interfaces_of(card)} == {"JSONRPC", "HTTP+JSON"}


def test_versions_that_no_interface_claims_are_refused_as_such(place: tuple[str, str]) -> None:
    for interface in interfaces_of(card_of(place[0])):
        if interface.version == "1.0":
            code, reason = interface.refused("send", {"message": {}}, version="2.0")
            assert (code, reason) == (400 if interface.rest else -32009, "VERSION_NOT_SUPPORTED")


def test_rest_of_0_3_is_not_claimed_and_what_its_sdks_send_is_refused(place: tuple[str, str]) -> None:
    card = card_of(place[0])
    interfaces = interfaces_of(card)
    assert ("HTTP+JSON", "0.3") not in [(one.binding, one.version) for one in interfaces]
    (rest,) = [one for one in interfaces if one.rest]
    old = Interface("HTTP+JSON", "0.3", f"{rest.url}/v1")
    message: Json = {"messageId": "1", "role": "ROLE_USER", "content": [{"text": "count 1"}]}
    status, reason = old.refused("send", {"message": message})
    assert (status, reason) == (400, "INVALID_PARAMS")


@pytest.mark.parametrize("role", ["on-0.3", "on-1.x", "on-1.x-rest"])
def test_an_extension_of_the_worker_is_claimed_and_whoever_asks_for_it_has_it(role_url: RoleUrl, role: str) -> None:
    url = role_url(role)
    assert [extension["uri"] for extension in card_of(url)["capabilities"]["extensions"]] == [*OURS, EXTENSION]
    for interface in interfaces_of(card_of(url)):
        name = "A2A-Extensions" if interface.version == "1.0" else "X-A2A-Extensions"
        task, response = interface.send("extensions", role=role, headers={name: EXTENSION})
        assert (task.text, response.headers[name]) == (EXTENSION, EXTENSION)
        task, response = interface.send("extensions", role=role)
        assert task.text == "" and name not in response.headers


@pytest.mark.parametrize("role", ["own", "on-0.3", "on-1.x"])
def test_the_hub_numbers_tasks_for_whoever_asks_as_its_cards_claim(hub: HubProcess, role_url: RoleUrl, role: str) -> None:
    assert SEQUENCE_EXTENSION in [extension["uri"] for extension in card_of(hub.url)["capabilities"]["extensions"]]
    for interface in interfaces_of(card_of(role_url(role))):
        name = "A2A-Extensions" if interface.version == "1.0" else "X-A2A-Extensions"
        task, _ = interface.send("count 1", role=role, headers={name: SEQUENCE_EXTENSION})
        assert (task.metadata or {})[SEQUENCE_EXTENSION]["sequence"] >= 1
        task, _ = interface.send("count 1", role=role)
        assert SEQUENCE_EXTENSION not in (task.metadata or {})


@pytest.mark.parametrize("role", ["own", "on-0.3", "on-1.x"])
def test_tasks_tell_what_they_have_used_as_the_hubs_cards_claim(hub: HubProcess, role_url: RoleUrl, role: str) -> None:
    assert USAGE_EXTENSION in [extension["uri"] for extension in card_of(hub.url)["capabilities"]["extensions"]]
    for interface in interfaces_of(card_of(role_url(role))):
        task, _ = interface.send("use", role=role)
        (used,) = read_reports((task.metadata or {})[USAGE_EXTENSION]).usage
        assert (used.model, used.tokens) == ("small", 1280)
