"""How a call begins: who gets it, who gets it instead, and what its caller hears when nobody has run it."""

from __future__ import annotations

import asyncio

import pytest

from hub.core.hub import HubLimits
from rolecall.errors import (
    InvalidAnswer,
    NotProcessed,
    RoleUnknown,
    StoreUnavailable,
    TaskNotFound,
    WorkerBroke,
    WorkerBusy,
    WorkerFault,
    WorkerLost,
    WorkerRefused,
    WorkerUnreachable,
)
from rolecall.model.command import Target, TaskQuery
from rolecall.model.value import replace
from rolecall.model.worker import Health
from rolecall.protocol.text.jsontext import parse
from tests.flow.callers import enrol
from tests.flow.conftest import KEEP_ALIVE, ME, House, say
from tests.flow.relayed import CUT, REFUSED, end, moved, reaches, texts, words
from tests.helpers.scripted import chunk, message, status, task
from tests.helpers.watched_engine import Hold


async def test_a_blocking_send_answers_with_the_finished_task(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), chunk("one", append=False), chunk("two"), status("completed"))
    answer = await house.send()
    assert answer["status"]["state"] == "completed"
    assert texts(answer) == ["one", "two"]
    assert answer["id"] != "wt"
    assert await house.get(answer["id"]) == answer


async def test_a_bare_message_goes_straight_back_and_leaves_no_task(house: House) -> None:
    lease = await house.enrol("echo:a")
    house.forwarder.plan("echo:a", message("yes"))
    assert (await house.send())["parts"][0]["text"] == "yes"
    house.forwarder.plan("echo:a", message("yes"))
    assert [frame["kind"] for frame in await house.stream()] == ["message"]
    assert (await house.engine.tasks.page(ME, TaskQuery())).total == 0
    assert lease.in_flight == 0


async def test_events_of_another_task_are_dropped(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), chunk("mine", append=False), chunk("not mine", task_id="other"), status("completed"))
    assert texts(await house.send()) == ["mine"]


async def test_tasks_that_a_message_refers_to_are_called_as_their_worker_calls_them(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task("completed", task_id="first"))
    first = await house.send()
    house.forwarder.plan("echo:a", task("completed"))
    await house.send(referenceTaskIds=[first["id"]])
    assert house.forwarder.told()[-1]["referenceTaskIds"] == ["first"]
    with pytest.raises(TaskNotFound):
        await house.send(referenceTaskIds=["unknown"])


async def test_the_first_event_of_a_call_is_observed_once_with_its_time(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", 1.5, task(), 1, chunk("x"), status("completed"))
    await house.send()
    assert house.observer.firsts == [pytest.approx(1.5, abs=0.01)]
    assert house.observer.failures == []


async def test_a_call_counts_as_its_workers_load_until_the_task_ends(house: House) -> None:
    lease = await house.enrol("echo:a")
    sending, hold = await reaches(house, task(), then=(status("completed"), 60.0))
    assert lease.in_flight == 1
    hold.release()
    await sending
    assert lease.in_flight == 0


# --- failover


async def test_a_call_that_was_refused_goes_to_another_worker_once(house: House) -> None:
    for name in ("echo:a", "echo:b"):
        await house.enrol(name)
        house.forwarder.plan(name, REFUSED)
        house.forwarder.plan(name, task("completed"))
    with pytest.raises(WorkerUnreachable):
        await house.send()
    assert sorted(house.forwarder.asked("deliver")) == ["echo:a", "echo:b"]
    assert {r.health for r in house.engine.registry.live("default", "echo")} == {Health.SUSPECT}
    assert house.observer.failovers == ["echo"]


async def test_a_refusal_marks_its_worker_with_the_reason(house: House) -> None:
    lease = await house.enrol("echo:a")
    sending = await moved(house, task("completed"))
    assert end(await sending) == ("completed", "")
    assert (lease.health, lease.reason) == (Health.SUSPECT, "connection refused")
    assert house.observer.failures == ["WorkerUnreachable"]
    assert house.observer.failovers == ["echo"]


async def test_a_failover_moves_the_load_to_the_worker_that_has_the_call(house: House) -> None:
    first = await house.enrol("echo:a")
    at_work = Hold()
    sending = await moved(house, task(), at_work, status("completed"))
    await at_work.reached.wait()
    (second,) = (r for r in house.engine.registry.live("default", "echo") if r is not first)
    assert (first.in_flight, second.in_flight) == (0, 1)
    at_work.release()
    await sending
    assert (first.in_flight, second.in_flight) == (0, 0)


async def test_a_refused_call_belongs_to_the_lease_that_it_moved_to(house: House) -> None:
    """Whoever comes back to the task later asks that worker, in that worker's own tongue."""
    await enrol(house, "echo:a", "0.3")
    await enrol(house, "echo:b", "1.0", boot="first")
    second = await enrol(house, "echo:b", "1.0", boot="second")
    await house.engine.registry.mark("default", second.worker, second.epoch, Health.SUSPECT, "test")
    refuses = Hold()
    house.forwarder.plan("echo:a", refuses, REFUSED)
    house.forwarder.plan("echo:b", task(), CUT)
    house.forwarder.plan_fetch("echo:b", task("completed"))
    sending = asyncio.create_task(house.send())
    await refuses.reached.wait()
    await house.engine.registry.mark("default", second.worker, second.epoch, Health.READY, "test")
    refuses.release()
    assert end(await sending) == ("completed", "")
    assert [(kind, worker) for kind, worker, _ in house.forwarder.calls] == [
        ("deliver", "echo:a"),
        ("deliver", "echo:b"),
        ("fetch", "echo:b"),
    ]
    assert house.forwarder.calls[1][2].ids.log_dialect == "1.0"
    row = await house.row()
    assert (str(row.worker), row.epoch, row.log_dialect) == ("echo:b", second.epoch, "1.0")


async def test_no_worker_is_tried_twice_for_one_call(house: House) -> None:
    first, second, third = (WorkerRefused(name) for name in ("echo:a", "echo:b", "echo:c"))
    await house.enrol("echo:a")
    refuses = Hold()
    sending = await moved(house, refuses, second, refusal=first)
    await refuses.reached.wait()
    await house.enrol("echo:c")
    house.forwarder.plan("echo:c", third)
    refuses.release()
    with pytest.raises(WorkerRefused) as refused:
        await sending
    assert refused.value is third
    assert house.forwarder.asked("deliver") == ["echo:a", "echo:b", "echo:c"]
    assert {r.health for r in house.engine.registry.live("default", "echo")} == {Health.READY}
    assert {r.in_flight for r in house.engine.registry.live("default", "echo")} == {0}


async def test_a_refused_call_whose_other_workers_are_full_is_told_so(house: House) -> None:
    await house.enrol("echo:a")
    sending, hold = await reaches(house, then=(REFUSED,))
    await house.enrol("echo:b", capacity=1)
    house.forwarder.plan("echo:b", task(), 5.0, status("completed"))
    # The second call goes to whoever is least busy: echo:b.
    other = asyncio.create_task(house.send("other"))
    await asyncio.sleep(0.1)
    assert house.forwarder.asked("deliver") == ["echo:a", "echo:b"]
    hold.release()
    with pytest.raises(WorkerBusy):
        await sending
    assert end(await other) == ("completed", "")


async def test_a_call_for_one_instance_goes_to_no_other(house: House) -> None:
    await house.enrol("echo:a")
    await house.enrol("echo:b")
    house.forwarder.plan("echo:a", REFUSED)
    pinned = replace(say(), target=Target(path_role="echo", path_instance="a"))
    with pytest.raises(WorkerUnreachable):
        await house.hub.send(ME, pinned)
    assert house.forwarder.asked("deliver") == ["echo:a"]


async def test_a_call_that_may_have_run_is_not_repeated(house: House) -> None:
    await house.enrol("echo:a")
    await house.enrol("echo:b")
    for name in ("echo:a", "echo:b"):
        house.forwarder.plan(name, WorkerBroke(name, "cut"))
    for _ in range(2):
        assert end(await house.send(messageId="m")) == ("failed", "WORKER_LOST")
    assert len(house.forwarder.calls) == 1


async def test_a_suspect_worker_gets_nothing_while_another_is_ready(house: House) -> None:
    await house.enrol("echo:a")
    await house.enrol("echo:b")
    await house.engine.registry.mark("default", (await house.enrol("echo:a")).worker, 1, Health.SUSPECT, "test")
    for _ in range(10):
        house.forwarder.plan("echo:b", task("completed"))
        await house.send()
    assert set(house.forwarder.asked("deliver")) == {"echo:b"}


async def test_a_refused_call_of_which_the_hub_cannot_tell_others_moves_all_the_same(house: House) -> None:
    await house.enrol("echo:a")
    house.engine.fail("registry.mark", StoreUnavailable())
    sending = await moved(house, task("completed"))
    assert end(await sending) == ("completed", "")


# --- nobody has run it


@pytest.mark.parametrize(
    "failure",
    [InvalidAnswer("echo:a", "HTML"), WorkerFault(-32602, "no"), WorkerFault(-32001, "which task?"), REFUSED],
    ids=["not A2A", "refused by its worker", "unknown to its worker", "unreachable"],
)
async def test_a_call_that_never_began_is_an_error_to_its_caller(house: House, failure: Exception) -> None:
    lease = await house.enrol("echo:a")
    house.forwarder.plan("echo:a", failure)
    house.forwarder.plan("echo:a", failure)
    with pytest.raises(type(failure)):
        await house.send()
    with pytest.raises(type(failure)):
        await house.stream()
    assert lease.in_flight == 0


@pytest.mark.parametrize("failure", [WorkerFault(-32602, "no"), REFUSED, WorkerRefused("echo:a")])
async def test_a_call_that_nobody_ran_leaves_no_task_and_fills_no_place(house: House, failure: Exception) -> None:
    house.with_bounds(limits=HubLimits(open_tasks=1, keep_alive=KEEP_ALIVE))
    await house.enrol("echo:a")
    for _ in range(2):
        house.forwarder.plan("echo:a", failure)
        with pytest.raises(type(failure)):
            await house.send(messageId="m")
        await asyncio.sleep(0.01)
        assert await house.rows() == []
    assert house.forwarder.asked("deliver") == ["echo:a"] * 2


async def test_an_answer_that_is_not_a2a_leaves_a_failed_task(house: House) -> None:
    """It may have run."""
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", InvalidAnswer("echo:a", "HTML"))
    with pytest.raises(InvalidAnswer):
        await house.send()
    row = await house.row()
    assert end(await house.get(row.id)) == ("failed", "INVALID_AGENT_RESPONSE")
    assert house.observer.failures == ["InvalidAnswer"]


@pytest.mark.parametrize("replays", [False, True])
async def test_a_worker_that_ends_its_answer_without_an_event_has_not_spoken_a2a(house: House, replays: bool) -> None:
    await house.enrol("echo:a", replays=replays)
    house.forwarder.plan("echo:a")
    with pytest.raises(InvalidAnswer, match="without an event"):
        await house.send()
    assert len(house.forwarder.calls) == 1


async def test_a_caller_hears_that_the_hub_has_stopped(house: House) -> None:
    await house.enrol("echo:a")
    sending, _ = await reaches(house)
    await house.supervisor.close()
    with pytest.raises(WorkerLost, match=r"^The hub stopped\.$"):
        await sending
    (row,) = await house.rows()
    assert not row.ended


@pytest.mark.parametrize("store_fails", [False, True])
async def test_a_caller_is_not_left_waiting_by_what_nobody_thought_of(house: House, store_fails: bool) -> None:
    lease = await house.enrol("echo:a")
    house.forwarder.plan("echo:a", WorkerRefused("echo:a") if store_fails else RuntimeError("a bug"))
    if store_fails:
        house.engine.fail("tasks.discard", RuntimeError("a bug"))
    with pytest.raises(WorkerLost, match=r"^echo:a said nothing to this\.$"):
        await asyncio.wait_for(house.send(), 5)
    await asyncio.sleep(0.01)
    assert len(house.hub.relays) == 0
    assert lease.in_flight == 0


# --- who does not wait


async def test_a_caller_who_does_not_wait_gets_the_task_as_it_stands(house: House) -> None:
    await house.enrol("echo:a")
    answer, hold = await reaches(house, task(), then=(status("completed"),), blocking=False)
    assert (await answer)["status"]["state"] == "working"
    hold.release()
    await asyncio.sleep(0.1)
    assert (await house.get((await answer)["id"]))["status"]["state"] == "completed"


async def test_a_caller_who_does_not_wait_sees_the_task_after_a_second(house: House) -> None:
    await house.enrol("echo:a")
    began = house.clock.monotonic()
    answer, hold = await reaches(house, then=(message("done after all"),), blocking=False)
    assert end(await answer) == ("submitted", "")
    assert house.clock.monotonic() - began == pytest.approx(1.0, abs=0.01)
    hold.release()
    await asyncio.sleep(0.1)
    later = await house.get((await answer)["id"])
    assert (later["status"]["state"], words(later)) == ("completed", "done after all")


async def test_a_caller_who_does_not_wait_hears_of_a_refusal_within_a_second(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", 0.9, WorkerRefused("echo:a"))
    with pytest.raises(NotProcessed):
        await house.send(blocking=False)
    assert await house.rows() == []


async def test_a_task_that_was_shown_is_not_moved_to_another_worker(house: House) -> None:
    """Its log has begun, in the first one's tongue."""
    await house.enrol("echo:a")
    answer, hold = await reaches(house, then=(WorkerRefused("echo:a"),), blocking=False)
    shown = await answer
    await house.enrol("echo:b")
    hold.release()
    await asyncio.sleep(0.1)
    assert end(await house.get(shown["id"])) == ("failed", "WORKER_BUSY")
    assert house.forwarder.asked("deliver") == ["echo:a"]


async def test_who_is_about_to_be_shown_a_task_as_it_is_refused_gets_it_and_it_fails(house: House) -> None:
    await house.enrol("echo:a")
    showing, failing = house.engine.hold("events.append"), house.engine.hold("events.append")
    answer, refuses = await reaches(house, then=(WorkerRefused("echo:a"),), blocking=False)
    await showing.reached.wait()
    refuses.release()
    await asyncio.sleep(0.1)
    showing.release()
    await failing.reached.wait()
    assert end(await answer) == ("submitted", "")
    failing.release()
    await asyncio.sleep(0.1)
    assert end(await house.get((await answer)["id"])) == ("failed", "WORKER_BUSY")


async def test_who_is_about_to_be_shown_a_task_that_is_taken_back_hears_why(house: House) -> None:
    await house.enrol("echo:a")
    taking_back, showing = house.engine.hold("tasks.discard"), house.engine.hold("events.append")
    house.forwarder.plan("echo:a", 0.9, WorkerRefused("echo:a"))
    answer = asyncio.create_task(house.send(blocking=False))
    await showing.reached.wait()
    taking_back.release()
    await asyncio.sleep(0.1)
    showing.release()
    with pytest.raises(WorkerRefused):
        await answer
    assert await house.rows() == []


# --- waiting for a worker


async def test_a_busy_worker_passes_the_call_on_and_is_not_suspected(house: House) -> None:
    await house.enrol("echo:a")
    sending = await moved(house, task("completed"), refusal=WorkerRefused("echo:a"))
    assert end(await sending) == ("completed", "")
    assert {r.health for r in house.engine.registry.live("default", "echo")} == {Health.READY}


async def test_workers_at_capacity_are_not_asked(house: House) -> None:
    await house.enrol("echo:a", capacity=1)
    first, hold = await reaches(house, task(), then=(status("completed"),))
    with pytest.raises(WorkerBusy):
        await house.send()
    hold.release()
    assert end(await first) == ("completed", "")
    house.forwarder.plan("echo:a", task("completed"))
    assert end(await house.send()) == ("completed", "")


async def test_a_caller_may_wait_for_a_worker_that_is_free(house: House) -> None:
    await house.enrol("echo:a", capacity=1)
    first, hold = await reaches(house, task(), then=(status("completed"),))
    house.forwarder.plan("echo:a", task("completed"))
    second = asyncio.create_task(house.send(metadata={"waitSeconds": 5}))
    await asyncio.sleep(1)
    assert len(house.forwarder.calls) == 1
    hold.release()
    assert end(await first) == end(await second) == ("completed", "")


async def test_a_caller_may_wait_for_the_first_worker_and_not_for_ever(house: House) -> None:
    waiting = asyncio.create_task(house.send(metadata={"waitSeconds": 5}))
    await asyncio.sleep(4.5)
    house.forwarder.plan("echo:a", task("completed"))
    await house.enrol("echo:a")
    assert end(await waiting) == ("completed", "")
    began = house.clock.monotonic()
    with pytest.raises(RoleUnknown):
        await house.send(role="nobody", metadata={"waitSeconds": 5})
    assert house.clock.monotonic() - began == pytest.approx(5, abs=0.2)


async def test_of_two_who_wait_for_one_call_one_may_leave(house: House) -> None:
    await house.enrol("echo:a")
    first, hold = await reaches(house, then=(task("completed"),), messageId="m")
    second = asyncio.create_task(house.send(messageId="m"))
    await asyncio.sleep(0.1)
    first.cancel()
    await asyncio.sleep(0.1)
    hold.release()
    assert end(await asyncio.wait_for(second, 5)) == ("completed", "")
    assert len(house.forwarder.calls) == 1


async def test_a_call_of_another_caller_is_not_the_same_call(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task("completed"))
    house.forwarder.plan("echo:a", task("completed"))
    mine = parse((await house.hub.send(ME, say(messageId="m"))).body)
    theirs = parse((await house.hub.send(ME._replace(name="other"), say(messageId="m"))).body)
    assert mine["id"] != theirs["id"]
