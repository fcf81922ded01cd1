"""The inbox of a relay: one trigger at a time, in order, and none while the store works."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hub.core.relay.inbox import Awaited, Inbox, outcome_for_caller, outcome_of
from hub.core.relay.transitions import Trigger
from hub.core.supervisor import Supervisor
from rolecall.errors import LogMoved, StoreUnavailable, WorkerLost


class RecordingInbox(Inbox):
    """Writes what it receives: the store works until the test calls `store_done`."""

    def __init__(self) -> None:
        super().__init__(Supervisor())
        self.acted: list[tuple[Trigger, Any]] = []
        self.holds: list[bool] = []
        self.abandoned = False

    def act(self, trigger: Trigger, payload: Any) -> bool:
        self.acted.append((trigger, payload))
        if trigger is Trigger.RECEIVED:
            self.busy = True
        if trigger is Trigger.FAULT:
            raise RuntimeError("a bug")
        return trigger is not Trigger.LOOK

    def abandon(self) -> None:
        self.abandoned = True

    def hold_worker(self, *, held: bool) -> None:
        self.holds.append(held)


def received(*names: str) -> tuple[Trigger, tuple[str, ...]]:
    return Trigger.RECEIVED, names


def test_what_comes_while_the_store_works_waits_for_its_outcome_and_is_written_together() -> None:
    inbox = RecordingInbox()
    for name in "abc":
        inbox.post(*received(name))
    inbox.post(Trigger.GIVE_UP)
    inbox.post(*received("d"))
    assert inbox.acted == [received("a")]
    inbox.store_done(Trigger.LOGGED)
    assert inbox.acted == [received("a"), (Trigger.LOGGED, None), received("b", "c")]
    inbox.store_done(Trigger.LOGGED, then=(Trigger.LET_GO, None))
    assert [trigger for trigger, _ in inbox.acted[3:]] == [
        Trigger.LOGGED,
        Trigger.LET_GO,
        Trigger.GIVE_UP,
        Trigger.RECEIVED,
    ]


def test_the_worker_is_held_while_its_events_wait_each_time() -> None:
    inbox = RecordingInbox()
    for _ in range(2):
        inbox.post(*received("a"))
        assert inbox.holds == []
        inbox.post(*received("b"))
        inbox.post(*received("c"))
        assert inbox.holds == [True]
        inbox.store_done(Trigger.LOGGED)
        assert inbox.holds == [True]
        inbox.store_done(Trigger.LOGGED)
        assert inbox.holds == [True, False]
        inbox.holds.clear()


def test_an_outcome_from_which_nothing_follows_lets_what_waits_go_on() -> None:
    inbox = RecordingInbox()
    inbox.post(*received("a"))
    inbox.store_done(None)
    inbox.post(*received("b"))
    inbox.post(*received("c"))
    inbox.store_done(None)
    assert inbox.acted == [received("a"), received("b"), received("c")]
    inbox.store_done(None)
    assert inbox.holds == [True, False]
    inbox.post(*received("d"))
    inbox.store_done(None, then=(Trigger.LET_GO, None))
    assert inbox.acted[3:] == [received("d"), (Trigger.LET_GO, None)]


def test_a_trigger_of_the_hub_does_not_hold_the_worker() -> None:
    inbox = RecordingInbox()
    inbox.post(*received("a"))
    inbox.post(Trigger.GIVE_UP)
    inbox.store_done(Trigger.LOGGED)
    assert inbox.holds == []


def test_what_an_ended_call_brought_is_forgotten_and_all_else_is_kept() -> None:
    inbox = RecordingInbox()
    inbox.post(*received("a"))
    inbox.post(*received("b"))
    inbox.post(Trigger.GIVE_UP)
    inbox.post(Trigger.CLOSED)
    inbox.forget_call()
    inbox.store_done(Trigger.STORE_UNAVAILABLE)
    assert [trigger for trigger, _ in inbox.acted[1:]] == [Trigger.STORE_UNAVAILABLE, Trigger.GIVE_UP]


async def test_a_caller_is_told_when_there_was_nothing_to_do_or_nothing_will_be_done() -> None:
    inbox = RecordingInbox()
    await asyncio.wait_for(inbox.post_and_wait(Trigger.LOOK), 1)
    inbox.post(*received("a"))
    waiting = asyncio.create_task(inbox.post_and_wait(Trigger.REVEAL))
    await asyncio.sleep(0)
    assert not waiting.done()
    inbox.close()
    await asyncio.wait_for(waiting, 1)
    await asyncio.wait_for(inbox.post_and_wait(Trigger.LOOK), 1)


async def test_an_operation_of_the_store_holds_the_inbox_and_gives_the_next_trigger() -> None:
    inbox = RecordingInbox()

    async def fail() -> tuple[Trigger, Any]:
        raise StoreUnavailable

    async def succeed() -> tuple[Trigger, Any]:
        return Trigger.ASSIGNED, None

    for operation, trigger in ((succeed(), Trigger.ASSIGNED), (fail(), Trigger.STORE_UNAVAILABLE)):
        inbox.store_then("move", operation)
        inbox.post(Trigger.GIVE_UP)
        assert inbox.acted == []
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [acted for acted, _ in inbox.acted] == [trigger, Trigger.GIVE_UP]
        inbox.acted.clear()


async def test_a_bug_abandons_the_relay_and_is_raised_where_it_was_posted() -> None:
    inbox = RecordingInbox()
    with pytest.raises(RuntimeError):
        inbox.post(Trigger.FAULT)
    assert inbox.abandoned


def test_a_failed_write_is_the_relays_matter_or_only_its_callers() -> None:
    moved, down, other = LogMoved(), StoreUnavailable(), WorkerLost("gone")
    assert [outcome_of(error)[0] for error in (moved, down, other)] == [
        Trigger.FENCE_LOST,
        Trigger.STORE_UNAVAILABLE,
        Trigger.GIVE_UP,
    ]
    assert [outcome_for_caller(error)[0] for error in (moved, down)] == [Trigger.FENCE_LOST, Trigger.NOT_STORED]


async def test_a_caller_that_has_left_is_told_nothing() -> None:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done.cancel()
    Awaited(done, None).tell(StoreUnavailable())
    assert done.cancelled()
