"""Missed beats, expired leases, and many of them at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from hub.core.registry.reaper import EVERY, MISSED, LeaseReaper
from rolecall.errors import NoDescriptors
from rolecall.model.ids import WorkerId
from rolecall.model.principal import LOCAL
from rolecall.model.worker import Beat, Health, Offer, Registration
from tests.flow.conftest import CALLER, TTL, System, proof
from tests.helpers.watched_engine import Hold


@pytest.fixture
def sweep(system: System) -> LeaseReaper:
    registry = system.engine.registry
    return LeaseReaper(registry, system.forwarder, system.clock, heartbeat_of=system.directory.usual_heartbeat)


def names(system: System) -> set[str]:
    return {registration.worker.instance for registration in system.directory.live(CALLER, "echo")}


async def test_a_worker_that_misses_a_beat_is_suspect_until_the_next_one(system: System, sweep: LeaseReaper) -> None:
    lease = await system.enrol("echo:a")
    system.clock.advance(60)
    await sweep.look()
    assert lease.health is Health.READY
    system.clock.advance(10)
    await sweep.look()
    assert (lease.health, lease.reason) == (Health.SUSPECT, MISSED)
    await system.directory.beat(LOCAL, lease.worker, proof(lease), Beat())
    assert lease.health is Health.READY


async def test_a_dead_worker_is_gone_when_its_lease_ends_without_a_probe(system: System, sweep: LeaseReaper) -> None:
    for name in "abc":
        await system.enrol(f"echo:{name}")
    system.clock.advance(TTL.total_seconds() - 0.5)
    await sweep.look()
    system.clock.advance(0.5)
    await sweep.look()
    assert names(system) == set()
    assert system.forwarder.asked("probe") == []


async def test_of_many_silent_workers_those_that_answer_stay(system: System, sweep: LeaseReaper) -> None:
    for number in range(20):
        await system.enrol(f"echo:{number}")
    await _let_them_run_out(system, sweep)
    assert len(names(system)) == 16
    assert len(system.forwarder.asked("probe")) == 16
    assert {lease.health for lease in system.directory.live(CALLER, "echo")} == {Health.SUSPECT}


async def test_of_many_silent_workers_those_that_do_not_answer_end(system: System, sweep: LeaseReaper) -> None:
    system.forwarder.listening = False
    for number in range(20):
        await system.enrol(f"echo:{number}")
    await _let_them_run_out(system, sweep)
    for _ in range(5):
        system.clock.advance(1)
        await sweep.look()
    assert names(system) == set()
    assert len(system.forwarder.asked("probe")) == 16


async def test_of_many_silent_workers_those_that_the_hub_has_no_descriptor_to_ask_stay(system: System) -> None:
    async def probe(workspace: str, offer: Offer) -> bool:
        raise NoDescriptors

    await enrol_many(system, 20)
    await _let_them_run_out(system, sweep_of(system, probe))
    assert len(names(system)) == 16


async def test_after_two_minutes_some_more_leases_may_end(system: System, sweep: LeaseReaper) -> None:
    for number in range(20):
        await system.enrol(f"echo:{number}")
    await _let_them_run_out(system, sweep)
    for _ in range(400):
        system.clock.advance(0.5)
        await sweep.look()
    assert 0 < len(names(system)) < 16


async def test_a_lease_that_never_expires_is_never_suspect(system: System, sweep: LeaseReaper) -> None:
    registry = system.engine.registry
    offer = Offer(WorkerId("echo", "a"), "http://w/")
    lease = await registry.enrol(CALLER.workspace, offer, boot="b", ttl=timedelta())
    await pass_time(system, sweep, 300)
    assert (lease.health, names(system)) == (Health.READY, {"a"})


async def test_a_worker_is_suspect_half_a_heartbeat_after_a_missed_beat(system: System, sweep: LeaseReaper) -> None:
    lease = await system.enrol("echo:a")
    await pass_time(system, sweep, 67.5)
    assert lease.health is Health.READY
    await pass_time(system, sweep, EVERY)
    assert lease.health is Health.SUSPECT


@pytest.mark.parametrize("first", [0.5, 20.0, 66.0])
async def test_a_beating_worker_becomes_suspect_by_its_last_beat(system: System, sweep: LeaseReaper, first: float) -> None:
    lease = await system.enrol("echo:a")
    await pass_time(system, sweep, first)
    await beat(system, lease)
    await pass_time(system, sweep, 67.5)
    assert lease.health is Health.READY
    await pass_time(system, sweep, EVERY)
    assert lease.health is Health.SUSPECT


async def test_a_suspect_worker_that_beats_is_suspect_again_after_the_next_missed_beat(
    system: System, sweep: LeaseReaper
) -> None:
    """Although its lease is long and needs no look for itself."""
    lease = await enrol_for(system, "echo:a", timedelta(hours=1))
    await pass_time(system, sweep, 68)
    assert lease.health is Health.SUSPECT
    await pass_time(system, sweep, 10)
    await beat(system, lease)
    for _ in range(3):
        await pass_time(system, sweep, 67.5)
        assert lease.health is Health.READY
        await pass_time(system, sweep, EVERY)
        assert lease.health is Health.SUSPECT
        await beat(system, lease)


async def test_a_worker_with_a_shorter_lease_is_suspect_sooner(system: System, sweep: LeaseReaper) -> None:
    slow = await system.enrol("echo:a")
    await pass_time(system, sweep, 1)
    quick = await enrol_for(system, "echo:b", timedelta(seconds=12))
    await pass_time(system, sweep, 6)
    assert (slow.health, quick.health) == (Health.READY, Health.READY)
    await pass_time(system, sweep, EVERY)
    assert (slow.health, quick.health) == (Health.READY, Health.SUSPECT)


async def test_a_draining_worker_stays_draining(system: System, sweep: LeaseReaper) -> None:
    lease = await system.enrol("echo:a")
    await system.directory.drain(CALLER, lease.worker, "new version")
    await pass_time(system, sweep, 70)
    assert (lease.health, lease.reason) == (Health.DRAINING, "new version")


async def test_many_suspects_are_stored_a_few_hundred_at_a_time(system: System, sweep: LeaseReaper) -> None:
    leases = await enrol_many(system, 450)
    system.clock.advance(70)
    for suspects in (200, 400, 450):
        await sweep.look()
        assert sum(lease.health is Health.SUSPECT for lease in leases) == suspects
        system.clock.advance(EVERY)


@pytest.mark.parametrize("count", [1, 3])
async def test_three_leases_may_always_end_without_a_probe(system: System, sweep: LeaseReaper, count: int) -> None:
    for number in range(count):
        await system.enrol(f"echo:{number}")
    await pass_time(system, sweep, 121)
    assert (names(system), system.forwarder.asked("probe")) == (set(), [])


async def test_leases_that_end_one_after_the_other_count_together(system: System, sweep: LeaseReaper) -> None:
    """Recent losses count: after three of five and then one more, all others are probed."""
    for number in range(5):
        await system.enrol(f"echo:{number}")
        await pass_time(system, sweep, 3)
    await pass_time(system, sweep, 104.5)
    assert names(system) == {"0", "1", "2", "3", "4"}
    await pass_time(system, sweep, 7)
    assert names(system) == {"3", "4"}
    assert system.forwarder.asked("probe") == []
    await pass_time(system, sweep, 10)
    assert names(system) == {"3", "4"}
    assert set(system.forwarder.asked("probe")) == {"echo:3", "echo:4"}


async def test_when_more_leases_have_ended_than_allowed_all_others_are_probed(system: System, sweep: LeaseReaper) -> None:
    """Many small losses add up; all others are probed."""
    await enrol_many(system, 30, "old")
    system.forwarder.listening = False
    await pass_time(system, sweep, 130)
    system.forwarder.listening = True
    assert names(system) == set()
    asked = len(system.forwarder.asked("probe"))
    await enrol_many(system, 100, "new", ttl=timedelta(seconds=12))
    await pass_time(system, sweep, 13)
    assert len(system.forwarder.asked("probe")) - asked == 100
    assert len(names(system)) == 100


async def test_roles_are_counted_apart(system: System, sweep: LeaseReaper) -> None:
    await enrol_many(system, 10)
    for role in ("one", "two"):
        for number in range(3):
            await system.enrol(f"{role}:{number}")
    for number in range(3):
        await system.enrol(f"echo:{number}", workspace="acme")
    await pass_time(system, sweep, 120)
    assert {worker.split(":")[0] for worker in system.forwarder.asked("probe")} == {"echo"}
    assert len(system.forwarder.asked("probe")) == 7
    assert [str(lease.worker) for lease in system.directory.live(CALLER)] == system.forwarder.asked("probe")
    assert list(system.directory.live(CALLER._replace(workspace="acme"))) == []


async def test_leases_that_end_in_one_workspace_do_not_count_in_another(system: System, sweep: LeaseReaper) -> None:
    for number in range(3):
        await system.enrol(f"echo:{number}", workspace="acme")
    await pass_time(system, sweep, 2)
    for number in range(3):
        await system.enrol(f"echo:{number}")
    await pass_time(system, sweep, 119)
    assert list(system.directory.live(CALLER._replace(workspace="acme"))) == []
    await pass_time(system, sweep, 2)
    assert (names(system), system.forwarder.asked("probe")) == (set(), [])


async def test_a_lease_does_not_end_during_its_probe(system: System) -> None:
    """Even if the answer is slow."""
    hold = Hold()
    sweep = sweep_of(system, answering(hold))
    await enrol_many(system, 5)
    system.clock.advance(119.5)
    looking = asyncio.create_task(sweep.look())
    await hold.reached.wait()
    system.clock.advance(4)
    await system.engine.registry.sweep()
    assert len(names(system)) == 2
    hold.release()
    await looking
    assert len(names(system)) == 2


async def test_a_worker_that_answers_stays_for_a_heartbeat_and_is_probed_again_then(system: System, sweep: LeaseReaper) -> None:
    await enrol_many(system, 5)
    await pass_time(system, sweep, 119.5)
    assert len(system.forwarder.asked("probe")) == 2
    await pass_time(system, sweep, 43)
    assert (len(names(system)), len(system.forwarder.asked("probe"))) == (2, 2)
    system.forwarder.listening = False
    await pass_time(system, sweep, 4.5)
    assert (len(names(system)), len(system.forwarder.asked("probe"))) == (2, 4)
    await pass_time(system, sweep, 1)
    assert (len(names(system)), len(system.forwarder.asked("probe"))) == (0, 4)


async def test_a_worker_that_did_not_answer_and_enrols_again_is_probed_like_any_other(
    system: System, sweep: LeaseReaper
) -> None:
    await enrol_many(system, 5)
    system.forwarder.listening = False
    await pass_time(system, sweep, 119.5)
    asked = set(system.forwarder.asked("probe"))
    assert len(asked) == 2
    system.forwarder.listening = True
    again = [await enrol_for(system, name, timedelta(seconds=12), boot="next") for name in asked]
    await pass_time(system, sweep, 12)
    assert len(system.forwarder.asked("probe")) == 4
    assert names(system) == {lease.worker.instance for lease in again}


async def test_at_most_a_few_hundred_workers_are_probed_at_once_and_the_others_soon(
    system: System, sweep: LeaseReaper, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "hub.core.registry.reaper")
    await enrol_many(system, 600)
    system.clock.advance(119.5)
    await sweep.look()
    assert len(system.forwarder.asked("probe")) == 200
    await pass_time(system, sweep, 10)
    assert len(system.forwarder.asked("probe")) == 480
    assert len(names(system)) == 480
    logged = [record.__dict__ for record in caplog.records if record.message == "many leases end at once"]
    assert [(one["role"], one["asked"], one["kept"]) for one in logged] == [
        ("echo", 200, 200),
        ("echo", 200, 200),
        ("echo", 80, 80),
    ]


async def test_the_log_counts_the_workers_that_answered_a_probe(system: System, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "hub.core.registry.reaper")
    kept = {"echo:3"}

    async def probe(workspace: str, offer: Offer) -> bool:
        return str(offer.worker) in kept

    await enrol_many(system, 5)
    system.clock.advance(119.5)
    await sweep_of(system, probe).look()
    (logged,) = [record.__dict__ for record in caplog.records]
    assert (logged["event"], logged["asked"], logged["kept"]) == ("leases_held", 2, 1)


async def test_the_end_of_a_lease_is_published_to_feeds(system: System, sweep: LeaseReaper) -> None:
    await system.enrol("echo:a")
    with system.directory.changes(CALLER, after=None, idle=timedelta(seconds=1)) as feed:
        await pass_time(system, sweep, 121)
        kinds = [str(change.kind) for change in await anext(feed)]
    assert kinds == ["suspect", "expired"]


# --- helpers


async def pass_time(system: System, sweep: LeaseReaper, seconds: float) -> None:
    """As a running hub does."""
    for _ in range(round(seconds / EVERY)):
        system.clock.advance(EVERY)
        await sweep.look()


async def beat(system: System, lease: Registration) -> None:
    await system.directory.beat(LOCAL, lease.worker, proof(lease), Beat())


async def enrol_for(system: System, name: str, ttl: timedelta, boot: str = "b") -> Registration:
    role, _, instance = name.partition(":")
    offer = Offer(WorkerId(role, instance), f"http://w/{name}")
    return (await system.directory.enrol(LOCAL, offer, boot=boot, ttl=ttl)).registration


async def enrol_many(system: System, count: int, prefix: str = "", ttl: timedelta = TTL) -> list[Registration]:
    registry = system.engine.registry
    offers = [Offer(WorkerId("echo", f"{prefix}{number}"), f"http://w/echo:{prefix}{number}") for number in range(count)]
    return [await registry.enrol(CALLER.workspace, offer, owner=LOCAL.name, boot="b", ttl=ttl) for offer in offers]


def answering(hold: Hold) -> Callable[[str, Offer], Awaitable[bool]]:
    """All workers accept connections, after the release of the hold."""

    async def probe(workspace: str, offer: Offer) -> bool:
        await hold.reach()
        return True

    return probe


def sweep_of(system: System, probe: Callable[[str, Offer], Awaitable[bool]]) -> LeaseReaper:
    """A reaper with the given `probe`."""
    system.forwarder.probe = probe  # type: ignore[method-assign]
    return LeaseReaper(system.engine.registry, system.forwarder, system.clock, heartbeat_of=system.directory.usual_heartbeat)


async def _let_them_run_out(system: System, sweep: LeaseReaper) -> None:
    system.clock.advance((TTL - timedelta(seconds=0.5)).total_seconds())
    await sweep.look()
    system.clock.advance(0.5)
    await sweep.look()
