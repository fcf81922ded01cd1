"""What a workspace, and the whole hub, may hold: counted once, refused with a reason, given back on every way out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from hub.core.hub import Hub, HubLimits
from rolecall.errors import (
    HubDraining,
    HubError,
    InvalidParams,
    Overloaded,
    RoleUnknown,
    StoreUnavailable,
    TaskNotFound,
    TaskOver,
    WorkerUnreachable,
)
from rolecall.model.command import CancelTask, Subscribe, Target
from rolecall.model.ids import Caller, Cursor, TaskId, WorkerId
from rolecall.model.principal import Kind, Principal
from rolecall.model.worker import Offer
from rolecall.protocol.text.jsontext import parse
from tests.flow.conftest import KEEP_ALIVE, ME, House, frames, say
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
    hub = house.restarted(limits=HubLimits(keep_alive=timedelta(seconds=0.05), **limits))
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
    for task_stream in (mine[0], mine[0], abroad[0]):
        task_stream.close()
    third = await hub.subscribe(ME, again)
    assert (await frames(third))[-1]["status"]["state"] == "completed"
    with pytest.raises(Overloaded, match=STREAMS):
        await hub.subscribe(ME, again)
    for task_stream in (third, mine[1], abroad[1]):
        task_stream.close()


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
        task_stream = await hub.stream(ME, say())
        found = await frames(task_stream)
        assert found[-1]["status"]["state"] == "completed"
        task_stream.close()
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
    after = house.restarted(limits=HubLimits(keep_alive=timedelta(seconds=0.05), open_tasks_each=2))
    await after.settle()
    assert len(after.relays) == 3
    with pytest.raises(Overloaded, match=TASKS):
        await begin(after, ME)
    assert await begin(after, ABROAD)


# --- every way out


async def ended(house: House, sender: asyncio.Task[object]) -> None:
    sender.cancel()
    await asyncio.wait([sender])


async def no_such_role(house: House) -> None:
    with pytest.raises(RoleUnknown):
        await house.stream(role="nobody")


async def store_is_down(house: House) -> None:
    house.engine.fail("tasks.admit", StoreUnavailable("down"))
    with pytest.raises(StoreUnavailable):
        await house.stream()


async def worker_refuses(house: House) -> None:
    house.forwarder.plan("echo:a", WorkerUnreachable("echo:a", "http://w/", "refused"))
    with pytest.raises(WorkerUnreachable):
        await house.stream()


async def reference_is_unknown(house: House) -> None:
    with pytest.raises(TaskNotFound):
        await house.stream(referenceTaskIds=["none"])


async def task_is_unknown(house: House) -> None:
    with pytest.raises(TaskNotFound):
        await house.stream(taskId="none")
    with pytest.raises(TaskNotFound):
        await house.subscribe("none")


async def caller_leaves_while_it_waits_for_a_worker(house: House) -> None:
    sender = asyncio.create_task(house.stream(role="nobody", metadata={"waitSeconds": 60}))
    await asyncio.sleep(1)
    await ended(house, sender)


async def caller_leaves_while_its_task_is_stored(house: House) -> None:
    hold = house.engine.hold("tasks.admit")
    sender = asyncio.create_task(house.stream())
    await hold.reached.wait()
    await ended(house, sender)


async def caller_leaves_before_the_worker_has_begun(house: House) -> None:
    house.forwarder.plan("echo:a", 5.0, task("completed"))
    sender = asyncio.create_task(house.stream())
    await asyncio.sleep(1)
    await ended(house, sender)
    await asyncio.sleep(5)


async def task_is_done(house: House) -> None:
    house.forwarder.plan("echo:a", task("completed"))
    task_stream = await house.hub.stream(ME, say())
    await frames(task_stream)
    task_stream.close()
    task_stream.close()


async def task_asks_and_is_answered(house: House) -> None:
    house.forwarder.plan("echo:a", task("input-required", "which?"))
    house.forwarder.plan("echo:a", status("completed"))
    asked = await house.send()
    await asyncio.sleep(0.1)  # as long as it listens to the pause, it holds its place
    task_stream = await house.hub.stream(ME, say("blue", taskId=asked["id"]))
    await frames(task_stream)
    task_stream.close()


async def subscriber_knows_more_than_there_is(house: House) -> None:
    house.forwarder.plan("echo:a", task("completed"))
    known = (await house.send())["id"]
    with pytest.raises(InvalidParams, match="Last-Event-ID 2 lies behind the task's last event, 1"):
        await house.subscribe(known, after=2)
    with pytest.raises(TaskOver):
        await house.subscribe(known, dialect="1.0")
    (await house.subscribe(known)).close()


async def the_worker_is_cut_off(house: House) -> None:
    house.forwarder.plan("echo:a", task(), HubError("broken"))
    task_stream = await house.hub.stream(ME, say())
    await frames(task_stream)
    task_stream.close()


WAYS_OUT = [
    no_such_role,
    store_is_down,
    worker_refuses,
    reference_is_unknown,
    task_is_unknown,
    caller_leaves_while_it_waits_for_a_worker,
    caller_leaves_while_its_task_is_stored,
    caller_leaves_before_the_worker_has_begun,
    task_is_done,
    task_asks_and_is_answered,
    subscriber_knows_more_than_there_is,
    the_worker_is_cut_off,
]


@pytest.mark.parametrize("way_out", WAYS_OUT)
async def test_a_place_is_given_back(house: House, way_out: Callable[[House], Awaitable[None]]) -> None:
    """Of the hub's one, and of the workspace's one: after each way out there is one for the next, and not two."""
    house.with_bounds(limits=HubLimits(open_tasks=1, streams=1, keep_alive=KEEP_ALIVE))
    await house.enrol("echo:a")
    for _ in range(3):
        await way_out(house)
        await asyncio.sleep(1)
        assert len(house.hub.relays) == 0
    house.forwarder.scripts.clear()
    house.forwarder.plan("echo:a", task(), LONG, status("completed"))
    task_stream = await house.hub.stream(ME, say("next"))
    with pytest.raises(Overloaded, match="open streams"):
        await house.hub.stream(ME, say("another"))
    with pytest.raises(Overloaded, match="open tasks"):
        await house.send("another")
    task_stream.close()


async def test_a_task_that_asks_on_an_open_line_is_counted_once(house: House) -> None:
    """Its old relay still listens as the answer comes."""
    house.with_bounds(limits=HubLimits(open_tasks=2, keep_alive=KEEP_ALIVE))
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task("input-required", "which?"), LONG)
    house.forwarder.plan("echo:a", status("working"), 1.0, status("completed"))
    asked = await house.send()
    assert len(house.hub.relays) == 1
    await house.send("blue", taskId=asked["id"])
    await asyncio.sleep(1)
    for _ in range(2):
        house.forwarder.plan("echo:a", task(), LONG)
    for text in ("one", "two"):
        await house.send(text, blocking=False)
    with pytest.raises(Overloaded, match=r"^The hub holds 2 open tasks"):
        await house.send("three", blocking=False)


async def test_an_answer_needs_a_place_like_any_call(house: House) -> None:
    house.with_bounds(limits=HubLimits(open_tasks=1, keep_alive=KEEP_ALIVE))
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task("input-required", "which?"))
    house.forwarder.plan("echo:a", task(), LONG)
    asked = await house.send()
    await asyncio.sleep(0.1)
    await house.send("another", blocking=False)
    with pytest.raises(Overloaded):
        await house.send("blue", taskId=asked["id"])
    assert (await house.get(asked["id"]))["status"]["state"] == "input-required"


async def test_a_place_is_the_calls_while_its_task_is_stored(house: House) -> None:
    house.with_bounds(limits=HubLimits(open_tasks=1, streams=1, keep_alive=KEEP_ALIVE))
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task("completed"))
    hold = house.engine.hold("tasks.admit")
    first = asyncio.create_task(house.hub.stream(ME, say("first")))
    await hold.reached.wait()
    with pytest.raises(Overloaded, match="open tasks"):
        await house.send("second")
    with pytest.raises(Overloaded, match="open streams"):
        await house.hub.stream(ME, say("second"))
    hold.release()
    (await first).close()


async def test_who_sends_the_same_message_needs_no_place_of_a_task(house: House) -> None:
    house.with_bounds(limits=HubLimits(open_tasks=1, keep_alive=KEEP_ALIVE))
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), 1.0, status("completed"))
    answers = await asyncio.gather(*(house.send(messageId="m") for _ in range(5)))
    assert {answer["status"]["state"] for answer in answers} == {"completed"}


async def test_a_hub_that_goes_down_takes_nothing_new_and_lets_everybody_go_who_waits(house: House) -> None:
    await house.enrol("echo:a")
    for _ in range(2):
        house.forwarder.plan("echo:a", task(), LONG, status("completed"))
    task_stream = await house.hub.stream(ME, say())
    waiting = asyncio.create_task(house.send())
    await asyncio.sleep(0.1)
    began = house.clock.monotonic()
    house.hub.drain()
    assert (await waiting)["status"]["state"] == "working"
    assert task_stream.broken_off
    assert house.clock.monotonic() - began < 0.01
    for refused in (house.send("new"), house.stream("new")):
        with pytest.raises(HubDraining):
            await refused
    assert house.observer.streams == 0


async def test_who_subscribes_while_the_hub_goes_down_is_broken_off_at_once(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), LONG, status("completed"))
    known = (await house.send(blocking=False))["id"]
    house.hub.drain()
    task_stream = await house.subscribe(known, after=0)
    assert (task_stream.broken_off, task_stream.closed) == (True, True)
    assert house.observer.streams == 0


async def test_a_reader_without_a_cursor_gets_the_task_as_of_now_and_one_with_a_cursor_as_of_then(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), status("working", "half"), status("completed"))
    known = (await house.send())["id"]
    assert [frame["cursor"] for frame in await frames(await house.subscribe(known))] == [3]
    assert [frame["cursor"] for frame in await frames(await house.subscribe(known, after=0))] == [1, 2, 3]
    assert [frame["cursor"] for frame in await frames(await house.subscribe(known, after=2))] == [2, 3]
    last = await house.hub.subscribe(ME, Subscribe(Target(), TaskId(known), "1.0", Cursor(2)))
    assert [logged.cursor async for batch in last for logged in batch] == [2, 3]
