"""A token that is revoked or expires: its worker gets nothing more, and what it ran is lost; what its client began runs on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hub.core.token_watch import EVERY, OpenUses, TokenWatch
from rolecall.errors import ClientDisconnected, NoLiveWorker, StoreUnavailable
from rolecall.model.ids import WorkerId
from rolecall.model.principal import Kind, Principal
from rolecall.model.value import replace
from rolecall.model.worker import Beat, Offer, Registration
from tests.flow.conftest import CALLER, System, proof, say
from tests.flow.relayed import end, reaches, words
from tests.flow.test_paused_workers import watch
from tests.helpers.scripted import chunk, status, task
from tests.helpers.watched_engine import Hold

LOST = ("failed", "WORKER_LOST")
SOON = 2.0


class Book:
    """Tokens of which some have ended."""

    empty = False
    problem = ""

    def __init__(self, *ended: str) -> None:
        self.ended = set(ended)

    def is_valid(self, token_id: str) -> bool:
        return token_id not in self.ended

    def find(self, token: str) -> Principal | None:
        raise NotImplementedError


def worker_with(token: str) -> Principal:
    return Principal("farm", Kind.WORKER, roles=("*",), token=token)


async def enrol(system: System, name: str, token: str, boot: str = "b", **offer: Any) -> Registration:
    role, _, instance = name.partition(":")
    offer.setdefault("streaming", True)
    registration_offer = Offer(WorkerId(role, instance), f"http://w/{name}", **offer)
    return (await system.directory.enrol(worker_with(token), registration_offer, boot=boot)).registration


def watched(system: System, book: Book) -> OpenUses:
    """A hub that looks at its tokens, as a running one does."""
    uses = OpenUses()
    system.with_bounds(token_is_valid=book.is_valid)
    token_watch = TokenWatch(book, uses, system.engine.registry, system.hub.relays)

    async def looks() -> None:
        while True:
            await token_watch.look()
            await asyncio.sleep(EVERY)

    system.supervisor.keep_running("tokens", looks)
    watch(system)
    return uses


async def test_what_a_worker_runs_is_lost_with_its_token_and_it_gets_nothing_more(system: System) -> None:
    book = Book()
    watched(system, book)
    await enrol(system, "echo:a", "first")
    pending, hold = await reaches(system, task(), chunk("one"))
    book.ended.add("first")
    answer = await asyncio.wait_for(pending, SOON)
    assert end(answer) == LOST and "its token was revoked or has expired" in words(answer)
    with pytest.raises(NoLiveWorker):
        await system.send()
    hold.release()
    await asyncio.sleep(60)
    assert system.forwarder.asked("deliver") == ["echo:a"]
    assert system.forwarder.asked("fetch") == system.forwarder.asked("cancel") == system.forwarder.asked("attach") == []


async def test_a_call_that_is_being_stored_does_not_reach_a_worker_whose_token_has_just_ended(system: System) -> None:
    book = Book()
    watched(system, book)
    await enrol(system, "echo:a", "first")
    stored = system.engine.hold_after("tasks.admit")
    pending = asyncio.create_task(system.send())
    await stored.reached.wait()
    book.ended.add("first")
    await asyncio.sleep(SOON)
    stored.release()
    assert end(await pending) == LOST
    assert system.forwarder.asked("deliver") == []


async def test_workers_with_other_tokens_of_the_same_holder_go_on(system: System) -> None:
    book = Book()
    watched(system, book)
    await enrol(system, "echo:a", "first")
    await enrol(system, "code:a", "second")
    pending, hold = await reaches(system, task(), then=(status("completed"),))
    system.forwarder.plan("code:a", task(), status("completed"))
    book.ended.add("second")
    await asyncio.sleep(SOON)
    hold.release()
    assert end(await pending) == ("completed", "")
    with pytest.raises(NoLiveWorker):
        await system.send(role="code")


@pytest.mark.parametrize("replays", [True, False])
async def test_a_paused_task_is_lost_with_its_workers_token(system: System, replays: bool) -> None:
    book = Book()
    watched(system, book)
    await enrol(system, "echo:a", "first", replays=replays)
    system.forwarder.plan("echo:a", task(position="b.1"), status("input-required", "which?", position="b.2"))
    task_id = str((await system.send())["id"])
    await asyncio.sleep(10)
    book.ended.add("first")
    await asyncio.sleep(SOON)
    found = await system.get(task_id)
    assert end(found) == LOST and "its token has ended" in words(found)
    assert system.forwarder.asked("fetch") == []


async def test_a_task_is_lost_with_the_token_also_when_the_lease_has_expired_before(system: System) -> None:
    book = Book()
    watched(system, book)
    await enrol(system, "echo:a", "first")
    pending, _ = await reaches(system, task(), *[part for _ in range(10) for part in (chunk("x"), 30.0)])
    assert system.engine.registry.get("default", WorkerId("echo", "a")) is None
    book.ended.add("first")
    assert end(await asyncio.wait_for(pending, SOON)) == LOST


async def test_a_token_that_ends_while_the_hub_is_down_is_seen_before_its_worker_gets_anything(stored_system: System) -> None:
    system, book = stored_system, Book()
    watched(system, book)
    await enrol(system, "echo:a", "first", replays=True)
    pending, _ = await reaches(system, task(position="b.1"))
    pending.cancel()
    book.ended.add("first")
    await system.supervisor.close()
    await system.restart(settle=False, token_is_valid=book.is_valid)
    await TokenWatch(book, OpenUses(), system.engine.registry, system.hub.relays).look()
    await system.hub.settle()
    assert list(system.engine.registry.live("default")) == []
    (row,) = await system.rows()
    await asyncio.sleep(SOON)
    assert end(await system.get(row.id)) == LOST
    assert system.forwarder.asked("attach") == []


async def test_a_beat_moves_the_lease_to_its_holders_newest_token_and_an_admins_does_not(system: System) -> None:
    registration = await enrol(system, "echo:a", "first")
    admin = Principal("root", Kind.ADMIN, token="of an admin")
    await system.directory.beat(admin, registration.worker, proof(registration), Beat())
    assert set(system.engine.registry.tokens()) == {"first"}
    await system.directory.beat(worker_with("second"), registration.worker, proof(registration), Beat())
    assert set(system.engine.registry.tokens()) == {"second"}


async def test_the_end_of_a_token_is_logged_once(system: System, caplog: pytest.LogCaptureFixture) -> None:
    book = Book()
    watched(system, book)
    await enrol(system, "echo:a", "first")
    book.ended.add("first")
    with caplog.at_level("INFO", "hub.core.token_watch"):
        await asyncio.sleep(10)
    assert [vars(record)["id"] for record in caplog.records] == ["first"]


async def test_while_the_tokens_cannot_be_read_callers_keep_nothing_open_and_workers_their_leases(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    book, ended = Book(), list[str]()
    uses = watched(system, book)
    await enrol(system, "echo:a", "first")
    pending, hold = await reaches(system, task(), then=(status("completed"),))
    uses.add("second", lambda: ended.append("second"))
    with caplog.at_level("INFO", "hub.core.token_watch"):
        for why in ("the file is broken", "the file is gone", ""):
            book.problem = why
            await asyncio.sleep(10)
            assert ended == ["second"] and uses.tokens == []
    assert [(entry.levelname, vars(entry).get("why")) for entry in caplog.records] == [
        ("ERROR", "the file is broken"),
        ("INFO", None),
    ]
    hold.release()
    assert end(await pending) == ("completed", "")
    assert set(system.engine.registry.tokens()) == {"first"}


async def test_uses_end_with_their_token_and_each_once(system: System) -> None:
    book, ended = Book(), list[str]()
    uses = watched(system, book)

    def first() -> None:
        ended.append("first")

    def second() -> None:
        ended.append("second")

    uses.add("one", first)
    uses.add("one", second)
    uses.add("two", second)
    uses.add("", first)
    uses.remove("one", second)
    await asyncio.sleep(10)
    assert ended == []
    book.ended |= {"one", ""}
    await asyncio.sleep(10)
    assert ended == ["first"] and uses.tokens == ["two"]
    uses.add("one", second)  # its request was admitted just before
    await asyncio.sleep(EVERY)
    assert ended == ["first", "second"]
    uses.remove("one", second)
    uses.remove("two", second)
    assert uses.tokens == []


async def test_leases_end_with_their_token_also_while_the_store_is_unavailable(system: System) -> None:
    book = Book("first")
    await enrol(system, "echo:a", "first")
    token_watch = TokenWatch(book, OpenUses(), system.engine.registry, system.hub.relays)
    system.engine.fail("registry.sweep", StoreUnavailable())
    await token_watch.look()
    assert list(system.engine.registry.live("default")) == []


async def test_a_waiting_call_of_a_caller_that_goes_ends_before_its_worker_has_begun_to_answer(system: System) -> None:
    await system.enrol("echo:a")
    hold = Hold()
    system.forwarder.plan("echo:a", hold, task(), status("completed"))
    leave: list[Any] = []
    pending = asyncio.create_task(system.hub.send(CALLER, say(), leave.append))
    await hold.reached.wait()
    for gone in leave:
        gone()
    with pytest.raises(ClientDisconnected):
        await asyncio.wait_for(pending, 0.1)
    hold.release()
    await asyncio.sleep(1)
    assert end(await system.get((await system.row()).id)) == ("completed", "")


async def test_a_repeat_of_a_call_that_waits_ends_when_its_own_caller_goes(system: System) -> None:
    message, leave = replace(say(), wait=60.0), list[Any]()
    first = asyncio.create_task(system.hub.send(CALLER, message))
    await asyncio.sleep(1)
    repeat = asyncio.create_task(system.hub.send(CALLER, message, leave.append))
    await asyncio.sleep(1)
    for gone in leave:
        gone()
    with pytest.raises(ClientDisconnected):
        await asyncio.wait_for(repeat, 0.1)
    system.forwarder.plan("echo:a", task(), status("completed"))
    await system.enrol("echo:a")
    assert b"completed" in (await first).body
