"""A worker that fails each call while others of its role do not: when it gets no new calls, and how it comes back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from rolecall.errors import (
    CredentialRefused,
    HubError,
    InvalidAnswer,
    StoreUnavailable,
    WorkerBroke,
    WorkerFault,
    WorkerRefused,
)
from rolecall.model.ids import TaskId
from rolecall.model.principal import LOCAL
from rolecall.model.worker import Beat, ChangeKind, Health, Registration
from tests.flow.conftest import CALLER, KEEP_ALIVE, System, proof
from tests.helpers.scripted import Step, chunk, message, status, task
from tests.helpers.watched_engine import Hold

DONE, FAILED = task("completed"), task("failed")


def plan(system: System, name: str, *steps: Step, count: int = 500) -> None:
    """The next calls of a worker, in place of what was planned."""
    system.forwarder.scripts.pop(f"echo:{name}", None)
    for _ in range(count):
        system.forwarder.plan(f"echo:{name}", *steps)


async def a_role(system: System, *good: str, bad: Step = FAILED) -> Registration:
    """Good workers, and a bad one."""
    lease = await system.enrol("echo:bad")
    plan(system, "bad", bad)
    for name in good:
        await system.enrol(f"echo:{name}")
        plan(system, name, DONE)
    return lease


async def calls_to(system: System, name: str, count: int = 1, **members: Any) -> None:
    """Calls that name one instance."""
    for _ in range(count):
        await call(system, role=None, metadata={"role": f"echo:{name}"}, **members)


async def call(system: System, **members: Any) -> str | None:
    """The task's id, if the call made one. Virtual time goes on, as it does between real calls."""
    await asyncio.sleep(0.001)
    try:
        return (await system.send(**members)).get("id")
    except HubError:
        return None


async def spread(system: System, count: int, *, every: float = 0.0) -> Counter[str]:
    """Calls to the role, one after the other: which instances got them."""
    before = len(system.forwarder.asked("deliver"))
    for _ in range(count):
        await call(system)
        await asyncio.sleep(every)
    return Counter(name.removeprefix("echo:") for name in system.forwarder.asked("deliver")[before:])


async def fail(system: System, lease: Registration) -> None:
    """Five failures of the bad worker, and a success of `a` since the first of them."""
    await calls_to(system, "bad")
    await calls_to(system, "a")
    await calls_to(system, "bad", 4)
    await asyncio.sleep(0.01)
    assert lease.health is Health.FAILING


# --- when


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (FAILED, "its task failed"),
        (InvalidAnswer("echo:bad", "HTTP 500"), "HTTP 500"),
        (WorkerFault(-32603, "password is hunter2"), "it answered with error -32603"),
        (WorkerBroke("echo:bad", "the connection was cut"), "the connection was cut"),
    ],
)
async def test_after_five_failures_in_a_row_a_worker_gets_no_new_calls(system: System, bad: Step, why: str) -> None:
    lease = await a_role(system, "a", "b", "c", bad=bad)
    got = await spread(system, 100)
    assert got["bad"] == 5
    assert (lease.health, lease.reason) == (Health.FAILING, f"5 calls in a row failed, the last one: {why}")


async def test_a_task_that_fails_late_counts_as_much_as_one_that_fails_at_once(system: System) -> None:
    await a_role(system, "a", "b", "c")
    plan(system, "bad", task("working"), 0.1, status("failed"))
    assert (await spread(system, 100))["bad"] == 5


@pytest.mark.parametrize(("steps", "why"), [((task("working"),), "it lost the task"), ((60.0, DONE), "it was silent")])
async def test_a_worker_that_loses_its_tasks_or_is_silent_fails(system: System, steps: tuple[Step, ...], why: str) -> None:
    system.watch()
    lease = await a_role(system, "a")
    plan(system, "bad", *steps)
    await fail(system, lease)
    assert lease.reason == f"5 calls in a row failed, the last one: {why}"


async def test_calls_that_end_together_are_compared_with_what_succeeds_later(system: System) -> None:
    lease = await a_role(system, "a")
    plan(system, "bad", 5.0, FAILED)
    await asyncio.gather(*(calls_to(system, "bad") for _ in range(9)))
    await asyncio.sleep(1)
    await calls_to(system, "a")
    assert lease.health is Health.READY
    plan(system, "bad", FAILED)
    await calls_to(system, "bad")
    await asyncio.sleep(0.01)
    assert lease.reason == "10 calls in a row failed, the last one: its task failed"


@pytest.mark.parametrize("good", [DONE, message("hi"), task("input-required", "which?")])
async def test_an_end_an_answer_and_a_question_are_successes(system: System, good: Step) -> None:
    lease = await a_role(system, "a")
    for _ in range(4):
        plan(system, "bad", FAILED)
        await calls_to(system, "bad", 4)
        await calls_to(system, "a")
        plan(system, "bad", good)
        await calls_to(system, "bad")
    assert lease.health is Health.READY


@pytest.mark.parametrize(
    "step",
    [
        task("rejected"),
        task("canceled"),
        WorkerFault(-32602, "no such parameter"),
        WorkerFault(-32600, "not a request"),
        WorkerFault(-32005, "not that content"),
        WorkerRefused("echo:bad"),
    ],
)
async def test_what_the_caller_may_have_caused_is_no_failure_and_no_success(system: System, step: Step) -> None:
    lease = await a_role(system, "a", bad=step)
    for _ in range(10):
        await calls_to(system, "bad")
        await calls_to(system, "a")
    assert lease.health is Health.READY
    plan(system, "bad", FAILED, count=2)
    await calls_to(system, "bad", 2)
    plan(system, "bad", step, count=1)
    await calls_to(system, "bad")
    plan(system, "bad", FAILED)
    await calls_to(system, "a")
    await calls_to(system, "bad", 3)
    await asyncio.sleep(0.01)
    assert lease.health is Health.FAILING


async def test_a_task_that_outgrows_a_limit_of_the_hub_says_nothing_of_its_worker(system: System) -> None:
    system.with_bounds(max_log=2_000)
    lease = await a_role(system, "a")
    for _ in range(6):
        plan(system, "bad", task("working"), chunk("x" * 4_000), DONE)
        await calls_to(system, "bad")
        await calls_to(system, "a")
    assert lease.health is Health.READY
    plan(system, "bad", FAILED)
    await calls_to(system, "bad", 3)
    plan(system, "bad", task("working"), chunk("x" * 4_000), DONE)
    await calls_to(system, "bad")
    plan(system, "bad", FAILED)
    await calls_to(system, "a")
    await calls_to(system, "bad", 2)
    await asyncio.sleep(0.01)
    assert lease.health is Health.FAILING


async def test_a_task_that_its_caller_cancels_is_no_failure(system: System) -> None:
    lease = await a_role(system, "a", bad=task("working"))
    for _ in range(6):
        plan(system, "bad", task("working"), 600.0, status("failed"))
        system.forwarder.plan_fetch("echo:bad", task("canceled"))
        pinned = {"role": None, "metadata": {"role": "echo:bad"}}
        begun = await system.send(blocking=False, **pinned)  # type: ignore[arg-type]
        assert (await system.cancel(begun["id"]))["status"]["state"] == "canceled"
        await calls_to(system, "a")
    assert lease.health is Health.READY


async def test_if_all_workers_of_a_role_fail_alike_none_is_passed_over(system: System) -> None:
    leases = [await system.enrol(f"echo:{name}") for name in "abcd"]
    for name in "abcd":
        plan(system, name, DONE)
    await spread(system, 40)
    for name in "abcd":
        plan(system, name, FAILED)
    await spread(system, 200, every=0.2)
    assert {lease.health for lease in leases} == {Health.READY}
    # One of them is mended, so the others are to blame; half of the role at most.
    plan(system, "a", DONE)
    await spread(system, 40, every=0.2)
    assert sorted(lease.health for lease in leases) == [Health.FAILING, Health.FAILING, Health.READY, Health.READY]
    assert leases[0].health is Health.READY


async def test_at_most_half_of_a_role_is_passed_over(system: System) -> None:
    leases = [await system.enrol(f"echo:{name}") for name in "abcdefg"]
    for name in "abcdefg":
        plan(system, name, DONE if name in "ab" else FAILED)
    await spread(system, 50, every=0.08)
    assert sum(lease.health is Health.FAILING for lease in leases) == 3


async def test_the_only_worker_of_a_role_is_never_passed_over(system: System) -> None:
    lease = await a_role(system)
    assert await spread(system, 20, every=1) == {"bad": 20}
    assert lease.health is Health.READY


async def test_the_last_worker_beside_draining_ones_is_never_passed_over(system: System) -> None:
    lease = await a_role(system, "a")
    plan(system, "a", 1.0, DONE)
    await calls_to(system, "bad", 4)
    ending = asyncio.create_task(calls_to(system, "a"))
    await asyncio.sleep(0.1)
    other = system.directory.get(CALLER, lease.worker._replace(instance="a"))
    await system.engine.registry.mark(other.workspace, other.worker, other.epoch, Health.DRAINING, "")
    await ending
    await calls_to(system, "bad", 4)
    await asyncio.sleep(0.01)
    assert lease.health is Health.READY


async def test_a_success_leaves_a_suspect_worker_suspect(system: System) -> None:
    lease = await a_role(system, "a")
    await calls_to(system, "bad")
    await system.engine.registry.mark(lease.workspace, lease.worker, lease.epoch, Health.SUSPECT, "it was late")
    plan(system, "bad", DONE)
    await calls_to(system, "bad")
    await asyncio.sleep(0.01)
    assert (lease.health, lease.reason) == (Health.SUSPECT, "it was late")


async def test_a_failing_worker_serves_when_the_others_have_gone(system: System) -> None:
    lease = await a_role(system, "a")
    await fail(system, lease)
    assert await spread(system, 5) == {"a": 5}
    other = system.directory.get(CALLER, lease.worker._replace(instance="a"))
    await system.engine.registry.mark(other.workspace, other.worker, other.epoch, Health.DRAINING, "")
    assert await spread(system, 5) == {"bad": 5}


async def test_workers_that_are_busy_do_not_make_a_failing_one_serve(system: System) -> None:
    lease = await a_role(system, "a")
    await fail(system, lease)
    plan(system, "a", WorkerRefused("echo:a"))
    assert await spread(system, 3) == {"a": 3}


# --- who still reaches it


async def test_its_tasks_its_contexts_and_its_name_still_reach_a_failing_worker(system: System) -> None:
    lease = await a_role(system, "a", bad=task("input-required", "which?"))
    pinned = {"role": None, "metadata": {"role": "echo:bad"}}
    asked = await system.send(contextId="mine", **pinned)  # type: ignore[arg-type]
    plan(system, "bad", FAILED)
    await fail(system, lease)
    delivered = len(system.forwarder.asked("deliver"))
    await call(system, text="blue", taskId=asked["id"])
    await call(system, contextId="mine")
    await calls_to(system, "bad")
    assert system.forwarder.asked("deliver")[delivered:] == ["echo:bad"] * 3
    assert lease.health is Health.FAILING


async def test_calls_that_reach_it_otherwise_do_not_make_its_pause_longer(system: System) -> None:
    lease = await a_role(system, "a", "b")
    await fail(system, lease)
    await calls_to(system, "bad", 20)
    await asyncio.sleep(5)
    assert (await spread(system, 1))["bad"] == 1


# --- how it comes back


async def test_a_trial_call_comes_after_five_seconds_and_after_twice_as_long_each_time(system: System) -> None:
    lease = await a_role(system, "a", "b", "c")
    for name in "abc":
        plan(system, name, DONE, count=2_000)
    await fail(system, lease)
    began, times = system.clock.monotonic(), []
    while len(times) < 6:
        for other in system.directory.live(CALLER):
            await system.directory.beat(LOCAL, other.worker, proof(other), Beat())
        if (await spread(system, 1, every=0.5))["bad"]:
            times.append(int(system.clock.monotonic() - began))
    assert times == [pytest.approx(after, abs=1) for after in (5, 15, 35, 75, 135, 195)]


async def test_a_trial_call_that_succeeds_ends_it(system: System) -> None:
    lease = await a_role(system, "a")
    await fail(system, lease)
    await asyncio.sleep(5)
    plan(system, "bad", DONE)
    task_id = await call(system)
    made = system.hub.decisions.of(TaskId(task_id or ""))
    assert made is not None
    assert (made.worker.instance, made.rule, made.candidates, made.failing) == ("bad", "trial", 1, {})
    await asyncio.sleep(0.01)
    assert (lease.health, lease.reason) == (Health.READY, "")
    assert set(await spread(system, 30)) == {"a", "bad"}
    # It begins anew, also with its pause.
    plan(system, "bad", FAILED)
    await fail(system, lease)
    await asyncio.sleep(5)
    assert (await spread(system, 1))["bad"] == 1


async def test_any_call_that_succeeds_ends_it(system: System) -> None:
    lease = await a_role(system, "a")
    await fail(system, lease)
    plan(system, "bad", DONE)
    await calls_to(system, "bad")
    await asyncio.sleep(0.01)
    assert lease.health is Health.READY


async def test_one_trial_call_runs_at_a_time(system: System) -> None:
    lease = await a_role(system, "a", "b")
    await fail(system, lease)
    hold = Hold()
    plan(system, "bad", task("working"), hold, status("completed"))
    await asyncio.sleep(5)
    trial = asyncio.create_task(call(system))
    await hold.reached.wait()
    assert "bad" not in await spread(system, 100, every=1)
    hold.release()
    await trial
    await asyncio.sleep(0.01)
    assert lease.health is Health.READY


async def test_a_trial_call_that_says_nothing_is_repeated_after_the_pause(system: System) -> None:
    """Also one that another worker took over, because this one accepted no connection."""
    lease = await a_role(system, "a", "b")
    await fail(system, lease)
    for step in (task("rejected"), WorkerRefused("echo:bad")):
        plan(system, "bad", step)
        await asyncio.sleep(5)
        assert await spread(system, 20, every=0.2) == {"bad": 1, "a": pytest.approx(10, abs=10), "b": pytest.approx(10, abs=10)}
    assert lease.health is Health.FAILING


async def test_a_trial_call_that_cannot_be_stored_is_tried_with_another(system: System) -> None:
    lease = await a_role(system, "a")
    await fail(system, lease)
    await asyncio.sleep(5)
    system.engine.fail("tasks.admit", StoreUnavailable())
    with pytest.raises(StoreUnavailable):
        await system.send()
    await asyncio.sleep(5)
    assert (await spread(system, 1))["bad"] == 1


async def test_a_call_that_another_worker_refused_is_no_trial_call(system: System) -> None:
    lease = await a_role(system, "a", "b", "c")
    await fail(system, lease)
    await asyncio.sleep(4.9)
    for name in "abc":
        plan(system, name, 0.5, WorkerRefused(f"echo:{name}"))
    assert "bad" not in await spread(system, 1)


async def test_a_full_worker_gets_no_trial_call(system: System) -> None:
    lease = await system.enrol("echo:bad", capacity=1)
    plan(system, "bad", FAILED)
    await system.enrol("echo:a")
    plan(system, "a", DONE)
    await fail(system, lease)
    lease.in_flight = 1
    assert await spread(system, 10, every=1) == {"a": 10}


async def test_a_beat_does_not_end_it_but_another_boot_does(system: System) -> None:
    lease = await a_role(system, "a")
    await fail(system, lease)
    await system.directory.beat(LOCAL, lease.worker, proof(lease), Beat(in_flight=0))
    assert await system.enrol("echo:bad") is lease
    assert await spread(system, 5) == {"a": 5}
    again = await system.enrol("echo:bad", boot="next", url=lease.offer.url)
    assert again.health is Health.READY
    assert (await spread(system, 30))["bad"] == 5


async def test_a_worker_that_drained_and_enrolled_again_is_found_out_again(system: System) -> None:
    lease = await a_role(system, "a", "b")
    await fail(system, lease)
    await system.directory.beat(LOCAL, lease.worker, proof(lease), Beat(draining=True))
    assert (await system.enrol("echo:bad")).health is Health.READY
    await asyncio.sleep(5)
    await spread(system, 40)
    assert lease.health is Health.FAILING


async def test_a_role_of_ten_loses_few_calls_to_a_bad_worker_and_has_it_back_a_minute_after_it_is_mended(
    system: System,
) -> None:
    """In acceptance with real workers, as a soak test."""
    good = [f"w{number}" for number in range(9)]
    lease = await a_role(system, *good)
    for name in good:
        plan(system, name, 0.3, DONE, count=2_000)
    waiting: list[asyncio.Task[str | None]] = []

    async def load(until: Callable[[], bool]) -> None:
        while not until():
            waiting.append(asyncio.create_task(call(system)))
            await asyncio.sleep(0.05)

    await load(lambda: lease.health is Health.FAILING)
    found_out, so_far = system.clock.monotonic(), len(waiting)
    before = system.forwarder.asked("deliver").count("echo:bad")
    await load(lambda: system.clock.monotonic() > found_out + 60)
    reached = system.forwarder.asked("deliver").count("echo:bad") - before
    assert 1 <= reached <= 0.02 * (len(waiting) - so_far)
    plan(system, "bad", 0.3, DONE)
    mended = system.clock.monotonic()
    await load(lambda: lease.health is Health.READY)
    assert system.clock.monotonic() - mended <= 65
    assert all(await asyncio.gather(*waiting))
    assert {row.ended for row in await system.rows()} == {True}


# --- a worker that does not let the hub in


async def test_a_worker_that_refuses_the_hubs_credential_is_failing_at_once_and_the_call_moves_on(system: System) -> None:
    lease = await a_role(system, "a", bad=CredentialRefused("echo:bad", 401, shown=True))
    while "echo:bad" not in system.forwarder.asked("deliver"):
        assert (await system.send())["status"]["state"] == "completed"
        await asyncio.sleep(0.01)
    assert (lease.health, lease.reason) == (Health.FAILING, "it does not accept the hub's credential (HTTP 401)")
    assert await spread(system, 10) == {"a": 10}
    assert system.observer.failures == ["CredentialRefused"]


async def test_the_only_worker_of_a_role_is_tried_again_and_its_caller_is_told(system: System) -> None:
    lease = await a_role(system, bad=CredentialRefused("echo:bad", 401, shown=True))
    for _ in range(3):
        with pytest.raises(CredentialRefused, match=r"^echo:bad cannot be called: it does not accept the hub's credential"):
            await system.send()
    assert lease.health is Health.FAILING
    plan(system, "bad", DONE)
    assert (await system.send())["status"]["state"] == "completed"
    await asyncio.sleep(0.01)
    assert (lease.health, lease.reason) == (Health.READY, "")


# --- where it is shown


async def test_discovery_the_feed_and_decisions_say_who_fails_and_why(system: System) -> None:
    lease = await a_role(system, "a")
    feed = system.engine.registry.changes(CALLER.workspace, after=None, idle=KEEP_ALIVE)
    await fail(system, lease)
    reason = "5 calls in a row failed, the last one: its task failed"
    (change,) = await anext(feed)
    assert (change.kind, change.worker, change.health, change.reason) == (
        ChangeKind.FAILING,
        lease.worker,
        Health.FAILING,
        reason,
    )
    made = system.hub.decisions.of(TaskId(await call(system) or ""))
    assert made is not None
    assert (made.worker.instance, made.rule, made.candidates, made.failing) == ("a", "path", 1, {"echo:bad": reason})


# --- the store


async def test_a_failing_store_delays_the_state_and_loses_nothing(system: System) -> None:
    lease = await a_role(system, "a")
    system.engine.fail("registry.mark", StoreUnavailable())
    await calls_to(system, "bad")
    await calls_to(system, "a")
    await calls_to(system, "bad", 4)
    await asyncio.sleep(0.01)
    assert lease.health is Health.READY
    await asyncio.sleep(5)
    await calls_to(system, "bad")
    await asyncio.sleep(0.01)
    assert lease.health is Health.FAILING
    plan(system, "bad", DONE)
    system.engine.fail("registry.mark", StoreUnavailable())
    await calls_to(system, "bad")
    await asyncio.sleep(0.01)
    assert lease.health is Health.FAILING
    await asyncio.sleep(5)
    assert await spread(system, 1) == {"bad": 1}
    await asyncio.sleep(0.01)
    assert lease.health is Health.READY
