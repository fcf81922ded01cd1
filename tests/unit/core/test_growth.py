"""How fast workspaces fill a share."""

from __future__ import annotations

import pytest

from hub.core.shares.growth import Growth, GrowthWatch
from hub.core.shares.share import WorkspaceShare
from tests.helpers.clock import ManualClock

HOUR = 3600.0


class Watched:
    def __init__(self, cap: int = 10_000) -> None:
        self.clock = ManualClock()
        self.share = WorkspaceShare("bytes", "max_disk", 10**9, cap)
        self.watch = GrowthWatch(self.share, self.clock)

    async def pass_hours(self, hours: float, filled: int = 0) -> None:
        """`filled`: in each of them."""
        for _ in range(round(hours)):
            await self.watch.look()
            self.share.fill("anna", filled)
            self.clock.advance(HOUR)


async def test_growth_is_that_of_the_last_day_and_of_one_workspace() -> None:
    watched = Watched()
    await watched.pass_hours(24, 100)
    assert watched.watch.of("anna") == Growth(2400.0, 7600 / 2400)
    assert watched.watch.of("bert") == Growth(0.0, None)
    await watched.pass_hours(48, 0)
    assert watched.watch.of("anna") == Growth(0.0, None)


async def test_there_is_none_before_an_hour_has_passed() -> None:
    watched = Watched()
    assert watched.watch.of("anna") is None
    await watched.watch.look()
    watched.clock.advance(HOUR - 1)
    assert watched.watch.of("anna") is None
    watched.share.fill("anna", 50)
    watched.clock.advance(1)
    assert watched.watch.of("anna") == Growth(pytest.approx(1200.0), pytest.approx(9950 / 1200))


async def test_a_workspace_that_shrinks_is_never_full_and_one_that_is_full_is_so_now() -> None:
    watched = Watched(cap=1_000)
    watched.share.fill("anna", 500)
    await watched.watch.look()
    watched.share.give_back("anna", 400)
    watched.clock.advance(24 * HOUR)
    assert watched.watch.of("anna") == Growth(-400.0, None)
    watched.share.fill("anna", 5_000)
    found = watched.watch.of("anna")
    assert found is not None
    assert found.full_in_days == 0
