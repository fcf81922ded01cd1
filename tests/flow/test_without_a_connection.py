"""The hub has no connection for a call: its caller is told so at once, and no worker is blamed."""

from __future__ import annotations

import asyncio

import pytest

from rolecall.errors import NoDescriptors, Overloaded, WorkerFull
from rolecall.model.worker import Health
from rolecall.protocol.faults import fault_of
from tests.flow.conftest import CALLER, SILENCE, System, shares
from tests.flow.relayed import CUT, asked, end, moved, reaches, words
from tests.helpers.scripted import status, task

FULL = WorkerFull("echo:a", 3)
NONE = Overloaded("connections to workers", 3, "max_worker_connections_per_workspace", holder="This workspace")


def health(system: System) -> set[Health]:
    return {registration.health for registration in system.engine.registry.live("default", "echo")}


@pytest.mark.parametrize("error", [NONE, NoDescriptors()], ids=["share", "descriptors"])
async def test_a_call_without_a_connection_is_refused_with_the_setting_and_tries_no_other_worker(
    system: System, error: Overloaded
) -> None:
    await system.enrol("echo:a")
    await system.enrol("echo:b")
    for name in ("echo:a", "echo:b"):
        system.forwarder.plan(name, error)
    with pytest.raises(Overloaded) as refused:
        await system.send()
    fault = fault_of(refused.value)
    assert (fault.reason, fault.status) == ("OVERLOADED", 503)
    assert "(ROLECALL_MAX_WORKER_CONNECTIONS_PER_WORKSPACE)" in fault.message or "ROLECALL_MAX_CONNECTIONS" in fault.message
    assert "echo" not in fault.message
    assert len(system.forwarder.asked("deliver")) == 1
    assert (health(system), system.observer.failures) == ({Health.READY}, [])
    assert await system.rows() == []


async def test_a_worker_with_all_its_connections_leaves_the_call_to_another_and_is_not_suspect(system: System) -> None:
    await system.enrol("echo:a")
    pending = await moved(system, task(), status("completed"), refusal=FULL)
    assert end(await pending) == ("completed", "")
    assert system.forwarder.asked("deliver") == ["echo:a", "echo:b"]
    assert health(system) == {Health.READY}


async def test_the_only_worker_with_all_its_connections_is_named_with_the_hubs_setting(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", FULL)
    with pytest.raises(WorkerFull, match=r"The hub has 3 connections open to echo:a.*ROLECALL_MAX_CONNECTIONS_PER_WORKER"):
        await system.send()


async def test_a_workspace_without_a_connection_is_refused_before_anything_is_stored(system: System) -> None:
    system.with_bounds(shares=shares(worker_connections=2, worker_connections_per_workspace=1))
    system.deps.shares.worker_connections.take(CALLER.workspace)
    await system.enrol("echo:a")
    await system.enrol("echo:b", workspace="other")
    system.engine.fail("tasks.admit", RuntimeError("nothing may be stored"))
    with pytest.raises(Overloaded, match="MAX_WORKER_CONNECTIONS_PER_WORKSPACE"):
        await system.send()
    assert system.forwarder.calls == []


async def test_an_answer_without_a_connection_can_be_sent_again(system: System) -> None:
    system.with_bounds(shares=shares(worker_connections=2, worker_connections_per_workspace=1))
    task_id = await asked(system)
    held = system.deps.shares.worker_connections
    held.take(CALLER.workspace)
    with pytest.raises(Overloaded):
        await system.send("blue", taskId=task_id)
    held.give_back(CALLER.workspace)
    system.forwarder.plan("echo:a", status("completed", position="b.3"))
    assert end(await system.send("blue", taskId=task_id)) == ("completed", "")


@pytest.mark.parametrize("error", [NONE, FULL], ids=["workspace", "worker"])
async def test_a_cut_task_waits_for_a_connection(system: System, error: Overloaded | WorkerFull) -> None:
    await system.enrol("echo:a", replays=True)
    system.forwarder.plan("echo:a", task(position="b.1"), CUT)
    for _ in range(3):
        system.forwarder.plan("echo:a", error)
    system.forwarder.plan("echo:a", status("completed", position="b.2"))
    assert end(await system.send()) == ("completed", "")
    assert health(system) == {Health.READY}


async def test_a_polled_task_waits_for_a_connection(system: System) -> None:
    await system.enrol("echo:a", streaming=False)
    system.forwarder.plan("echo:a", task())
    system.forwarder.plan_fetch("echo:a", NONE, NONE, task("completed"))
    assert end(await system.send()) == ("completed", "")


async def test_a_cut_task_that_gets_no_connection_for_too_long_fails_and_says_so(system: System) -> None:
    system.watch()
    await system.enrol("echo:a", replays=True)
    system.forwarder.plan("echo:a", task(position="b.1"), CUT)
    for _ in range(10):
        system.forwarder.plan("echo:a", NONE)
    answer = await system.send()
    assert end(answer) == ("failed", "OVERLOADED")
    assert "ROLECALL_MAX_WORKER_CONNECTIONS_PER_WORKSPACE" in words(answer)
    assert len(system.forwarder.asked("attach")) == pytest.approx(SILENCE / 0.25, abs=2)


@pytest.mark.parametrize("error", [NONE, FULL], ids=["workspace", "worker"])
async def test_a_task_is_cancelled_without_a_connection_and_its_worker_is_told_afterwards(
    system: System, error: Overloaded | WorkerFull
) -> None:
    await system.enrol("echo:a")
    pending, _ = await reaches(system, task())
    await asyncio.sleep(0.1)
    system.forwarder.plan_fetch("echo:a", error, task("canceled"))
    assert end(await system.cancel((await system.row()).id)) == ("canceled", "WORKER_LOST")
    assert end(await pending) == ("canceled", "WORKER_LOST")
    await asyncio.sleep(0.1)
    assert system.forwarder.asked("cancel") == ["echo:a", "echo:a"]


@pytest.mark.parametrize("error", [NONE, FULL], ids=["workspace", "worker"])
async def test_a_silent_worker_that_the_hub_cannot_ask_is_not_given_up(system: System, error: Overloaded | WorkerFull) -> None:
    system.watch()
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), 3 * SILENCE, status("completed"))
    system.forwarder.plan_fetch("echo:a", *[error] * 20)
    assert end(await system.send()) == ("completed", "")


async def test_a_silent_task_is_not_given_up_while_its_question_waits_for_its_turn(system: System) -> None:
    system.watch()
    await system.enrol("echo:a")
    slots = [system.deps.shares.probes.slot("other") for _ in range(system.deps.shares.probes.use.limit)]
    for slot in slots:
        await slot.__aenter__()
    system.forwarder.plan("echo:a", task(), 3 * SILENCE, status("completed"))
    pending = asyncio.create_task(system.send())
    await asyncio.sleep(2 * SILENCE)
    assert system.forwarder.asked("fetch") == []
    system.forwarder.plan_fetch("echo:a", *[task("working")] * 20)
    for slot in slots:
        await slot.__aexit__(None, None, None)
    assert end(await pending) == ("completed", "")
    assert system.forwarder.asked("fetch")
