"""Missed beats, leases that run out, and many of them at once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from hub.core.sweep import MISSED, Sweep
from hub.errors import Overloaded
from hub.model.principal import LOCAL
from hub.model.worker import Beat, Health
from tests.flow.conftest import ME, TTL, House, proof


@pytest.fixture
def sweep(house: House) -> Sweep:
    registry = house.engine.registry
    return Sweep(registry, house.forwarder, house.clock, heartbeat_of=house.directory.usual_heartbeat)


def names(house: House) -> set[str]:
    return {registration.worker.instance for registration in house.directory.live(ME, "echo")}


async def test_who_misses_a_beat_is_a_suspect_until_the_next_one(house: House, sweep: Sweep) -> None:
    lease = await house.enrol("echo:a")
    house.clock.advance(60)
    await sweep.look()
    assert lease.health is Health.READY
    house.clock.advance(10)
    await sweep.look()
    assert (lease.health, lease.reason) == (Health.SUSPECT, MISSED)
    await house.directory.beat(LOCAL, lease.worker, proof(lease), Beat())
    assert lease.health is Health.READY


async def test_a_dead_worker_is_gone_at_its_leases_end_and_nobody_is_asked(house: House, sweep: Sweep) -> None:
    for name in "abc":
        await house.enrol(f"echo:{name}")
    house.clock.advance(TTL.total_seconds() - 0.5)
    await sweep.look()
    house.clock.advance(0.5)
    await sweep.look()
    assert names(house) == set()
    assert house.forwarder.asked("probe") == []


async def test_of_many_that_fall_silent_those_who_answer_stay(house: House, sweep: Sweep) -> None:
    for number in range(20):
        await house.enrol(f"echo:{number}")
    await _let_them_run_out(house, sweep)
    assert len(names(house)) == 16
    assert len(house.forwarder.asked("probe")) == 16
    assert {lease.health for lease in house.directory.live(ME, "echo")} == {Health.SUSPECT}


async def test_of_many_that_fall_silent_those_who_do_not_answer_go(house: House, sweep: Sweep) -> None:
    house.forwarder.listening = False
    for number in range(20):
        await house.enrol(f"echo:{number}")
    await _let_them_run_out(house, sweep)
    for _ in range(5):
        house.clock.advance(1)
        await sweep.look()
    assert names(house) == set()
    assert len(house.forwarder.asked("probe")) == 16


async def test_after_two_minutes_some_more_may_go(house: House, sweep: Sweep) -> None:
    for number in range(20):
        await house.enrol(f"echo:{number}")
    await _let_them_run_out(house, sweep)
    for _ in range(400):
        house.clock.advance(0.5)
        await sweep.look()
    assert 0 < len(names(house)) < 16


async def test_a_full_registry_takes_nobody_new_and_keeps_its_own(house: House) -> None:
    for number in range(100):
        await house.enrol(f"echo:{number}")
    with pytest.raises(Overloaded):
        await house.enrol("echo:100")
    assert await house.enrol("echo:7") is not None
    assert len(names(house)) == 100


async def _let_them_run_out(house: House, sweep: Sweep) -> None:
    house.clock.advance((TTL - timedelta(seconds=0.5)).total_seconds())
    await sweep.look()
    house.clock.advance(0.5)
    await sweep.look()
