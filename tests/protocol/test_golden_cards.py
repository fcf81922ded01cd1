"""Our own cards, letter by letter, and in the eyes of the official SDKs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rolecall.model.a2a import JsonObject
from rolecall.model.card import Profile
from rolecall.protocol.cards import merged, pure_03, pure_10
from tests.protocol.golden_files import as_protobuf_says, exactly, golden, names_in
from tests.protocol.sdk import understood
from tests.protocol.told import PLAIN, PROFILE

PROFILES = {"full": PROFILE, "plain": PLAIN}
WRITERS = {"0.3": pure_03, "1.0": pure_10, "merged": merged}


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("version", WRITERS)
def test_a_card_is_written_just_so(version: str, profile: str) -> None:
    write: Callable[[Profile], JsonObject] = WRITERS[version]
    assert exactly(write(PROFILES[profile])) == exactly(golden(f"cards/{profile}-{version}"))


def test_there_is_no_golden_card_that_nothing_is_compared_with() -> None:
    assert names_in("cards") == {f"{profile}-{version}" for profile in PROFILES for version in WRITERS}


@pytest.mark.parametrize("profile", PROFILES)
def test_the_0_3_sdk_finds_the_whole_0_3_card_in_the_merged_one(profile: str) -> None:
    pure, both = understood("0.3", [("AgentCard", golden(f"cards/{profile}-{version}")) for version in ("0.3", "merged")])
    assert exactly(pure) == exactly(golden(f"cards/{profile}-0.3"))
    assert exactly(both) == exactly(pure)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_1_x_sdk_knows_every_member_of_the_1_0_card(profile: str) -> None:
    written = golden(f"cards/{profile}-1.0")
    (seen,) = understood("1.x", [("AgentCard", written)])
    assert exactly(seen) == exactly(as_protobuf_says(written))


@pytest.mark.parametrize("profile", PROFILES)
def test_the_1_x_sdk_finds_the_whole_1_0_card_in_the_merged_one(profile: str) -> None:
    cards = [golden(f"cards/{profile}-{version}") for version in ("1.0", "merged")]
    pure, both = understood("1.x", [("parse_agent_card", card) for card in cards])
    ways = both.pop("supportedInterfaces")
    assert [way for way in ways if way["protocolVersion"] == "1.0"] == pure.pop("supportedInterfaces")
    assert exactly(both) == exactly(pure)
