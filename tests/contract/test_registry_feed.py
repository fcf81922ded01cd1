from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from hub.ports.state.engine import Engine
from hub.ports.state.registry import Registry
from hub.storage.common.feed import KEPT
from rolecall.model.ids import WorkerId
from rolecall.model.worker import ChangeKind, Health
from tests.contract.conftest import Store
from tests.contract.words import LONG, SOON, TTL, WORKER, an_offer, beat, enrolled, kinds, next_changes, proof
from tests.helpers.clock import ManualClock

TWO = WorkerId("echo", "two")


@pytest.fixture
def registry(engine: Engine) -> Registry:
    return engine.registry


# --- the feed


async def test_feed_gives_stored_then_live_changes_with_contiguous_revisions(registry: Registry) -> None:
    registration = await enrolled(registry)
    feed = registry.changes("default", after=0, idle=LONG)
    assert await next_changes(feed) == [(1, "enrolled", "echo:one")]
    waiting = asyncio.ensure_future(next_changes(feed))
    await asyncio.sleep(0)
    await enrolled(registry, TWO)
    assert await waiting == [(2, "enrolled", "echo:two")]
    await registry.withdraw("default", WORKER, proof(registration))
    assert await next_changes(feed) == [(3, "withdrawn", "echo:one")]
    feed.stop()


async def test_a_feed_resumes_after_a_revision(registry: Registry) -> None:
    for at in range(5):
        await enrolled(registry, WorkerId("echo", str(at)))
    feed = registry.changes("default", after=3, idle=SOON)
    assert [revision for revision, _, _ in await next_changes(feed)] == [4, 5]
    assert await next_changes(feed) == []


async def test_feed_without_a_revision_begins_now(registry: Registry) -> None:
    await enrolled(registry)
    feed = registry.changes("default", after=None, idle=SOON)
    assert await next_changes(feed) == []
    await enrolled(registry, TWO)
    assert await next_changes(feed) == [(2, "enrolled", "echo:two")]


async def test_feed_of_all_workspaces_has_every_change_from_now_on(registry: Registry) -> None:
    await enrolled(registry)
    all_changes = registry.changes(None, after=None, idle=SOON)
    assert await next_changes(all_changes) == []
    await enrolled(registry, TWO)
    await registry.enrol("acme", an_offer(TWO), boot="b", ttl=TTL)
    assert await next_changes(all_changes) == [(2, "enrolled", "echo:two"), (1, "enrolled", "echo:two")]
    all_changes.stop()
    later = registry.changes(None, after=None, idle=LONG)
    waiting = asyncio.ensure_future(next_changes(later))
    await asyncio.sleep(0)
    await registry.enrol("acme", an_offer(), boot="b", ttl=TTL)
    assert await waiting == [(2, "enrolled", "echo:one")]
    later.stop()


async def test_feed_is_empty_when_idle_and_ends_when_stopped(registry: Registry) -> None:
    feed = registry.changes("default", after=None, idle=SOON)
    assert list(await anext(feed)) == []
    waiting = asyncio.ensure_future(anext(registry_feed := registry.changes("default", after=None, idle=LONG)))
    await asyncio.sleep(0)
    registry_feed.stop()
    with pytest.raises(StopAsyncIteration):
        await waiting
    feed.stop()
    with pytest.raises(StopAsyncIteration):
        await anext(feed)


async def test_a_feed_has_no_changes_of_another_workspace(registry: Registry) -> None:
    feed = registry.changes("default", after=0, idle=SOON)
    await enrolled(registry, workspace="elsewhere")
    assert list(await anext(feed)) == []
    await enrolled(registry, TWO)
    assert await next_changes(feed) == [(1, "enrolled", "echo:two")]


async def test_revisions_do_not_tell_how_much_other_workspaces_change(store: Store, engine: Engine) -> None:
    for number in range(5):
        await enrolled(engine.registry, WorkerId("echo", str(number)), workspace="elsewhere")
        await enrolled(engine.registry, WorkerId("echo", str(number)))
    engine = await store.open_again(engine)
    await enrolled(engine.registry, TWO, workspace="elsewhere")
    await enrolled(engine.registry, TWO)
    batch = await anext(engine.registry.changes("default", after=3, idle=SOON))
    assert [change.revision for change in batch] == [4, 5, 6]


async def test_a_change_of_health_has_its_reason(store: Store, engine: Engine) -> None:
    lease = await enrolled(engine.registry)
    await engine.registry.mark("default", WORKER, lease.epoch, Health.SUSPECT, "it was late")
    await beat(engine.registry, lease)
    engine = await store.open_again(engine)
    batch = await anext(engine.registry.changes("default", after=0, idle=SOON))
    assert [(change.kind, change.reason) for change in batch] == [("enrolled", ""), ("suspect", "it was late"), ("changed", "")]


async def test_feed_keeps_the_newest_ten_thousand(registry: Registry) -> None:
    """A hundred workers, whose changes share commits."""
    workers = [WorkerId("echo", str(number)) for number in range(100)]
    epochs = [(await enrolled(registry, worker)).epoch for worker in workers]
    for health in [Health.SUSPECT, Health.READY] * (KEPT // 200):
        marks = (registry.mark("default", one, epoch, health, "") for one, epoch in zip(workers, epochs, strict=True))
        await asyncio.gather(*marks)
    batch = await anext(registry.changes("default", after=2, idle=SOON))
    assert [change.revision for change in batch] == list(range(101, KEPT + 101))
    # What another workspace does pushes them out too, and the revisions go on.
    feed = registry.changes("default", after=None, idle=SOON)
    for at in range(10):
        await enrolled(registry, WorkerId("echo", str(at)), workspace="elsewhere")
    batch = await anext(registry.changes("default", after=2, idle=SOON))
    assert [change.revision for change in batch] == list(range(111, KEPT + 101))
    await enrolled(registry, TWO)
    assert await next_changes(feed) == [(KEPT + 101, "enrolled", "echo:two")]


async def test_the_newest_change_of_a_role_is_known_when_no_worker_serves_it(registry: Registry, clock: ManualClock) -> None:
    assert registry.last_of("default", "echo") is None
    await enrolled(registry)
    clock.advance(120)
    await registry.sweep()
    last = registry.last_of("default", "echo")
    assert last is not None
    assert (last.kind, last.worker, last.health, last.at) == (ChangeKind.EXPIRED, WORKER, None, clock.wall())
    assert registry.last_of("elsewhere", "echo") is None


# --- across a restart


async def test_lease_survives_reopening_with_its_full_time(store: Store, engine: Engine, clock: ManualClock) -> None:
    known = {"streaming": True, "capacity": 2, "labels": {"a": "b"}, "models": ("m",), "idempotent": True}
    offer = an_offer(card={"skills": [{"id": "s"}]}, networks=("10.9.0.0/16",), **known)
    before = await engine.registry.enrol("default", offer, boot="boot", ttl=TTL)
    drained = await enrolled(engine.registry, TWO)
    await beat(engine.registry, drained, draining=True)
    before.in_flight = 5
    clock.advance(100)
    engine = await store.reopen()
    after = engine.registry.get("default", WORKER)
    assert after is not None
    assert (after.offer, after.epoch, after.secret, after.boot, after.ttl) == (offer, before.epoch, before.secret, "boot", TTL)
    assert (after.health, after.in_flight, after.registered_at) == (Health.READY, 0, before.registered_at)
    assert engine.registry.expires_in(after) == TTL
    assert engine.registry.live("default", "echo")[1].health is Health.DRAINING
    await beat(engine.registry, after)
    assert await enrolled(engine.registry) is after


async def test_beats_are_kept_by_sweep_and_by_closing(store: Store, engine: Engine, clock: ManualClock) -> None:
    registration = await enrolled(engine.registry)
    for with_sweep in (True, False):
        clock.advance(100)
        await beat(engine.registry, registration, in_flight=7, capacity=9)
        if with_sweep:
            await engine.registry.sweep()
        clock.advance(100)
        engine = await store.reopen()
        found = engine.registry.get("default", WORKER)
        assert found is not None
        assert (found.other_in_flight, found.offer.capacity) == (7, 9)
        registration = found


async def test_a_repeated_enrolment_without_a_change_is_kept_like_a_beat(
    store: Store, engine: Engine, clock: ManualClock
) -> None:
    await enrolled(engine.registry)
    clock.advance(100)
    await enrolled(engine.registry)
    await store.close()
    clock.advance(100)
    found = (await store.reopen()).registry.get("default", WORKER)
    assert found is not None
    assert (found.health, found.last_seen) == (Health.READY, clock.wall() - 100)


async def test_a_worker_that_has_sent_no_beat_has_no_load_after_a_restart(store: Store, engine: Engine) -> None:
    await enrolled(engine.registry)
    found = (await store.reopen()).registry.get("default", WORKER)
    assert found is not None
    assert found.other_in_flight == 0


async def test_a_ttl_that_was_changed_by_a_repeated_enrolment_is_kept(store: Store, engine: Engine) -> None:
    await enrolled(engine.registry)
    await enrolled(engine.registry, ttl=2 * TTL)
    found = (await store.reopen()).registry.get("default", WORKER)
    assert found is not None
    assert found.ttl == 2 * TTL


async def test_marks_leave_the_time_and_the_load_of_a_lease_as_they_are_in_the_store(
    store: Store, engine: Engine, clock: ManualClock
) -> None:
    registration = await enrolled(engine.registry)
    await beat(engine.registry, registration, in_flight=3)
    await engine.registry.sweep()
    clock.advance(50)
    for health in (Health.SUSPECT, Health.READY):
        await engine.registry.mark("default", WORKER, registration.epoch, health, "")
    await store.close()
    clock.advance(50)
    found = (await store.reopen()).registry.get("default", WORKER)
    assert found is not None
    assert (found.health, found.other_in_flight) == (Health.READY, 3)


async def test_a_lease_that_expired_while_the_hub_was_down_is_suspect_after_the_restart(
    store: Store, engine: Engine, clock: ManualClock
) -> None:
    """Its worker may be alive, and could not renew. A beat makes it ready; without one the lease ends."""
    registration = await enrolled(engine.registry)
    await enrolled(engine.registry, TWO, ttl=timedelta())
    await store.close()
    clock.advance(120)
    engine = await store.reopen()
    assert {str(live.worker): live.health for live in engine.registry.live("default")} == {
        "echo:one": Health.SUSPECT,
        "echo:two": Health.READY,
    }
    assert await kinds(engine.registry) == ["enrolled", "enrolled", "suspect"]
    await beat(engine.registry, registration)
    assert {live.health for live in engine.registry.live("default")} == {Health.READY}
    clock.advance(120)
    assert [str(live.worker) for live in engine.registry.live("default")] == ["echo:two"]


async def test_revisions_and_epochs_continue_after_reopening(store: Store, engine: Engine) -> None:
    first = await enrolled(engine.registry)
    await engine.registry.withdraw("default", WORKER, proof(first))
    engine = await store.reopen()
    feed = engine.registry.changes("default", after=1, idle=SOON)
    assert await next_changes(feed) == [(2, "withdrawn", "echo:one")]
    second = await enrolled(engine.registry)
    assert second.epoch > first.epoch
    assert await next_changes(feed) == [(3, "enrolled", "echo:one")]
    last = engine.registry.last_of("default", "echo")
    assert last is not None
    assert last.revision == 3
