"""Slots of the hub and of each workspace: taken, counted, released."""

from __future__ import annotations

import pytest

from hub.core.admission.quota import WorkspaceQuota
from rolecall.errors import Overloaded

HUB = r"^The hub holds 3 things, its limit \(ROLECALL_MOST\)"
MINE = r"^This workspace holds 2 things, its limit \(ROLECALL_MOST_PER_WORKSPACE\)"


def a_quota() -> WorkspaceQuota:
    return WorkspaceQuota(3, 2, "things", "most")


def is_refused(a_quota: WorkspaceQuota, workspace: str, why: str) -> None:
    with pytest.raises(Overloaded, match=why), a_quota.one(workspace):
        raise AssertionError("was admitted")


def test_a_workspace_gets_its_share_and_no_more() -> None:
    quota = a_quota()
    quota.fill("a")
    quota.check("a")
    quota.fill("a")
    is_refused(quota, "a", MINE)
    quota.check("b")


def test_all_workspaces_together_get_what_the_hub_has() -> None:
    quota = a_quota()
    for workspace in "aab":
        quota.fill(workspace)
    is_refused(quota, "b", HUB)
    is_refused(quota, "c", HUB)
    is_refused(quota, "a", MINE)


def test_a_released_slot_is_free_in_its_workspace_and_in_the_hub() -> None:
    quota = a_quota()
    for workspace in "aab":
        quota.fill(workspace)
    quota.leave("a")
    quota.check("b")
    quota.check("a")
    quota.fill("b")
    is_refused(quota, "a", HUB)
    for workspace in "abb":
        quota.leave(workspace)
    for workspace in "aac":
        quota.check(workspace)
        quota.fill(workspace)


def test_a_reservation_takes_a_slot() -> None:
    quota = a_quota()
    with quota.one("a"), quota.one("a"):
        is_refused(quota, "a", MINE)
        with quota.one("b"):
            is_refused(quota, "b", HUB)
        quota.check("b")
    quota.check("a")


def test_a_slot_is_released_after_a_refusal_and_after_an_error() -> None:
    quota = a_quota()
    for _ in range(9):
        with pytest.raises(ZeroDivisionError), quota.one("a"):
            raise ZeroDivisionError
    with quota.one("a"), quota.one("a"):
        for _ in range(9):
            is_refused(quota, "a", MINE)
    for _ in range(2):
        quota.check("a")
        quota.fill("a")


def test_existing_users_are_counted_above_the_limit() -> None:
    quota = a_quota()
    for _ in range(5):
        quota.fill("a")
    for _ in range(3):
        quota.leave("a")
    is_refused(quota, "a", MINE)
    quota.leave("a")
    quota.check("a")
