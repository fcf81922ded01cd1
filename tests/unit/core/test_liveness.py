"""When a worker becomes suspect, when its lease may end, and how many leases end without a probe."""

from __future__ import annotations

import pytest

from hub.core.registry.liveness import about_to_end, missed_a_beat, next_look, too_many


@pytest.mark.parametrize(("since", "missed"), [(0, False), (45, False), (67.5, False), (67.6, True), (119, True)])
def test_a_beat_is_missed_half_a_heartbeat_after_it_was_due(since: float, missed: bool) -> None:
    assert missed_a_beat(ttl=120, left=120 - since, heartbeat=45) is missed


def test_a_lease_that_was_held_beyond_its_time_does_not_count_as_renewed() -> None:
    assert missed_a_beat(ttl=4, left=0.5, heartbeat=0.5)
    assert not missed_a_beat(ttl=4, left=30, heartbeat=0.5)


@pytest.mark.parametrize(("ttl", "left", "about_to"), [(120, 1.1, False), (120, 1.0, True), (2, 0.6, False), (2, 0.5, True)])
def test_a_lease_is_about_to_end_when_it_would_be_over_before_the_next_look(ttl: float, left: float, about_to: bool) -> None:
    assert about_to_end(ttl=ttl, left=left, look_every=0.5) is about_to


@pytest.mark.parametrize(
    ("ending", "live", "gone", "asked"),
    [
        (3, 3, 0, 0),  # three may always end, even the whole role
        (4, 4, 0, 1),
        (3, 3, 1, 1),
        (20, 100, 0, 0),
        (21, 100, 0, 1),
        (100, 100, 0, 80),
        (5, 80, 20, 5),  # a fifth of the role of two minutes ago has ended already
        (4, 80, 20, 4),
        (10, 20, 10, 10),  # more have ended than allowed: every other one is probed
        (10, 20, 12, 10),
        (10, 40, 4, 6),
        (3, 1, 3, 3),
        (0, 10, 0, 0),
    ],
)
def test_only_a_fifth_of_a_role_ends_without_a_probe(ending: int, live: int, gone: int, asked: int) -> None:
    found = too_many(list(range(ending)), live=live, recent_count=gone)
    assert list(found) == list(range(ending - asked, ending))


@pytest.mark.parametrize(
    ("ttl", "left", "ready", "again"),
    [
        (120, 120, True, 67.5),  # a worker that has just beaten is suspect at the earliest when its next beat is missed
        (120, 100, True, 47.5),
        (120, 52.5, True, 0),
        (120, 52.5, False, 51.5),  # a suspect one that beats now can miss a beat again after that time
        (200, 100, False, 67.5),
        (120, 40, False, 39),  # or its lease ends before
        (60, 60, True, 59),
        (2, 2, False, 1.5),
    ],
)
def test_a_lease_is_looked_at_again_when_it_may_be_suspect_or_end(ttl: float, left: float, ready: bool, again: float) -> None:
    assert next_look(ttl=ttl, left=left, heartbeat=45, look_every=0.5, ready=ready) == again
