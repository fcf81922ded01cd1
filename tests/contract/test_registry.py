from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from hub.ports.state.engine import Engine
from hub.ports.state.registry import Registry
from rolecall.errors import InstanceConflict, LeaseSuperseded, LeaseUnknown
from rolecall.model.card import JSONRPC, Interface
from rolecall.model.ids import WorkerId
from rolecall.model.worker import Beat, Health, LeaseProof, Registration
from tests.contract.conftest import Store
from tests.contract.words import ANNA, BERT, OTHER_ANNA, SOON, TTL, WORKER, an_offer, beat, enrolled, kinds, proof
from tests.helpers.clock import ManualClock

TWO = WorkerId("echo", "two")
OTHER_URL = "http://127.0.0.1:9999/"


@pytest.fixture
def registry(engine: Engine) -> Registry:
    return engine.registry


# --- enrolling


async def test_enrolled_worker_is_live_with_what_it_offered(registry: Registry, clock: ManualClock) -> None:
    card = {"name": "Echo", "skills": [{"id": "say", "tags": ["a", "b"]}], "x-unknown": {"kept": True}}
    offer = an_offer(card=card, streaming=True, replays=True, capacity=3, labels={"zone": "a"}, models=("m1", "m2"))
    registration = await registry.enrol("default", offer, boot="boot", ttl=TTL)
    assert registry.get("default", WORKER) is registration
    assert list(registry.live("default", "echo")) == [registration]
    assert list(registry.live("default")) == [registration]
    assert list(registry.roles("default")) == ["echo"]
    assert registration.offer == offer
    assert registration.health is Health.READY
    assert registration.ttl == TTL
    assert registration.registered_at == registration.last_seen == clock.wall()
    assert registry.expires_in(registration) == TTL


async def test_same_boot_keeps_epoch_and_secret(registry: Registry) -> None:
    first = await enrolled(registry)
    epoch, secret = first.epoch, first.secret
    again = await enrolled(registry)
    assert (again.epoch, again.secret) == (epoch, secret)
    assert again is first
    assert await kinds(registry) == ["enrolled"]


async def test_same_boot_renews_for_its_new_ttl(registry: Registry, clock: ManualClock) -> None:
    registration = await enrolled(registry)
    clock.advance(100)
    await enrolled(registry, ttl=timedelta(seconds=30))
    assert registry.expires_in(registration) == timedelta(seconds=30)
    clock.advance(30)
    assert list(registry.live("default", "echo")) == []


async def test_a_changed_offer_of_the_same_boot_is_stored_and_published(registry: Registry) -> None:
    registration = await enrolled(registry)
    registration.in_flight = 2
    again = await enrolled(registry, description="now with words", url=OTHER_URL)
    assert again is registration
    assert again.offer.description == "now with words"
    assert again.offer.url == OTHER_URL
    assert again.in_flight == 2
    assert await kinds(registry) == ["enrolled", "changed"]


async def test_other_boot_at_same_url_gets_next_epoch_and_other_secret(registry: Registry) -> None:
    first = await enrolled(registry, boot="one")
    second = await enrolled(registry, boot="two")
    assert second.epoch == first.epoch + 1
    assert second.secret != first.secret
    assert second is not first
    assert list(registry.live("default", "echo")) == [second]
    assert await kinds(registry) == ["enrolled", "enrolled"]


async def test_other_boot_at_other_url_conflicts_with_a_live_lease(registry: Registry) -> None:
    first = await enrolled(registry, boot="one")
    with pytest.raises(InstanceConflict):
        await enrolled(registry, boot="two", url=OTHER_URL)
    assert list(registry.live("default", "echo")) == [first]
    assert first.offer.url != OTHER_URL
    assert await kinds(registry) == ["enrolled"]


async def test_without_a_boot_id_the_url_identifies_the_process(registry: Registry) -> None:
    first = await enrolled(registry, boot="")
    assert await enrolled(registry, boot="", description="changed") is first
    with pytest.raises(InstanceConflict):
        await enrolled(registry, boot="", url=OTHER_URL)
    assert (first.epoch, first.offer.description) == (1, "changed")
    second = await registry.enrol("default", an_offer(url=OTHER_URL), boot="", ttl=TTL, supersede=True)
    assert second.epoch == 2


async def test_supersede_takes_a_live_name_from_another_url(registry: Registry) -> None:
    first = await enrolled(registry, boot="one")
    second = await registry.enrol("default", an_offer(url=OTHER_URL), boot="two", ttl=TTL, supersede=True)
    assert second.epoch > first.epoch
    with pytest.raises(LeaseSuperseded):
        await beat(registry, first)
    assert registry.get("default", WORKER) is second


async def test_name_is_free_for_another_url_once_its_lease_has_ended(registry: Registry, clock: ManualClock) -> None:
    first = await enrolled(registry, boot="one")
    clock.advance(TTL.total_seconds())
    second = await enrolled(registry, boot="two", url=OTHER_URL)
    assert second.epoch > first.epoch
    assert await kinds(registry) == ["enrolled", "expired", "enrolled"]


async def test_epochs_do_not_repeat_after_withdrawal(registry: Registry) -> None:
    epochs = []
    for _ in range(3):
        registration = await enrolled(registry)
        epochs.append(registration.epoch)
        await registry.withdraw("default", WORKER, proof(registration))
    assert epochs == sorted(set(epochs))


async def test_epochs_do_not_repeat_after_expiry_even_for_the_same_boot(registry: Registry, clock: ManualClock) -> None:
    first = await enrolled(registry)
    epoch, secret = first.epoch, first.secret
    clock.advance(TTL.total_seconds())
    await registry.sweep()
    second = await enrolled(registry)
    assert second.epoch > epoch
    assert second.secret != secret


async def test_names_of_two_workspaces_are_independent(registry: Registry) -> None:
    here = await enrolled(registry, boot="one")
    there = await enrolled(registry, boot="two", url=OTHER_URL, workspace="elsewhere")
    assert list(registry.live("default")) == [here]
    assert list(registry.live("elsewhere")) == [there]
    assert here.secret != there.secret
    assert registry.get("nowhere", WORKER) is None
    assert list(registry.live("nowhere")) == list(registry.roles("nowhere")) == []
    with pytest.raises(LeaseSuperseded):
        await registry.beat("elsewhere", WORKER, LeaseProof(there.epoch, here.secret), Beat())
    assert len(await kinds(registry, workspace="elsewhere")) == 1


async def test_concurrent_enrolments_of_one_name_get_one_epoch_each(registry: Registry) -> None:
    leases = await asyncio.gather(*(enrolled(registry, boot=f"boot {at}") for at in range(20)))
    assert sorted(lease.epoch for lease in leases) == list(range(leases[0].epoch, leases[0].epoch + 20))
    assert len(registry.live("default", "echo")) == 1
    assert len(await kinds(registry)) == 20


async def test_roles_are_sorted_and_only_those_with_a_live_worker(registry: Registry, clock: ManualClock) -> None:
    for role in ("writer", "coder", "reader"):
        await enrolled(registry, WorkerId(role, "one"), ttl=timedelta(seconds=200 if role == "coder" else 100))
    assert list(registry.roles("default")) == ["coder", "reader", "writer"]
    clock.advance(100)
    assert list(registry.roles("default")) == ["coder"]


# --- expiry


async def test_lease_ends_exactly_at_its_ttl_without_a_sweep(registry: Registry, clock: ManualClock) -> None:
    registration = await enrolled(registry)
    short = await enrolled(registry, TWO, ttl=timedelta(seconds=60))
    clock.advance(60)
    assert list(registry.live("default", "echo")) == [registration]
    clock.advance(59.999)
    assert registry.get("default", WORKER) is registration
    clock.advance(0.001)
    assert registry.get("default", WORKER) is None
    assert list(registry.live("default", "echo")) == list(registry.live("default")) == list(registry.roles("default")) == []
    assert registry.expires_in(registration) == timedelta()
    assert set(map(id, await registry.sweep())) == {id(registration), id(short)}


async def test_sweep_ends_expired_leases_once_and_publishes_it(registry: Registry, clock: ManualClock) -> None:
    registration = await enrolled(registry)
    await enrolled(registry, TWO, ttl=timedelta(seconds=500))
    assert list(await registry.sweep()) == []
    clock.advance(120)
    assert list(await registry.sweep()) == [registration]
    assert list(await registry.sweep()) == []
    assert await kinds(registry) == ["enrolled", "enrolled", "expired"]


async def test_worker_that_enrols_again_while_many_expired_are_swept_keeps_its_new_lease(
    store: Store, registry: Registry, clock: ManualClock
) -> None:
    workers = [WorkerId("echo", str(at)) for at in range(120)]
    for worker in workers:
        await enrolled(registry, worker)
    before = registry.revision()
    clock.advance(120)
    sweep = asyncio.ensure_future(registry.sweep())
    await asyncio.sleep(0)
    fresh = await enrolled(registry, workers[-1], boot="new")
    ended = [(registration.worker, registration.epoch) for registration in await sweep]
    assert registry.get("default", workers[-1]) is fresh
    assert fresh.epoch == 2
    assert sorted(ended) == sorted((worker, 1) for worker in workers[: len(ended)])
    feed = registry.changes("default", after=before, idle=SOON)
    assert [(c.kind, c.epoch) for c in await anext(feed) if c.worker == workers[-1]] == [("expired", 1), ("enrolled", 2)]
    feed.stop()
    if store.on_disk:
        engine = await store.reopen()
        assert [registration.worker for registration in engine.registry.live("default")] == [workers[-1]]


async def test_sweep_leaves_a_name_alone_while_it_is_being_enrolled(
    store: Store, registry: Registry, clock: ManualClock
) -> None:
    await enrolled(registry, boot="old")
    clock.advance(TTL.total_seconds())
    fresh, ended = await asyncio.gather(enrolled(registry, boot="new"), registry.sweep())
    assert list(ended) == []
    assert registry.get("default", WORKER) is fresh
    assert await kinds(registry) == ["enrolled", "expired", "enrolled"]
    if store.on_disk:
        again = (await store.reopen()).registry.get("default", WORKER)
        assert again is not None
        assert again.epoch == fresh.epoch == 2


async def test_wall_clock_step_expires_nobody(registry: Registry, clock: ManualClock) -> None:
    registration = await enrolled(registry)
    clock.step_wall(86_400)
    assert list(await registry.sweep()) == []
    assert registry.get("default", WORKER) is registration


async def test_zero_ttl_never_expires(registry: Registry, clock: ManualClock) -> None:
    registration = await enrolled(registry, ttl=timedelta())
    assert registry.expires_in(registration) is None
    clock.advance(10 * 365 * 86_400)
    assert list(await registry.sweep()) == []
    assert list(registry.live("default", "echo")) == [registration]


# --- beats


async def test_beat_renews_for_the_time_given_at_enrolment(registry: Registry, clock: ManualClock) -> None:
    registration = await enrolled(registry)
    clock.advance(119)
    assert await beat(registry, registration) is registration
    clock.advance(119)
    assert registry.get("default", WORKER) is registration
    assert registry.expires_in(registration) == timedelta(seconds=1)
    assert registration.last_seen == clock.wall() - 119


async def test_a_beat_updates_load_and_capacity_and_keeps_missing_values(registry: Registry) -> None:
    registration = await enrolled(registry, capacity=4)
    await beat(registry, registration, in_flight=3, capacity=8)
    assert (registration.other_in_flight, registration.offer.capacity) == (3, 8)
    await beat(registry, registration)
    assert (registration.other_in_flight, registration.offer.capacity) == (3, 8)
    await beat(registry, registration, in_flight=0)
    assert (registration.other_in_flight, registration.offer.capacity) == (0, 8)
    assert await kinds(registry) == ["enrolled"]


@pytest.mark.parametrize(
    ("own", "reported", "others"),
    [(0, 0, 0), (1, 1, 0), (2, 1, 0), (1, 3, 2), (0, 2, 2)],
    ids=["idle", "own", "not there yet", "of another hub too", "direct"],
)
async def test_the_load_is_this_hubs_calls_as_of_now_and_the_others_of_the_last_beat(
    registry: Registry, own: int, reported: int, others: int
) -> None:
    registration = await enrolled(registry, capacity=4)
    registration.in_flight = own
    await beat(registry, registration, in_flight=reported)
    assert registration.load == own + others
    registration.in_flight = 0
    assert registration.load == others
    registration.in_flight = 4
    assert registration.load == 4 + others


async def test_a_beat_after_expiry_is_unknown_and_renews_nothing(registry: Registry, clock: ManualClock) -> None:
    registration = await enrolled(registry)
    clock.advance(120)
    for _ in range(2):
        with pytest.raises(LeaseUnknown):
            await beat(registry, registration)
        assert list(registry.live("default")) == []
        await registry.sweep()


async def test_a_beat_of_an_unknown_worker_is_refused(registry: Registry) -> None:
    with pytest.raises(LeaseUnknown):
        await registry.beat("default", WORKER, LeaseProof(1, "x"), Beat())


async def test_stale_epoch_or_other_secret_cannot_renew(registry: Registry, clock: ManualClock) -> None:
    first = await enrolled(registry, boot="one")
    second = await enrolled(registry, boot="two")
    clock.advance(60)
    for wrong in (
        proof(first),
        LeaseProof(second.epoch, first.secret),
        LeaseProof(None, "naïve"),
        LeaseProof(first.epoch, None),
    ):
        with pytest.raises(LeaseSuperseded):
            await registry.beat("default", WORKER, wrong, Beat(in_flight=9))
    assert registry.expires_in(second) == timedelta(seconds=60)
    assert second.other_in_flight == 0


async def test_a_missing_proof_is_not_required(registry: Registry) -> None:
    registration = await enrolled(registry)
    assert await registry.beat("default", WORKER, LeaseProof(None, None), Beat()) is registration


async def test_beat_clears_suspicion(registry: Registry) -> None:
    registration = await enrolled(registry)
    await registry.mark("default", WORKER, registration.epoch, Health.SUSPECT, "refused a connection")
    await beat(registry, registration)
    assert (registration.health, registration.reason) == (Health.READY, "")
    assert await kinds(registry) == ["enrolled", "suspect", "changed"]


async def test_a_beat_tells_that_a_worker_was_away(registry: Registry) -> None:
    registration = await enrolled(registry)
    await beat(registry, registration)
    assert not registration.was_away
    await beat(registry, registration, was_away=True)
    assert registration.was_away
    registration.was_away = False
    await registry.mark("default", WORKER, registration.epoch, Health.SUSPECT, "refused a connection")
    assert not registration.was_away
    await beat(registry, registration)
    assert registration.was_away
    await beat(registry, registration)
    assert registration.was_away
    assert not (await enrolled(registry, boot="another")).was_away


async def test_only_an_enrolment_ends_draining(registry: Registry) -> None:
    registration = await enrolled(registry)
    await beat(registry, registration, draining=True)
    assert registration.health is Health.DRAINING
    await beat(registry, registration, draining=False)
    await registry.mark("default", WORKER, registration.epoch, Health.READY, "")
    await registry.mark("default", WORKER, registration.epoch, Health.SUSPECT, "")
    assert registration.health is Health.DRAINING
    await enrolled(registry)
    assert registration.health is Health.READY
    assert await kinds(registry) == ["enrolled", "draining", "changed"]


async def test_a_worker_that_an_operator_drains_stays_so_when_its_process_enrols_again(registry: Registry) -> None:
    registration = await enrolled(registry)
    await registry.mark("default", WORKER, registration.epoch, Health.DRAINING, "for a restart")
    await enrolled(registry)
    assert (registration.health, registration.reason) == (Health.DRAINING, "for a restart")
    assert (await enrolled(registry, boot="another")).health is Health.READY


async def test_a_drained_worker_is_ready_again_under_its_epoch(store: Store, engine: Engine) -> None:
    registry, registration = engine.registry, await enrolled(engine.registry)
    epoch = registration.epoch
    await registry.mark("default", WORKER, epoch, Health.DRAINING, "for a restart")
    await registry.undrain("default", WORKER, epoch + 1)
    assert registration.health is Health.DRAINING
    engine = await store.open_again(engine)
    await engine.registry.undrain("default", WORKER, epoch)
    live = engine.registry.get("default", WORKER)
    assert live is not None
    assert (live.health, live.reason, live.epoch) == (Health.READY, "", epoch)
    await engine.registry.undrain("default", WORKER, epoch)
    assert await kinds(engine.registry) == ["enrolled", "draining", "changed"]


async def test_a_worker_that_is_about_to_stop_gets_no_calls_again(registry: Registry) -> None:
    registration = await enrolled(registry)
    await beat(registry, registration, draining=True)
    await registry.undrain("default", WORKER, registration.epoch)
    assert (registration.health, registration.drains_itself) == (Health.DRAINING, True)
    # It is drained, and then begins to stop.
    other = await enrolled(registry, boot="another")
    await registry.mark("default", WORKER, other.epoch, Health.DRAINING, "for a restart")
    await beat(registry, other, draining=True)
    await registry.undrain("default", WORKER, other.epoch)
    await beat(registry, other, draining=True)
    assert (other.health, other.drains_itself) == (Health.DRAINING, True)


# --- withdrawing and marking


async def test_a_withdrawn_worker_is_not_live(registry: Registry) -> None:
    registration = await enrolled(registry)
    await registry.withdraw("default", WORKER, proof(registration))
    assert registry.get("default", WORKER) is None
    assert list(registry.live("default", "echo")) == []
    assert await kinds(registry) == ["enrolled", "withdrawn"]
    for call in (registry.withdraw("default", WORKER, proof(registration)), beat(registry, registration)):
        with pytest.raises(LeaseUnknown):
            await call


async def test_old_epoch_cannot_withdraw(registry: Registry) -> None:
    first = await enrolled(registry, boot="one")
    second = await enrolled(registry, boot="two")
    with pytest.raises(LeaseSuperseded):
        await registry.withdraw("default", WORKER, proof(first))
    assert registry.get("default", WORKER) is second


async def test_a_mark_of_an_old_epoch_or_an_unknown_worker_changes_nothing(registry: Registry, clock: ManualClock) -> None:
    registration = await enrolled(registry)
    await registry.mark("default", WORKER, registration.epoch + 1, Health.SUSPECT, "")
    await registry.mark("default", TWO, 1, Health.SUSPECT, "")
    await registry.mark("default", WORKER, registration.epoch, Health.READY, "the same")
    assert registration.health is Health.READY
    clock.advance(120)
    await registry.mark("default", WORKER, registration.epoch, Health.SUSPECT, "")
    assert await kinds(registry) == ["enrolled"]


async def test_mark_neither_renews_nor_ends(registry: Registry, clock: ManualClock) -> None:
    registration = await enrolled(registry)
    clock.advance(50)
    await registry.mark("default", WORKER, registration.epoch, Health.SUSPECT, "slow")
    assert (registration.health, registration.reason) == (Health.SUSPECT, "slow")
    assert registry.expires_in(registration) == timedelta(seconds=70)
    assert list(registry.live("default", "echo")) == [registration]


# --- bounds


async def test_a_held_lease_lasts_as_long_as_the_hold(registry: Registry, clock: ManualClock) -> None:
    lease = await enrolled(registry)
    clock.advance(TTL.total_seconds() - 1)
    registry.hold("default", WORKER, lease.epoch + 1, timedelta(seconds=60))
    registry.hold("default", TWO, 1, timedelta(seconds=60))
    assert registry.expires_in(lease) == timedelta(seconds=1)
    registry.hold("default", WORKER, lease.epoch, timedelta(seconds=60))
    assert registry.expires_in(lease) == timedelta(seconds=60)
    registry.hold("default", WORKER, lease.epoch, timedelta(seconds=5))
    assert registry.expires_in(lease) == timedelta(seconds=60)
    clock.advance(60)
    assert registry.get("default", WORKER) is None


async def test_everyone_is_every_workspaces_leases_role_by_role(registry: Registry, clock: ManualClock) -> None:
    for workspace, name in (("default", "b:1"), ("default", "a:1"), ("other", "a:1"), ("default", "b:2")):
        role, _, instance = name.partition(":")
        await registry.enrol(workspace, an_offer(worker=WorkerId(role, instance)), boot="boot", ttl=TTL)
    roles = [(lease.workspace, lease.worker.role) for live in registry.everyone() for lease in live]
    assert sorted(roles) == [("default", "a"), ("default", "b"), ("default", "b"), ("other", "a")]
    assert len(registry) == 4
    at = [n for n, role in enumerate(roles) if role == ("default", "b")]
    assert at[1] - at[0] == 1
    clock.advance(TTL.total_seconds())
    assert list(registry.everyone()) == []
    assert len(registry) == 4
    await registry.sweep()
    assert len(registry) == 0


async def test_the_leases_of_a_holder_are_counted_through_every_change(registry: Registry, clock: ManualClock) -> None:
    async def take(name: str, owner: str, boot: str = "boot", *, workspace: str = "default") -> Registration:
        worker = WorkerId("r", name)
        return await registry.enrol(workspace, an_offer(worker=worker), owner=owner, boot=boot, ttl=TTL, supersede=True)

    first = await take("1", "anna")
    await take("2", "anna")
    await take("1", "anna", boot="another")
    await take("1", "anna", boot="another")
    await take("3", "bert")
    await take("1", "anna", workspace="elsewhere")
    assert [registry.count_of(who) for who in (ANNA, BERT, OTHER_ANNA)] == [2, 1, 1]
    await registry.withdraw("default", WorkerId("r", "2"), LeaseProof(None, None))
    assert registry.count_of(ANNA) == 1
    clock.advance(TTL.total_seconds())
    await take("1", "bert")
    assert [registry.count_of(who) for who in (ANNA, BERT, OTHER_ANNA)] == [0, 2, 1]
    await registry.sweep()
    assert [registry.count_of(who) for who in (ANNA, BERT, OTHER_ANNA)] == [0, 1, 0]
    assert first.owner == "anna"


# --- leases that have ended


async def test_an_ended_lease_is_known_with_its_offer_and_its_boot(store: Store, engine: Engine, clock: ManualClock) -> None:
    three, registry = WorkerId("echo", "three"), engine.registry
    offer = {"replays": True, "credential": "sealed", "networks": ("10.0.0.0/8",)}
    for worker in (WORKER, TWO, three):
        assert await registry.ended("default", worker) is None
        await enrolled(registry, worker, boot="first", **offer)
    withdrawn = registry.get("default", TWO)
    assert withdrawn is not None
    await registry.withdraw("default", TWO, proof(withdrawn))
    await enrolled(registry, three, boot="second")
    assert [await registry.ended("default", worker) for worker in (WORKER, WorkerId("coder", "two"))] == [None, None]
    clock.advance(TTL.total_seconds())
    await registry.sweep()
    for again in (False, True):
        registry = (await store.open_again(engine)).registry if again else registry
        for worker, boot, epoch, by_itself in (
            (WORKER, "first", 1, False),
            (TWO, "first", 1, True),
            (three, "second", 2, False),
        ):
            ended = await registry.ended("default", worker)
            assert ended is not None
            assert (ended.boot, ended.epoch, ended.withdrawn) == (boot, epoch, by_itself)
            assert ended.offer == an_offer(worker, **(offer if boot == "first" else {}))
        assert await registry.ended("elsewhere", WORKER) is None


async def test_a_lease_that_another_boot_replaces_has_ended(registry: Registry) -> None:
    await enrolled(registry, boot="first", replays=True)
    await enrolled(registry, boot="first", labels={"changed": "yes"}, replays=True)
    assert await registry.ended("default", WORKER) is None
    await enrolled(registry, boot="second")
    ended = await registry.ended("default", WORKER)
    assert ended is not None
    assert (ended.epoch, ended.boot, ended.withdrawn, ended.offer.labels) == (1, "first", False, {"changed": "yes"})


async def test_a_lease_that_expired_and_was_not_swept_has_ended_when_its_name_is_taken(
    registry: Registry, clock: ManualClock
) -> None:
    await enrolled(registry, boot="first")
    clock.advance(TTL.total_seconds())
    await enrolled(registry, boot="first")
    ended = await registry.ended("default", WORKER)
    assert ended is not None
    assert (ended.epoch, ended.boot, ended.withdrawn) == (1, "first", False)


# --- failing


async def test_a_failing_worker_stays_failing_whatever_it_sends(registry: Registry) -> None:
    lease = await enrolled(registry)
    await registry.mark("default", WORKER, lease.epoch, Health.FAILING, "it fails")
    await beat(registry, lease)
    await registry.mark("default", WORKER, lease.epoch, Health.SUSPECT, "it is late")
    assert await enrolled(registry) is lease
    assert await enrolled(registry, description="changed") is lease
    assert (lease.health, lease.reason) == (Health.FAILING, "it fails")
    assert await kinds(registry) == ["enrolled", "failing", "changed"]


async def test_a_mark_or_another_boot_ends_failing(registry: Registry) -> None:
    lease = await enrolled(registry)
    await registry.mark("default", WORKER, lease.epoch, Health.FAILING, "it fails")
    await registry.mark("default", WORKER, lease.epoch, Health.READY, "")
    assert (lease.health, lease.reason) == (Health.READY, "")
    await registry.mark("default", WORKER, lease.epoch, Health.FAILING, "it fails again")
    assert (await enrolled(registry, boot="next")).health is Health.READY
    assert await kinds(registry) == ["enrolled", "failing", "changed", "failing", "enrolled"]


async def test_a_failing_worker_can_drain(registry: Registry) -> None:
    lease = await enrolled(registry)
    await registry.mark("default", WORKER, lease.epoch, Health.FAILING, "it fails")
    await beat(registry, lease, draining=True)
    assert lease.health is Health.DRAINING


async def test_a_reopened_store_knows_nothing_of_failures(store: Store, engine: Engine, clock: ManualClock) -> None:
    lease = await enrolled(engine.registry)
    late = await enrolled(engine.registry, TWO, ttl=timedelta(seconds=10))
    for one in (lease, late):
        await engine.registry.mark("default", one.worker, one.epoch, Health.FAILING, "it fails")
    await store.close()
    clock.advance(20)
    engine = await store.reopen()
    for worker in (WORKER, TWO):
        found = engine.registry.get("default", worker)
        assert found is not None
        assert (found.health, found.reason) == (Health.READY, "")
    assert await kinds(engine.registry, after=4) == ["changed", "changed"]


# --- the tokens of leases


async def test_the_leases_of_a_token_end_at_once_and_those_of_others_stay(
    store: Store, engine: Engine, clock: ManualClock
) -> None:
    registry = engine.registry
    for worker, token in ((WORKER, "first"), (TWO, "second"), (WorkerId("echo", "three"), "")):
        await registry.enrol("default", an_offer(worker), token=token, boot="boot", ttl=TTL)
    assert set(registry.tokens()) == {"first", "second"}
    registry.expire("unknown")
    registry.expire("first")
    assert registry.get("default", WORKER) is None
    assert [str(registration.worker) for registration in registry.live("default")] == ["echo:two", "echo:three"]
    assert [registration.worker for registration in await registry.sweep()] == [WORKER]
    assert (await kinds(registry))[-1] == "expired"
    assert set(registry.tokens()) == {"second"}
    ended = await (await store.open_again(engine)).registry.ended("default", WORKER)
    assert ended is not None and (ended.token, ended.withdrawn) == ("first", False)


async def test_a_lease_without_end_ends_with_its_token(registry: Registry) -> None:
    await registry.enrol("default", an_offer(), token="first", boot="boot", ttl=timedelta())
    registry.expire("first")
    assert list(registry.live("default")) == []
    assert [registration.worker for registration in await registry.sweep()] == [WORKER]


async def test_a_lease_has_the_token_that_was_shown_last(store: Store, engine: Engine) -> None:
    registry = engine.registry
    one = await registry.enrol("default", an_offer(), token="first", boot="boot", ttl=TTL)
    await registry.beat("default", WORKER, proof(one), Beat())
    assert set(registry.tokens()) == {one.token} == {"first"}
    await registry.beat("default", WORKER, proof(one), Beat(), token="second")
    await registry.sweep()
    again = (await store.open_again(engine)).registry
    assert set(again.tokens()) == {"second"}
    await again.enrol("default", an_offer(), token="third", boot="boot", ttl=TTL)
    await again.sweep()
    await again.mark("default", WORKER, one.epoch, Health.SUSPECT, "late")
    if store.on_disk:
        again = (await store.reopen()).registry
    assert set(again.tokens()) == {"third"}
    again.expire("second")
    assert again.get("default", WORKER) is not None
    await again.enrol("default", an_offer(), token="fourth", boot="another", ttl=TTL)
    assert set(again.tokens()) == {"fourth"}
    registration = again.get("default", WORKER)
    assert registration is not None
    await again.withdraw("default", WORKER, proof(registration))
    assert set(again.tokens()) == set()


# --- the offer changes, and the lease does not


async def test_a_changed_offer_is_stored_and_published_and_the_lease_stays(store: Store, registry: Registry) -> None:
    registration = await enrolled(registry, labels={"zone": "a"}, capacity=2)
    await registry.beat("default", WORKER, proof(registration), Beat(capacity=7))
    await registry.mark("default", WORKER, registration.epoch, Health.DRAINING, "by hand")
    store.clock.advance(50)
    await registry.change_offer("default", WORKER, registration.epoch, lambda offer: replace(offer, card={"name": "Echo"}))
    offer = registration.offer
    assert (offer.card, offer.labels, offer.capacity) == ({"name": "Echo"}, {"zone": "a"}, 7)
    assert (registration.health, registration.reason) == (Health.DRAINING, "by hand")
    assert registry.expires_in(registration) == TTL - timedelta(seconds=50)
    assert await kinds(registry) == ["enrolled", "draining", "changed"]
    again = (await store.reopen()).registry.get("default", WORKER)
    assert again is not None and again.offer == offer


async def test_an_offer_that_stays_equal_or_whose_lease_is_another_is_not_changed(registry: Registry) -> None:
    first = await enrolled(registry, boot="one")
    await registry.change_offer("default", WORKER, first.epoch, lambda offer: replace(offer))
    second = await enrolled(registry, boot="two")
    await registry.change_offer("default", WORKER, first.epoch, lambda offer: replace(offer, card={"name": "Echo"}))
    await registry.change_offer("default", TWO, 1, lambda offer: replace(offer, card={"name": "Echo"}))
    assert second.offer.card == {}
    assert await kinds(registry) == ["enrolled", "enrolled"]


async def test_the_same_boot_with_its_url_alone_keeps_the_card_that_was_read(registry: Registry) -> None:
    registration = await enrolled(registry, card_by_url=True)
    found = {"card": {"name": "Echo"}, "streaming": True, "interfaces": (Interface("http://x/", JSONRPC, "1.0"),)}
    await registry.change_offer("default", WORKER, registration.epoch, lambda offer: replace(offer, **found))
    again = await enrolled(registry, card_by_url=True, labels={"zone": "b"})
    assert again is registration
    assert again.offer == an_offer(card_by_url=True, labels={"zone": "b"}, **found)
    moved = await enrolled(registry, card_by_url=True, url=OTHER_URL)
    assert moved.offer.card == {}
    sent = await enrolled(registry, card={"name": "Sent"}, url=OTHER_URL)
    assert (sent.offer.card, sent.offer.card_by_url) == ({"name": "Sent"}, False)
