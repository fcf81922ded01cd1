"""Places of the hub and of each workspace: taken, counted, given back."""

from __future__ import annotations

import pytest

from hub.core.admission.quota import WorkspaceQuota
from rolecall.errors import Overloaded

HUB = r"^The hub holds 3 things, its limit \(ROLECALL_MOST\)"
MINE = r"^This workspace holds 2 things, its limit \(ROLECALL_MOST_PER_WORKSPACE\)"


def places() -> WorkspaceQuota:
    return WorkspaceQuota(3, 2, "things", "most")


def refuses(places: WorkspaceQuota, workspace: str, why: str) -> None:
    with pytest.raises(Overloaded, match=why), places.one(workspace):
        raise AssertionError("was let in")


def test_a_workspace_gets_its_share_and_no_more() -> None:
    held = places()
    held.fill("a")
    held.check("a")
    held.fill("a")
    refuses(held, "a", MINE)
    held.check("b")


def test_all_workspaces_together_get_what_the_hub_has() -> None:
    held = places()
    for workspace in "aab":
        held.fill(workspace)
    refuses(held, "b", HUB)
    refuses(held, "c", HUB)
    refuses(held, "a", MINE)


def test_who_leaves_makes_room_in_its_workspace_and_in_the_hub() -> None:
    held = places()
    for workspace in "aab":
        held.fill(workspace)
    held.leave("a")
    held.check("b")
    held.check("a")
    held.fill("b")
    refuses(held, "a", HUB)
    for workspace in "abb":
        held.leave(workspace)
    for workspace in "aac":
        held.check(workspace)
        held.fill(workspace)


def test_a_place_is_taken_while_what_fills_it_is_on_its_way() -> None:
    held = places()
    with held.one("a"), held.one("a"):
        refuses(held, "a", MINE)
        with held.one("b"):
            refuses(held, "b", HUB)
        held.check("b")
    held.check("a")


def test_a_place_is_given_back_after_a_refusal_and_after_an_error() -> None:
    held = places()
    for _ in range(9):
        with pytest.raises(ZeroDivisionError), held.one("a"):
            raise ZeroDivisionError
    with held.one("a"), held.one("a"):
        for _ in range(9):
            refuses(held, "a", MINE)
    for _ in range(2):
        held.check("a")
        held.fill("a")


def test_what_is_there_already_is_counted_beyond_the_limit() -> None:
    held = places()
    for _ in range(5):
        held.fill("a")
    for _ in range(3):
        held.leave("a")
    refuses(held, "a", MINE)
    held.leave("a")
    held.check("a")
