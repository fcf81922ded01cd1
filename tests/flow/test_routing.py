"""The worker of a call, and the errors if there is none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hub.core.routing.history import RoutingDecision
from hub.core.routing.router import Router
from rolecall.errors import (
    HubError,
    InvalidParams,
    NoLiveWorker,
    NoRoleNamed,
    RoleUnknown,
    SkillAmbiguous,
    SkillNotOffered,
    TaskNotFound,
    WorkerAway,
    WorkerBusy,
    WorkerRefused,
)
from rolecall.model.command import Target
from rolecall.model.ids import TaskId
from rolecall.model.principal import LOCAL
from rolecall.model.value import replace
from rolecall.model.worker import Health, Registration
from rolecall.protocol.v0_3 import requests as v03
from tests.flow.conftest import CALLER, System, proof
from tests.helpers.scripted import message, status, task

DONE = task("completed")


async def enrol(system: System, *names: str, calls: int = 9, **offer: Any) -> list[Registration]:
    """Workers that complete every call."""
    leases = [await system.enrol(name, **offer) for name in names]
    for name in names:
        for _ in range(calls):
            system.forwarder.plan(name, DONE)
    return leases


async def mark(system: System, lease: Registration, health: Health) -> None:
    await system.engine.registry.mark(lease.workspace, lease.worker, lease.epoch, health, "test")


async def decided(system: System, text: str = "hi", role: str | None = "echo", **members: Any) -> RoutingDecision:
    answer = await system.send(text, role, **members)
    made = system.hub.decisions.of(TaskId(answer["id"]))
    assert made is not None
    return made


async def went(system: System, **members: Any) -> tuple[str, str, int]:
    """The instance, the rule, and the number of candidates."""
    made = await decided(system, **members)
    assert system.forwarder.asked("deliver")[-1] == str(made.worker)
    return made.worker.instance, made.rule, made.candidates


def routed(system: System) -> list[tuple[str, str, str]]:
    return system.observer.routes


# --- which role


async def test_a_path_names_the_role_and_a_message_that_disagrees_is_refused(system: System) -> None:
    await enrol(system, "echo:a", "other:a")
    assert await went(system) == ("a", "path", 1)
    assert await went(system, metadata={"role": "echo"}) == ("a", "path", 1)
    with pytest.raises(RoleUnknown, match="other"):
        await system.send(metadata={"role": "other"})
    assert system.forwarder.asked("deliver") == ["echo:a"] * 2


async def test_a_message_names_its_role_where_the_path_does_not(system: System) -> None:
    await enrol(system, "echo:a", "other:a")
    made = await decided(system, role=None, metadata={"role": "other"})
    assert (str(made.worker), made.rule) == ("other:a", "metadata")


async def test_a_skill_names_its_role_by_id_or_by_name(system: System) -> None:
    await enrol(system, "echo:a", "echo:b", card={"skills": [{"id": "sum-1", "name": "Sum"}]})
    await enrol(system, "other:a", card={"skills": [{"id": "sing-1", "name": "Sing"}]})
    for skill, role in (("sum-1", "echo"), ("Sum", "echo"), ("sing-1", "other")):
        made = await decided(system, role=None, metadata={"skill": skill})
        assert (made.worker.role, made.rule) == (role, "skill")
    for skill in ("fly", "sum"):
        with pytest.raises(SkillAmbiguous, match="No live role"):
            await system.send(role=None, metadata={"skill": skill})


async def test_a_role_comes_before_a_skill(system: System) -> None:
    await enrol(system, "echo:a")
    await enrol(system, "other:a", card={"skills": [{"id": "sing", "name": "sing"}]})
    made = await decided(system, role=None, metadata={"role": "echo", "skill": "sing"})
    assert (made.worker.role, made.rule) == ("echo", "metadata")


async def test_a_context_leaves_a_worker_that_lacks_the_skill(system: System) -> None:
    await enrol(system, "echo:a", card={"skills": [{"id": "sum"}]})
    await decided(system, contextId="c")
    await enrol(system, "echo:b", card={"skills": [{"id": "sing"}]})
    assert await went(system, contextId="c", metadata={"skill": "sum"}) == ("a", "context affinity", 1)
    assert await went(system, contextId="c", metadata={"skill": "sing"}) == ("b", "context holder lacks the skill", 1)
    assert await went(system, contextId="c") == ("b", "context affinity", 2)


async def test_a_skill_that_no_worker_of_the_role_offers_is_refused_with_those_that_there_are(system: System) -> None:
    await enrol(system, "echo:a", card={"skills": [{"id": "sum"}, {"name": "Sing"}]})
    with pytest.raises(SkillNotOffered, match=r'skill "fly"\. There is: Sing, sum\.'):
        await system.send(metadata={"skillId": "fly"})
    assert await went(system, metadata={"skillId": "Sing"}) == ("a", "path", 1)
    assert routed(system)[-2:] == [("echo", "role", "SkillNotOffered"), ("echo", "path", "ok")]


async def test_a_context_names_its_role_and_its_worker(system: System) -> None:
    await enrol(system, "other:z", "echo:a", "echo:b", "echo:c")
    first = await decided(system, contextId="c")
    for _ in range(5):
        made = await decided(system, role=None, contextId="c")
        assert (made.worker, made.rule, made.candidates) == (first.worker, "context affinity", 3)
    with pytest.raises(NoRoleNamed):
        await system.send(role=None, contextId="another")


async def test_a_context_whose_worker_is_gone_still_names_its_role(system: System) -> None:
    lease, _ = await enrol(system, "echo:a", "other:a")
    await decided(system, contextId="c")
    await enrol(system, "echo:b")
    await system.directory.withdraw(LOCAL, lease.worker, proof(lease))
    made = await decided(system, role=None, contextId="c")
    assert (str(made.worker), made.rule, made.candidates) == ("echo:b", "context holder gone", 1)


async def test_another_callers_context_names_nothing(system: System) -> None:
    await enrol(system, "echo:a")
    await system.send(contextId="c")
    with pytest.raises(NoRoleNamed, match="echo"):
        await system.send(role=None, contextId="c", caller=CALLER._replace(name="other"))


async def test_a_context_of_another_role_does_not_steer_a_call(system: System) -> None:
    await enrol(system, "echo:a", "other:a")
    await system.send(contextId="c")
    made = await decided(system, role="other", contextId="c")
    assert (str(made.worker), made.rule) == ("other:a", "path")


async def test_the_default_role_is_the_last_resort(system: System) -> None:
    await enrol(system, "echo:a", "other:a")
    registry, tasks = system.engine.registry, system.engine.tasks
    system.with_bounds(router=Router(registry, tasks, system.deps.failing, default_role="echo"))
    await decided(system, role="other", contextId="c")
    for members, expected in (
        ({"role": None}, ("echo:a", "default role")),
        ({"role": None, "contextId": "c"}, ("other:a", "context affinity")),
        ({"role": None, "metadata": {"role": "other"}}, ("other:a", "metadata")),
    ):
        made = await decided(system, **members)  # type: ignore[arg-type]
        assert (str(made.worker), made.rule) == expected


# --- which worker


async def test_a_context_stays_with_its_worker_at_any_load(system: System) -> None:
    first, second = await enrol(system, "echo:a", "echo:b")
    holder = (await decided(system, contextId="c")).worker
    busy = first if first.worker == holder else second
    busy.other_in_flight = 7
    assert await went(system, contextId="c") == (holder.instance, "context affinity", 2)


async def test_a_context_whose_holder_is_full_waits_and_does_not_move(system: System) -> None:
    (first,) = await enrol(system, "echo:a", capacity=1)
    await system.send(contextId="c")
    await enrol(system, "echo:b")
    first.in_flight = 1
    with pytest.raises(WorkerBusy, match=r'^"echo:a" is busy: its one live worker is at'):
        await system.send(contextId="c")
    assert system.forwarder.asked("deliver") == ["echo:a"]


@pytest.mark.parametrize("health", [Health.SUSPECT, Health.DRAINING])
async def test_a_context_leaves_a_worker_that_is_not_ready(system: System, health: Health) -> None:
    (first,) = await enrol(system, "echo:a")
    await system.send(contextId="c")
    await enrol(system, "echo:b")
    await mark(system, first, health)
    assert await went(system, contextId="c") == ("b", "context holder gone", 1)
    # The new worker keeps it, also when the first is back.
    await system.enrol("echo:a")
    assert await went(system, contextId="c") == ("b", "context affinity", 2)


async def test_the_holder_of_a_context_gets_its_own_name_for_it(system: System) -> None:
    await enrol(system, "echo:a")
    for _ in range(2):
        assert (await system.send(contextId="mine"))["contextId"] == "mine"
    assert [sent.get("contextId") for sent in system.forwarder.delivered_messages()] == ["mine", "wc"]


async def test_a_new_worker_of_a_context_gets_the_callers_name_for_it(system: System) -> None:
    lease, *_ = await enrol(system, "echo:a")
    first = await system.send(contextId="mine")
    await enrol(system, "echo:b")
    await system.directory.withdraw(LOCAL, lease.worker, proof(lease))
    await system.send(contextId="mine")
    assert first["contextId"] == "mine"
    assert [sent.get("contextId") for sent in system.forwarder.delivered_messages()] == ["mine", "mine"]


@pytest.mark.parametrize("answered", ["message", "task"])
async def test_a_worker_cannot_catch_a_callers_next_message_by_the_context_that_it_chooses(
    system: System, answered: str
) -> None:
    """Its own context is never the public one, which alone steers routing."""
    await enrol(system, "echo:a")
    await system.send(contextId="secret-project")
    chosen = task("completed", contextId="secret-project") if answered == "task" else message("hi")
    await system.enrol("other:b")
    system.forwarder.plan("other:b", replace(chosen, context="secret-project"))
    answer = await system.send(role="other")
    assert answer["contextId"] != "secret-project"
    assert await went(system, role=None, contextId="secret-project") == ("a", "context affinity", 1)


async def test_an_instance_is_pinned_by_its_name(system: System) -> None:
    await enrol(system, "echo:a", "echo:b", "echo:c")
    for name in "abc":
        assert await went(system, role=None, metadata={"role": f"echo:{name}"}) == (name, "instance", 1)
    await enrol(system, "other:d")
    with pytest.raises(NoLiveWorker) as missing:
        await system.send(role=None, metadata={"role": "echo:dd"})
    assert str(missing.value) == 'No live worker "echo:dd". Live: echo:a, echo:b, echo:c.'
    assert missing.value.facts == {"role": "echo:dd", "retryAfter": "10", "live": "echo:a,echo:b,echo:c"}
    with pytest.raises(RoleUnknown):
        await system.send(role=None, metadata={"role": "nobody:d"})


async def test_an_instance_in_the_path_is_pinned_too(system: System) -> None:
    await enrol(system, "echo:a", "echo:b")
    for _ in range(4):
        send = v03.read_send(
            {"message": {"parts": [{"kind": "text", "text": "hi"}]}}, Target(path_role="echo", path_instance="b")
        )
        await system.hub.send(CALLER, send)
    assert system.forwarder.asked("deliver") == ["echo:b"] * 4


async def test_a_pinned_worker_is_called_while_it_is_suspect_but_not_while_it_drains_or_is_full(system: System) -> None:
    first, _ = await enrol(system, "echo:a", "echo:b", capacity=2)
    pinned = {"role": None, "metadata": {"role": "echo:a"}}
    await mark(system, first, Health.SUSPECT)
    assert await went(system, **pinned) == ("a", "instance", 1)
    first.in_flight = 2
    with pytest.raises(WorkerBusy, match=r'^"echo:a" is busy: its one live worker is at'):
        await system.send(**pinned)  # type: ignore[arg-type]
    first.in_flight = 0
    await mark(system, first, Health.DRAINING)
    with pytest.raises(NoLiveWorker, match='"echo:a": it is draining') as refused:
        await system.send(**pinned)  # type: ignore[arg-type]
    assert refused.value.retry_after == 2


async def test_a_pinned_holder_of_a_context_gets_its_own_name_for_it_and_another_does_not(system: System) -> None:
    await enrol(system, "echo:a", "echo:b")
    await system.send(role=None, contextId="mine", metadata={"role": "echo:a"})
    for name in "ab":
        await system.send(role=None, contextId="mine", metadata={"role": f"echo:{name}"})
    assert [sent.get("contextId") for sent in system.forwarder.delivered_messages()] == ["mine", "wc", "mine"]


async def test_a_full_worker_gets_no_call_and_if_all_are_full_the_caller_gets_worker_busy(system: System) -> None:
    first, second = await enrol(system, "echo:a", "echo:b", capacity=2)
    first.in_flight, second.in_flight = 2, 1
    for _ in range(5):
        assert await went(system) == ("b", "path", 1)
    second.in_flight = 2
    with pytest.raises(WorkerBusy, match="all 2 live workers are"):
        await system.send()


async def test_what_a_worker_reports_makes_it_busier_but_never_full(system: System) -> None:
    first, second = await enrol(system, "echo:a", "echo:b", capacity=2)
    first.other_in_flight = 9
    for _ in range(5):
        assert (await went(system))[0] == "b"
    second.in_flight = 2
    assert (await went(system))[0] == "a"


async def test_suspects_get_no_call_unless_they_are_more_than_half_of_the_role(system: System) -> None:
    first, second, third, _ = await enrol(system, "echo:a", "echo:b", "echo:c", "echo:d", calls=60)
    await mark(system, first, Health.SUSPECT)
    await mark(system, second, Health.SUSPECT)
    assert {await went(system) for _ in range(20)} == {("c", "path", 2), ("d", "path", 2)}
    await mark(system, third, Health.SUSPECT)
    assert {await went(system) for _ in range(60)} == {(name, "panic", 4) for name in "abcd"}


async def test_draining_workers_do_not_count_as_suspects(system: System) -> None:
    """Draining workers do not count as suspect ones."""
    first, second, third, fourth = await enrol(system, "echo:a", "echo:b", "echo:c", "echo:d")
    for lease in (first, second):
        await mark(system, lease, Health.DRAINING)
    await mark(system, third, Health.SUSPECT)
    assert {await went(system) for _ in range(9)} == {("d", "path", 1)}
    for lease in (third, fourth):
        await mark(system, lease, Health.DRAINING)
    with pytest.raises(NoLiveWorker, match="every live one is draining") as refused:
        await system.send()
    assert refused.value.retry_after == 2


async def test_a_worker_that_refused_a_call_does_not_get_it_again(system: System) -> None:
    await system.enrol("echo:a")
    await system.enrol("echo:b")
    for name in ("echo:a", "echo:b"):
        system.forwarder.plan(name, WorkerRefused(name))
    with pytest.raises(HubError):
        await system.send()
    assert sorted(system.forwarder.asked("deliver")) == ["echo:a", "echo:b"]


async def test_the_holder_of_a_context_that_refuses_is_passed_over(system: System) -> None:
    await enrol(system, "echo:a", calls=1)
    await system.send(contextId="c")
    await enrol(system, "echo:b")
    system.forwarder.plan("echo:a", WorkerRefused("echo:a"))
    assert (await system.send(contextId="c"))["status"]["state"] == "completed"
    assert system.forwarder.asked("deliver") == ["echo:a", "echo:a", "echo:b"]


async def test_the_error_for_a_role_without_workers_names_how_the_last_one_ended(system: System) -> None:
    lease = await system.enrol("echo:a")
    await system.directory.withdraw(LOCAL, lease.worker, proof(lease))
    with pytest.raises(NoLiveWorker, match="the last one, a, has withdrawn"):
        await system.send()
    await system.enrol("echo:b")
    system.clock.advance(120)
    await system.engine.registry.sweep()
    with pytest.raises(NoLiveWorker, match="the last one, b, has missed its heartbeats, or its token has ended"):
        await system.send()
    with pytest.raises(NoLiveWorker, match="missed its heartbeats"):
        await system.send(role=None, metadata={"role": "echo:b"})


# --- answers to a task


async def test_an_answer_goes_only_to_the_tasks_own_worker(system: System) -> None:
    leases = {name: await system.enrol(f"echo:{name}") for name in "ab"}
    for name in "ab":
        system.forwarder.plan(f"echo:{name}", task("input-required", "which?"))
        system.forwarder.plan(f"echo:{name}", status("input-required", "sure?"))
    asked = await system.send()
    owner = (await system.row()).worker
    assert owner is not None
    leases[owner.instance].other_in_flight = 50
    await mark(system, leases[owner.instance], Health.DRAINING)
    made = await decided(system, "blue", taskId=asked["id"])
    assert (made.worker, made.rule, made.candidates) == (owner, "owner", 1)


@pytest.mark.parametrize("gone", ["withdrawn", "another boot"])
async def test_an_answer_to_a_worker_that_is_gone_is_refused(system: System, gone: str) -> None:
    lease = await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task("input-required", "which?"))
    asked = await system.send()
    if gone == "withdrawn":
        await system.directory.withdraw(LOCAL, lease.worker, proof(lease))
    else:
        await system.enrol("echo:a", boot="next")
    with pytest.raises(WorkerAway, match="waits for echo:a, which does not answer at present"):
        await system.send("blue", taskId=asked["id"])
    assert system.forwarder.asked("deliver") == ["echo:a"]


@pytest.mark.parametrize("members", [{"role": "other"}, {"role": None, "metadata": {"role": "other"}}])
async def test_an_answer_that_names_another_role_finds_no_task(system: System, members: dict[str, Any]) -> None:
    await system.enrol("other:a")
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task("input-required", "which?"))
    asked = await system.send()
    with pytest.raises(TaskNotFound, match=f"Task not found: {asked['id']}"):
        await system.send("blue", taskId=asked["id"], **members)


async def test_an_answer_that_names_another_context_is_refused(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task("input-required", "which?"))
    system.forwarder.plan("echo:a", status("completed"))
    asked = await system.send(contextId="mine")
    with pytest.raises(InvalidParams, match="contextId"):
        await system.send("blue", taskId=asked["id"], contextId="other")
    assert (await system.send("blue", taskId=asked["id"], contextId="mine"))["status"]["state"] == "completed"


# --- waiting for a worker


async def test_a_caller_may_wait_for_a_worker_to_come(system: System) -> None:
    waiting = asyncio.create_task(system.send(metadata={"waitSeconds": 10}))
    await asyncio.sleep(9)
    assert not waiting.done()
    await enrol(system, "echo:a")
    assert (await waiting)["status"]["state"] == "completed"
    assert routed(system) == [("echo", "path", "ok")]


async def test_a_caller_that_waited_in_vain_gets_the_reason_and_retry_after(system: System) -> None:
    began = system.clock.monotonic()
    with pytest.raises(RoleUnknown):
        await system.send(metadata={"waitSeconds": 10})
    assert system.clock.monotonic() - began == pytest.approx(10, abs=0.11)
    assert routed(system) == [("echo", "role", "RoleUnknown")]


async def test_a_caller_may_wait_for_a_full_worker(system: System) -> None:
    await system.enrol("echo:a", capacity=1)
    system.forwarder.plan("echo:a", task("working"), 3.0, DONE)
    system.forwarder.plan("echo:a", DONE)
    running = asyncio.create_task(system.send("first"))
    await asyncio.sleep(0.1)
    waiting = asyncio.create_task(system.send(metadata={"waitSeconds": 10}))
    await running
    assert (await waiting)["status"]["state"] == "completed"


async def test_errors_that_no_worker_can_solve_are_returned_at_once(system: System) -> None:
    began = system.clock.monotonic()
    for error, members in ((NoRoleNamed, {}), (SkillAmbiguous, {"skill": "fly"})):
        with pytest.raises(error):
            await system.send(role=None, metadata={"waitSeconds": 10, **members})
    assert system.clock.monotonic() - began < 0.1
    assert routed(system) == [("", "role", "NoRoleNamed"), ("", "role", "SkillAmbiguous")]


async def test_a_caller_that_waits_for_a_worker_is_answered_when_the_hub_drains(system: System) -> None:
    waiting = asyncio.create_task(system.send(metadata={"waitSeconds": 60}))
    await asyncio.sleep(1)
    began = system.clock.monotonic()
    system.hub.drain()
    with pytest.raises(RoleUnknown):
        await waiting
    assert system.clock.monotonic() - began < 0.2


async def test_a_decision_has_its_time_and_unknown_tasks_have_none(system: System) -> None:
    await enrol(system, "echo:a")
    system.clock.advance(100)
    made = await decided(system)
    assert made.at == pytest.approx(system.clock.wall(), abs=0.01)
    assert system.hub.decisions.of(TaskId("none")) is None
    assert routed(system) == [("echo", "path", "ok")]
