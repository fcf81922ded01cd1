"""Agents that do not enrol: the hub holds their leases while they answer."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from hub.core.registry.configured import CONFIGURATION
from rolecall.errors import InstanceConflict, StoreUnavailable
from rolecall.model.ids import WorkerId
from rolecall.model.principal import LOCAL, Kind, Principal
from rolecall.model.worker import ConfiguredAgent, Health, Offer, Registration
from tests.flow.conftest import CALLER, TTL, System, proof
from tests.flow.test_cards_by_url import CARD, changes
from tests.helpers.scripted_cards import NOT_ASKED, NOT_THERE, REFUSED, SILENT
from tests.helpers.watched_engine import Hold

URL = "http://planner"
NAME = WorkerId("planner", "one")
AGENT = ConfiguredAgent("planner", URL, "one", (("zone", "a"),))
PROBES = 15.0
"""Seconds between two probes."""


def hold(system: System, *agents: ConfiguredAgent) -> None:
    """Hold these, as a running hub does."""
    system.configured.replace(agents)
    system.supervisor.keep_running("configured agents", system.configured.watch)


def lease(system: System, worker: WorkerId = NAME) -> Registration | None:
    return system.engine.registry.get("default", worker)


def held(system: System, worker: WorkerId = NAME) -> Registration:
    found = lease(system, worker)
    assert found is not None
    return found


def instances(system: System) -> list[str]:
    return sorted(one.worker.instance for one in system.directory.live(CALLER, "planner"))


async def test_an_agent_that_answers_is_live_with_its_card_and_for_as_long_as_it_answers(stored_system: System) -> None:
    system = stored_system
    system.card_source.answers[URL] = CARD
    hold(system, AGENT)
    await asyncio.sleep(0.1)
    found = held(system)
    assert (found.offer.card, found.offer.streaming, found.offer.labels) == (CARD, True, {"zone": "a"})
    assert found.card_state is not None and found.card_state.read_at
    await asyncio.sleep(3 * TTL.total_seconds())
    assert held(system) is found and found.health is Health.READY
    assert await changes(system) == ["enrolled"]


async def test_a_card_that_changes_is_seen_at_the_next_probe(system: System) -> None:
    system.card_source.answers[URL] = CARD
    hold(system, AGENT)
    await asyncio.sleep(1)
    system.card_source.answers[URL] = {**CARD, "description": "New."}
    await asyncio.sleep(PROBES + 1)
    assert held(system).offer.about == "New."


async def test_an_agent_without_a_card_is_live_all_the_same(system: System) -> None:
    system.card_source.answers[URL] = NOT_THERE
    hold(system, AGENT)
    await asyncio.sleep(0.1)
    assert held(system).offer.preferred_dialect("1.0") == "0.3"


async def test_an_agent_that_refuses_connections_is_gone_at_its_next_probe_and_back_soon_after(system: System) -> None:
    system.card_source.answers[URL] = CARD
    hold(system, AGENT)
    await asyncio.sleep(1)
    system.card_source.answers[URL] = REFUSED
    await asyncio.sleep(PROBES - 1.1)
    assert lease(system) is not None
    await asyncio.sleep(1.5)
    assert lease(system) is None
    assert await changes(system) == ["enrolled", "withdrawn"]
    asked = system.card_source.times(URL)
    await asyncio.sleep(300)
    assert 40 <= system.card_source.times(URL) - asked <= 50, "twice each time, and every 15 s in the end"
    system.card_source.answers[URL] = CARD
    await asyncio.sleep(PROBES + 1)
    assert held(system).epoch == 2


async def test_one_refused_connection_is_not_enough(system: System) -> None:
    system.card_source.answers[URL] = CARD
    hold(system, AGENT)
    await asyncio.sleep(1)
    system.card_source.answers[URL] = REFUSED
    first = system.card_source.holds[URL] = Hold()
    await first.reached.wait()
    del system.card_source.holds[URL]
    first.release()
    await asyncio.sleep(0.1)
    system.card_source.answers[URL] = CARD
    await asyncio.sleep(2)
    assert await changes(system) == ["enrolled"]


async def test_a_call_that_fails_has_the_agent_asked_at_once(system: System) -> None:
    system.card_source.answers[URL] = CARD
    hold(system, AGENT)
    await asyncio.sleep(2)
    system.card_source.answers[URL] = REFUSED
    await system.engine.registry.mark("default", NAME, 1, Health.SUSPECT, "it refused a call")
    await asyncio.sleep(2)
    assert lease(system) is None


async def test_an_agent_that_has_not_answered_a_probe_was_away(system: System) -> None:
    system.card_source.answers[URL] = CARD
    hold(system, AGENT)
    await asyncio.sleep(2 * PROBES)
    assert not held(system).was_away
    system.card_source.answers[URL] = SILENT
    await asyncio.sleep(PROBES)
    system.card_source.answers[URL] = NOT_ASKED
    await asyncio.sleep(PROBES)
    assert not held(system).was_away
    system.card_source.answers[URL] = CARD
    await asyncio.sleep(PROBES)
    assert (held(system).was_away, held(system).epoch) == (True, 1)
    held(system).was_away = False
    await asyncio.sleep(2 * PROBES)
    assert not held(system).was_away


async def test_an_agent_that_does_not_answer_loses_its_lease_within_its_ttl(system: System) -> None:
    system.card_source.answers[URL] = CARD
    hold(system, AGENT)
    await asyncio.sleep(1)
    system.card_source.answers[URL] = SILENT
    await asyncio.sleep(TTL.total_seconds() - 5)
    assert lease(system) is not None
    await asyncio.sleep(6)
    assert lease(system) is None
    await system.engine.registry.sweep()
    assert await changes(system) == ["enrolled", "expired"]
    system.card_source.answers[URL] = CARD
    await asyncio.sleep(PROBES + 1)
    assert lease(system) is not None


async def test_a_hub_that_cannot_ask_blames_no_agent(system: System) -> None:
    system.card_source.answers[URL] = CARD
    hold(system, AGENT)
    await asyncio.sleep(1)
    system.card_source.answers[URL] = NOT_ASKED
    await asyncio.sleep(2 * TTL.total_seconds())
    assert held(system).health is Health.READY


async def test_an_agent_that_an_operator_drains_stays_drained_also_after_a_restart(stored_system: System) -> None:
    system = stored_system
    system.card_source.answers[URL] = CARD
    hold(system, AGENT)
    await asyncio.sleep(0.1)
    await system.directory.drain(CALLER, NAME, "by hand")
    await asyncio.sleep(2 * PROBES)
    assert held(system).health is Health.DRAINING
    await system.restart()
    hold(system, AGENT)
    await asyncio.sleep(1)
    assert (held(system).health, held(system).epoch) == (Health.DRAINING, 1)


# --- the same registry as everybody's


@pytest.mark.parametrize("holder", [LOCAL, Principal("root", Kind.ADMIN)], ids=["local", "admin"])
async def test_nobody_takes_over_the_lease_of_a_configured_agent(system: System, holder: Principal) -> None:
    system.card_source.answers[URL] = CARD
    hold(system, AGENT)
    await asyncio.sleep(0.1)
    system.forwarder.listening = False
    for url in (URL, "http://other/"):
        with pytest.raises(InstanceConflict):
            await system.directory.enrol(holder, Offer(NAME, url), boot="b")
    assert held(system).owner == CONFIGURATION.name


async def test_a_configured_agent_takes_over_nobodys_lease_and_says_so_once(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    system.card_source.answers[URL] = CARD
    mine = await system.enrol("planner:one", url=URL)
    hold(system, AGENT)
    await asyncio.sleep(50)
    assert held(system) is mine
    assert system.engine.registry.expires_in(mine) == pytest.approx(TTL - timedelta(seconds=50), abs=timedelta(seconds=1))
    found = [record for record in caplog.records if getattr(record, "event", "") == "agent_not_held"]
    assert [vars(record)["why"] for record in found] == [
        "another holder has its name: choose another instance, or withdraw that worker"
    ]
    await system.directory.withdraw(LOCAL, NAME, proof(mine))
    await asyncio.sleep(PROBES + 1)
    assert held(system).owner == CONFIGURATION.name


async def test_one_that_an_admin_removes_is_enrolled_again_while_it_is_configured(system: System) -> None:
    system.card_source.answers[URL] = CARD
    hold(system, AGENT)
    await asyncio.sleep(0.1)
    await system.directory.withdraw(LOCAL, NAME, proof(held(system)))
    await asyncio.sleep(PROBES + 1)
    assert held(system).epoch == 2


async def test_a_store_that_fails_is_tried_again(system: System) -> None:
    system.card_source.answers[URL] = CARD
    system.engine.fail("registry.enrol", StoreUnavailable("no"))
    hold(system, AGENT)
    await asyncio.sleep(0.1)
    assert lease(system) is None
    await asyncio.sleep(3)
    assert lease(system) is not None


# --- the configuration changes


async def test_what_is_no_longer_configured_is_withdrawn_and_what_is_new_is_held(system: System) -> None:
    other = ConfiguredAgent("planner", "http://other", "two")
    system.card_source.answers |= {URL: CARD, "http://other": CARD}
    hold(system, AGENT)
    await asyncio.sleep(0.1)
    foreign = await system.enrol("planner:foreign")
    system.configured.replace([other])
    await asyncio.sleep(0.1)
    assert instances(system) == ["foreign", "two"]
    assert lease(system, foreign.worker) is foreign


@pytest.mark.parametrize(
    ("changed", "epoch"),
    [
        (AGENT._replace(labels=(("zone", "b"),)), 1),
        (AGENT._replace(credential="sealed"), 1),
        (AGENT._replace(url="http://other"), 2),
    ],
)
async def test_what_changes_of_an_agent_changes_its_offer(system: System, changed: ConfiguredAgent, epoch: int) -> None:
    system.card_source.answers |= {URL: CARD, "http://other": {**CARD, "description": "Other."}}
    hold(system, AGENT)
    await asyncio.sleep(0.1)
    system.configured.replace([changed])
    await asyncio.sleep(0.1)
    found = held(system)
    assert (found.offer.url, found.offer.labels, found.offer.credential) == (
        changed.url,
        dict(changed.labels),
        changed.credential,
    )
    assert (found.epoch, found.offer.streaming) == (epoch, True)


async def test_the_same_configuration_again_changes_nothing(system: System) -> None:
    system.card_source.answers[URL] = CARD
    hold(system, AGENT)
    await asyncio.sleep(0.1)
    asked = len(system.card_source.asked)
    system.configured.replace([AGENT])
    await asyncio.sleep(1)
    assert len(system.card_source.asked) == asked
    assert await changes(system) == ["enrolled"]


async def test_a_restarted_hub_keeps_its_leases_and_withdraws_those_that_are_not_configured_any_more(
    stored_system: System,
) -> None:
    system = stored_system
    two = ConfiguredAgent("planner", "http://two", "two")
    system.card_source.answers |= {URL: CARD, "http://two": CARD}
    hold(system, AGENT, two)
    await asyncio.sleep(0.1)
    assert instances(system) == ["one", "two"]
    await system.restart()
    hold(system, two)
    await asyncio.sleep(0.1)
    assert instances(system) == ["two"]
    assert held(system, WorkerId("planner", "two")).epoch == 1
    assert await changes(system) == ["enrolled", "enrolled", "withdrawn"]


# --- names with several addresses

NAMED = ConfiguredAgent("planner", "http://planners")


def addresses(system: System, *given: str) -> None:
    system.card_source.addresses_of["http://planners"] = given
    system.card_source.answers |= {f"http://planners@{address}": CARD for address in given}


async def test_a_name_is_an_agent_per_address_each_with_a_lease_of_its_own(system: System) -> None:
    addresses(system, "10.0.0.1", "10.0.0.2")
    hold(system, NAMED)
    await asyncio.sleep(0.1)
    assert instances(system) == ["10.0.0.1-80", "10.0.0.2-80"]
    offers = [one.offer for one in system.directory.live(CALLER, "planner")]
    assert sorted((offer.url, offer.address) for offer in offers) == [
        ("http://planners", "10.0.0.1"),
        ("http://planners", "10.0.0.2"),
    ]
    system.card_source.answers["http://planners@10.0.0.1"] = REFUSED
    await asyncio.sleep(PROBES + 2)
    assert instances(system) == ["10.0.0.2-80"]


async def test_the_name_is_resolved_again_and_again(system: System) -> None:
    addresses(system, "10.0.0.1", "10.0.0.2")
    hold(system, NAMED)
    await asyncio.sleep(1)
    addresses(system, "10.0.0.2", "10.0.0.3")
    await asyncio.sleep(17)
    assert instances(system) == ["10.0.0.2-80", "10.0.0.3-80"]
    system.card_source.addresses_of["http://planners"] = None
    await asyncio.sleep(60)
    assert instances(system) == ["10.0.0.2-80", "10.0.0.3-80"], "while it does not resolve, the addresses before stay"


async def test_after_a_restart_nothing_is_withdrawn_until_the_name_resolves(stored_system: System) -> None:
    system = stored_system
    addresses(system, "10.0.0.1", "10.0.0.2")
    hold(system, NAMED)
    await asyncio.sleep(0.1)
    await system.restart()
    system.card_source.addresses_of["http://planners"] = None
    hold(system, NAMED)
    await asyncio.sleep(5)
    assert instances(system) == ["10.0.0.1-80", "10.0.0.2-80"]
    addresses(system, "10.0.0.1")
    await asyncio.sleep(17)
    assert instances(system) == ["10.0.0.1-80"]


async def test_an_agent_that_is_configured_otherwise_keeps_its_addresses(system: System) -> None:
    addresses(system, "10.0.0.1", "10.0.0.2")
    hold(system, NAMED)
    await asyncio.sleep(1)
    system.card_source.addresses_of["http://planners"] = None
    system.configured.replace([NAMED._replace(labels=(("zone", "b"),))])
    await asyncio.sleep(1)
    assert [one.offer.labels for one in system.directory.live(CALLER, "planner")] == [{"zone": "b"}] * 2


async def test_with_an_instance_a_name_is_one_agent(system: System) -> None:
    addresses(system, "10.0.0.1", "10.0.0.2")
    system.card_source.answers["http://planners"] = CARD
    hold(system, NAMED._replace(instance="all"))
    await asyncio.sleep(0.1)
    assert instances(system) == ["all"]
    assert held(system, WorkerId("planner", "all")).offer.address == ""


async def test_a_name_with_endless_addresses_has_a_bound(system: System) -> None:
    addresses(system, *(f"10.0.{number}.1" for number in range(150)))
    hold(system, NAMED)
    await asyncio.sleep(1)
    assert len({*system.card_source.asked}) == len(instances(system)) == 100
