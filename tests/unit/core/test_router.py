"""The role that a call names, and the worker of that role that gets it."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from random import Random

import pytest

from hub.core.routing.failing import FailingWorkers
from hub.core.routing.router import Router, least_busy_of_two
from hub.core.supervisor import Supervisor
from hub.ports.state.engine import Engine
from hub.storage import open_engine
from rolecall.errors import NoLiveWorker, NoRoleNamed, RoleUnknown, SkillAmbiguous, SkillNotOffered, WorkerBusy
from rolecall.model.command import Send, Target
from rolecall.model.ids import Caller, WorkerId, is_instance, is_role, new_task_id, split_name
from rolecall.model.worker import Health, LeaseProof, Offer, Registration
from tests.helpers.clock import ManualClock

CALLER = Caller("default", "local")


@pytest.fixture
async def engine():  # type: ignore[no-untyped-def]
    async with open_engine("memory:", clock=ManualClock()) as engine:
        yield engine


async def enrol(engine: Engine, name: str, *skills: str, capacity: int | None = None) -> Registration:
    card = {"skills": [{"id": skill, "name": skill} for skill in skills]}
    offer = Offer(WorkerId(*name.split(":", 1)), f"http://{name}", card=card, capacity=capacity)
    return await engine.registry.enrol(CALLER.workspace, offer, boot="b", ttl=timedelta(seconds=60))


def router(engine: Engine, default_role: str | None = None) -> Router:
    failing = FailingWorkers(engine.registry, ManualClock(), Supervisor())
    return Router(engine.registry, engine.tasks, failing, default_role=default_role, rng=Random(3))


def call(**target: str) -> Send:
    return Send(Target(**target), {}, "0.3", "m")


async def test_the_path_names_the_role_and_metadata_may_not_disagree(engine: Engine) -> None:
    await enrol(engine, "a:1")
    assert (await router(engine).choose(CALLER, call(path_role="a"))).rule == "path"
    with pytest.raises(RoleUnknown):
        await router(engine).choose(CALLER, call(path_role="a", role="b"))


async def test_metadata_names_the_role_or_one_instance(engine: Engine) -> None:
    await enrol(engine, "a:1")
    await enrol(engine, "a:2")
    for _ in range(5):
        route = await router(engine).choose(CALLER, call(role="a", instance="2"))
        assert (str(route.registration.worker), route.rule) == ("a:2", "instance")
    with pytest.raises(NoLiveWorker):
        await router(engine).choose(CALLER, call(role="a", instance="3"))


async def test_a_skill_names_the_one_role_that_offers_it(engine: Engine) -> None:
    await enrol(engine, "a:1", "sum", "sing")
    await enrol(engine, "b:1", "sing")
    assert (await router(engine).choose(CALLER, call(skill="sum"))).registration.worker.role == "a"
    with pytest.raises(SkillAmbiguous, match="a, b"):
        await router(engine).choose(CALLER, call(skill="sing"))
    with pytest.raises(SkillAmbiguous):
        await router(engine).choose(CALLER, call(skill="fly"))


@pytest.mark.parametrize("by", ["path_role", "role"])
async def test_a_skill_is_looked_for_inside_the_role(engine: Engine, by: str) -> None:
    await enrol(engine, "a:1", "sum")
    await enrol(engine, "a:2", "sing", "hum")
    target = {by: "a"}
    for skill, instance in (("sum", "1"), ("sing", "2"), ("hum", "2")):
        for _ in range(9):
            route = await router(engine).choose(CALLER, call(**target, skill=skill))
            assert (route.registration.worker.instance, route.candidates) == (instance, 1)
    with pytest.raises(
        SkillNotOffered, match=r'of "a" offers the skill "sin"\. There is: hum, sing, sum\. Did you mean sing\?'
    ) as no:
        await router(engine).choose(CALLER, call(**target, skill="sin"))
    assert no.value.facts == {"role": "a", "skill": "sin", "skills": "hum,sing,sum"}
    assert no.value.retry_after is None


async def test_a_worker_that_declares_no_skills_takes_a_call_for_any(engine: Engine) -> None:
    await enrol(engine, "a:1", "sum")
    with pytest.raises(SkillNotOffered):
        await router(engine).choose(CALLER, call(role="a", skill="sing"))
    await enrol(engine, "a:2")
    await enrol(engine, "a:3", "a")
    choose_from = router(engine)
    routes = [await choose_from.choose(CALLER, call(role="a", skill="sing")) for _ in range(30)]
    chosen = {route.registration.worker.instance for route in routes}
    assert chosen == {"2", "3"}
    await enrol(engine, "b:1")
    assert (await router(engine).choose(CALLER, call(role="b", skill="sing"))).rule == "metadata"


async def test_a_pinned_instance_has_to_offer_the_skill(engine: Engine) -> None:
    await enrol(engine, "a:1", "sum")
    await enrol(engine, "a:2", "sing")
    assert (await router(engine).choose(CALLER, call(role="a", instance="1", skill="sum"))).rule == "instance"
    with pytest.raises(SkillNotOffered, match=r'of "a:1" offers the skill "sing"\. There is: sum\.'):
        await router(engine).choose(CALLER, call(role="a", instance="1", skill="sing"))


async def test_workers_with_the_skill_that_are_busy_or_drained_are_not_replaced_by_others(engine: Engine) -> None:
    with_skill = await enrol(engine, "a:1", "sum", capacity=1)
    await enrol(engine, "a:2", "sing")
    with_skill.in_flight = 1
    with pytest.raises(WorkerBusy) as busy:
        await router(engine).choose(CALLER, call(role="a", skill="sum"))
    await engine.registry.mark(CALLER.workspace, with_skill.worker, with_skill.epoch, Health.DRAINING, "test")
    with pytest.raises(NoLiveWorker, match="draining") as draining:
        await router(engine).choose(CALLER, call(role="a", skill="sum"))
    assert busy.value.skill == draining.value.skill == "sum"


async def test_a_role_that_a_skill_names_is_served_by_a_worker_that_offers_it(engine: Engine) -> None:
    await enrol(engine, "a:1", "sum")
    await enrol(engine, "a:2", "sing")
    for _ in range(9):
        assert (await router(engine).choose(CALLER, call(skill="sum"))).registration.worker.instance == "1"


async def test_a_call_without_role_is_never_guessed(engine: Engine) -> None:
    await enrol(engine, "only:1")
    with pytest.raises(NoRoleNamed, match="only"):
        await router(engine).choose(CALLER, call())
    assert (await router(engine, "only").choose(CALLER, call())).rule == "default role"


async def test_a_role_without_workers_differs_from_an_unknown_role(engine: Engine) -> None:
    lease = await enrol(engine, "a:1")
    await engine.registry.withdraw(CALLER.workspace, lease.worker, LeaseProof(lease.epoch, lease.secret))
    with pytest.raises(NoLiveWorker, match="withdrawn"):
        await router(engine).choose(CALLER, call(path_role="a"))
    with pytest.raises(RoleUnknown):
        await router(engine).choose(CALLER, call(path_role="b"))


async def test_a_draining_worker_gets_nothing_and_suspects_serve_when_nobody_else_does(engine: Engine) -> None:
    first, second = await enrol(engine, "a:1"), await enrol(engine, "a:2")
    await engine.registry.mark(CALLER.workspace, first.worker, first.epoch, Health.DRAINING, "test")
    for _ in range(9):
        assert (await router(engine).choose(CALLER, call(path_role="a"))).registration is second
    await engine.registry.mark(CALLER.workspace, second.worker, second.epoch, Health.SUSPECT, "test")
    assert (await router(engine).choose(CALLER, call(path_role="a"))).rule == "panic"


async def test_when_most_are_suspect_all_of_them_serve(engine: Engine) -> None:
    workers = [await enrol(engine, f"a:{n}") for n in range(10)]
    choose_from = router(engine)
    for count, worker in enumerate(workers[:6], 1):
        await engine.registry.mark(CALLER.workspace, worker.worker, worker.epoch, Health.SUSPECT, "test")
        routes = [await choose_from.choose(CALLER, call(path_role="a")) for _ in range(300)]
        assert len({route.registration.worker for route in routes}) == (10 - count if count <= 5 else 10)


async def test_workers_of_another_workspace_are_not_found(engine: Engine) -> None:
    await enrol(engine, "a:1")
    with pytest.raises(RoleUnknown):
        await router(engine).choose(Caller("other", "local"), call(path_role="a"))


async def test_equal_workers_share_the_calls_evenly(engine: Engine) -> None:
    workers = tuple([await enrol(engine, f"a:{n}") for n in range(5)])
    rng = Random(5)
    shares = Counter(str(least_busy_of_two(workers, rng).worker) for _ in range(5000))
    assert len(shares) == 5
    assert min(shares.values()) > 500


@pytest.mark.parametrize(
    ("name", "parts"), [("a", ("a", None)), ("a:b", ("a", "b")), ("a:b:c", ("a", "b:c")), ("a:", ("a", ""))]
)
def test_a_name_splits_at_its_first_colon(name: str, parts: tuple[str, str | None]) -> None:
    assert split_name(name) == parts


@pytest.mark.parametrize("role", ["", "A", "-a", "a b", "a/b", "a:b", "x" * 64, "agents", "a2a", "v1", "é", "a\n"])
def test_what_cannot_be_a_role(role: str) -> None:
    assert not is_role(role)


@pytest.mark.parametrize(("text", "fits"), [("A-1.b:c_d", True), ("", False), ("a b", False), ("a/b", False), ("a\n", False)])
def test_what_can_be_an_instance(text: str, fits: bool) -> None:
    assert is_instance(text) is fits


def test_task_ids_sort_by_time_and_do_not_repeat() -> None:
    ids = [new_task_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert [i[:11] for i in ids] == sorted(i[:11] for i in ids)
