"""Calls that wait for a worker (`metadata.waitSeconds`): who wakes them, in which order, and what ends the wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from hub.core.routing.router import Route, Router
from hub.core.shares.table import ShareLimits, Shares
from rolecall.errors import ClientDisconnected, NoLiveWorker, Overloaded, RoleUnknown, SkillNotOffered, WorkerBusy
from rolecall.model.command import Send
from rolecall.model.ids import Caller
from rolecall.model.principal import LOCAL
from rolecall.model.value import replace
from rolecall.model.worker import Beat
from tests.flow.conftest import CALLER, System, proof, say
from tests.helpers.scripted import status, task
from tests.helpers.watched_engine import Hold

DONE = task("completed")
Waiting = asyncio.Task[Any]


class CountedRouter(Router):
    """Counts the choices, also those in one turn of the loop."""

    def __init__(self, system: System) -> None:
        super().__init__(system.engine.registry, system.engine.tasks, system.deps.failing, default_role=None)
        self.count = 0
        self.most_in_a_turn = 0
        self._in_turn = 0

    async def choose(self, caller: Caller, send: Send) -> Route:
        if not self._in_turn:
            asyncio.get_running_loop().call_soon(self._end_turn)
        self._in_turn += 1
        self.count += 1
        return await super().choose(caller, send)

    def _end_turn(self) -> None:
        self.most_in_a_turn = max(self.most_in_a_turn, self._in_turn)
        self._in_turn = 0


class Client:
    """A caller that can disconnect."""

    def __init__(self) -> None:
        self.disconnect: Callable[[], None] = lambda: None

    def __call__(self, callback: Callable[[], None]) -> None:
        self.disconnect = callback


def counted(system: System) -> CountedRouter:
    router = CountedRouter(system)
    system.with_bounds(router=router)
    return router


def begin(call: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.create_task(call)


def waits(system: System, text: str = "hi", seconds: float = 60, role: str | None = "echo", **members: Any) -> Waiting:
    members["metadata"] = {"waitSeconds": seconds, **members.pop("metadata", {})}
    return begin(system.send(text, role, **members))


def delivered(system: System) -> list[str]:
    return [message["parts"][0]["text"] for message in system.forwarder.delivered_messages()]


async def settle() -> None:
    await asyncio.sleep(0.05)


async def test_nothing_is_tried_while_nothing_changes(system: System) -> None:
    router = counted(system)
    waiting = [waits(system, str(number), 290) for number in range(50)]
    await asyncio.sleep(280)
    assert router.count == 50
    for call in waiting:
        with pytest.raises(RoleUnknown):
            await call


async def test_a_free_place_goes_to_the_one_that_came_first(system: System) -> None:
    router = counted(system)
    waiting = [waits(system, str(number)) for number in range(6)]
    await settle()
    holds = [Hold() for _ in range(6)]
    for hold in holds:
        system.forwarder.plan("echo:a", task("working"), hold, status("completed"))
    await system.enrol("echo:a", capacity=2)
    await settle()
    assert delivered(system) == ["0", "1"]
    assert router.count == 6 + 3  # the third finds no place
    for number, hold in enumerate(holds):
        hold.release()
        await settle()
        assert delivered(system) == [str(at) for at in range(min(number + 3, 6))]
    assert {(await call)["status"]["state"] for call in waiting} == {"completed"}


async def test_a_call_that_waits_for_a_skill_does_not_stop_those_behind_it(system: System) -> None:
    system.forwarder.plan("echo:a", task("working"), hold := Hold(), DONE)
    await system.enrol("echo:a", capacity=1, card={"skills": [{"id": "sum"}]})
    await begin(system.send("first", blocking=False))
    waiting, any_skill = [waits(system, text, metadata={"skill": "sing"}) for text in "ab"], waits(system, "c")
    await settle()
    system.forwarder.plan("echo:a", DONE)
    hold.release()
    assert (await any_skill)["status"]["state"] == "completed"
    assert delivered(system) == ["first", "c"]
    system.forwarder.plan("echo:b", DONE)
    system.forwarder.plan("echo:b", DONE)
    await system.enrol("echo:b", capacity=2, card={"skills": [{"id": "sing"}]})
    await asyncio.gather(*waiting)
    assert delivered(system) == ["first", "c", "a", "b"]


async def test_a_call_that_waits_for_a_skill_tells_at_last_which_there_are(system: System) -> None:
    await system.enrol("echo:a", card={"skills": [{"id": "sum"}]})
    for skill, instance in (("sing", ""), ("sing", ":a")):
        with pytest.raises(SkillNotOffered, match="There is: sum"):
            await waits(system, seconds=1, metadata={"skill": skill, "role": f"echo{instance}"})


async def test_those_that_find_a_place_at_once_are_woken_in_turns_of_their_own(system: System) -> None:
    router = counted(system)
    waiting = [waits(system, str(number)) for number in range(100)]
    for _ in waiting:
        system.forwarder.plan("echo:a", DONE)
    await settle()
    router.most_in_a_turn = 0
    await system.enrol("echo:a")
    await asyncio.gather(*waiting)
    assert delivered(system) == [str(number) for number in range(100)]
    assert (router.count, router.most_in_a_turn) == (200, 1)


async def test_many_changes_at_once_wake_one_at_a_time(system: System) -> None:
    router = counted(system)
    lease = await system.enrol("echo:full", capacity=1)
    lease.in_flight = 1
    waiting = [waits(system, str(number)) for number in range(50)]
    await settle()
    router.count = 0
    for _ in range(20):
        await system.directory.beat(LOCAL, lease.worker, proof(lease), Beat())
    await settle()
    assert router.count == 2
    for call in waiting:
        call.cancel()


async def test_calls_at_the_same_moment_do_not_get_more_places_than_there_are(system: System) -> None:
    await system.enrol("echo:a", capacity=2)
    hold = Hold()
    for _ in range(2):
        system.forwarder.plan("echo:a", task("working"), hold, status("completed"))
    calls = [begin(system.send(str(number))) for number in range(20)]
    await settle()
    hold.release()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [dict, dict, *[WorkerBusy] * 18]


async def test_a_place_whose_call_cannot_be_stored_goes_to_the_next(system: System) -> None:
    waiting = [waits(system, str(number)) for number in range(2)]
    await settle()
    system.forwarder.plan("echo:a", DONE)
    hold = system.engine.hold("tasks.admit")
    lease = await system.enrol("echo:a", capacity=1)
    await hold.reached.wait()
    await settle()
    waiting[0].cancel()
    assert (await waiting[1])["status"]["state"] == "completed"
    assert lease.in_flight == 0


async def test_a_beat_with_more_capacity_wakes_a_call(system: System) -> None:
    lease = await system.enrol("echo:a", capacity=1)
    hold = Hold()
    system.forwarder.plan("echo:a", task("working"), hold, status("completed"))
    system.forwarder.plan("echo:a", DONE)
    running = begin(system.send())
    await settle()
    waiting = waits(system)
    await settle()
    assert not waiting.done()
    await system.directory.beat(LOCAL, lease.worker, proof(lease), Beat(capacity=2))
    assert (await waiting)["status"]["state"] == "completed"
    hold.release()
    await running


async def test_calls_for_one_instance_do_not_hold_up_those_for_the_role(system: System) -> None:
    lease = await system.enrol("echo:a", capacity=1)
    lease.in_flight = 1
    pinned = waits(system, "pinned", role=None, metadata={"role": "echo:a"})
    anyone = waits(system, "any")
    await settle()
    system.forwarder.plan("echo:b", DONE)
    await system.enrol("echo:b")
    await anyone
    assert not pinned.done()
    lease.in_flight = 0
    system.forwarder.plan("echo:a", DONE)
    await system.directory.beat(LOCAL, lease.worker, proof(lease), Beat())
    await pinned
    assert system.forwarder.asked("deliver") == ["echo:b", "echo:a"]


async def test_a_call_whose_path_and_message_disagree_is_refused_at_once_and_holds_nobody_up(system: System) -> None:
    began = system.clock.monotonic()
    with pytest.raises(RoleUnknown, match="other"):
        await system.send(metadata={"waitSeconds": 60, "role": "other"})
    assert system.clock.monotonic() - began < 0.1


async def test_a_call_that_now_waits_for_another_name_is_found_under_it(system: System) -> None:
    """First its role has no worker, then the holder of its context has no place."""
    lease = await system.enrol("echo:a", capacity=1)
    system.forwarder.plan("echo:a", DONE)
    await system.send(contextId="c")
    await system.directory.withdraw(LOCAL, lease.worker, proof(lease))
    ahead, in_context = waits(system, "ahead"), waits(system, "in context", contextId="c")
    await settle()
    hold = Hold()
    system.forwarder.plan("echo:a", task("working"), hold, status("completed"))
    system.forwarder.plan("echo:a", DONE)
    await system.enrol("echo:a", capacity=1)
    await settle()
    assert delivered(system)[1:] == ["ahead"]
    behind = waits(system, "behind")
    system.forwarder.plan("echo:b", DONE)
    await settle()
    await system.enrol("echo:b")
    await behind
    assert not in_context.done()
    hold.release()
    await ahead
    await in_context
    assert delivered(system)[1:] == ["ahead", "behind", "in context"]


@pytest.mark.parametrize("way", ["send", "stream"])
async def test_a_wait_ends_when_its_caller_disconnects(system: System, way: str) -> None:
    router = counted(system)
    client, send = Client(), replace_wait(say(), 60)
    waiting = begin(getattr(system.hub, way)(CALLER, send, client))
    await settle()
    began = system.clock.monotonic()
    client.disconnect()
    with pytest.raises(ClientDisconnected):
        await waiting
    assert system.clock.monotonic() - began < 0.1
    assert router.count == 1
    shares = system.deps.shares
    assert {share.use.used for share in (shares.waiting, shares.open_tasks, shares.streams)} == {0}
    # Who comes later is not kept waiting by it.
    system.forwarder.plan("echo:a", DONE)
    next_one = waits(system)
    await settle()
    await system.enrol("echo:a")
    await next_one


async def test_one_that_leaves_when_it_is_woken_leaves_its_place_to_the_next(system: System) -> None:
    client = Client()
    first = begin(system.hub.send(CALLER, replace_wait(say("first"), 60), client))
    await settle()
    second = waits(system, "second")
    await settle()
    system.forwarder.plan("echo:a", DONE)
    await system.enrol("echo:a", capacity=1)
    client.disconnect()
    with pytest.raises(ClientDisconnected):
        await first
    assert (await second)["status"]["state"] == "completed"


async def test_the_calls_that_wait_are_limited_for_each_workspace(system: System) -> None:
    shares = Shares(ShareLimits(waiting=3, waiting_per_workspace=2))
    system.with_bounds(shares=shares)
    waiting = [waits(system, str(number)) for number in range(2)]
    await settle()
    with pytest.raises(Overloaded, match="This workspace holds 2 waiting calls, its limit") as refused:
        await system.send("third", metadata={"waitSeconds": 60})
    assert refused.value.setting == "max_waiting_per_workspace"
    with pytest.raises(RoleUnknown):
        await system.send("one that does not wait")
    other = waits(system, caller=Caller("acme", "bert"))
    await settle()
    assert not other.done()
    for call in [*waiting, other]:
        call.cancel()
    await asyncio.wait([*waiting, other])
    assert shares.waiting.use.used == 0


async def test_a_call_that_may_wait_looks_for_an_earlier_one_only_when_it_gets_no_worker(system: System) -> None:
    looks = system.engine.done
    system.with_bounds(shares=Shares(ShareLimits(waiting=1, waiting_per_workspace=1)))
    waiting = waits(system)
    await settle()
    assert looks["tasks.find_call"] == 1
    with pytest.raises(Overloaded):
        await waits(system, "refused")
    assert looks["tasks.find_call"] == 2
    for _ in range(2):
        system.forwarder.plan("echo:a", DONE)
    await system.enrol("echo:a")
    await waiting
    await waits(system, "runs at once")
    assert looks["tasks.find_call"] == 2


async def test_a_worker_that_comes_while_a_call_looks_for_an_earlier_one_gets_it(system: System) -> None:
    look = system.engine.hold("tasks.find_call")
    waiting = waits(system)
    await look.reached.wait()
    system.forwarder.plan("echo:a", DONE)
    await system.enrol("echo:a")
    look.release()
    assert (await asyncio.wait_for(waiting, 1))["status"]["state"] == "completed"


async def test_calls_that_wait_in_vain_or_until_the_hub_drains_get_their_last_refusal(system: System) -> None:
    short, long = waits(system, "short", 1), waits(system, "long", 100)
    await asyncio.sleep(0.5)
    lease = await system.enrol("echo:a")
    await system.directory.beat(LOCAL, lease.worker, proof(lease), Beat(draining=True))
    await settle()
    began = system.clock.monotonic()
    with pytest.raises(NoLiveWorker, match="draining"):
        await short
    assert system.clock.monotonic() - began == pytest.approx(0.45, abs=0.1)
    system.hub.drain()
    with pytest.raises(RoleUnknown):  # only the first in the queue has tried again
        await long
    assert system.clock.monotonic() - began < 0.6


def replace_wait(send: Send, seconds: float) -> Send:
    return replace(send, wait=seconds)
