"""A paused task whose worker loses its lease: what ends with the worker, and what waits for it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from rolecall.errors import (
    Overloaded,
    StoreUnavailable,
    WorkerAway,
    WorkerBroke,
    WorkerFault,
    WorkerFull,
    WorkerUnreachable,
)
from rolecall.model.a2a import TaskState
from rolecall.model.command import Target
from rolecall.model.ids import Cursor, TaskId
from rolecall.model.principal import LOCAL
from rolecall.model.value import replace
from rolecall.model.worker import Beat, ChangeKind, Health, Registration
from tests.flow.conftest import CALLER, TTL, System, frames, proof, say
from tests.flow.relayed import asked, end, texts, words
from tests.flow.test_relay_come_back import DURABLE
from tests.helpers.reading import next_batch
from tests.helpers.scripted import Step, chunk, status, task
from tests.helpers.watched_engine import Hold

LOST = ("failed", "WORKER_LOST")
PAUSED = ("input-required", "")
REFUSED = WorkerUnreachable("echo:a", "http://w/", "connection refused", refused=True)
NO_ROUTE = WorkerUnreachable("echo:a", "http://w/", "no connection within 5 s")
UNKNOWN = WorkerFault(-32001, "unknown")
ASLEEP: tuple[Step, ...] = (3600.0,) * 100
"""It takes each connection, and does not answer."""
STILL_PAUSED = task("input-required", "which?")
GRACE = 60.0
JUST_NOW = 0.5


async def paused(system: System, *, replays: bool = True, **offer: Any) -> str:
    """A paused task at echo:a, in a hub that watches its leases and paused tasks."""
    system.with_bounds(silence=timedelta(seconds=60), pause_grace=timedelta(seconds=GRACE))
    watch(system)
    return await asked(system, replays=replays, **offer)


def watch(system: System) -> None:
    async def sweep() -> None:
        while True:
            await system.engine.registry.sweep()
            await asyncio.sleep(0.5)

    system.supervisor.keep_running("sweep", sweep)
    system.supervisor.keep_running("paused", system.hub.paused_tasks.watch)


def lease(system: System) -> Registration:
    (registration,) = system.engine.registry.live("default", "echo")
    return registration


async def withdraw(system: System) -> None:
    await system.directory.withdraw(LOCAL, lease(system).worker, proof(lease(system)))


async def expired(system: System) -> None:
    """Returns when the lease of echo:a has just been swept."""
    async for batch in system.engine.registry.changes("default", after=None, idle=TTL * 2):
        assert batch
        if any((change.kind, change.worker.instance) == (ChangeKind.EXPIRED, "a") for change in batch):
            return


async def answered(system: System, task_id: str, **members: Any) -> dict[str, Any]:
    system.forwarder.plan("echo:a", status("completed", position="b.3"))
    return await system.send("blue", taskId=task_id, **members)


async def time_to_end(system: System, task_id: str) -> float:
    """Seconds until the task ends."""
    began = system.clock.monotonic()
    while (await system.get(task_id))["status"]["state"] == "input-required":
        await asyncio.sleep(0.05)
        assert system.clock.monotonic() - began < 24 * 3600
    return system.clock.monotonic() - began


# --- a pause that lives in its worker's process


async def test_a_pause_ends_when_its_worker_withdraws(system: System) -> None:
    task_id = await paused(system)
    await withdraw(system)
    assert await time_to_end(system, task_id) < JUST_NOW
    got = await system.get(task_id)
    assert end(got) == LOST
    assert words(got) == (
        "echo:a withdrew. The question that it asked ended with it. Send the message again to start a new task."
    )
    assert system.forwarder.asked("fetch") == []


async def test_a_pause_ends_when_another_process_takes_the_name(system: System) -> None:
    task_id = await paused(system)
    await system.enrol("echo:a", boot="next", replays=True)
    assert await time_to_end(system, task_id) < JUST_NOW
    got = await system.get(task_id)
    assert (end(got), "echo:a was started again." in words(got)) == (LOST, True)
    assert system.forwarder.asked("fetch") == []


async def test_a_pause_ends_when_its_expired_worker_refuses_connections_twice(system: System) -> None:
    task_id = await paused(system)
    system.forwarder.plan_fetch("echo:a", REFUSED, REFUSED)
    await expired(system)
    assert await time_to_end(system, task_id) < 2
    got = await system.get(task_id)
    assert (end(got), "its address refuses connections" in words(got)) == (LOST, True)
    first, second = system.forwarder.times("fetch")
    assert 0.2 < second - first < 1


@pytest.mark.parametrize("then", [STILL_PAUSED, NO_ROUTE], ids=["answers", "no route"])
async def test_one_refused_connection_ends_no_pause(system: System, then: Step) -> None:
    task_id = await paused(system)
    system.forwarder.plan_fetch("echo:a", REFUSED, then, *[STILL_PAUSED] * 100)
    await expired(system)
    await asyncio.sleep(GRACE * 2)
    assert end(await system.get(task_id)) == PAUSED


async def test_a_pause_ends_when_its_expired_worker_does_not_know_it(system: System) -> None:
    task_id = await paused(system)
    system.forwarder.plan_fetch("echo:a", UNKNOWN)
    await expired(system)
    assert await time_to_end(system, task_id) < 2
    assert words(await system.get(task_id)).startswith("echo:a no longer knows the task.")


@pytest.mark.parametrize(
    "refusal",
    [Overloaded("connections to workers", 3, "max_worker_connections"), WorkerFull("echo:a", 3)],
    ids=["hub", "worker"],
)
async def test_no_pause_ends_while_the_hub_has_no_connection_to_ask_its_worker(system: System, refusal: Step) -> None:
    task_id = await paused(system)
    system.forwarder.plan_fetch("echo:a", *[refusal] * 1000)
    await expired(system)
    await asyncio.sleep(GRACE * 2)
    assert end(await system.get(task_id)) == PAUSED


@pytest.mark.parametrize("silence", [3600.0, NO_ROUTE, WorkerBroke("echo:a", "cut")], ids=["hangs", "no route", "cut"])
async def test_a_pause_ends_after_the_grace_without_an_answer(system: System, silence: Step) -> None:
    task_id = await paused(system)
    system.forwarder.plan_fetch("echo:a", *[silence] * 100)
    await expired(system)
    assert GRACE <= await time_to_end(system, task_id) < GRACE + 2
    got = await system.get(task_id)
    assert (end(got), "echo:a has not answered for 60 s." in words(got)) == (LOST, True)
    assert 5 < len(system.forwarder.asked("fetch")) < 12


async def test_a_worker_that_answers_begins_a_new_grace(system: System) -> None:
    task_id = await paused(system)
    system.forwarder.plan_fetch("echo:a", *[NO_ROUTE] * 5, STILL_PAUSED, *[NO_ROUTE] * 100)
    await expired(system)
    assert GRACE + 20 < await time_to_end(system, task_id) < GRACE * 2 + 5
    assert end(await system.get(task_id)) == LOST


async def test_a_worker_without_a_lease_that_answers_keeps_its_pause(system: System) -> None:
    task_id = await paused(system)
    system.forwarder.plan_fetch("echo:a", *[STILL_PAUSED] * 100)
    await expired(system)
    await asyncio.sleep(3600)
    assert end(await system.get(task_id)) == PAUSED
    assert 60 < len(system.forwarder.asked("fetch")) < 70


@pytest.mark.parametrize("slept", [0.0, 3.0, GRACE * 0.9])
async def test_the_same_process_that_enrols_again_keeps_its_pause(stored_system: System, slept: float) -> None:
    system = stored_system
    task_id = await paused(system)
    system.forwarder.plan_fetch("echo:a", *ASLEEP)
    await expired(system)
    await asyncio.sleep(slept)
    await system.enrol("echo:a", replays=True)
    await asyncio.sleep(GRACE + 10)
    assert end(await system.get(task_id)) == PAUSED
    assert end(await answered(system, task_id)) == ("completed", "")


async def test_an_answer_while_its_worker_is_away_names_the_worker(system: System) -> None:
    task_id = await paused(system)
    system.forwarder.plan_fetch("echo:a", *ASLEEP)
    await expired(system)
    await asyncio.sleep(3)
    assert system.forwarder.asked("fetch") == ["echo:a"]
    with pytest.raises(WorkerAway) as refused:
        await system.send("blue", taskId=task_id)
    assert str(refused.value).startswith("The task waits for echo:a, which does not answer at present.")
    assert refused.value.facts == {"worker": "echo:a", "retryAfter": "10"}
    assert end(await system.get(task_id)) == PAUSED


async def test_a_worker_that_comes_back_at_the_end_of_the_grace_is_not_lost(system: System) -> None:
    """It enrols while the hub waits for its last answer."""
    task_id = await paused(system)
    last = Hold()
    system.forwarder.plan_fetch("echo:a", *[NO_ROUTE] * 6, last, NO_ROUTE)
    await expired(system)
    await last.reached.wait()
    hold = system.engine.hold("tasks.paused_at")
    await hold.reached.wait()
    await system.enrol("echo:a", replays=True)
    hold.release()
    await asyncio.sleep(GRACE)
    assert end(await system.get(task_id)) == PAUSED
    assert end(await answered(system, task_id)) == ("completed", "")


@pytest.mark.parametrize("boot", ["", "third"], ids=["no boot", "neither is the one that asked"])
async def test_a_process_that_is_perhaps_another_one_is_asked(system: System, boot: str) -> None:
    """Nothing shows that the process that has enrolled last is the one that asked."""
    await system.enrol("echo:a", boot=boot and "b", replays=True)
    system.forwarder.plan("echo:a", task(position="b.1"), status("input-required", "which?", position="b.2"))
    task_id = (await system.send())["id"]
    for _ in range(2 if boot else 1):
        await withdraw(system)
        await system.enrol("echo:a", boot=boot, replays=True)
    system.forwarder.plan_fetch("echo:a", UNKNOWN)
    watch(system)
    assert await time_to_end(system, task_id) < JUST_NOW
    assert "echo:a no longer knows the task" in words(await system.get(task_id))


async def test_a_task_that_pauses_after_its_worker_lost_the_lease_ends_too(system: System) -> None:
    system.with_bounds(silence=timedelta(seconds=600), pause_grace=timedelta(seconds=GRACE))
    watch(system)
    await system.enrol("echo:a", replays=True)
    asks = Hold()
    system.forwarder.plan("echo:a", task(position="b.1"), asks, status("input-required", "which?", position="b.2"))
    system.forwarder.plan_fetch("echo:a", REFUSED, REFUSED)
    sending = asyncio.create_task(system.send())
    await expired(system)
    await asyncio.sleep(10)
    asks.release()
    task_id = (await sending)["id"]
    assert await time_to_end(system, task_id) < 4


# --- a pause that lives in its worker's store


@pytest.mark.parametrize("how", ["expired", "withdrawn", "another boot"])
@pytest.mark.parametrize("offer", [{"replays": False}, DURABLE])
async def test_a_stock_agent_or_another_hub_that_knows_the_task_keeps_it(
    system: System, how: str, offer: dict[str, Any]
) -> None:
    task_id = await paused(system, **offer)
    system.forwarder.plan_fetch("echo:a", *[STILL_PAUSED] * 100)
    if how == "another boot":
        await system.enrol("echo:a", boot="next", **offer)
    else:
        await (withdraw(system) if how == "withdrawn" else expired(system))
    await asyncio.sleep(GRACE * 2)
    assert end(await system.get(task_id)) == PAUSED
    await system.enrol("echo:a", boot="third", **offer)
    await asyncio.sleep(JUST_NOW)
    assert end(await answered(system, task_id)) == ("completed", "")


@pytest.mark.parametrize("how", ["expired", "withdrawn", "another boot"])
async def test_a_stock_agent_that_does_not_know_the_task_has_lost_it(system: System, how: str) -> None:
    task_id = await paused(system, replays=False)
    system.forwarder.plan_fetch("echo:a", UNKNOWN)
    if how == "another boot":
        await system.enrol("echo:a", boot="next")
    else:
        await (withdraw(system) if how == "withdrawn" else expired(system))
    assert await time_to_end(system, task_id) < 2
    assert end(await system.get(task_id)) == LOST


async def test_a_stock_agent_without_a_lease_that_has_ended_the_task_is_believed(system: System) -> None:
    task_id = await paused(system, replays=False)
    done = task("completed", artifacts=[{"artifactId": "a", "parts": [{"kind": "text", "text": "blue"}]}])
    system.forwarder.plan_fetch("echo:a", STILL_PAUSED, done)
    await withdraw(system)
    assert await time_to_end(system, task_id) < 5
    got = await system.get(task_id)
    assert (end(got), texts(got)) == (("completed", ""), ["blue"])


async def test_a_stock_agent_that_comes_back_at_work_is_followed_to_the_end(system: System) -> None:
    task_id = await paused(system, replays=False)
    system.forwarder.plan_fetch("echo:a", task("working", "going on"), task("working", "going on"), task("completed"))
    await system.enrol("echo:a", boot="next")
    await asyncio.sleep(3)
    assert end(await system.get(task_id)) == ("completed", "")
    assert len(system.hub.relays) == 0


async def test_a_stock_agent_that_enrols_again_is_asked_also_under_the_same_boot(system: System) -> None:
    task_id = await paused(system, replays=False)
    system.forwarder.plan_fetch("echo:a", 3600.0, UNKNOWN)
    await expired(system)
    await asyncio.sleep(1)
    await system.enrol("echo:a")
    assert await time_to_end(system, task_id) < 6
    assert end(await system.get(task_id)) == LOST


async def test_a_stock_agent_that_enrols_again_and_does_not_answer_has_a_new_grace(system: System) -> None:
    task_id = await paused(system, replays=False)
    system.forwarder.plan_fetch("echo:a", *ASLEEP)
    await expired(system)
    await asyncio.sleep(GRACE * 0.9)
    await system.enrol("echo:a", boot="next")
    assert GRACE < await time_to_end(system, task_id) < GRACE + 8


async def test_a_stock_agent_at_work_without_a_lease_is_not_followed(system: System) -> None:
    """Its task must not be logged as working: nobody would watch it then."""
    task_id = await paused(system, replays=False)
    system.forwarder.plan_fetch("echo:a", *[task("working", "going on")] * 100)
    await withdraw(system)
    await asyncio.sleep(GRACE)
    assert end(await system.get(task_id)) == PAUSED
    assert len(system.hub.relays) == 0


async def test_the_end_of_a_task_whose_stream_is_still_open_closes_it(system: System) -> None:
    system.with_bounds(silence=timedelta(seconds=60), pause_grace=timedelta(seconds=GRACE))
    watch(system)
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), status("auth-required", "log in"), 24 * 3600.0, chunk("x", append=False))
    task_id = (await system.send())["id"]
    system.forwarder.plan_fetch("echo:a", task("completed"))
    await withdraw(system)
    await asyncio.sleep(1)
    assert end(await system.get(task_id)) == ("completed", "")
    assert (len(system.hub.relays), system.forwarder.left) == (0, ["echo:a"])


async def test_a_stock_agent_that_cannot_tell_is_asked_again(system: System) -> None:
    task_id = await paused(system, replays=False)
    system.forwarder.plan_fetch("echo:a", WorkerFault(-32603, "internal"), *[STILL_PAUSED] * 100)
    await withdraw(system)
    await asyncio.sleep(GRACE * 2)
    assert end(await system.get(task_id)) == PAUSED


# --- away for a while, under the same lease


async def away_and_back(system: System, how: str) -> None:
    """The hub has missed its beats, or who announces it has missed an answer of its own."""
    registration = lease(system)
    if how == "suspect":
        await system.engine.registry.mark("default", registration.worker, registration.epoch, Health.SUSPECT, "refused a call")
        await asyncio.sleep(1)
    await system.directory.beat(LOCAL, registration.worker, proof(registration), Beat(was_away=how == "beat"))


@pytest.mark.parametrize("how", ["suspect", "beat"])
@pytest.mark.parametrize("offer", [{"replays": False}, DURABLE])
async def test_a_stock_agent_that_was_away_has_lost_what_it_does_not_know(
    stored_system: System, how: str, offer: dict[str, Any]
) -> None:
    system = stored_system
    task_id = await paused(system, **offer)
    system.forwarder.plan_fetch("echo:a", UNKNOWN)
    await away_and_back(system, how)
    assert await time_to_end(system, task_id) < 2.5
    got = await system.get(task_id)
    assert (end(got), words(got).startswith("echo:a no longer knows the task.")) == (LOST, True)


@pytest.mark.parametrize("how", ["suspect", "beat"])
async def test_a_stock_agent_that_was_away_is_asked_once(system: System, how: str) -> None:
    task_id = await paused(system, replays=False)
    for times in (1, 2):
        system.forwarder.plan_fetch("echo:a", STILL_PAUSED)
        await away_and_back(system, how)
        await asyncio.sleep(TTL.total_seconds() / 2)
        assert len(system.forwarder.asked("fetch")) == times
    assert end(await system.get(task_id)) == PAUSED
    assert end(await answered(system, task_id)) == ("completed", "")


async def test_a_stock_agent_that_was_away_and_does_not_answer_is_asked_until_it_does(system: System) -> None:
    task_id = await paused(system, replays=False)
    system.forwarder.plan_fetch("echo:a", NO_ROUTE, Overloaded("connections", 3, "max_worker_connections"), UNKNOWN)
    await away_and_back(system, "beat")
    assert 1 < await time_to_end(system, task_id) < 8
    assert len(system.forwarder.asked("fetch")) == 3


async def test_a_stock_agent_that_was_away_and_is_asked_while_the_store_is_away_is_asked_again(system: System) -> None:
    task_id = await paused(system, replays=False)
    system.engine.fail("tasks.paused_at", StoreUnavailable())
    system.forwarder.plan_fetch("echo:a", UNKNOWN)
    await away_and_back(system, "beat")
    assert await time_to_end(system, task_id) < 8


@pytest.mark.parametrize("how", ["suspect", "beat"])
async def test_a_process_that_was_away_and_keeps_its_lease_keeps_its_pauses(system: System, how: str) -> None:
    task_id = await paused(system)
    await away_and_back(system, how)
    await asyncio.sleep(TTL.total_seconds() / 2)
    assert system.forwarder.asked("fetch") == []
    assert end(await answered(system, task_id)) == ("completed", "")


# --- restarts of the hub


async def test_a_worker_that_was_lost_just_before_a_restart_of_the_hub(stored_system: System) -> None:
    system = stored_system
    task_id = await paused(system)
    hold = system.engine.hold("tasks.paused_at")
    await withdraw(system)
    await hold.reached.wait()
    await system.restart(pause_grace=timedelta(seconds=GRACE))
    assert end(await system.get(task_id)) == PAUSED
    watch(system)
    assert await time_to_end(system, task_id) < JUST_NOW
    assert "echo:a withdrew" in words(await system.get(task_id))


async def test_a_restarted_hub_asks_the_sleeping_worker_at_its_last_address(stored_system: System) -> None:
    system = stored_system
    task_id = await paused(system)
    system.forwarder.plan_fetch("echo:a", *ASLEEP)
    await expired(system)
    await asyncio.sleep(3)
    system.forwarder.fetch_scripts.clear()
    await system.restart(pause_grace=timedelta(seconds=GRACE))
    system.forwarder.plan_fetch("echo:a", REFUSED, REFUSED)
    watch(system)
    assert await time_to_end(system, task_id) < 2
    assert "its address refuses connections" in words(await system.get(task_id))


async def test_a_restarted_hub_recognises_the_process_that_slept(stored_system: System) -> None:
    system = stored_system
    task_id = await paused(system)
    system.forwarder.plan_fetch("echo:a", *ASLEEP)
    await expired(system)
    await asyncio.sleep(3)
    await system.restart(pause_grace=timedelta(seconds=GRACE))
    watch(system)
    await system.enrol("echo:a", replays=True)
    await asyncio.sleep(GRACE)
    assert end(await system.get(task_id)) == PAUSED
    assert end(await answered(system, task_id)) == ("completed", "")


async def test_a_new_boot_after_a_restart_of_the_hub_ends_the_pause(stored_system: System) -> None:
    system = stored_system
    task_id = await paused(system)
    await system.restart(pause_grace=timedelta(seconds=GRACE))
    watch(system)
    await asyncio.sleep(GRACE)
    assert end(await system.get(task_id)) == PAUSED
    await system.enrol("echo:a", boot="next", replays=True)
    assert await time_to_end(system, task_id) < JUST_NOW
    assert "echo:a was started again" in words(await system.get(task_id))


async def test_a_live_worker_is_not_asked(system: System) -> None:
    task_id = await paused(system)
    for _ in range(100):
        await system.enrol("echo:a", replays=True)
        await asyncio.sleep(TTL.total_seconds() / 2)
    assert end(await system.get(task_id)) == PAUSED
    assert system.forwarder.asked("fetch") == []


# --- at the same moment


async def test_an_answer_that_is_being_accepted_as_its_worker_withdraws_is_decided_once(system: System) -> None:
    """The answer was routed before the withdrawal: it is neither lost nor doubled, and its caller is told."""
    task_id = await paused(system)
    hold = system.engine.hold("tasks.add_turn")
    answering = asyncio.create_task(system.send("blue", taskId=task_id))
    await hold.reached.wait()
    await withdraw(system)
    await asyncio.sleep(5)
    assert end(await system.get(task_id)) == PAUSED
    hold.release()
    got = await answering
    assert end(got) == LOST
    assert [turn["role"] for turn in got["history"]] == ["user", "agent", "user"]
    assert system.forwarder.asked("deliver") == ["echo:a"]
    log = await system.engine.events.read(got["id"])
    assert [logged.event.is_last for logged in log].count(True) == 1


async def test_a_cancellation_behind_the_verdict_finds_the_task_ended(system: System, caplog: pytest.LogCaptureFixture) -> None:
    """The caller cancels while the hub ends the task: the first one in the inbox decides."""
    task_id = await paused(system)
    hold = system.engine.hold("events.append")
    await withdraw(system)
    await hold.reached.wait()
    cancelling = asyncio.create_task(system.cancel(task_id))
    await asyncio.sleep(1)
    assert not cancelling.done()
    hold.release()
    assert end(await cancelling) == LOST
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_task_that_is_answered_by_its_relay_is_left_to_it(system: System) -> None:
    task_id = await paused(system)
    working = Hold()
    system.forwarder.plan("echo:a", working, status("completed", position="b.3"))
    answering = asyncio.create_task(system.send("blue", taskId=task_id))
    await working.reached.wait()
    await expired(system)
    await asyncio.sleep(5)
    working.release()
    assert end(await answering) == ("completed", "")


async def test_the_open_stream_of_a_paused_task_ends_with_it(system: System) -> None:
    """The relay still reads the worker's stream after a pause, for credentials without a limit."""
    system.with_bounds(silence=timedelta(seconds=60), pause_grace=timedelta(seconds=GRACE))
    watch(system)
    await system.enrol("echo:a", replays=True)
    question = status("auth-required", "log in", position="b.2")
    system.forwarder.plan("echo:a", task(position="b.1"), question, 24 * 3600.0, chunk("x", append=False))
    got = await system.send()
    await withdraw(system)
    await asyncio.sleep(2)
    assert end(await system.get(got["id"])) == LOST
    assert (len(system.hub.relays), system.forwarder.left) == (0, ["echo:a"])


async def test_readers_are_told_the_end(system: System) -> None:
    """Who follows the log, as push delivery does, and who resumes the stream that ended at the pause."""
    task_id = await paused(system)
    reader = system.engine.events.follow(TaskId(task_id), after=Cursor(2), idle=timedelta(hours=1))
    await withdraw(system)
    assert [(one.cursor, one.event.state) for one in await next_batch(reader)] == [(3, TaskState.FAILED)]
    got = await frames(await system.subscribe(task_id, after=2))
    assert [end(frame) for frame in got] == [PAUSED, LOST]
    assert got[-1]["final"] is True


async def test_a_store_that_fails_ends_the_task_later(system: System, caplog: pytest.LogCaptureFixture) -> None:
    task_id = await paused(system)
    system.engine.fail("events.append", StoreUnavailable(), times=3)
    await withdraw(system)
    assert 0.5 < await time_to_end(system, task_id) < 20
    assert end(await system.get(task_id)) == LOST
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


# --- many


async def test_all_the_paused_tasks_of_a_worker_end_in_pieces(system: System) -> None:
    await paused(system)
    for number in range(120):
        name = f"t{number}"
        system.forwarder.plan("echo:a", task("input-required", "which?", task_id=name, position=f"b.{name}"))
        await system.send(str(number))
    await withdraw(system)
    await asyncio.sleep(2)
    assert {row.state for row in await system.rows()} == {"failed"}
    limits = [kwargs["limit"] for _, kwargs in system.engine.arguments("tasks.paused_at")]
    assert len(limits) >= 4
    assert max(limits) <= 50


async def test_sleeping_workers_do_not_hold_up_one_that_is_gone(system: System) -> None:
    task_id = await paused(system)
    for number in range(20):
        name = f"echo:A{number}"
        await system.enrol(name, replays=True)
        system.forwarder.plan(name, task("input-required", "which?", task_id=name, position="b.1"))
        system.forwarder.plan_fetch(name, *ASLEEP)
        await system.hub.send(CALLER, replace(say(), target=Target(path_role="echo", path_instance=f"A{number}")))
    system.forwarder.plan_fetch("echo:a", REFUSED, REFUSED)
    await expired(system)
    assert await time_to_end(system, task_id) < 2
