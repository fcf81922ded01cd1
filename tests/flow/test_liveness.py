"""Missed beats, leases that run out, and many of them at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from hub.core.registry.reaper import EVERY, MISSED, LeaseReaper
from rolecall.model.ids import WorkerId
from rolecall.model.principal import LOCAL
from rolecall.model.worker import Beat, Health, Offer, Registration
from tests.flow.conftest import ME, TTL, House, proof
from tests.helpers.watched_engine import Hold


@pytest.fixture
def sweep(house: House) -> LeaseReaper:
    registry = house.engine.registry
    return LeaseReaper(registry, house.forwarder, house.clock, heartbeat_of=house.directory.usual_heartbeat)


def names(house: House) -> set[str]:
    return {registration.worker.instance for registration in house.directory.live(ME, "echo")}


async def test_who_misses_a_beat_is_a_suspect_until_the_next_one(house: House, sweep: LeaseReaper) -> None:
    lease = await house.enrol("echo:a")
    house.clock.advance(60)
    await sweep.look()
    assert lease.health is Health.READY
    house.clock.advance(10)
    await sweep.look()
    assert (lease.health, lease.reason) == (Health.SUSPECT, MISSED)
    await house.directory.beat(LOCAL, lease.worker, proof(lease), Beat())
    assert lease.health is Health.READY


async def test_a_dead_worker_is_gone_at_its_leases_end_and_nobody_is_asked(house: House, sweep: LeaseReaper) -> None:
    for name in "abc":
        await house.enrol(f"echo:{name}")
    house.clock.advance(TTL.total_seconds() - 0.5)
    await sweep.look()
    house.clock.advance(0.5)
    await sweep.look()
    assert names(house) == set()
    assert house.forwarder.asked("probe") == []


async def test_of_many_that_fall_silent_those_who_answer_stay(house: House, sweep: LeaseReaper) -> None:
    for number in range(20):
        await house.enrol(f"echo:{number}")
    await _let_them_run_out(house, sweep)
    assert len(names(house)) == 16
    assert len(house.forwarder.asked("probe")) == 16
    assert {lease.health for lease in house.directory.live(ME, "echo")} == {Health.SUSPECT}


async def test_of_many_that_fall_silent_those_who_do_not_answer_go(house: House, sweep: LeaseReaper) -> None:
    house.forwarder.listening = False
    for number in range(20):
        await house.enrol(f"echo:{number}")
    await _let_them_run_out(house, sweep)
    for _ in range(5):
        house.clock.advance(1)
        await sweep.look()
    assert names(house) == set()
    assert len(house.forwarder.asked("probe")) == 16


async def test_after_two_minutes_some_more_may_go(house: House, sweep: LeaseReaper) -> None:
    for number in range(20):
        await house.enrol(f"echo:{number}")
    await _let_them_run_out(house, sweep)
    for _ in range(400):
        house.clock.advance(0.5)
        await sweep.look()
    assert 0 < len(names(house)) < 16


async def test_a_worker_that_never_expires_is_never_doubted(house: House, sweep: LeaseReaper) -> None:
    registry = house.engine.registry
    offer = Offer(WorkerId("echo", "a"), "http://w/")
    lease = await registry.enrol(ME.workspace, offer, boot="b", ttl=timedelta())
    await pass_time(house, sweep, 300)
    assert (lease.health, names(house)) == (Health.READY, {"a"})


async def test_a_doubt_comes_half_a_heartbeat_late_and_not_later(house: House, sweep: LeaseReaper) -> None:
    lease = await house.enrol("echo:a")
    await pass_time(house, sweep, 67.5)
    assert lease.health is Health.READY
    await pass_time(house, sweep, EVERY)
    assert lease.health is Health.SUSPECT


@pytest.mark.parametrize("first", [0.5, 20.0, 66.0])
async def test_a_worker_that_beats_is_doubted_by_its_last_beat(house: House, sweep: LeaseReaper, first: float) -> None:
    lease = await house.enrol("echo:a")
    await pass_time(house, sweep, first)
    await beat(house, lease)
    await pass_time(house, sweep, 67.5)
    assert lease.health is Health.READY
    await pass_time(house, sweep, EVERY)
    assert lease.health is Health.SUSPECT


async def test_a_doubted_worker_that_beats_is_doubted_again_by_the_next_missed_beat(house: House, sweep: LeaseReaper) -> None:
    """Though its lease is long, and does not bring anybody to look at it."""
    lease = await enrol_for(house, "echo:a", timedelta(hours=1))
    await pass_time(house, sweep, 68)
    assert lease.health is Health.SUSPECT
    await pass_time(house, sweep, 10)
    await beat(house, lease)
    for _ in range(3):
        await pass_time(house, sweep, 67.5)
        assert lease.health is Health.READY
        await pass_time(house, sweep, EVERY)
        assert lease.health is Health.SUSPECT
        await beat(house, lease)


async def test_a_worker_with_a_shorter_lease_is_doubted_sooner(house: House, sweep: LeaseReaper) -> None:
    slow = await house.enrol("echo:a")
    await pass_time(house, sweep, 1)
    quick = await enrol_for(house, "echo:b", timedelta(seconds=12))
    await pass_time(house, sweep, 6)
    assert (slow.health, quick.health) == (Health.READY, Health.READY)
    await pass_time(house, sweep, EVERY)
    assert (slow.health, quick.health) == (Health.READY, Health.SUSPECT)


async def test_a_worker_that_drains_stays_a_draining_one(house: House, sweep: LeaseReaper) -> None:
    lease = await house.enrol("echo:a")
    await house.directory.drain(ME, lease.worker, "new version")
    await pass_time(house, sweep, 70)
    assert (lease.health, lease.reason) == (Health.DRAINING, "new version")


async def test_the_doubts_of_a_storm_are_stored_a_few_hundred_at_a_time(house: House, sweep: LeaseReaper) -> None:
    leases = await crowd(house, 450)
    house.clock.advance(70)
    for suspects in (200, 400, 450):
        await sweep.look()
        assert sum(lease.health is Health.SUSPECT for lease in leases) == suspects
        house.clock.advance(EVERY)


@pytest.mark.parametrize("count", [1, 3])
async def test_three_may_always_go_unasked(house: House, sweep: LeaseReaper, count: int) -> None:
    for number in range(count):
        await house.enrol(f"echo:{number}")
    await pass_time(house, sweep, 121)
    assert (names(house), house.forwarder.asked("probe")) == (set(), [])


async def test_one_after_the_other_is_a_storm_too(house: House, sweep: LeaseReaper) -> None:
    """What has gone lately counts: with three of five gone, and then one, nobody else goes unasked."""
    for number in range(5):
        await house.enrol(f"echo:{number}")
        await pass_time(house, sweep, 3)
    await pass_time(house, sweep, 104.5)
    assert names(house) == {"0", "1", "2", "3", "4"}
    await pass_time(house, sweep, 7)
    assert names(house) == {"3", "4"}
    assert house.forwarder.asked("probe") == []
    await pass_time(house, sweep, 10)
    assert names(house) == {"3", "4"}
    assert set(house.forwarder.asked("probe")) == {"echo:3", "echo:4"}


async def test_when_more_have_gone_than_may_all_others_are_asked(house: House, sweep: LeaseReaper) -> None:
    """Many small losses add up, and none of the rest goes unasked."""
    await crowd(house, 30, "old")
    house.forwarder.listening = False
    await pass_time(house, sweep, 130)
    house.forwarder.listening = True
    assert names(house) == set()
    asked = len(house.forwarder.asked("probe"))
    await crowd(house, 100, "new", ttl=timedelta(seconds=12))
    await pass_time(house, sweep, 13)
    assert len(house.forwarder.asked("probe")) - asked == 100
    assert len(names(house)) == 100


async def test_roles_are_counted_apart(house: House, sweep: LeaseReaper) -> None:
    await crowd(house, 10)
    for role in ("one", "two"):
        for number in range(3):
            await house.enrol(f"{role}:{number}")
    for number in range(3):
        await house.enrol(f"echo:{number}", workspace="acme")
    await pass_time(house, sweep, 120)
    assert {worker.split(":")[0] for worker in house.forwarder.asked("probe")} == {"echo"}
    assert len(house.forwarder.asked("probe")) == 7
    assert [str(lease.worker) for lease in house.directory.live(ME)] == house.forwarder.asked("probe")
    assert list(house.directory.live(ME._replace(workspace="acme"))) == []


async def test_what_goes_in_one_workspace_does_not_count_in_another(house: House, sweep: LeaseReaper) -> None:
    for number in range(3):
        await house.enrol(f"echo:{number}", workspace="acme")
    await pass_time(house, sweep, 2)
    for number in range(3):
        await house.enrol(f"echo:{number}")
    await pass_time(house, sweep, 119)
    assert list(house.directory.live(ME._replace(workspace="acme"))) == []
    await pass_time(house, sweep, 2)
    assert (names(house), house.forwarder.asked("probe")) == (set(), [])


async def test_who_is_asked_is_not_gone_before_it_has_answered(house: House) -> None:
    """However slow that is."""
    hold = Hold()
    sweep = sweep_of(house, answering(hold))
    await crowd(house, 5)
    house.clock.advance(119.5)
    looking = asyncio.create_task(sweep.look())
    await hold.reached.wait()
    house.clock.advance(4)
    await house.engine.registry.sweep()
    assert len(names(house)) == 2
    hold.release()
    await looking
    assert len(names(house)) == 2


async def test_who_answers_stays_for_a_heartbeat_and_is_asked_again_then(house: House, sweep: LeaseReaper) -> None:
    await crowd(house, 5)
    await pass_time(house, sweep, 119.5)
    assert len(house.forwarder.asked("probe")) == 2
    await pass_time(house, sweep, 43)
    assert (len(names(house)), len(house.forwarder.asked("probe"))) == (2, 2)
    house.forwarder.listening = False
    await pass_time(house, sweep, 4.5)
    assert (len(names(house)), len(house.forwarder.asked("probe"))) == (2, 4)
    await pass_time(house, sweep, 1)
    assert (len(names(house)), len(house.forwarder.asked("probe"))) == (0, 4)


async def test_who_did_not_answer_and_enrols_again_is_asked_like_anybody(house: House, sweep: LeaseReaper) -> None:
    await crowd(house, 5)
    house.forwarder.listening = False
    await pass_time(house, sweep, 119.5)
    asked = set(house.forwarder.asked("probe"))
    assert len(asked) == 2
    house.forwarder.listening = True
    again = [await enrol_for(house, name, timedelta(seconds=12), boot="next") for name in asked]
    await pass_time(house, sweep, 12)
    assert len(house.forwarder.asked("probe")) == 4
    assert names(house) == {lease.worker.instance for lease in again}


async def test_no_more_than_a_few_hundred_are_asked_at_once_and_the_rest_soon(
    house: House, sweep: LeaseReaper, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "hub.core.registry.reaper")
    await crowd(house, 600)
    house.clock.advance(119.5)
    await sweep.look()
    assert len(house.forwarder.asked("probe")) == 200
    await pass_time(house, sweep, 10)
    assert len(house.forwarder.asked("probe")) == 480
    assert len(names(house)) == 480
    told = [record.__dict__ for record in caplog.records if record.message == "many leases end at once"]
    assert [(one["role"], one["asked"], one["kept"]) for one in told] == [
        ("echo", 200, 200),
        ("echo", 200, 200),
        ("echo", 80, 80),
    ]


async def test_what_is_logged_of_a_storm_counts_those_that_answered(house: House, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "hub.core.registry.reaper")
    kept = {"echo:3"}

    async def probe(offer: Offer) -> bool:
        return str(offer.worker) in kept

    await crowd(house, 5)
    house.clock.advance(119.5)
    await sweep_of(house, probe).look()
    (told,) = [record.__dict__ for record in caplog.records]
    assert (told["event"], told["asked"], told["kept"]) == ("leases_held", 2, 1)


async def test_a_lease_that_ends_is_told_to_whoever_watches(house: House, sweep: LeaseReaper) -> None:
    await house.enrol("echo:a")
    with house.directory.changes(ME, after=None, idle=timedelta(seconds=1)) as feed:
        await pass_time(house, sweep, 121)
        kinds = [str(change.kind) for change in await anext(feed)]
    assert kinds == ["suspect", "expired"]


# --- helpers


async def pass_time(house: House, sweep: LeaseReaper, seconds: float) -> None:
    """As a running hub does."""
    for _ in range(round(seconds / EVERY)):
        house.clock.advance(EVERY)
        await sweep.look()


async def beat(house: House, lease: Registration) -> None:
    await house.directory.beat(LOCAL, lease.worker, proof(lease), Beat())


async def enrol_for(house: House, name: str, ttl: timedelta, boot: str = "b") -> Registration:
    role, _, instance = name.partition(":")
    offer = Offer(WorkerId(role, instance), f"http://w/{name}")
    return (await house.directory.enrol(LOCAL, offer, boot=boot, ttl=ttl)).registration


async def crowd(house: House, count: int, prefix: str = "", ttl: timedelta = TTL) -> list[Registration]:
    registry = house.engine.registry
    offers = [Offer(WorkerId("echo", f"{prefix}{number}"), f"http://w/echo:{prefix}{number}") for number in range(count)]
    return [await registry.enrol(ME.workspace, offer, owner=LOCAL.name, boot="b", ttl=ttl) for offer in offers]


def answering(hold: Hold) -> Callable[[Offer], Awaitable[bool]]:
    """All of them, as soon as the test lets them."""

    async def probe(offer: Offer) -> bool:
        await hold.arrive()
        return True

    return probe


def sweep_of(house: House, probe: Callable[[Offer], Awaitable[bool]]) -> LeaseReaper:
    """One whose workers answer as the test says."""
    house.forwarder.probe = probe  # type: ignore[method-assign]
    return LeaseReaper(house.engine.registry, house.forwarder, house.clock, heartbeat_of=house.directory.usual_heartbeat)


async def _let_them_run_out(house: House, sweep: LeaseReaper) -> None:
    house.clock.advance((TTL - timedelta(seconds=0.5)).total_seconds())
    await sweep.look()
    house.clock.advance(0.5)
    await sweep.look()
