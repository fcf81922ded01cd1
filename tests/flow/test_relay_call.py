"""How a call begins: its worker, failover, and the error if no worker has run it."""

from __future__ import annotations

import asyncio

import pytest

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
from rolecall.model.principal import LOCAL
from rolecall.model.value import replace
from rolecall.model.worker import Beat, Health
from rolecall.protocol.text.jsontext import parse
from tests.flow.callers import enrol
from tests.flow.conftest import CALLER, System, proof, say, shares
from tests.flow.relayed import CUT, REFUSED, end, moved, reaches, texts, words
from tests.helpers.scripted import chunk, message, status, task
from tests.helpers.watched_engine import Hold


async def test_a_blocking_send_answers_with_the_finished_task(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), chunk("one", append=False), chunk("two"), status("completed"))
    answer = await system.send()
    assert answer["status"]["state"] == "completed"
    assert texts(answer) == ["one", "two"]
    assert answer["id"] != "wt"
    assert await system.get(answer["id"]) == answer


async def test_a_bare_message_is_returned_and_leaves_no_task(system: System) -> None:
    lease = await system.enrol("echo:a")
    system.forwarder.plan("echo:a", message("yes"))
    assert (await system.send())["parts"][0]["text"] == "yes"
    system.forwarder.plan("echo:a", message("yes"))
    assert [frame["kind"] for frame in await system.stream()] == ["message"]
    assert (await system.engine.tasks.page(CALLER, TaskQuery())).total == 0
    assert lease.in_flight == 0


async def test_events_of_another_task_are_dropped(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan(
        "echo:a", task(), chunk("mine", append=False), chunk("not mine", task_id="other"), status("completed")
    )
    assert texts(await system.send()) == ["mine"]


async def test_references_reach_the_worker_with_its_own_ids(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task("completed", task_id="first"))
    first = await system.send()
    system.forwarder.plan("echo:a", task("completed"))
    await system.send(referenceTaskIds=[first["id"]])
    assert system.forwarder.delivered_messages()[-1]["referenceTaskIds"] == ["first"]
    with pytest.raises(TaskNotFound):
        await system.send(referenceTaskIds=["unknown"])


async def test_the_first_event_of_a_call_is_observed_once_with_its_time(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", 1.5, task(), 1, chunk("x"), status("completed"))
    await system.send()
    assert system.observer.first_event_times == [pytest.approx(1.5, abs=0.01)]
    assert system.observer.failures == []


async def test_a_call_counts_as_its_workers_load_until_the_task_ends(system: System) -> None:
    lease = await system.enrol("echo:a")
    pending, hold = await reaches(system, task(), then=(status("completed"), 60.0))
    assert lease.in_flight == 1
    hold.release()
    await pending
    assert lease.in_flight == 0


async def test_a_call_that_ends_after_a_beat_has_reported_it_leaves_no_load(system: System) -> None:
    lease = await system.enrol("echo:a", capacity=2)
    pending, hold = await reaches(system, task(), then=(status("completed"), 60.0))
    await system.directory.beat(LOCAL, lease.worker, proof(lease), Beat(in_flight=2))
    assert lease.load == 2, "one is another hub's"
    hold.release()
    await pending
    assert lease.load == 1


# --- failover


async def test_a_call_that_was_refused_goes_to_another_worker_once(system: System) -> None:
    for name in ("echo:a", "echo:b"):
        await system.enrol(name)
        system.forwarder.plan(name, REFUSED)
        system.forwarder.plan(name, task("completed"))
    with pytest.raises(WorkerUnreachable):
        await system.send()
    assert sorted(system.forwarder.asked("deliver")) == ["echo:a", "echo:b"]
    assert {r.health for r in system.engine.registry.live("default", "echo")} == {Health.SUSPECT}
    assert system.observer.failed_over_roles == ["echo"]


async def test_a_refusal_marks_its_worker_with_the_reason(system: System) -> None:
    lease = await system.enrol("echo:a")
    pending = await moved(system, task("completed"))
    assert end(await pending) == ("completed", "")
    assert (lease.health, lease.reason) == (Health.SUSPECT, "connection refused")
    assert system.observer.failures == ["WorkerUnreachable"]
    assert system.observer.failed_over_roles == ["echo"]


async def test_a_failover_keeps_to_the_skill(system: System) -> None:
    card = {"skills": [{"id": "sum"}]}
    await system.enrol("echo:a", card=card)
    system.forwarder.plan("echo:a", hold := Hold(), REFUSED)
    pending = asyncio.create_task(system.send(metadata={"skill": "sum"}))
    await hold.reached.wait()
    for number in range(9):
        await system.enrol(f"echo:other-{number}", card={"skills": [{"id": "sing"}]})
    await system.enrol("echo:b", card=card)
    system.forwarder.plan("echo:b", REFUSED)
    hold.release()
    with pytest.raises(WorkerUnreachable):
        await pending
    assert system.forwarder.asked("deliver") == ["echo:a", "echo:b"]


async def test_a_failover_moves_the_load_to_the_worker_that_has_the_call(system: System) -> None:
    first = await system.enrol("echo:a")
    at_work = Hold()
    pending = await moved(system, task(), at_work, status("completed"))
    await at_work.reached.wait()
    (second,) = (r for r in system.engine.registry.live("default", "echo") if r is not first)
    assert (first.in_flight, second.in_flight) == (0, 1)
    at_work.release()
    await pending
    assert (first.in_flight, second.in_flight) == (0, 0)


async def test_a_refused_call_belongs_to_the_lease_that_it_moved_to(system: System) -> None:
    """Later calls for the task go to that worker, in that worker's dialect."""
    await enrol(system, "echo:a", "0.3")
    await enrol(system, "echo:b", "1.0", boot="first")
    second = await enrol(system, "echo:b", "1.0", boot="second")
    await system.engine.registry.mark("default", second.worker, second.epoch, Health.SUSPECT, "test")
    refusal_hold = Hold()
    system.forwarder.plan("echo:a", refusal_hold, REFUSED)
    system.forwarder.plan("echo:b", task(), CUT)
    system.forwarder.plan_fetch("echo:b", task("completed"))
    pending = asyncio.create_task(system.send())
    await refusal_hold.reached.wait()
    await system.engine.registry.mark("default", second.worker, second.epoch, Health.READY, "test")
    refusal_hold.release()
    assert end(await pending) == ("completed", "")
    assert [(kind, worker) for kind, worker, _ in system.forwarder.calls] == [
        ("deliver", "echo:a"),
        ("deliver", "echo:b"),
        ("fetch", "echo:b"),
    ]
    assert system.forwarder.calls[1][2].ids.log_dialect == "1.0"
    row = await system.row()
    assert (str(row.worker), row.epoch, row.log_dialect) == ("echo:b", second.epoch, "1.0")


async def test_no_worker_is_tried_twice_for_one_call(system: System) -> None:
    first, second, third = (WorkerRefused(name) for name in ("echo:a", "echo:b", "echo:c"))
    await system.enrol("echo:a")
    refusal_hold = Hold()
    pending = await moved(system, refusal_hold, second, refusal=first)
    await refusal_hold.reached.wait()
    await system.enrol("echo:c")
    system.forwarder.plan("echo:c", third)
    refusal_hold.release()
    with pytest.raises(WorkerRefused) as refused:
        await pending
    assert refused.value.message == third.message
    assert system.forwarder.asked("deliver") == ["echo:a", "echo:b", "echo:c"]
    assert {r.health for r in system.engine.registry.live("default", "echo")} == {Health.READY}
    assert {r.in_flight for r in system.engine.registry.live("default", "echo")} == {0}


async def test_a_refused_call_whose_other_workers_are_full_gets_worker_busy(system: System) -> None:
    await system.enrol("echo:a")
    pending, hold = await reaches(system, then=(REFUSED,))
    await system.enrol("echo:b", capacity=1)
    system.forwarder.plan("echo:b", task(), 5.0, status("completed"))
    # The second call goes to the least busy worker, echo:b.
    other = asyncio.create_task(system.send("other"))
    await asyncio.sleep(0.1)
    assert system.forwarder.asked("deliver") == ["echo:a", "echo:b"]
    hold.release()
    with pytest.raises(WorkerBusy):
        await pending
    assert end(await other) == ("completed", "")


async def test_a_call_for_one_instance_goes_to_no_other(system: System) -> None:
    await system.enrol("echo:a")
    await system.enrol("echo:b")
    system.forwarder.plan("echo:a", REFUSED)
    pinned = replace(say(), target=Target(path_role="echo", path_instance="a"))
    with pytest.raises(WorkerUnreachable):
        await system.hub.send(CALLER, pinned)
    assert system.forwarder.asked("deliver") == ["echo:a"]


async def test_a_call_that_may_have_run_is_not_repeated(system: System) -> None:
    await system.enrol("echo:a")
    await system.enrol("echo:b")
    for name in ("echo:a", "echo:b"):
        system.forwarder.plan(name, WorkerBroke(name, "cut"))
    for _ in range(2):
        assert end(await system.send(messageId="m")) == ("failed", "WORKER_LOST")
    assert len(system.forwarder.calls) == 1


async def test_a_suspect_worker_gets_nothing_while_another_is_ready(system: System) -> None:
    await system.enrol("echo:a")
    await system.enrol("echo:b")
    await system.engine.registry.mark("default", (await system.enrol("echo:a")).worker, 1, Health.SUSPECT, "test")
    for _ in range(10):
        system.forwarder.plan("echo:b", task("completed"))
        await system.send()
    assert set(system.forwarder.asked("deliver")) == {"echo:b"}


async def test_a_refused_call_moves_even_if_the_suspect_cannot_be_stored(system: System) -> None:
    await system.enrol("echo:a")
    system.engine.fail("registry.mark", StoreUnavailable())
    pending = await moved(system, task("completed"))
    assert end(await pending) == ("completed", "")


# --- calls that never ran


@pytest.mark.parametrize(
    "failure",
    [InvalidAnswer("echo:a", "HTML"), WorkerFault(-32602, "no"), WorkerFault(-32001, "which task?"), REFUSED],
    ids=["not A2A", "refused by its worker", "unknown to its worker", "unreachable"],
)
async def test_a_call_that_never_began_is_an_error_to_its_caller(system: System, failure: Exception) -> None:
    lease = await system.enrol("echo:a")
    system.forwarder.plan("echo:a", failure)
    system.forwarder.plan("echo:a", failure)
    with pytest.raises(type(failure)):
        await system.send()
    with pytest.raises(type(failure)):
        await system.stream()
    assert lease.in_flight == 0


@pytest.mark.parametrize("failure", [WorkerFault(-32602, "no"), REFUSED, WorkerRefused("echo:a")])
async def test_a_call_that_never_ran_leaves_no_task_and_takes_no_slot(system: System, failure: Exception) -> None:
    system.with_bounds(shares=shares(open_tasks=1))
    await system.enrol("echo:a")
    for _ in range(2):
        system.forwarder.plan("echo:a", failure)
        with pytest.raises(type(failure)):
            await system.send(messageId="m")
        await asyncio.sleep(0.01)
        assert await system.rows() == []
    assert system.forwarder.asked("deliver") == ["echo:a"] * 2


async def test_an_answer_that_is_not_a2a_leaves_a_failed_task(system: System) -> None:
    """It may have run."""
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", InvalidAnswer("echo:a", "HTML"))
    with pytest.raises(InvalidAnswer):
        await system.send()
    row = await system.row()
    assert end(await system.get(row.id)) == ("failed", "INVALID_AGENT_RESPONSE")
    assert system.observer.failures == ["InvalidAnswer"]


@pytest.mark.parametrize("replays", [False, True])
async def test_an_answer_without_an_event_is_invalid(system: System, replays: bool) -> None:
    await system.enrol("echo:a", replays=replays)
    system.forwarder.plan("echo:a")
    with pytest.raises(InvalidAnswer, match="without an event"):
        await system.send()
    assert len(system.forwarder.calls) == 1


async def test_a_caller_gets_an_error_when_the_hub_stops(system: System) -> None:
    await system.enrol("echo:a")
    pending, _ = await reaches(system)
    await system.supervisor.close()
    with pytest.raises(WorkerLost, match=r"^The hub stopped\.$"):
        await pending
    (row,) = await system.rows()
    assert not row.ended


@pytest.mark.parametrize("store_fails", [False, True])
async def test_an_unexpected_error_does_not_leave_the_caller_waiting(system: System, store_fails: bool) -> None:
    lease = await system.enrol("echo:a")
    system.forwarder.plan("echo:a", WorkerRefused("echo:a") if store_fails else RuntimeError("a bug"))
    if store_fails:
        system.engine.fail("tasks.discard", RuntimeError("a bug"))
    with pytest.raises(WorkerLost if store_fails else RuntimeError):
        await asyncio.wait_for(system.send(), 5)
    await asyncio.sleep(0.01)
    assert len(system.hub.relays) == 0
    assert lease.in_flight == 0


# --- non-blocking callers


async def test_a_non_blocking_caller_gets_the_task_as_it_stands(system: System) -> None:
    await system.enrol("echo:a")
    answer, hold = await reaches(system, task(), then=(status("completed"),), blocking=False)
    assert (await answer)["status"]["state"] == "working"
    hold.release()
    await asyncio.sleep(0.1)
    assert (await system.get((await answer)["id"]))["status"]["state"] == "completed"


async def test_a_non_blocking_caller_gets_the_task_after_a_second(system: System) -> None:
    await system.enrol("echo:a")
    began = system.clock.monotonic()
    answer, hold = await reaches(system, then=(message("done after all"),), blocking=False)
    assert end(await answer) == ("submitted", "")
    assert system.clock.monotonic() - began == pytest.approx(1.0, abs=0.01)
    hold.release()
    await asyncio.sleep(0.1)
    later = await system.get((await answer)["id"])
    assert (later["status"]["state"], words(later)) == ("completed", "done after all")


async def test_a_non_blocking_caller_gets_a_refusal_within_a_second(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", 0.9, WorkerRefused("echo:a"))
    with pytest.raises(NotProcessed):
        await system.send(blocking=False)
    assert await system.rows() == []


async def test_a_revealed_task_is_not_moved_to_another_worker(system: System) -> None:
    """Its log has begun, in the first worker's dialect."""
    await system.enrol("echo:a")
    answer, hold = await reaches(system, then=(WorkerRefused("echo:a"),), blocking=False)
    shown = await answer
    await system.enrol("echo:b")
    hold.release()
    await asyncio.sleep(0.1)
    assert end(await system.get(shown["id"])) == ("failed", "WORKER_BUSY")
    assert system.forwarder.asked("deliver") == ["echo:a"]


async def test_a_task_that_is_refused_during_its_reveal_is_returned_and_fails(system: System) -> None:
    await system.enrol("echo:a")
    reveal, failing = system.engine.hold("events.append"), system.engine.hold("events.append")
    answer, refusal_hold = await reaches(system, then=(WorkerRefused("echo:a"),), blocking=False)
    await reveal.reached.wait()
    refusal_hold.release()
    await asyncio.sleep(0.1)
    reveal.release()
    await failing.reached.wait()
    assert end(await answer) == ("submitted", "")
    failing.release()
    await asyncio.sleep(0.1)
    assert end(await system.get((await answer)["id"])) == ("failed", "WORKER_BUSY")


async def test_a_caller_gets_the_reason_if_its_task_is_taken_back_during_the_reveal(system: System) -> None:
    await system.enrol("echo:a")
    taking_back = system.engine.hold("tasks.discard")
    system.forwarder.plan("echo:a", 0.9, WorkerRefused("echo:a"))
    answer = asyncio.create_task(system.send(blocking=False))
    await taking_back.reached.wait()
    await asyncio.sleep(0.5)
    taking_back.release()
    with pytest.raises(WorkerRefused):
        await answer
    assert await system.rows() == []


# --- waiting for a worker


async def test_a_busy_worker_passes_the_call_on_and_is_not_suspected(system: System) -> None:
    await system.enrol("echo:a")
    pending = await moved(system, task("completed"), refusal=WorkerRefused("echo:a"))
    assert end(await pending) == ("completed", "")
    assert {r.health for r in system.engine.registry.live("default", "echo")} == {Health.READY}


async def test_workers_at_capacity_get_no_call(system: System) -> None:
    await system.enrol("echo:a", capacity=1)
    first, hold = await reaches(system, task(), then=(status("completed"),))
    with pytest.raises(WorkerBusy):
        await system.send()
    hold.release()
    assert end(await first) == ("completed", "")
    system.forwarder.plan("echo:a", task("completed"))
    assert end(await system.send()) == ("completed", "")


async def test_a_caller_may_wait_for_a_worker_that_is_free(system: System) -> None:
    await system.enrol("echo:a", capacity=1)
    first, hold = await reaches(system, task(), then=(status("completed"),))
    system.forwarder.plan("echo:a", task("completed"))
    second = asyncio.create_task(system.send(metadata={"waitSeconds": 5}))
    await asyncio.sleep(1)
    assert len(system.forwarder.calls) == 1
    hold.release()
    assert end(await first) == end(await second) == ("completed", "")


async def test_a_caller_may_wait_for_the_first_worker_for_a_limited_time(system: System) -> None:
    waiting = asyncio.create_task(system.send(metadata={"waitSeconds": 5}))
    await asyncio.sleep(4.5)
    system.forwarder.plan("echo:a", task("completed"))
    await system.enrol("echo:a")
    assert end(await waiting) == ("completed", "")
    began = system.clock.monotonic()
    with pytest.raises(RoleUnknown):
        await system.send(role="nobody", metadata={"waitSeconds": 5})
    assert system.clock.monotonic() - began == pytest.approx(5, abs=0.2)


async def test_of_two_callers_that_wait_for_one_call_one_may_disconnect(system: System) -> None:
    await system.enrol("echo:a")
    first, hold = await reaches(system, then=(task("completed"),), messageId="m")
    second = asyncio.create_task(system.send(messageId="m"))
    await asyncio.sleep(0.1)
    first.cancel()
    await asyncio.sleep(0.1)
    hold.release()
    assert end(await asyncio.wait_for(second, 5)) == ("completed", "")
    assert len(system.forwarder.calls) == 1


async def test_a_call_of_another_caller_is_not_the_same_call(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task("completed"))
    system.forwarder.plan("echo:a", task("completed"))
    mine = parse((await system.hub.send(CALLER, say(messageId="m"))).body)
    other_answer = parse((await system.hub.send(CALLER._replace(name="other"), say(messageId="m"))).body)
    assert mine["id"] != other_answer["id"]
