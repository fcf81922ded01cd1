"""Who may enrol, for how long, and what the directory says of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from ipaddress import ip_network
from random import Random
from typing import Any

import pytest

from hub.core.registry.directory import Directory, LeaseTerms
from rolecall.errors import InstanceConflict, LeaseSuperseded, LeaseUnknown, Overloaded, RoleForbidden, TooManyHeld
from rolecall.model.command import AgentQuery
from rolecall.model.ids import Caller, WorkerId
from rolecall.model.principal import LOCAL, Kind, Network, Principal
from rolecall.model.worker import Beat, Health, LeaseProof, Offer, RegistryChange
from tests.flow.conftest import ME, House, Recorder, proof

TERMS = LeaseTerms(timedelta(seconds=120), timedelta(seconds=45))
FARM = Principal("farm", Kind.WORKER, roles=("echo", "code-*"))
OTHER_FARM = Principal("other farm", Kind.WORKER, roles=("*",))
ADMIN = Principal("root", Kind.ADMIN)
IDLE = timedelta(seconds=1)


class Dice(Random):
    def __init__(self, shows: float) -> None:
        super().__init__()
        self.shows = shows

    def random(self) -> float:
        return self.shows


class Checked:
    """Where workers said they were, and where they may be."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, tuple[Network, ...]]] = []

    def __call__(self, url: str, networks: Sequence[Network]) -> None:
        self.seen.append((url, tuple(networks)))


def directory_of(house: House, terms: LeaseTerms = TERMS, **options: Any) -> Directory:
    options = {"check_url": Checked(), "most": 100, "most_each": 100, "rng": Dice(0.5)} | options
    return Directory(house.engine.registry, house.forwarder, house.observer, terms, **options)


def an_offer(name: str = "echo:a", url: str = "http://w/", **members: Any) -> Offer:
    role, _, instance = name.partition(":")
    return Offer(WorkerId(role, instance), url, **members)


# --- enrolment


async def test_a_worker_enrols_under_its_tokens_roles_alone(house: House) -> None:
    directory = directory_of(house)
    for name in ("echo:a", "code-review:a", "code-:a"):
        granted = await directory.enrol(FARM, an_offer(name), boot="b")
        assert (granted.is_new, granted.registration.owner) == (True, "farm")
    for name in ("other:a", "echo2:a", "code:a"):
        with pytest.raises(RoleForbidden):
            await directory.enrol(FARM, an_offer(name), boot="b")


async def test_a_workers_networks_go_with_its_offer(house: House) -> None:
    checked = Checked()
    directory = directory_of(house, check_url=checked)
    networks = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
    holder = Principal("farm", Kind.WORKER, roles=("*",), networks=networks)
    granted = await directory.enrol(holder, an_offer(url="http://10.0.0.1/"), boot="b")
    assert granted.registration.offer.networks == ("10.0.0.0/8", "fd00::/8")
    await directory.enrol(FARM, an_offer("echo:b"), boot="b")
    assert checked.seen == [("http://10.0.0.1/", networks), ("http://w/", ())]


async def test_the_same_process_enrols_again_and_keeps_its_lease(house: House) -> None:
    directory = directory_of(house)
    first = await directory.enrol(FARM, an_offer(), boot="b")
    again = await directory.enrol(FARM, an_offer(description="new"), boot="b")
    assert (again.is_new, again.registration.epoch) == (False, first.registration.epoch)
    assert again.registration.offer.description == "new"


@pytest.mark.parametrize("listening", [True, False])
async def test_another_process_of_the_same_holder_gets_the_name(house: House, listening: bool) -> None:
    """With a token there is nothing to ask: both are its holder's."""
    house.forwarder.listening = listening
    directory = directory_of(house)
    first = await directory.enrol(FARM, an_offer(), boot="b")
    epoch = first.registration.epoch
    again = await directory.enrol(FARM, an_offer(url="http://elsewhere/"), boot="next")
    assert (again.is_new, again.registration.epoch) == (True, epoch + 1)
    assert house.forwarder.asked("probe") == []
    with pytest.raises(LeaseSuperseded):
        await directory.beat(FARM, first.registration.worker, LeaseProof(epoch, first.registration.secret), Beat())


async def test_without_tokens_a_name_is_given_away_when_nothing_answers_there(house: House) -> None:
    directory = directory_of(house)
    first = await directory.enrol(LOCAL, an_offer(), boot="b")
    with pytest.raises(InstanceConflict, match="echo:a is alive at http://w/"):
        await directory.enrol(LOCAL, an_offer(url="http://elsewhere/"), boot="next")
    house.forwarder.listening = False
    again = await directory.enrol(LOCAL, an_offer(url="http://elsewhere/"), boot="next")
    assert (again.is_new, again.registration.epoch) == (True, first.registration.epoch + 1)
    assert house.forwarder.asked("probe") == ["echo:a", "echo:a"]


@pytest.mark.parametrize("listening", [True, False])
async def test_a_name_of_another_holder_is_never_given_away(house: House, listening: bool) -> None:
    house.forwarder.listening = listening
    directory = directory_of(house)
    await directory.enrol(FARM, an_offer(), boot="b")
    for holder in (OTHER_FARM, ADMIN, LOCAL):
        with pytest.raises(InstanceConflict):
            await directory.enrol(holder, an_offer(), boot="next")
    assert [lease.owner for lease in directory.live(ME)] == ["farm"]
    assert house.forwarder.asked("probe") == ["echo:a"]  # for the one without a token


async def test_a_full_registry_takes_nobody_new_and_keeps_its_own(house: House) -> None:
    directory = directory_of(house, most=3)
    for number in range(3):
        await directory.enrol(LOCAL, an_offer(f"echo:{number}"), boot="b")
    with pytest.raises(Overloaded, match=r"3 registrations, its limit \(ROLECALL_MAX_AGENTS\)"):
        await directory.enrol(LOCAL, an_offer("echo:3"), boot="b")
    assert not (await directory.enrol(LOCAL, an_offer("echo:1"), boot="b")).is_new
    assert (await directory.enrol(LOCAL, an_offer("echo:1"), boot="next")).is_new
    lease = directory.get(ME, WorkerId("echo", "0"))
    await directory.withdraw(LOCAL, lease.worker, proof(lease))
    assert (await directory.enrol(LOCAL, an_offer("echo:3"), boot="b")).is_new


async def test_each_holder_of_a_token_has_its_share(house: House) -> None:
    directory = directory_of(house, most_each=2)
    for number in range(2):
        await directory.enrol(FARM, an_offer(f"echo:{number}"), boot="b")
    with pytest.raises(TooManyHeld):
        await directory.enrol(FARM, an_offer("echo:2"), boot="b")
    assert not (await directory.enrol(FARM, an_offer("echo:1"), boot="b")).is_new
    assert (await directory.enrol(OTHER_FARM, an_offer("echo:2"), boot="b")).is_new
    for number in range(5):  # without tokens there are no shares
        assert (await directory.enrol(LOCAL, an_offer(f"local:{number}"), boot="b")).is_new


# --- for how long


@pytest.mark.parametrize(
    ("wished", "ttl", "heartbeat"),
    [(None, 120, 45), (120, 120, 45), (9, 10, 10 / 3), (30, 30, 10), (135, 135, 45), (600, 600, 45), (4000, 3600, 45)],
)
async def test_a_lease_is_as_long_as_wished_within_bounds(
    house: House, wished: float | None, ttl: float, heartbeat: float
) -> None:
    directory = directory_of(house)
    wish = timedelta(seconds=wished) if wished is not None else None
    granted = await directory.enrol(LOCAL, an_offer(), boot="b", ttl=wish)
    assert granted.registration.ttl == timedelta(seconds=ttl)
    assert granted.heartbeat.total_seconds() == pytest.approx(heartbeat, abs=1e-5)
    beaten = await directory.beat(LOCAL, granted.registration.worker, proof(granted.registration), Beat())
    assert (beaten.heartbeat, beaten.is_new) == (granted.heartbeat, False)
    expires = directory.expires_in(granted.registration)
    assert expires is not None
    assert expires.total_seconds() == pytest.approx(ttl, abs=0.01)


async def test_where_leases_never_expire_no_wish_is_heard(house: House) -> None:
    directory = directory_of(house, LeaseTerms(timedelta(), timedelta(seconds=45)))
    granted = await directory.enrol(LOCAL, an_offer(), boot="b", ttl=timedelta(seconds=60))
    assert granted.registration.ttl == timedelta()
    assert granted.heartbeat == timedelta(seconds=45)
    assert directory.expires_in(granted.registration) is None


@pytest.mark.parametrize(("rng", "heartbeat"), [(0.0, 40.5), (0.5, 45), (1.0, 49.5)])
async def test_heartbeats_are_spread_by_a_tenth(house: House, rng: float, heartbeat: float) -> None:
    granted = await directory_of(house, rng=Dice(rng)).enrol(LOCAL, an_offer(), boot="b")
    assert granted.heartbeat == timedelta(seconds=heartbeat)
    assert directory_of(house, rng=Dice(rng)).usual_heartbeat(TERMS.ttl) == timedelta(seconds=45)


# --- whose lease it is


async def test_a_lease_is_its_holders_alone(house: House) -> None:
    directory = directory_of(house)
    lease = (await directory.enrol(FARM, an_offer(), boot="b")).registration
    worker, good = lease.worker, proof(lease)
    for error, holder, shown in (
        (LeaseUnknown, OTHER_FARM, good),
        (LeaseUnknown, Principal("farm", Kind.WORKER, "acme", ("*",)), good),
        (LeaseSuperseded, FARM, LeaseProof(lease.epoch, None)),
        (LeaseSuperseded, FARM, LeaseProof(lease.epoch, "wrong")),
        (LeaseSuperseded, FARM, LeaseProof(lease.epoch - 1, lease.secret)),
    ):
        with pytest.raises(error):
            await directory.beat(holder, worker, shown, Beat())
        with pytest.raises(error):
            await directory.withdraw(holder, worker, shown)
    assert (await directory.beat(FARM, worker, good, Beat(in_flight=3))).registration.load == 3
    await directory.withdraw(FARM, worker, good)
    with pytest.raises(LeaseUnknown):
        await directory.beat(FARM, worker, good, Beat())


@pytest.mark.parametrize("holder", [ADMIN, LOCAL])
async def test_an_operator_ends_any_lease_without_a_proof(house: House, holder: Principal) -> None:
    directory = directory_of(house)
    lease = (await directory.enrol(FARM, an_offer(), boot="b")).registration
    await directory.withdraw(holder, lease.worker, LeaseProof(None, None))
    assert list(directory.live(ME)) == []


async def test_what_is_not_there_can_be_neither_drained_nor_probed(house: House) -> None:
    directory = directory_of(house)
    lease = (await directory.enrol(LOCAL, an_offer(), boot="b")).registration
    abroad = Caller("acme", "local")
    for caller, worker in ((ME, WorkerId("echo", "none")), (abroad, lease.worker)):
        with pytest.raises(LeaseUnknown, match=f"^No live agent {worker}.$"):
            await directory.drain(caller, worker, "why")
        with pytest.raises(LeaseUnknown):
            await directory.probe(caller, worker)
    assert (lease.health, house.forwarder.asked("probe")) == (Health.READY, [])
    assert (directory.live(abroad), directory.roles(abroad)) == ((), ())


async def test_a_worker_is_drained_with_a_reason_and_probed(house: House) -> None:
    directory = directory_of(house)
    lease = (await directory.enrol(LOCAL, an_offer(), boot="b")).registration
    revision = directory.revision()
    assert await directory.drain(ME, lease.worker, "new version") is lease
    assert (lease.health, lease.reason) == (Health.DRAINING, "new version")
    assert directory.revision() == revision + 1
    assert await directory.probe(ME, lease.worker) == (lease, True)
    house.forwarder.listening = False
    assert await directory.probe(ME, lease.worker) == (lease, False)


# --- finding


SUM = {"id": "sum-1", "name": "Sum", "description": "Adds Numbers", "tags": ["math"]}
SING = {"id": "sing-1", "name": "Sing", "tags": ["art", "loud"]}
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
async def test_agents_are_found_by_all_that_is_asked(house: House, query: dict[str, Any], expected: list[str]) -> None:
    directory = directory_of(house)
    named = {"name": "The Name"}
    capable: Any = {"skills": [SUM], "capabilities": {"streaming": True, "pushNotifications": False}}
    for offer in (
        an_offer("echo:c", description="A fine one", card=named),
        an_offer("echo:a", card=capable, labels={"zone": "north"}),
        an_offer("code:b", card={"skills": [SING]}, labels={"zone": "south", "gpu": "yes"}),
    ):
        await directory.enrol(LOCAL, offer, boot="b")
    lease = directory.get(ME, WorkerId("echo", "c"))
    await house.engine.registry.mark(ME.workspace, lease.worker, lease.epoch, Health.SUSPECT, "test")
    page, more = directory.find(ME, AgentQuery(**query))
    assert ([str(found.worker) for found in page], more) == (expected, None)


async def test_agents_are_given_page_by_page(house: House) -> None:
    directory = directory_of(house)
    for number in range(5):
        await directory.enrol(LOCAL, an_offer(f"echo:{number}"), boot="b")
    pages, after = [], None
    while True:
        page, after = directory.find(ME, AgentQuery(limit=2, after=after))
        pages.append([found.worker.instance for found in page])
        if after is None:
            break
    assert pages == [["0", "1"], ["2", "3"], ["4"]]


# --- who watches


async def test_feeds_end_when_the_hub_goes_down_and_new_ones_end_at_once(house: House) -> None:
    directory = directory_of(house)
    with directory.changes(ME, after=None, idle=IDLE) as feed, directory.changes(ME, after=None, idle=IDLE) as second:
        await directory.enrol(LOCAL, an_offer(), boot="b")
        assert [str(change.kind) for change in await anext(feed)] == ["enrolled"]
        directory.end_feeds()
        await asyncio.sleep(0)
        with pytest.raises(StopAsyncIteration):
            await anext(feed)
        assert [batch async for batch in second] in ([], [[]])
    with directory.changes(ME, after=0, idle=IDLE) as late:
        assert [batch async for batch in late] == []


async def test_a_feed_that_is_left_has_ended(house: House) -> None:
    with house.directory.changes(ME, after=None, idle=IDLE) as feed:
        assert list(await anext(feed)) == []
    with pytest.raises(StopAsyncIteration):
        await anext(feed)
    house.directory.end_feeds()


async def test_the_observer_is_told_of_every_workspaces_changes(house: House) -> None:
    class Watching(Recorder):
        def __init__(self) -> None:
            super().__init__()
            self.changes: list[tuple[str, str]] = []

        def registry_changed(self, change: RegistryChange) -> None:
            self.changes.append((change.workspace, str(change.kind)))

    watching = Watching()
    directory = Directory(house.engine.registry, house.forwarder, watching, TERMS, check_url=Checked(), most=9, most_each=9)
    house.supervisor.keep_running("observe", directory.observe)
    await asyncio.sleep(0.1)
    lease = await house.enrol("echo:a")
    await house.enrol("echo:a", workspace="acme")
    await asyncio.sleep(0.1)
    await house.directory.withdraw(LOCAL, lease.worker, proof(lease))
    await asyncio.sleep(0.1)
    assert watching.changes == [("default", "enrolled"), ("acme", "enrolled"), ("default", "withdrawn")]
