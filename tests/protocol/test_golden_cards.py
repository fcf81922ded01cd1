"""Our own cards: golden files, and how the official SDKs read them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rolecall.model.a2a import JsonObject
from rolecall.model.card import Profile
from rolecall.protocol.cards import merged
from rolecall.protocol.dialects import DIALECTS
from tests.protocol.golden_contents import PLAIN, PROFILE
from tests.protocol.golden_files import as_protobuf_writes, exactly, golden, names_in
from tests.protocol.sdk import parsed_by_sdk

CARDS = {"full": PROFILE, "plain": PLAIN}
WRITERS = {"0.3": DIALECTS["0.3"].write_card, "1.0": DIALECTS["1.0"].write_card, "merged": merged}


@pytest.mark.parametrize("profile", CARDS)
@pytest.mark.parametrize("version", WRITERS)
def test_a_card_equals_its_golden_file(version: str, profile: str) -> None:
    write: Callable[[Profile], JsonObject] = WRITERS[version]
    assert exactly(write(CARDS[profile])) == exactly(golden(f"cards/{profile}-{version}"))


def test_every_golden_card_is_compared() -> None:
    assert names_in("cards") == {f"{profile}-{version}" for profile in CARDS for version in WRITERS}


@pytest.mark.parametrize("profile", CARDS)
def test_the_0_3_sdk_finds_the_whole_0_3_card_in_the_merged_one(profile: str) -> None:
    pure, both = parsed_by_sdk("0.3", [("AgentCard", golden(f"cards/{profile}-{version}")) for version in ("0.3", "merged")])
    assert exactly(pure) == exactly(golden(f"cards/{profile}-0.3"))
    assert exactly(both) == exactly(pure)


@pytest.mark.parametrize("profile", CARDS)
def test_the_1_x_sdk_knows_every_member_of_the_1_0_card(profile: str) -> None:
    written = golden(f"cards/{profile}-1.0")
    (seen,) = parsed_by_sdk("1.x", [("AgentCard", written)])
    assert exactly(seen) == exactly(as_protobuf_writes(written))


@pytest.mark.parametrize("profile", CARDS)
def test_the_1_x_sdk_finds_the_whole_1_0_card_in_the_merged_one(profile: str) -> None:
    cards = [golden(f"cards/{profile}-{version}") for version in ("1.0", "merged")]
    pure, both = parsed_by_sdk("1.x", [("parse_agent_card", card) for card in cards])
    interfaces = both.pop("supportedInterfaces")
    assert [interface for interface in interfaces if interface["protocolVersion"] == "1.0"] == pure.pop("supportedInterfaces")
    assert exactly(both) == exactly(pure)
