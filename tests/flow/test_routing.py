"""Which worker gets a call, and what the hub says about it."""

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
    TaskNotFound,
    WorkerBusy,
    WorkerRefused,
)
from rolecall.model.command import Target
from rolecall.model.ids import TaskId
from rolecall.model.principal import LOCAL
from rolecall.model.worker import Health, Registration
from rolecall.protocol.v0_3 import requests as v03
from tests.flow.conftest import ME, House, proof
from tests.helpers.scripted import status, task

DONE = task("completed")


async def enrol(house: House, *names: str, calls: int = 9, **offer: Any) -> list[Registration]:
    """Workers that complete whatever they get."""
    leases = [await house.enrol(name, **offer) for name in names]
    for name in names:
        for _ in range(calls):
            house.forwarder.plan(name, DONE)
    return leases


async def mark(house: House, lease: Registration, health: Health) -> None:
    await house.engine.registry.mark(lease.workspace, lease.worker, lease.epoch, health, "test")


async def decided(house: House, text: str = "hi", role: str | None = "echo", **members: Any) -> RoutingDecision:
    answer = await house.send(text, role, **members)
    made = house.hub.decisions.of(TaskId(answer["id"]))
    assert made is not None
    return made


async def went(house: House, **members: Any) -> tuple[str, str, int]:
    """To which instance, by which rule, among how many."""
    made = await decided(house, **members)
    assert house.forwarder.asked("deliver")[-1] == str(made.worker)
    return made.worker.instance, made.rule, made.candidates


def routed(house: House) -> list[tuple[str, str, str]]:
    return house.observer.routes


# --- which role


async def test_a_path_names_the_role_and_a_message_that_disagrees_is_refused(house: House) -> None:
    await enrol(house, "echo:a", "other:a")
    assert await went(house) == ("a", "path", 1)
    assert await went(house, metadata={"role": "echo"}) == ("a", "path", 1)
    with pytest.raises(RoleUnknown, match="other"):
        await house.send(metadata={"role": "other"})
    assert house.forwarder.asked("deliver") == ["echo:a"] * 2


async def test_a_message_names_its_role_where_the_path_does_not(house: House) -> None:
    await enrol(house, "echo:a", "other:a")
    made = await decided(house, role=None, metadata={"role": "other"})
    assert (str(made.worker), made.rule) == ("other:a", "metadata")


async def test_a_skill_names_its_role_by_id_or_by_name(house: House) -> None:
    await enrol(house, "echo:a", "echo:b", card={"skills": [{"id": "sum-1", "name": "Sum"}]})
    await enrol(house, "other:a", card={"skills": [{"id": "sing-1", "name": "Sing"}]})
    for skill, role in (("sum-1", "echo"), ("Sum", "echo"), ("sing-1", "other")):
        made = await decided(house, role=None, metadata={"skill": skill})
        assert (made.worker.role, made.rule) == (role, "skill")
    for skill in ("fly", "sum"):
        with pytest.raises(SkillAmbiguous, match="No live role"):
            await house.send(role=None, metadata={"skill": skill})


async def test_a_role_comes_before_a_skill(house: House) -> None:
    await enrol(house, "echo:a")
    await enrol(house, "other:a", card={"skills": [{"id": "sing", "name": "sing"}]})
    made = await decided(house, role=None, metadata={"role": "echo", "skill": "sing"})
    assert (made.worker.role, made.rule) == ("echo", "metadata")


async def test_a_context_names_its_role_and_its_worker(house: House) -> None:
    await enrol(house, "other:z", "echo:a", "echo:b", "echo:c")
    first = await decided(house, contextId="c")
    for _ in range(5):
        made = await decided(house, role=None, contextId="c")
        assert (made.worker, made.rule, made.candidates) == (first.worker, "context affinity", 3)
    with pytest.raises(NoRoleNamed):
        await house.send(role=None, contextId="another")


async def test_a_context_whose_worker_is_gone_still_names_its_role(house: House) -> None:
    lease, _ = await enrol(house, "echo:a", "other:a")
    await decided(house, contextId="c")
    await enrol(house, "echo:b")
    await house.directory.withdraw(LOCAL, lease.worker, proof(lease))
    made = await decided(house, role=None, contextId="c")
    assert (str(made.worker), made.rule, made.candidates) == ("echo:b", "context holder gone", 1)


async def test_another_callers_context_names_nothing(house: House) -> None:
    await enrol(house, "echo:a")
    await house.send(contextId="c")
    with pytest.raises(NoRoleNamed, match="echo"):
        await house.send(role=None, contextId="c", caller=ME._replace(name="other"))


async def test_a_context_of_another_role_does_not_steer_a_call(house: House) -> None:
    await enrol(house, "echo:a", "other:a")
    await house.send(contextId="c")
    made = await decided(house, role="other", contextId="c")
    assert (str(made.worker), made.rule) == ("other:a", "path")


async def test_the_default_role_is_the_last_resort(house: House) -> None:
    await enrol(house, "echo:a", "other:a")
    registry, tasks = house.engine.registry, house.engine.tasks
    house.with_bounds(router=Router(registry, tasks, default_role="echo"))
    await decided(house, role="other", contextId="c")
    for members, expected in (
        ({"role": None}, ("echo:a", "default role")),
        ({"role": None, "contextId": "c"}, ("other:a", "context affinity")),
        ({"role": None, "metadata": {"role": "other"}}, ("other:a", "metadata")),
    ):
        made = await decided(house, **members)  # type: ignore[arg-type]
        assert (str(made.worker), made.rule) == expected


# --- which worker


async def test_a_context_stays_with_its_worker_however_busy_that_is(house: House) -> None:
    first, second = await enrol(house, "echo:a", "echo:b")
    holder = (await decided(house, contextId="c")).worker
    busy = first if first.worker == holder else second
    busy.reported_in_flight = 7
    assert await went(house, contextId="c") == (holder.instance, "context affinity", 2)


async def test_a_context_whose_holder_is_full_waits_and_goes_to_nobody_else(house: House) -> None:
    (first,) = await enrol(house, "echo:a", capacity=1)
    await house.send(contextId="c")
    await enrol(house, "echo:b")
    first.in_flight = 1
    with pytest.raises(WorkerBusy, match=r'^"echo:a" is busy: Its one live worker is at'):
        await house.send(contextId="c")
    assert house.forwarder.asked("deliver") == ["echo:a"]


@pytest.mark.parametrize("health", [Health.SUSPECT, Health.DRAINING])
async def test_a_context_leaves_a_worker_that_is_not_ready(house: House, health: Health) -> None:
    (first,) = await enrol(house, "echo:a")
    await house.send(contextId="c")
    await enrol(house, "echo:b")
    await mark(house, first, health)
    assert await went(house, contextId="c") == ("b", "context holder gone", 1)
    # It is the newcomer's now, also when the first is back.
    await house.enrol("echo:a")
    assert await went(house, contextId="c") == ("b", "context affinity", 2)


async def test_the_holder_of_a_context_is_called_in_its_own_words(house: House) -> None:
    await enrol(house, "echo:a")
    for _ in range(2):
        assert (await house.send(contextId="mine"))["contextId"] == "mine"
    assert [told.get("contextId") for told in house.forwarder.told()] == ["mine", "wc"]


async def test_a_newcomer_to_a_context_gets_the_callers_name_for_it(house: House) -> None:
    lease, *_ = await enrol(house, "echo:a")
    first = await house.send(contextId="mine")
    await enrol(house, "echo:b")
    await house.directory.withdraw(LOCAL, lease.worker, proof(lease))
    await house.send(contextId="mine")
    assert first["contextId"] == "mine"
    assert [told.get("contextId") for told in house.forwarder.told()] == ["mine", "mine"]


async def test_an_instance_is_pinned_by_its_name(house: House) -> None:
    await enrol(house, "echo:a", "echo:b", "echo:c")
    for name in "abc":
        assert await went(house, role=None, metadata={"role": f"echo:{name}"}) == (name, "instance", 1)
    with pytest.raises(NoLiveWorker, match='"echo:d": that instance is not live'):
        await house.send(role=None, metadata={"role": "echo:d"})
    with pytest.raises(RoleUnknown):
        await house.send(role=None, metadata={"role": "nobody:d"})


async def test_an_instance_in_the_path_is_pinned_too(house: House) -> None:
    await enrol(house, "echo:a", "echo:b")
    for _ in range(4):
        send = v03.read_send(
            {"message": {"parts": [{"kind": "text", "text": "hi"}]}}, Target(path_role="echo", path_instance="b")
        )
        await house.hub.send(ME, send)
    assert house.forwarder.asked("deliver") == ["echo:b"] * 4


async def test_a_pinned_worker_is_called_while_it_is_suspect_but_not_while_it_drains_or_is_full(house: House) -> None:
    first, _ = await enrol(house, "echo:a", "echo:b", capacity=2)
    pinned = {"role": None, "metadata": {"role": "echo:a"}}
    await mark(house, first, Health.SUSPECT)
    assert await went(house, **pinned) == ("a", "instance", 1)
    first.in_flight = 2
    with pytest.raises(WorkerBusy, match=r'^"echo:a" is busy: Its one live worker is at'):
        await house.send(**pinned)  # type: ignore[arg-type]
    first.in_flight = 0
    await mark(house, first, Health.DRAINING)
    with pytest.raises(NoLiveWorker, match='"echo:a": it is draining') as refused:
        await house.send(**pinned)  # type: ignore[arg-type]
    assert refused.value.retry_after == 2


async def test_a_pinned_holder_of_a_context_is_called_in_its_own_words_and_another_is_not(house: House) -> None:
    await enrol(house, "echo:a", "echo:b")
    await house.send(role=None, contextId="mine", metadata={"role": "echo:a"})
    for name in "ab":
        await house.send(role=None, contextId="mine", metadata={"role": f"echo:{name}"})
    assert [told.get("contextId") for told in house.forwarder.told()] == ["mine", "wc", "mine"]


async def test_a_full_worker_gets_nothing_and_when_all_are_full_the_caller_is_told(house: House) -> None:
    first, second = await enrol(house, "echo:a", "echo:b", capacity=2)
    first.in_flight, second.in_flight = 2, 1
    for _ in range(5):
        assert await went(house) == ("b", "path", 1)
    second.in_flight = 2
    with pytest.raises(WorkerBusy, match="All 2 live workers are"):
        await house.send()


async def test_what_a_worker_reports_makes_it_busier_but_never_full(house: House) -> None:
    first, second = await enrol(house, "echo:a", "echo:b", capacity=2)
    first.reported_in_flight = 9
    for _ in range(5):
        assert (await went(house))[0] == "b"
    second.in_flight = 2
    assert (await went(house))[0] == "a"


async def test_half_of_a_role_in_doubt_gets_nothing_and_more_than_half_serves(house: House) -> None:
    first, second, third, _ = await enrol(house, "echo:a", "echo:b", "echo:c", "echo:d", calls=60)
    await mark(house, first, Health.SUSPECT)
    await mark(house, second, Health.SUSPECT)
    assert {await went(house) for _ in range(20)} == {("c", "path", 2), ("d", "path", 2)}
    await mark(house, third, Health.SUSPECT)
    assert {await went(house) for _ in range(60)} == {(name, "panic", 4) for name in "abcd"}


async def test_a_draining_worker_is_no_suspect(house: House) -> None:
    """Those that drain do not make the hub doubt itself."""
    first, second, third, fourth = await enrol(house, "echo:a", "echo:b", "echo:c", "echo:d")
    for lease in (first, second):
        await mark(house, lease, Health.DRAINING)
    await mark(house, third, Health.SUSPECT)
    assert {await went(house) for _ in range(9)} == {("d", "path", 1)}
    for lease in (third, fourth):
        await mark(house, lease, Health.DRAINING)
    with pytest.raises(NoLiveWorker, match="every live one is draining") as refused:
        await house.send()
    assert refused.value.retry_after == 2


async def test_a_worker_that_refused_a_call_is_not_asked_again_for_it(house: House) -> None:
    await house.enrol("echo:a")
    await house.enrol("echo:b")
    for name in ("echo:a", "echo:b"):
        house.forwarder.plan(name, WorkerRefused(name))
    with pytest.raises(HubError):
        await house.send()
    assert sorted(house.forwarder.asked("deliver")) == ["echo:a", "echo:b"]


async def test_the_holder_of_a_context_that_refuses_is_passed_over(house: House) -> None:
    await enrol(house, "echo:a", calls=1)
    await house.send(contextId="c")
    await enrol(house, "echo:b")
    house.forwarder.plan("echo:a", WorkerRefused("echo:a"))
    assert (await house.send(contextId="c"))["status"]["state"] == "completed"
    assert house.forwarder.asked("deliver") == ["echo:a", "echo:a", "echo:b"]


async def test_a_role_that_nobody_serves_any_more_says_how_its_last_worker_went(house: House) -> None:
    lease = await house.enrol("echo:a")
    await house.directory.withdraw(LOCAL, lease.worker, proof(lease))
    with pytest.raises(NoLiveWorker, match="the last one, a, has withdrawn"):
        await house.send()
    await house.enrol("echo:b")
    house.clock.advance(120)
    await house.engine.registry.sweep()
    with pytest.raises(NoLiveWorker, match="the last one, b, has missed its heartbeats"):
        await house.send()
    with pytest.raises(NoLiveWorker, match="missed its heartbeats"):
        await house.send(role=None, metadata={"role": "echo:b"})


# --- answers to a task


async def test_an_answer_goes_to_the_tasks_own_worker_and_to_nobody_else(house: House) -> None:
    leases = {name: await house.enrol(f"echo:{name}") for name in "ab"}
    for name in "ab":
        house.forwarder.plan(f"echo:{name}", task("input-required", "which?"))
        house.forwarder.plan(f"echo:{name}", status("input-required", "sure?"))
    asked = await house.send()
    owner = (await house.row()).worker
    assert owner is not None
    leases[owner.instance].reported_in_flight = 50
    await mark(house, leases[owner.instance], Health.DRAINING)
    made = await decided(house, "blue", taskId=asked["id"])
    assert (made.worker, made.rule, made.candidates) == (owner, "owner", 1)


@pytest.mark.parametrize("gone", ["withdrawn", "another boot"])
async def test_an_answer_to_a_worker_that_is_gone_is_refused(house: House, gone: str) -> None:
    lease = await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task("input-required", "which?"))
    asked = await house.send()
    if gone == "withdrawn":
        await house.directory.withdraw(LOCAL, lease.worker, proof(lease))
    else:
        await house.enrol("echo:a", boot="next")
    with pytest.raises(NoLiveWorker, match='"echo:a": the worker that holds this task is gone'):
        await house.send("blue", taskId=asked["id"])
    assert house.forwarder.asked("deliver") == ["echo:a"]


@pytest.mark.parametrize("members", [{"role": "other"}, {"role": None, "metadata": {"role": "other"}}])
async def test_an_answer_that_names_another_role_finds_no_task(house: House, members: dict[str, Any]) -> None:
    await house.enrol("other:a")
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task("input-required", "which?"))
    asked = await house.send()
    with pytest.raises(TaskNotFound, match=f"Task not found: {asked['id']}"):
        await house.send("blue", taskId=asked["id"], **members)


async def test_an_answer_that_names_another_context_is_refused(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task("input-required", "which?"))
    house.forwarder.plan("echo:a", status("completed"))
    asked = await house.send(contextId="mine")
    with pytest.raises(InvalidParams, match="contextId"):
        await house.send("blue", taskId=asked["id"], contextId="other")
    assert (await house.send("blue", taskId=asked["id"], contextId="mine"))["status"]["state"] == "completed"


# --- waiting for a worker


async def test_a_caller_may_wait_for_a_worker_to_come(house: House) -> None:
    waiting = asyncio.create_task(house.send(metadata={"waitSeconds": 10}))
    await asyncio.sleep(9)
    assert not waiting.done()
    await enrol(house, "echo:a")
    assert (await waiting)["status"]["state"] == "completed"
    assert routed(house) == [("echo", "path", "ok")]


async def test_a_caller_that_waited_in_vain_is_told_why_and_when(house: House) -> None:
    began = house.clock.monotonic()
    with pytest.raises(RoleUnknown):
        await house.send(metadata={"waitSeconds": 10})
    assert house.clock.monotonic() - began == pytest.approx(10, abs=0.11)
    assert routed(house) == [("echo", "role", "RoleUnknown")]


async def test_a_caller_may_wait_for_a_full_worker(house: House) -> None:
    (lease,) = await enrol(house, "echo:a", capacity=1)
    lease.in_flight = 1
    waiting = asyncio.create_task(house.send(metadata={"waitSeconds": 10}))
    await asyncio.sleep(3)
    lease.in_flight = 0
    assert (await waiting)["status"]["state"] == "completed"


async def test_nobody_waits_for_what_no_worker_can_mend(house: House) -> None:
    began = house.clock.monotonic()
    for error, members in ((NoRoleNamed, {}), (SkillAmbiguous, {"skill": "fly"})):
        with pytest.raises(error):
            await house.send(role=None, metadata={"waitSeconds": 10, **members})
    assert house.clock.monotonic() - began < 0.1
    assert routed(house) == [("", "role", "NoRoleNamed"), ("", "role", "SkillAmbiguous")]


async def test_who_waits_for_a_worker_is_told_when_the_hub_goes_down(house: House) -> None:
    waiting = asyncio.create_task(house.send(metadata={"waitSeconds": 60}))
    await asyncio.sleep(1)
    began = house.clock.monotonic()
    house.hub.drain()
    with pytest.raises(RoleUnknown):
        await waiting
    assert house.clock.monotonic() - began < 0.2


async def test_a_decision_says_when_it_was_made_and_nothing_of_tasks_that_never_were(house: House) -> None:
    await enrol(house, "echo:a")
    house.clock.advance(100)
    made = await decided(house)
    assert made.at == pytest.approx(house.clock.wall(), abs=0.01)
    assert house.hub.decisions.of(TaskId("none")) is None
    assert routed(house) == [("echo", "path", "ok")]
