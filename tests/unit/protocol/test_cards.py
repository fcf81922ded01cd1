"""Cards: reading those of agents, and writing ours for readers of either version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rolecall.model.a2a import JsonObject
from rolecall.model.card import SCHEMAS_EXTENSION, Capabilities, Extension, Interface, Profile, Skill
from rolecall.protocol.cards import MergedExtensions, MergedModes, MergedSkills, capabilities, interfaces, merged, skills
from rolecall.protocol.text.jsontext import dump
from rolecall.protocol.v0_3 import card as card03
from rolecall.protocol.v1_0 import card as card10
from tests.helpers.examples import examples

URL = "https://agent.example.org/a2a"
OTHER = "https://agent.example.org/rest"
FALLBACK = "http://127.0.0.1:9/"
NONE = (Interface(FALLBACK, "JSONRPC", "0.3"),)


def interface_10(**members: Any) -> JsonObject:
    return {"url": URL, "protocolBinding": "JSONRPC", "protocolVersion": "1.0", **members}


@pytest.mark.parametrize(
    ("card", "found"),
    [
        ({"url": URL}, [(URL, "JSONRPC", "0.3", None)]),
        ({"url": URL, "protocolVersion": "0.2.6"}, [(URL, "JSONRPC", "0.3", None)]),
        ({"url": URL, "protocolVersion": "1.0"}, [(URL, "JSONRPC", "1.0", None)]),
        ({"url": URL, "preferredTransport": "HTTP+JSON"}, [(URL, "HTTP+JSON", "0.3", None)]),
        (
            {
                "url": URL,
                "additionalInterfaces": [{"url": URL, "transport": "JSONRPC"}, {"url": OTHER, "transport": "HTTP+JSON"}],
            },
            [(URL, "JSONRPC", "0.3", None), (OTHER, "HTTP+JSON", "0.3", None)],
        ),
        (
            {
                "url": "grpc.example.org:443",
                "preferredTransport": "GRPC",
                "additionalInterfaces": [{"url": URL, "transport": "jsonrpc"}],
            },
            [(URL, "JSONRPC", "0.3", None)],
        ),
        ({"supportedInterfaces": [interface_10(tenant="x"), interface_10(tenant="")]}, [(URL, "JSONRPC", "1.0", "x")]),
        (
            {"supported_interfaces": [{"url": URL, "protocol_binding": "HTTP+JSON", "protocol_version": "1.1"}]},
            [(URL, "HTTP+JSON", "1.0", None)],
        ),
        ({"supportedInterfaces": [{"url": URL, "protocolBinding": "JSONRPC"}]}, [(URL, "JSONRPC", "1.0", None)]),
        (
            {"supportedInterfaces": [interface_10(protocolVersion="0.3"), interface_10(protocolVersion="1")]},
            [(URL, "JSONRPC", "0.3", None), (URL, "JSONRPC", "1.0", None)],
        ),
        (
            {"supportedInterfaces": [interface_10()], "url": OTHER, "protocolVersion": "0.3.0"},
            [(URL, "JSONRPC", "1.0", None), (OTHER, "JSONRPC", "0.3", None)],
        ),
    ],
)
def test_every_interface_is_found_the_preferred_one_first(card: JsonObject, found: list[tuple[Any, ...]]) -> None:
    assert [tuple(interface) for interface in interfaces(card, FALLBACK)] == found


@pytest.mark.parametrize(
    "card",
    [
        None,
        [],
        {},
        {"url": None},
        {"url": "", "supportedInterfaces": []},
        {"url": URL, "preferredTransport": "GRPC"},
        {"url": URL, "preferredTransport": ["JSONRPC"]},
        {"url": URL, "protocolVersion": "2.0"},
        {"url": URL, "protocolVersion": "0.1"},
        {"url": URL, "protocolVersion": "latest"},
        {"url": URL, "protocolVersion": 1.0},
        {"url": "ftp://agent.example.org"},
        {"url": "//agent.example.org"},
        {"url": URL + " x"},
        {"url": URL + "\r\nHost: x"},
        {"url": URL + "x" * 3000},
        {"url": "http://[::1"},
        {"url": "http://℀/"},
        {"url": "http:w"},
        {
            "supportedInterfaces": [
                None,
                1,
                "x",
                [],
                {},
                interface_10(url=7),
                interface_10(protocolBinding="GRPC"),
                interface_10(protocolBinding="urn:x"),
            ]
        },
        {
            "supportedInterfaces": [
                interface_10(protocolVersion="2.0"),
                interface_10(protocolVersion={}),
                interface_10(protocolVersion="1.0; x"),
            ]
        },
        {"supportedInterfaces": {"url": URL}, "additionalInterfaces": "JSONRPC"},
    ],
)
def test_a_card_without_a_usable_interface_leads_to_the_fallback_address(card: Any) -> None:
    assert interfaces(card, FALLBACK) == NONE


_NAMES = ["url", "preferredTransport", "protocolVersion", "supportedInterfaces", "additionalInterfaces", "protocolBinding"]
_NAMES += ["transport", "tenant", "capabilities", "extensions", "uri", "params", "skills", "id", "name", "tags", "streaming"]
_NAMES += ["defaultInputModes", "defaultOutputModes", "inputSchema"]
_plain_values = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([URL, "JSONRPC", "1.0", "0.3", SCHEMAS_EXTENSION])
    | st.text(max_size=4)
)
_values = st.recursive(
    _plain_values,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=examples(500), deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
@given(_values | st.dictionaries(st.sampled_from(_NAMES), _values))
def test_reading_any_card_raises_nothing(card: Any) -> None:
    found = interfaces(card, FALLBACK)
    assert found and all(one.dialect in ("0.3", "1.0") and one.binding in ("JSONRPC", "HTTP+JSON") for one in found)
    takes, gives = MergedModes(1000, "defaultInputModes"), MergedModes(1000, "defaultOutputModes")
    for modes in (takes, gives):
        list(modes.add_card(card))
    interfaces_of_both = (*found, *TWO_INTERFACES)
    profile = Profile(
        "x", "x", "1", interfaces_of_both, capabilities(card), skills(card), tuple(takes.items), tuple(gives.items)
    )
    assert capabilities(merged(profile)) == profile.capabilities
    assert skills(merged(profile)) == profile.skills
    dump(merged(profile))


TWO_INTERFACES = (Interface(URL, "JSONRPC", "1.0"), Interface(URL, "JSONRPC", "0.3"))


def test_capabilities_in_snake_case_are_understood_and_written_in_camel_case() -> None:
    written = {"push_notifications": True, "state_transition_history": True, "extended_agent_card": True, "streaming": 1}
    read = capabilities({"capabilities": written})
    assert read == Capabilities(push_notifications=True, state_transition_history=True, extended_card=True)
    profile = Profile("x", "x", "1", TWO_INTERFACES, read)
    old = {"streaming": False, "pushNotifications": True, "stateTransitionHistory": True}
    new = {"streaming": False, "pushNotifications": True, "extendedAgentCard": True}
    assert card03.write(profile)["capabilities"] == old
    assert card10.write(profile)["capabilities"] == new
    assert merged(profile)["capabilities"] == old | new


def test_extensions_without_an_address_are_ignored() -> None:
    entries = [
        {"uri": "urn:a", "required": True, "params": {"x": 1}},
        {"uri": "urn:b", "params": []},
        {"required": True},
        "urn:c",
    ]
    assert capabilities({"capabilities": {"extensions": entries}}).extensions == (
        Extension("urn:a", required=True, params={"x": 1}),
        Extension("urn:b"),
    )


def test_the_old_member_for_an_extended_card_is_understood() -> None:
    assert capabilities({"supportsAuthenticatedExtendedCard": True}).extended_card


def test_what_a_skill_lacks_is_filled_in() -> None:
    assert skills({"skills": [{"id": "a"}, {"name": "B", "tags": ["x", 7]}, {}, "c"]}) == (
        Skill("a", "a", "a"),
        Skill("B", "B", "B", ("x",)),
        Skill("skill", "skill", "skill"),
    )


@pytest.mark.parametrize(("write", "dialect"), [(card03.write, "1.0"), (card10.write, "0.3")])
def test_a_card_without_an_interface_of_its_version_is_not_written(write: Any, dialect: str) -> None:
    with pytest.raises(ValueError, match="needs an interface"):
        write(Profile("x", "x", "1", (Interface(URL, "JSONRPC", dialect),)))


def test_an_oauth_scheme_that_1_0_cannot_express_is_refused() -> None:
    values = {"clientCredentials": {"tokenUrl": URL, "scopes": {}}, "implicit": {"authorizationUrl": URL, "scopes": {}}}
    profile = Profile("x", "x", "1", TWO_INTERFACES, security_schemes={"login": {"type": "oauth2", "flows": values}})
    with pytest.raises(ValueError, match="one flow"):
        merged(profile)


def test_our_own_cards_lead_back_to_their_interfaces() -> None:
    interfaces_of_card = (
        Interface(URL, "JSONRPC", "1.0", "x"),
        Interface(OTHER, "HTTP+JSON", "1.0"),
        Interface(URL, "JSONRPC", "0.3"),
    )
    profile = Profile("x", "x", "1", interfaces_of_card)
    assert interfaces(merged(profile), FALLBACK) == interfaces_of_card
    assert interfaces(card10.write(profile), FALLBACK) == interfaces_of_card[:2]
    assert interfaces(card03.write(profile), FALLBACK) == interfaces_of_card[2:]


# --- the schemas of skills


def card_with(schemas: Any, *ids: str) -> JsonObject:
    entries = [{"uri": SCHEMAS_EXTENSION, "params": {"skills": schemas}}, {"uri": "urn:other"}]
    return {"skills": [{"id": name} for name in ids], "capabilities": {"extensions": entries}}


TAKES, GIVES = {"type": "object", "title": "Order"}, {"type": "object", "title": "Invoice"}


@pytest.mark.parametrize("write", [card03.write, card10.write, merged])
def test_the_schemas_of_skills_are_read_and_written_as_params_of_one_extension(write: Any) -> None:
    card = card_with({"a": {"inputSchema": TAKES, "outputSchema": GIVES}, "b": {"outputSchema": GIVES}, "absent": {}}, *"abc")
    read = skills(card)
    assert [(skill.input_schema, skill.output_schema) for skill in read] == [(TAKES, GIVES), (None, GIVES), (None, None)]
    written = write(Profile("x", "x", "1", TWO_INTERFACES, capabilities(card), read))
    assert skills(written) == read
    assert [entry["uri"] for entry in written["capabilities"]["extensions"]] == ["urn:other", SCHEMAS_EXTENSION]
    assert all("inputSchema" not in skill for skill in written["skills"])


@pytest.mark.parametrize("schemas", [None, [], "x", {"a": 1}, {"a": {"inputSchema": "x", "outputSchema": [GIVES]}}])
def test_schemas_of_a_wrong_type_are_ignored(schemas: Any) -> None:
    assert skills(card_with(schemas, "a")) == (Skill("a", "a", "a"),)


def test_a_role_has_the_schemas_of_all_its_workers_each_from_the_card_that_its_skill_is_from() -> None:
    found, extensions = MergedSkills(10_000), MergedExtensions(10_000)
    for card in (
        card_with({"a": {"inputSchema": TAKES}, "b": {"inputSchema": GIVES}}, "a"),
        card_with({"a": {"inputSchema": GIVES}, "b": {"outputSchema": TAKES}}, "a", "b"),
    ):
        list(found.add_card(card))
        list(extensions.add_card(card))
    assert found.items == [Skill("a", "a", "a", input_schema=TAKES), Skill("b", "b", "b", output_schema=TAKES)]
    assert [extension.uri for extension in extensions.items] == ["urn:other"]


def test_the_schemas_of_a_role_count_as_its_skills() -> None:
    found = MergedSkills(200)
    list(found.add_card(card_with({"a": {"inputSchema": {"title": "x" * 300}}}, "a", "b")))
    assert (found.items, found.left_out("skills")) == ([], "2 more skills are not listed")
