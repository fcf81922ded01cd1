"""What one workspace may hold of the hub: at its limit it is refused, and nobody else is."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from hub.core.hub import Hub, Limits
from hub.errors import Overloaded, RoleUnknown
from hub.model.command import CancelTask, Subscribe, Target
from hub.model.ids import Caller, TaskId, WorkerId
from hub.model.principal import Kind, Principal
from hub.model.worker import Offer
from hub.wire.jsontext import parse
from tests.flow.conftest import ME, House, frames, say
from tests.helpers.scripted import status, task

ABROAD = Caller("acme", "zoe")
ALSO_HERE = Caller(ME.workspace, "bert")
SHORT, LONG = 0.3, 30.0
TASKS, STREAMS = (
    r"^This workspace holds 2 open tasks, .*PER_WORKSPACE\)",
    r"^This workspace holds 2 open streams, .*PER_WORKSPACE\)",
)


async def opened(house: House, *, lasts: float = LONG, **limits: int) -> Hub:
    """A hub with a worker in either workspace, whose tasks last some seconds."""
    hub = house.restarted(limits=Limits(keep_alive=timedelta(seconds=0.05), **limits))
    await house.enrol("echo:a")
    farm = Principal("farm", Kind.WORKER, ABROAD.workspace, roles=("*",))
    offer = Offer(WorkerId("echo", "z"), "http://w/echo:z", streaming=True)
    await house.directory.enrol(farm, offer, boot="b")
    for _ in range(9):
        house.forwarder.plan("echo:a", task(), lasts, status("completed"))
        house.forwarder.plan("echo:z", task(), lasts, status("completed"))
    return hub


async def begin(hub: Hub, caller: Caller) -> str:
    return str(parse((await hub.send(caller, say(blocking=False))).body)["id"])


async def until_over(hub: Hub, known: str) -> None:
    relay = hub.relays.of(TaskId(known))
    if relay is not None and relay.task is not None:
        await asyncio.wait([relay.task], timeout=5)


async def test_a_workspace_with_too_many_open_tasks_is_refused_until_one_of_its_own_has_ended(house: House) -> None:
    hub = await opened(house, open_tasks_each=2)
    mine = [await begin(hub, ME), await begin(hub, ALSO_HERE)]
    for caller in (ME, ALSO_HERE):
        with pytest.raises(Overloaded, match=TASKS):
            await hub.send(caller, say())
        with pytest.raises(Overloaded, match=TASKS):
            await hub.stream(caller, say())
    assert [await begin(hub, ABROAD), await begin(hub, ABROAD)]
    with pytest.raises(Overloaded, match=TASKS):
        await begin(hub, ABROAD)
    assert house.forwarder.asked("deliver") == ["echo:a"] * 2 + ["echo:z"] * 2
    house.forwarder.plan_fetch("echo:a", task("canceled"))
    await hub.cancel(ME, CancelTask(Target(), TaskId(mine[0]), "0.3"))
    await until_over(hub, mine[0])
    assert await begin(hub, ME)
    with pytest.raises(Overloaded, match=TASKS):
        await begin(hub, ME)


async def test_a_workspace_with_too_many_open_streams_is_refused_and_others_go_on(house: House) -> None:
    hub = await opened(house, lasts=SHORT, streams_each=2)
    mine = [await hub.stream(caller, say()) for caller in (ME, ALSO_HERE)]
    with pytest.raises(Overloaded, match=STREAMS):
        await hub.stream(ME, say())
    assert await begin(hub, ME)
    abroad = [await hub.stream(ABROAD, say()) for _ in range(2)]
    with pytest.raises(Overloaded, match=STREAMS):
        await hub.stream(ABROAD, say())
    known = TaskId((await frames(mine[0]))[0]["id"])
    again = Subscribe(Target(), known, "0.3", None)
    with pytest.raises(Overloaded, match=STREAMS):
        await hub.subscribe(ME, again)
    for reading in (mine[0], mine[0], abroad[0]):
        reading.close()
    third = await hub.subscribe(ME, again)
    assert (await frames(third))[-1]["status"]["state"] == "completed"
    with pytest.raises(Overloaded, match=STREAMS):
        await hub.subscribe(ME, again)
    for reading in (third, mine[1], abroad[1]):
        reading.close()


async def test_a_flood_in_one_moment_takes_no_more_than_its_workspaces_places(house: House) -> None:
    hub = await opened(house, open_tasks_each=3)
    calls = [begin(hub, caller) for caller in (ME, ABROAD) * 20]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for own in (answers[0::2], answers[1::2]):
        assert len([answer for answer in own if isinstance(answer, str)]) == 3
        assert {type(answer) for answer in own} == {str, Overloaded}


async def test_a_call_that_comes_to_nothing_keeps_no_place(house: House) -> None:
    hub = await opened(house, lasts=0, open_tasks_each=1, streams_each=1)
    for _ in range(3):
        with pytest.raises(RoleUnknown):
            await hub.stream(ME, say(role="nobody"))
    for _ in range(3):
        reading = await hub.stream(ME, say())
        found = await frames(reading)
        assert found[-1]["status"]["state"] == "completed"
        reading.close()
        await until_over(hub, found[0]["id"])


async def test_the_whole_hubs_limit_holds_for_all_workspaces_together(house: House) -> None:
    hub = await opened(house, open_tasks=3, open_tasks_each=2)
    for caller in (ME, ABROAD, ABROAD):
        await begin(hub, caller)
    with pytest.raises(Overloaded, match=r"^The hub holds 3 open tasks, its limit \(ROLECALL_MAX_OPEN_TASKS\)"):
        await begin(hub, ME)


async def test_tasks_that_an_earlier_hub_left_open_are_counted_where_they_belong(house: House) -> None:
    before = await opened(house)
    for caller in (ME, ME, ABROAD):
        await begin(before, caller)
    after = house.restarted(limits=Limits(keep_alive=timedelta(seconds=0.05), open_tasks_each=2))
    await after.settle()
    assert len(after.relays) == 3
    with pytest.raises(Overloaded, match=TASKS):
        await begin(after, ME)
    assert await begin(after, ABROAD)
