from __future__ import annotations

import pytest

from hub.core.liveness import about_to_end, missed_a_beat, too_many


@pytest.mark.parametrize(("since", "missed"), [(0, False), (45, False), (67, False), (68, True), (119, True)])
def test_a_beat_is_missed_half_a_heartbeat_after_it_was_due(since: float, missed: bool) -> None:
    assert missed_a_beat(ttl=120, left=120 - since, heartbeat=45) is missed


def test_a_lease_that_was_held_beyond_its_time_does_not_count_as_renewed() -> None:
    assert missed_a_beat(ttl=4, left=0.5, heartbeat=0.5)
    assert not missed_a_beat(ttl=4, left=30, heartbeat=0.5)


@pytest.mark.parametrize(("ttl", "left", "ends"), [(120, 1.1, False), (120, 1.0, True), (2, 0.6, False), (2, 0.5, True)])
def test_a_lease_is_about_to_end_when_it_would_be_over_before_the_next_look(ttl: float, left: float, ends: bool) -> None:
    assert about_to_end(ttl=ttl, left=left, look_every=0.5) is ends


@pytest.mark.parametrize(
    ("ending", "live", "gone", "asked"),
    [
        (3, 3, 0, 0),  # three may always go, be it the whole role
        (4, 4, 0, 1),
        (3, 3, 1, 1),
        (20, 100, 0, 0),
        (21, 100, 0, 1),
        (100, 100, 0, 80),
        (5, 80, 20, 5),  # a fifth of what the role was two minutes ago has gone already
        (0, 10, 0, 0),
    ],
)
def test_only_a_fifth_of_a_role_goes_unasked(ending: int, live: int, gone: int, asked: int) -> None:
    found = too_many(list(range(ending)), live=live, gone_lately=gone)
    assert list(found) == list(range(ending - asked, ending))
