"""Workers that enrol with a URL alone: the hub reads their cards."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from hub.core.registry.card_reader import CardReader
from hub.core.shares.slots import WorkspaceSlots
from rolecall.errors import StoreUnavailable
from rolecall.model.ids import WorkerId
from rolecall.model.worker import CardState, Health, Registration
from tests.flow.conftest import CALLER, CARD_REFRESH, System
from tests.helpers.scripted_cards import NOT_THERE, REFUSED, SILENT
from tests.helpers.watched_engine import Hold

URL = "http://w/echo:a"
REFRESH = CARD_REFRESH.total_seconds()
CARD = {"name": "Echo", "description": "Says it again.", "skills": [{"id": "say"}], "capabilities": {"streaming": True}}


async def enrol(system: System, name: str = "echo:a", **members: Any) -> Registration:
    return await system.enrol(name, card_by_url=True, streaming=False, **members)


async def soon() -> None:
    await asyncio.sleep(0.01)


def state_of(registration: Registration) -> CardState:
    assert registration.card_state is not None
    return registration.card_state


async def changes(system: System) -> list[str]:
    with system.directory.changes(CALLER, after=0, idle=timedelta(seconds=0.01)) as feed:
        return [change.kind.value for change in await anext(feed)]


@pytest.fixture
async def reading_system(system: System) -> System:
    """It reads cards again, as a running hub does."""
    system.supervisor.keep_running("cards", system.cards.watch)
    return system


async def test_the_enrolment_does_not_wait_and_the_offer_changes_when_the_card_was_read(stored_system: System) -> None:
    system = stored_system
    system.card_source.answers[URL] = CARD
    held = system.card_source.holds[URL] = Hold()
    registration = await enrol(system, labels={"zone": "a"}, capacity=3)
    await held.reached.wait()
    assert (registration.offer.streaming, registration.offer.interfaces, registration.card_state) == (False, (), None)
    held.release()
    await soon()
    offer = registration.offer
    assert (offer.card, offer.streaming, offer.about) == (CARD, True, "Says it again.")
    assert offer.preferred_dialect("0.3") == "1.0"
    assert (offer.labels, offer.capacity) == ({"zone": "a"}, 3)
    assert await changes(system) == ["enrolled", "changed"]
    state = state_of(registration)
    assert (state.note, state.url, state.read_at) == ("", f"{URL}card", pytest.approx(system.clock.wall(), abs=1))


async def test_a_card_that_was_sent_is_never_read(reading_system: System) -> None:
    registration = await reading_system.enrol("echo:a", card=CARD)
    await reading_system.directory.probe(CALLER, registration.worker)
    await asyncio.sleep(3 * REFRESH)
    assert reading_system.card_source.asked == []
    assert registration.card_state is None


async def test_what_it_says_of_itself_wins_over_its_card(system: System) -> None:
    system.card_source.answers[URL] = CARD
    registration = await enrol(system, description="Mine.")
    await soon()
    assert (registration.offer.card, registration.offer.about) == (CARD, "Mine.")


async def test_the_card_is_read_again_every_few_minutes_by_its_etag(reading_system: System) -> None:
    reading_system.card_source.answers[URL] = CARD
    registration = await enrol(reading_system)
    await soon()
    read_at = state_of(registration).read_at
    await asyncio.sleep(0.85 * REFRESH)
    assert reading_system.card_source.times(URL) == 1
    await asyncio.sleep(0.35 * REFRESH)
    assert reading_system.card_source.times(URL) == 2
    known = reading_system.card_source.known[1]
    assert known is not None and known.etag and known.url
    assert state_of(registration).read_at > read_at
    assert await changes(reading_system) == ["enrolled", "changed"]
    reading_system.card_source.answers[URL] = {**CARD, "description": "Says it louder."}
    await asyncio.sleep(1.2 * REFRESH)
    assert registration.offer.about == "Says it louder."
    assert await changes(reading_system) == ["enrolled", "changed", "changed"]


async def test_a_new_boot_has_its_card_read_anew_and_the_same_boot_keeps_it(system: System) -> None:
    system.card_source.answers[URL] = CARD
    first = await enrol(system, boot="one")
    await soon()
    again = await enrol(system, boot="one")
    await soon()
    assert again is first and again.offer.card == CARD
    assert system.card_source.times(URL) == 1
    second = await enrol(system, boot="two")
    assert second.offer.card == {}
    await soon()
    assert second.offer.card == CARD
    assert system.card_source.known == [None, None]


async def test_a_probe_has_the_card_read_again(system: System) -> None:
    system.card_source.answers[URL] = CARD
    registration = await enrol(system)
    await soon()
    system.card_source.answers[URL] = {**CARD, "description": "New."}
    await system.directory.probe(CALLER, registration.worker)
    await soon()
    assert registration.offer.about == "New."


async def test_another_url_of_the_same_boot_is_another_agent(system: System) -> None:
    system.card_source.answers |= {URL: CARD, "http://other/": {"name": "Other"}}
    held = system.card_source.holds[URL] = Hold()
    first = await enrol(system, boot="one")
    await held.reached.wait()
    await enrol(system, boot="one", url="http://other/")
    held.release()
    await soon()
    assert first.offer.card == {}
    system.supervisor.keep_running("cards", system.cards.watch)
    await asyncio.sleep(1.5)
    assert first.offer.card == {"name": "Other"}


@pytest.mark.parametrize("failure", [NOT_THERE, REFUSED, SILENT], ids=lambda answer: str(answer.reach.value))
async def test_why_a_card_was_not_read_is_told_and_it_is_tried_again(reading_system: System, failure: Any) -> None:
    reading_system.card_source.answers[URL] = failure
    registration = await enrol(reading_system)
    await soon()
    state = state_of(registration)
    assert (state.note, state.read_at, state.url) == (failure.note, 0.0, "")
    assert registration.health is Health.READY
    await asyncio.sleep(4)
    assert reading_system.card_source.times(URL) == 1
    reading_system.card_source.answers[URL] = CARD
    await asyncio.sleep(3)
    assert registration.offer.card == CARD
    assert state_of(registration).note == ""


async def test_the_pauses_between_attempts_grow_up_to_the_usual_one(reading_system: System) -> None:
    await enrol(reading_system)
    await asyncio.sleep(110)
    assert reading_system.card_source.times(URL) == 5  # at 0, 5, 25, 55, 85


async def test_a_card_that_was_read_stays_while_its_server_does_not_answer(reading_system: System) -> None:
    reading_system.card_source.answers[URL] = CARD
    registration = await enrol(reading_system)
    await soon()
    read_at = state_of(registration).read_at
    reading_system.card_source.answers[URL] = REFUSED
    await asyncio.sleep(1.5 * REFRESH)
    state = state_of(registration)
    assert (state.note, state.read_at, state.url) == (REFUSED.note, read_at, f"{URL}card")
    assert registration.offer.card == CARD


async def test_a_card_that_cannot_be_stored_is_read_again(reading_system: System) -> None:
    reading_system.card_source.answers[URL] = CARD
    reading_system.engine.fail("registry.change_offer", StoreUnavailable("no"))
    registration = await enrol(reading_system)
    await soon()
    assert (registration.offer.card, state_of(registration).note) == ({}, "the hub could not store it")
    await asyncio.sleep(7)
    assert registration.offer.card == CARD


async def test_a_restarted_hub_keeps_the_card_and_reads_it_again(stored_system: System) -> None:
    system = stored_system
    system.card_source.answers[URL] = CARD
    await enrol(system)
    await soon()
    await system.restart()
    system.supervisor.keep_running("cards", system.cards.watch)
    registration = system.directory.get(CALLER, WorkerId("echo", "a"))
    assert registration.offer.card == CARD
    await soon()
    assert state_of(registration).url == f"{URL}card"


async def test_cards_are_read_some_at_a_time_and_workspaces_take_turns(system: System) -> None:
    slots = WorkspaceSlots("reads of cards", 2, queue=0, setting="", per_workspace=1)
    cards = CardReader(
        system.engine.registry, system.card_source, system.clock, system.supervisor, slots, refresh=timedelta(seconds=60)
    )
    held = [Hold() for _ in range(6)]
    for number, workspace in enumerate(["a", "a", "a", "a", "b", "b"]):
        registration = await system.enrol(f"echo:{number}", workspace=workspace, url=f"http://w/{number}")
        registration.offer = replace(registration.offer, card_by_url=True)
        system.card_source.holds[f"http://w/{number}"] = held[number]
        cards.read_again(registration)
    await soon()
    assert system.card_source.asked == ["http://w/0", "http://w/4"]
    held[4].release()
    await soon()
    assert system.card_source.asked[2:] == ["http://w/5"]
    held[0].release()
    await soon()
    assert system.card_source.asked[3:] == ["http://w/1"]
    assert system.card_source.most_at_once == 2
    for one in held:
        one.release()
    await soon()
    assert len(system.card_source.asked) == 6
