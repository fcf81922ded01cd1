"""Cards and the catalog: what fits into them, how often they are made, and that they leave the loop to others."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from hub.core.observe import NullObserver
from hub.core.registry.card_reader import CardReader
from hub.core.registry.directory import Directory, LeaseTerms
from hub.core.shares.table import Shares
from hub.core.supervisor import Supervisor
from hub.inbound.cards.cards import Cards
from hub.inbound.cards.catalog import Catalog
from hub.inbound.cards.documents import Documents
from hub.inbound.middleware.authentication import Authenticator
from hub.storage.memory.registry import MemoryRegistry
from rolecall.model.ids import Caller, WorkerId
from rolecall.model.principal import LOCAL
from rolecall.model.worker import Offer
from rolecall.protocol.text.jsontext import parse
from tests.helpers.clock import ManualClock
from tests.helpers.scripted import ScriptedForwarder
from tests.helpers.scripted_cards import ScriptedCards

VIEWER = LOCAL.caller
MAX_CARD = 2_000


class System:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.spent = 0.0
        registry, refresh = MemoryRegistry(self.clock), timedelta(seconds=300)
        cards = CardReader(registry, ScriptedCards(), self.clock, Supervisor(), Shares().card_reads, refresh=refresh)
        self.directory: Directory = Directory(
            registry,
            ScriptedForwarder(),
            NullObserver(),
            LeaseTerms(timedelta(seconds=120), timedelta(seconds=45)),
            cards=cards,
            check_url=lambda url, networks: None,
            limit=1_000,
            per_holder_limit=1_000,
            on_beat=lambda workspace, worker: None,
        )
        self.documents = Documents(
            self.directory,
            Shares().documents,
            self.clock.wall,
            monotonic=self.clock.monotonic,
            spent=lambda: self.spent,
        )
        self.cards = Cards(
            self.directory,
            self.documents,
            name="hub",
            description="The hub",
            public_url="http://hub",
            version=None,
            authenticator=Authenticator(None, max_head=10_000),
            max_card=MAX_CARD,
        )
        self.catalog = Catalog(self.documents, name="hub", public_url="http://hub")

    async def enrol(self, name: str, *skills: dict[str, Any], boot: str = "b", **card: Any) -> None:
        role, _, instance = name.partition(":")
        offer = Offer(WorkerId(role, instance), f"http://w/{name}", f"{role}s", {"skills": list(skills), **card})
        await self.directory.enrol(LOCAL, offer, boot=boot)

    async def card(self, role: str | None = "echo", version: str | None = None) -> dict[str, Any]:
        card: dict[str, Any] = parse((await self.cards.public(VIEWER, role, version)).body)
        return card

    async def skills(self, role: str | None = "echo") -> list[str]:
        return [skill["id"] for skill in (await self.card(role))["skills"]]


@pytest.fixture
def system() -> System:
    return System()


async def test_a_role_has_the_skills_of_its_workers_once_per_id_in_the_order_of_their_names(system: System) -> None:
    await system.enrol("echo:b", {"id": "late"}, {"id": "both", "name": "of b"})
    await system.enrol("echo:a", {"id": "both", "name": "of a"}, {"name": "unnamed"}, "no skill")  # type: ignore[arg-type]
    card = await system.card()
    assert [(skill["id"], skill["name"]) for skill in card["skills"]] == [
        ("both", "of a"),
        ("unnamed", "unnamed"),
        ("late", "late"),
    ]
    assert card["description"] == "echos"


async def test_skills_that_do_not_fit_are_left_out_and_counted_whatever_the_order_of_enrolment(system: System) -> None:
    names = [f"echo:{number:02}" for number in range(12)]
    for name in reversed(names):
        await system.enrol(name, {"id": f"own-{name[-2:]}", "description": "d" * 500}, {"id": "of all"})
    card = await system.card()
    assert [skill["id"] for skill in card["skills"]] == ["own-00", "of all", *(f"own-{number:02}" for number in range(1, 7))]
    assert card["description"] == "echos (5 more skills are not listed)"
    assert len((await system.cards.public(VIEWER, "echo", None)).body) < 4 * MAX_CARD + 1_000


async def test_extensions_and_modes_have_room_as_well_and_no_more(system: System) -> None:
    for number in range(20):
        uri = f"https://e/{number:02}"
        extensions = {"extensions": [{"uri": uri, "params": {"p": "x" * 500}}]}
        await system.enrol(f"echo:{number:02}", capabilities=extensions, defaultInputModes=[f"{number:02}/{'m' * 300}"])
    card = await system.card(version="1.0")
    _, _, _, *theirs = card["capabilities"]["extensions"]  # the first three are the hub's own
    assert [found["uri"] for found in theirs] == [f"https://e/{number:02}" for number in range(3)]
    assert [mode[:2] for mode in card["defaultInputModes"]] == ["00", "01", "02"]


@pytest.mark.parametrize("modes", [True, 7, "text/plain", {"a": 1}, [None, "text/x"]])
async def test_modes_of_a_wrong_type_are_ignored(system: System, modes: Any) -> None:
    await system.enrol("echo:a", defaultInputModes=modes)
    assert (await system.card())["defaultInputModes"] in (["text/plain"], ["text/x"])


async def test_the_hub_lists_the_roles_that_fit_and_says_how_many_do_not(system: System) -> None:
    for number in range(60):
        await system.enrol(f"role-{number:02}:a", {"id": "s", "tags": ["t" * 30]})
    card = await system.card(None)
    roles = [skill["id"] for skill in card["skills"]]
    assert roles == [f"role-{number:02}" for number in range(len(roles))]
    assert card["description"] == f"The hub ({60 - len(roles)} more roles are not listed)"
    catalog = parse((await system.catalog.document(VIEWER)).body)
    assert [entry["displayName"] for entry in catalog["entries"]] == [f"role-{number:02}" for number in range(60)]
    assert "note" not in catalog


async def test_a_document_is_made_once_for_all_who_ask_and_again_when_its_own_workers_change(system: System) -> None:
    await system.enrol("echo:a", {"id": "one"})
    first = await asyncio.gather(*(system.cards.public(VIEWER, "echo", None) for _ in range(5)))
    assert all(found.body is first[0].body for found in first)
    await system.enrol("other:a", {"id": "other"})
    await system.directory.drain(VIEWER, WorkerId("echo", "a"), "why")
    assert (await system.cards.public(VIEWER, "echo", None)).body is first[0].body
    await system.enrol("echo:b", {"id": "two"})
    assert await system.skills() == ["one", "two"]
    await system.enrol("echo:b", {"id": "three"})
    assert await system.skills() == ["one", "three"]
    assert [entry["displayName"] for entry in parse((await system.catalog.document(VIEWER)).body)["entries"]] == [
        "echo",
        "other",
    ]


async def test_a_document_that_is_costly_to_make_is_served_as_it_was_for_a_while(system: System) -> None:
    make = system.cards._role

    async def slow(*arguments: Any) -> Any:
        system.spent += 0.5
        return await make(*arguments)

    system.cards._role = slow  # type: ignore[method-assign]
    await system.enrol("echo:a", {"id": "one"})
    assert await system.skills() == ["one"]
    await system.enrol("echo:b", {"id": "two"})
    system.clock.advance(9.9)
    assert await system.skills() == ["one"]
    system.clock.advance(0.2)
    assert await system.skills() == ["one", "two"]


@pytest.mark.virtual_time
async def test_a_document_that_takes_long_to_make_leaves_half_of_the_time_to_others(system: System) -> None:
    loop = asyncio.get_running_loop()

    class Slow(dict[str, Any]):
        """Each look costs four milliseconds of the processor, and no time."""

        def get(self, name: Any, default: Any = None) -> Any:
            if name == "skills":
                system.spent += 0.004
            return super().get(name, default)

    for number in range(25):
        offer = Offer(WorkerId("echo", f"{number:02}"), "http://w/", "echos", Slow(skills=[{"id": str(number)}]))
        await system.directory.enrol(LOCAL, offer, boot="b")
    began = loop.time()
    assert len(await system.skills()) == 25
    assert loop.time() - began >= 0.1


async def test_cards_are_made_one_at_a_time_and_workspaces_take_turns(system: System) -> None:
    order: list[str] = []
    go_on = asyncio.Event()

    async def make(name: str, *_: Any) -> dict[str, Any]:
        order.append(name)
        await go_on.wait()
        return {}

    asked = [
        asyncio.create_task(system.documents.get(Caller(workspace, "me"), role, "card", lambda *_, name=name: make(name)))
        for workspace, role, name in (("a", "1", "a1"), ("a", "2", "a2"), ("a", "3", "a3"), ("b", "1", "b1"))
    ]
    await asyncio.sleep(0.01)
    assert order == ["a1"]
    go_on.set()
    await asyncio.gather(*asked)
    assert order.index("b1") <= 2


async def test_the_oldest_documents_go_when_too_many_are_kept(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.inbound.cards.documents._KEPT", 30_000)
    for number in range(30):
        await system.enrol(f"role-{number:02}:a", {"id": "s"})
    cards = [await system.cards.public(VIEWER, f"role-{number:02}", None) for number in range(30)]
    assert (await system.cards.public(VIEWER, "role-29", None)).body is cards[29].body
    assert (await system.cards.public(VIEWER, "role-00", None)).body is not cards[0].body
