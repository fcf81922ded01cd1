"""Which workers may enrol, for how long, and how the directory finds them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from ipaddress import ip_network
from random import Random
from typing import Any

import pytest

from hub.core.registry.directory import Directory, LeaseTerms
from rolecall.errors import (
    DrainsItself,
    InstanceConflict,
    LeaseSuperseded,
    LeaseUnknown,
    NoLiveWorker,
    Overloaded,
    RoleForbidden,
    TooManyRegistrations,
)
from rolecall.model.command import AgentQuery
from rolecall.model.ids import Caller, WorkerId
from rolecall.model.principal import LOCAL, Kind, Network, Principal
from rolecall.model.worker import Beat, Health, LeaseProof, Offer, RegistryChange
from tests.flow.conftest import CALLER, Recorder, System, proof
from tests.helpers.scripted import status, task

TERMS = LeaseTerms(timedelta(seconds=120), timedelta(seconds=45))
HOLDER = Principal("farm", Kind.WORKER, roles=("echo", "code-*"))
OTHER_HOLDER = Principal("other farm", Kind.WORKER, roles=("*",))
ADMIN = Principal("root", Kind.ADMIN)
IDLE = timedelta(seconds=1)


class ScriptedRandom(Random):
    def __init__(self, shows: float) -> None:
        super().__init__()
        self.shows = shows

    def random(self) -> float:
        return self.shows


class Checked:
    """Records the checked URLs and networks."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, tuple[Network, ...]]] = []

    def __call__(self, url: str, networks: Sequence[Network]) -> None:
        self.seen.append((url, tuple(networks)))


def directory_of(system: System, terms: LeaseTerms = TERMS, **options: Any) -> Directory:
    options = {"check_url": Checked(), "limit": 100, "per_holder_limit": 100, "rng": ScriptedRandom(0.5)} | options
    options |= {"on_beat": system.deps.waiting.wake, "cards": system.cards}
    return Directory(system.engine.registry, system.forwarder, system.observer, terms, **options)


def an_offer(name: str = "echo:a", url: str = "http://w/", **members: Any) -> Offer:
    role, _, instance = name.partition(":")
    return Offer(WorkerId(role, instance), url, **members)


# --- enrolment


async def test_a_worker_enrols_only_under_the_roles_of_its_token(system: System) -> None:
    directory = directory_of(system)
    for name in ("echo:a", "code-review:a", "code-:a"):
        granted = await directory.enrol(HOLDER, an_offer(name), boot="b")
        assert (granted.is_new, granted.registration.owner) == (True, "farm")
    for name in ("other:a", "echo2:a", "code:a"):
        with pytest.raises(RoleForbidden):
            await directory.enrol(HOLDER, an_offer(name), boot="b")


async def test_a_workers_networks_go_with_its_offer(system: System) -> None:
    checked = Checked()
    directory = directory_of(system, check_url=checked)
    networks = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
    holder = Principal("farm", Kind.WORKER, roles=("*",), networks=networks)
    granted = await directory.enrol(holder, an_offer(url="http://10.0.0.1/"), boot="b")
    assert granted.registration.offer.networks == ("10.0.0.0/8", "fd00::/8")
    await directory.enrol(HOLDER, an_offer("echo:b"), boot="b")
    assert checked.seen == [("http://10.0.0.1/", networks), ("http://w/", ())]


async def test_the_same_process_enrols_again_and_keeps_its_lease(system: System) -> None:
    directory = directory_of(system)
    first = await directory.enrol(HOLDER, an_offer(), boot="b")
    again = await directory.enrol(HOLDER, an_offer(description="new"), boot="b")
    assert (again.is_new, again.registration.epoch) == (False, first.registration.epoch)
    assert again.registration.offer.description == "new"


@pytest.mark.parametrize("listening", [True, False])
async def test_another_process_of_the_same_holder_takes_the_name_over(system: System, listening: bool) -> None:
    """With a token no probe is needed: both belong to its holder."""
    system.forwarder.listening = listening
    directory = directory_of(system)
    first = await directory.enrol(HOLDER, an_offer(), boot="b")
    epoch = first.registration.epoch
    again = await directory.enrol(HOLDER, an_offer(url="http://elsewhere/"), boot="next")
    assert (again.is_new, again.registration.epoch) == (True, epoch + 1)
    assert system.forwarder.asked("probe") == []
    with pytest.raises(LeaseSuperseded):
        await directory.beat(HOLDER, first.registration.worker, LeaseProof(epoch, first.registration.secret), Beat())


async def test_without_tokens_a_name_is_taken_over_if_nothing_answers_at_its_url(system: System) -> None:
    directory = directory_of(system)
    first = await directory.enrol(LOCAL, an_offer(), boot="b")
    with pytest.raises(InstanceConflict, match="echo:a is alive at http://w/"):
        await directory.enrol(LOCAL, an_offer(url="http://elsewhere/"), boot="next")
    system.forwarder.listening = False
    again = await directory.enrol(LOCAL, an_offer(url="http://elsewhere/"), boot="next")
    assert (again.is_new, again.registration.epoch) == (True, first.registration.epoch + 1)
    assert system.forwarder.asked("probe") == ["echo:a", "echo:a"]


@pytest.mark.parametrize("listening", [True, False])
async def test_the_name_of_another_holder_is_never_taken_over(system: System, listening: bool) -> None:
    system.forwarder.listening = listening
    directory = directory_of(system)
    await directory.enrol(HOLDER, an_offer(), boot="b")
    for holder in (OTHER_HOLDER, ADMIN, LOCAL):
        with pytest.raises(InstanceConflict):
            await directory.enrol(holder, an_offer(), boot="next")
    assert [lease.owner for lease in directory.live(CALLER)] == ["farm"]
    assert system.forwarder.asked("probe") == ["echo:a"]  # the case without a token


async def test_a_full_registry_refuses_new_workers_and_renews_its_own(system: System) -> None:
    directory = directory_of(system, limit=3)
    for number in range(3):
        await directory.enrol(LOCAL, an_offer(f"echo:{number}"), boot="b")
    with pytest.raises(Overloaded, match=r"3 registrations, its limit \(ROLECALL_MAX_AGENTS\)"):
        await directory.enrol(LOCAL, an_offer("echo:3"), boot="b")
    assert not (await directory.enrol(LOCAL, an_offer("echo:1"), boot="b")).is_new
    assert (await directory.enrol(LOCAL, an_offer("echo:1"), boot="next")).is_new
    lease = directory.get(CALLER, WorkerId("echo", "0"))
    await directory.withdraw(LOCAL, lease.worker, proof(lease))
    assert (await directory.enrol(LOCAL, an_offer("echo:3"), boot="b")).is_new


async def test_each_holder_of_a_token_has_a_limit(system: System) -> None:
    directory = directory_of(system, per_holder_limit=2)
    for number in range(2):
        await directory.enrol(HOLDER, an_offer(f"echo:{number}"), boot="b")
    with pytest.raises(TooManyRegistrations):
        await directory.enrol(HOLDER, an_offer("echo:2"), boot="b")
    assert not (await directory.enrol(HOLDER, an_offer("echo:1"), boot="b")).is_new
    assert (await directory.enrol(OTHER_HOLDER, an_offer("echo:2"), boot="b")).is_new
    for number in range(5):  # without tokens there is no limit per holder
        assert (await directory.enrol(LOCAL, an_offer(f"local:{number}"), boot="b")).is_new


# --- durations


@pytest.mark.parametrize(
    ("wished", "ttl", "heartbeat"),
    [(None, 120, 45), (120, 120, 45), (9, 10, 10 / 3), (30, 30, 10), (135, 135, 45), (600, 600, 45), (4000, 3600, 45)],
)
async def test_a_lease_has_the_requested_ttl_within_limits(
    system: System, wished: float | None, ttl: float, heartbeat: float
) -> None:
    directory = directory_of(system)
    wish = timedelta(seconds=wished) if wished is not None else None
    granted = await directory.enrol(LOCAL, an_offer(), boot="b", ttl=wish)
    assert granted.registration.ttl == timedelta(seconds=ttl)
    assert granted.heartbeat.total_seconds() == pytest.approx(heartbeat, abs=1e-5)
    beat = await directory.beat(LOCAL, granted.registration.worker, proof(granted.registration), Beat())
    assert (beat.heartbeat, beat.is_new) == (granted.heartbeat, False)
    expires = directory.expires_in(granted.registration)
    assert expires is not None
    assert expires.total_seconds() == pytest.approx(ttl, abs=0.01)


async def test_if_leases_never_expire_a_requested_ttl_is_ignored(system: System) -> None:
    directory = directory_of(system, LeaseTerms(timedelta(), timedelta(seconds=45)))
    granted = await directory.enrol(LOCAL, an_offer(), boot="b", ttl=timedelta(seconds=60))
    assert granted.registration.ttl == timedelta()
    assert granted.heartbeat == timedelta(seconds=45)
    assert directory.expires_in(granted.registration) is None


@pytest.mark.parametrize(("rng", "heartbeat"), [(0.0, 40.5), (0.5, 45), (1.0, 49.5)])
async def test_heartbeats_have_ten_percent_jitter(system: System, rng: float, heartbeat: float) -> None:
    granted = await directory_of(system, rng=ScriptedRandom(rng)).enrol(LOCAL, an_offer(), boot="b")
    assert granted.heartbeat == timedelta(seconds=heartbeat)
    assert directory_of(system, rng=ScriptedRandom(rng)).usual_heartbeat(TERMS.ttl) == timedelta(seconds=45)


# --- holders


async def test_a_lease_belongs_to_its_holder(system: System) -> None:
    directory = directory_of(system)
    lease = (await directory.enrol(HOLDER, an_offer(), boot="b")).registration
    worker, good = lease.worker, proof(lease)
    for error, holder, shown in (
        (LeaseUnknown, OTHER_HOLDER, good),
        (LeaseUnknown, Principal("farm", Kind.WORKER, "acme", ("*",)), good),
        (LeaseSuperseded, HOLDER, LeaseProof(lease.epoch, None)),
        (LeaseSuperseded, HOLDER, LeaseProof(lease.epoch, "wrong")),
        (LeaseSuperseded, HOLDER, LeaseProof(lease.epoch - 1, lease.secret)),
    ):
        with pytest.raises(error):
            await directory.beat(holder, worker, shown, Beat())
        with pytest.raises(error):
            await directory.withdraw(holder, worker, shown)
    assert (await directory.beat(HOLDER, worker, good, Beat(in_flight=3))).registration.load == 3
    await directory.withdraw(HOLDER, worker, good)
    with pytest.raises(LeaseUnknown):
        await directory.beat(HOLDER, worker, good, Beat())


@pytest.mark.parametrize("holder", [ADMIN, LOCAL])
async def test_an_operator_ends_any_lease_without_a_proof(system: System, holder: Principal) -> None:
    directory = directory_of(system)
    lease = (await directory.enrol(HOLDER, an_offer(), boot="b")).registration
    await directory.withdraw(holder, lease.worker, LeaseProof(None, None))
    assert list(directory.live(CALLER)) == []


async def test_an_unknown_worker_can_be_neither_drained_nor_probed(system: System) -> None:
    directory = directory_of(system)
    lease = (await directory.enrol(LOCAL, an_offer(), boot="b")).registration
    other_caller = Caller("acme", "local")
    for caller, worker in ((CALLER, WorkerId("echo", "none")), (other_caller, lease.worker)):
        with pytest.raises(LeaseUnknown, match=f"^No live agent {worker}.$"):
            await directory.drain(caller, worker, "why")
        with pytest.raises(LeaseUnknown):
            await directory.undrain(caller, worker)
        with pytest.raises(LeaseUnknown):
            await directory.probe(caller, worker)
    assert (lease.health, system.forwarder.asked("probe")) == (Health.READY, [])
    assert (directory.live(other_caller), directory.roles(other_caller)) == ((), ())


async def test_a_worker_is_drained_with_a_reason_and_probed(system: System) -> None:
    directory = directory_of(system)
    lease = (await directory.enrol(LOCAL, an_offer(), boot="b")).registration
    revision = directory.revision()
    assert await directory.drain(CALLER, lease.worker, "new version") is lease
    assert (lease.health, lease.reason) == (Health.DRAINING, "new version")
    assert directory.revision() == revision + 1
    assert await directory.probe(CALLER, lease.worker) == (lease, True)
    system.forwarder.listening = False
    assert await directory.probe(CALLER, lease.worker) == (lease, False)


# --- finding


SUM = {"id": "sum-1", "name": "Sum", "description": "Adds Numbers", "tags": ["math"]}
SKILL = {"id": "sing-1", "name": "Sing", "tags": ["art", "loud"]}
FOUND: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["code:b", "echo:a", "echo:c"]),
    ({"role": "echo"}, ["echo:a", "echo:c"]),
    ({"role": "none"}, []),
    ({"skill": "sum-1"}, ["echo:a"]),
    ({"skill": "Sing"}, ["code:b"]),
    ({"skill": "Si"}, []),
    ({"tag": "loud"}, ["code:b"]),
    ({"tag": "silent"}, []),
    ({"capability": "streaming"}, ["echo:a"]),
    ({"labels": {"zone": "north"}}, ["echo:a"]),
    ({"labels": {"zone": ""}}, ["code:b", "echo:a"]),
    ({"labels": {"zone": "", "gpu": ""}}, ["code:b"]),
    ({"labels": {"zone": "north", "gpu": "yes"}}, []),
    ({"text": "NUMBERS"}, ["echo:a"]),
    ({"text": "sing"}, ["code:b"]),
    ({"text": "fine"}, ["echo:c"]),
    ({"text": "echo:"}, ["echo:a", "echo:c"]),
    ({"text": "the name"}, ["echo:c"]),
    ({"state": "suspect"}, ["echo:c"]),
    ({"state": "ready"}, ["code:b", "echo:a"]),
    ({"role": "echo", "state": "ready"}, ["echo:a"]),
    ({"role": "echo", "tag": "loud"}, []),
    ({"limit": 3}, ["code:b", "echo:a", "echo:c"]),
    ({"after": "echo:a"}, ["echo:c"]),
    ({"after": "code:b", "limit": 2}, ["echo:a", "echo:c"]),
    ({"after": "echo:b", "role": "echo"}, ["echo:c"]),
    ({"after": "echo:c"}, []),
]


@pytest.mark.parametrize(("query", "expected"), FOUND)
async def test_agents_are_found_by_all_filters_of_a_query(system: System, query: dict[str, Any], expected: list[str]) -> None:
    directory = directory_of(system)
    named = {"name": "The Name"}
    with_capability: Any = {"skills": [SUM], "capabilities": {"streaming": True, "pushNotifications": False}}
    for offer in (
        an_offer("echo:c", description="A fine one", card=named),
        an_offer("echo:a", card=with_capability, labels={"zone": "north"}),
        an_offer("code:b", card={"skills": [SKILL]}, labels={"zone": "south", "gpu": "yes"}),
    ):
        await directory.enrol(LOCAL, offer, boot="b")
    lease = directory.get(CALLER, WorkerId("echo", "c"))
    await system.engine.registry.mark(CALLER.workspace, lease.worker, lease.epoch, Health.SUSPECT, "test")
    page, more = directory.find(CALLER, AgentQuery(**query))
    assert ([str(found.worker) for found in page], more) == (expected, None)


async def test_agents_are_listed_in_pages(system: System) -> None:
    directory = directory_of(system)
    for number in range(5):
        await directory.enrol(LOCAL, an_offer(f"echo:{number}"), boot="b")
    found, after = [], None
    while True:
        page, after = directory.find(CALLER, AgentQuery(limit=2, after=after))
        found.append([found.worker.instance for found in page])
        if after is None:
            break
    assert found == [["0", "1"], ["2", "3"], ["4"]]


# --- feeds and observers


async def test_a_worker_that_was_drained_gets_calls_again_and_those_that_waited(system: System) -> None:
    lease = await system.enrol("echo:a")
    await system.directory.drain(CALLER, lease.worker, "new version")
    with pytest.raises(NoLiveWorker, match="draining"):
        await system.send()
    waiting = asyncio.create_task(system.send(metadata={"waitSeconds": 60}))
    await asyncio.sleep(1)
    system.forwarder.plan("echo:a", task(), status("completed"))
    began = system.clock.monotonic()
    for _ in range(2):  # the second has no effect
        assert await system.directory.undrain(CALLER, lease.worker) is lease
    assert (await waiting)["status"]["state"] == "completed"
    assert system.clock.monotonic() - began < 0.1, "the waiting call was told at once"
    await system.directory.beat(LOCAL, lease.worker, proof(lease), Beat(draining=True))
    with pytest.raises(DrainsItself):
        await system.directory.undrain(CALLER, lease.worker)
    assert lease.health is Health.DRAINING


async def test_feeds_end_when_the_hub_drains_and_new_ones_end_at_once(system: System) -> None:
    directory = directory_of(system)
    with directory.changes(CALLER, after=None, idle=IDLE) as feed, directory.changes(CALLER, after=None, idle=IDLE) as second:
        await directory.enrol(LOCAL, an_offer(), boot="b")
        assert [str(change.kind) for change in await anext(feed)] == ["enrolled"]
        directory.end_feeds()
        await asyncio.sleep(0)
        with pytest.raises(StopAsyncIteration):
            await anext(feed)
        assert [batch async for batch in second] in ([], [[]])
    with directory.changes(CALLER, after=0, idle=IDLE) as late:
        assert [batch async for batch in late] == []


async def test_a_closed_feed_has_ended(system: System) -> None:
    with system.directory.changes(CALLER, after=None, idle=IDLE) as feed:
        assert list(await anext(feed)) == []
    with pytest.raises(StopAsyncIteration):
        await anext(feed)
    system.directory.end_feeds()


async def test_the_observer_gets_the_changes_of_every_workspace(system: System) -> None:
    class ChangeRecorder(Recorder):
        def __init__(self) -> None:
            super().__init__()
            self.changes: list[tuple[str, str]] = []

        def registry_changed(self, change: RegistryChange) -> None:
            self.changes.append((change.workspace, str(change.kind)))

    recorder = ChangeRecorder()
    directory = Directory(
        system.engine.registry,
        system.forwarder,
        recorder,
        TERMS,
        cards=system.cards,
        check_url=Checked(),
        on_beat=system.deps.waiting.wake,
        limit=9,
        per_holder_limit=9,
    )
    system.supervisor.keep_running("observe", directory.observe)
    await asyncio.sleep(0.1)
    lease = await system.enrol("echo:a")
    await system.enrol("echo:a", workspace="acme")
    await asyncio.sleep(0.1)
    await system.directory.withdraw(LOCAL, lease.worker, proof(lease))
    await asyncio.sleep(0.1)
    assert recorder.changes == [("default", "enrolled"), ("acme", "enrolled"), ("default", "withdrawn")]
