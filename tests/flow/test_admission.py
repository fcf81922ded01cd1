"""Limits of a workspace and of the hub: each slot is counted once, refused with a reason, and always released."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from hub.core.hub import Hub
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
from tests.flow.conftest import CALLER, System, frames, say, shares
from tests.helpers.reading import read_all
from tests.helpers.scripted import status, task

OTHER_WORKSPACE = Caller("acme", "zoe")
ALSO_HERE = Caller(CALLER.workspace, "bert")
SHORT, LONG = 0.3, 30.0
TASKS, STREAMS = (
    r"^This workspace holds 2 open tasks, .*PER_WORKSPACE\)",
    r"^This workspace holds 2 open streams, .*PER_WORKSPACE\)",
)


async def opened(system: System, *, lasts: float = LONG, **limits: int) -> Hub:
    """A hub with a worker in each of two workspaces; tasks last some seconds."""
    hub = system.restarted(shares=shares(**limits))
    await system.enrol("echo:a")
    holder = Principal("holder", Kind.WORKER, OTHER_WORKSPACE.workspace, roles=("*",))
    offer = Offer(WorkerId("echo", "z"), "http://w/echo:z", streaming=True)
    await system.directory.enrol(holder, offer, boot="b")
    for _ in range(9):
        system.forwarder.plan("echo:a", task(), lasts, status("completed"))
        system.forwarder.plan("echo:z", task(), lasts, status("completed"))
    return hub


async def begin(hub: Hub, caller: Caller) -> str:
    return str(parse((await hub.send(caller, say(blocking=False))).body)["id"])


async def until_over(hub: Hub, known: str) -> None:
    relay = hub.relays.of(TaskId(known))
    if relay is not None and not relay.over:
        over = asyncio.Event()
        relay.when_over.append(over.set)
        await asyncio.wait_for(over.wait(), 5)


async def test_a_workspace_with_too_many_open_tasks_is_refused_until_one_of_its_own_has_ended(system: System) -> None:
    hub = await opened(system, open_tasks_per_workspace=2)
    mine = [await begin(hub, CALLER), await begin(hub, ALSO_HERE)]
    for caller in (CALLER, ALSO_HERE):
        with pytest.raises(Overloaded, match=TASKS):
            await hub.send(caller, say())
        with pytest.raises(Overloaded, match=TASKS):
            await hub.stream(caller, say())
    assert [await begin(hub, OTHER_WORKSPACE), await begin(hub, OTHER_WORKSPACE)]
    with pytest.raises(Overloaded, match=TASKS):
        await begin(hub, OTHER_WORKSPACE)
    assert system.forwarder.asked("deliver") == ["echo:a"] * 2 + ["echo:z"] * 2
    system.forwarder.plan_fetch("echo:a", task("canceled"))
    await hub.cancel(CALLER, CancelTask(Target(), TaskId(mine[0]), ("0.3",)))
    await until_over(hub, mine[0])
    assert await begin(hub, CALLER)
    with pytest.raises(Overloaded, match=TASKS):
        await begin(hub, CALLER)


MESSAGES = r"^This workspace holds 1000000 bytes of messages, its limit \(ROLECALL_MAX_MESSAGE_MEMORY_PER_WORKSPACE\)"


async def test_large_messages_count_as_long_as_their_tasks_run(system: System) -> None:
    hub = await opened(system, message_memory_per_workspace=1_000_000)
    large = "x" * 300_000
    known = str(parse((await hub.send(CALLER, say(large, blocking=False))).body)["id"])
    with pytest.raises(Overloaded, match=MESSAGES):
        await hub.send(ALSO_HERE, say(large, blocking=False))
    assert await begin(hub, CALLER)  # a small one is not counted
    await hub.send(OTHER_WORKSPACE, say(large, blocking=False))
    system.forwarder.plan_fetch("echo:a", task("canceled"))
    await hub.cancel(CALLER, CancelTask(Target(), TaskId(known), ("0.3",)))
    await until_over(hub, known)
    await hub.send(ALSO_HERE, say(large, blocking=False))


async def test_a_large_message_that_is_refused_counts_no_more(system: System) -> None:
    hub = system.restarted(shares=shares(message_memory_per_workspace=1_000_000))
    for _ in range(5):
        with pytest.raises(RoleUnknown):
            await hub.send(CALLER, say("x" * 300_000))
    with pytest.raises(RoleUnknown):
        await hub.send(CALLER, say("x" * 300_000))


async def test_a_workspace_with_too_many_open_streams_is_refused_and_others_are_not(system: System) -> None:
    hub = await opened(system, lasts=SHORT, streams_per_workspace=2)
    mine = [await hub.stream(caller, say()) for caller in (CALLER, ALSO_HERE)]
    with pytest.raises(Overloaded, match=STREAMS):
        await hub.stream(CALLER, say())
    assert await begin(hub, CALLER)
    others = [await hub.stream(OTHER_WORKSPACE, say()) for _ in range(2)]
    with pytest.raises(Overloaded, match=STREAMS):
        await hub.stream(OTHER_WORKSPACE, say())
    known = TaskId((await frames(mine[0]))[0]["id"])
    again = Subscribe(Target(), known, ("0.3",), None)
    with pytest.raises(Overloaded, match=STREAMS):
        await hub.subscribe(CALLER, again)
    for task_stream in (mine[0], mine[0], others[0]):
        task_stream.close()
    again_open = await hub.subscribe(CALLER, again)
    assert (await frames(again_open))[-1]["status"]["state"] == "completed"
    with pytest.raises(Overloaded, match=STREAMS):
        await hub.subscribe(CALLER, again)
    for task_stream in (again_open, mine[1], others[1]):
        task_stream.close()


async def test_a_burst_of_calls_takes_no_more_than_its_workspaces_slots(system: System) -> None:
    hub = await opened(system, open_tasks_per_workspace=3)
    calls = [begin(hub, caller) for caller in (CALLER, OTHER_WORKSPACE) * 20]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for own in (answers[0::2], answers[1::2]):
        assert len([answer for answer in own if isinstance(answer, str)]) == 3
        assert {type(answer) for answer in own} == {str, Overloaded}


async def test_a_failed_call_keeps_no_slot(system: System) -> None:
    hub = await opened(system, lasts=0, open_tasks_per_workspace=1, streams_per_workspace=1)
    for _ in range(3):
        with pytest.raises(RoleUnknown):
            await hub.stream(CALLER, say(role="nobody"))
    for _ in range(3):
        task_stream = await hub.stream(CALLER, say())
        found = await frames(task_stream)
        assert found[-1]["status"]["state"] == "completed"
        task_stream.close()
        await until_over(hub, found[0]["id"])


async def test_the_whole_hubs_limit_holds_for_all_workspaces_together(system: System) -> None:
    hub = await opened(system, open_tasks=3, open_tasks_per_workspace=2)
    for caller in (CALLER, OTHER_WORKSPACE, OTHER_WORKSPACE):
        await begin(hub, caller)
    with pytest.raises(Overloaded, match=r"^The hub holds 3 open tasks, its limit \(ROLECALL_MAX_OPEN_TASKS\)"):
        await begin(hub, CALLER)


async def test_tasks_that_an_earlier_hub_left_open_count_in_their_workspaces(system: System) -> None:
    before = await opened(system)
    for caller in (CALLER, CALLER, OTHER_WORKSPACE):
        await begin(before, caller)
    after = system.restarted(shares=shares(open_tasks_per_workspace=2))
    await after.settle()
    assert len(after.relays) == 3
    with pytest.raises(Overloaded, match=TASKS):
        await begin(after, CALLER)
    assert await begin(after, OTHER_WORKSPACE)


# --- every outcome


async def ended(system: System, sender: asyncio.Task[object]) -> None:
    sender.cancel()
    await asyncio.wait([sender])


async def no_such_role(system: System) -> None:
    with pytest.raises(RoleUnknown):
        await system.stream(role="nobody")


async def store_is_down(system: System) -> None:
    system.engine.fail("tasks.admit", StoreUnavailable("down"))
    with pytest.raises(StoreUnavailable):
        await system.stream()


async def worker_refused(system: System) -> None:
    system.forwarder.plan("echo:a", WorkerUnreachable("echo:a", "http://w/", "refused"))
    with pytest.raises(WorkerUnreachable):
        await system.stream()


async def reference_is_unknown(system: System) -> None:
    with pytest.raises(TaskNotFound):
        await system.stream(referenceTaskIds=["none"])


async def task_is_unknown(system: System) -> None:
    with pytest.raises(TaskNotFound):
        await system.stream(taskId="none")
    with pytest.raises(TaskNotFound):
        await system.subscribe("none")


async def caller_disconnected_while_waiting_for_a_worker(system: System) -> None:
    sender = asyncio.create_task(system.stream(role="nobody", metadata={"waitSeconds": 60}))
    await asyncio.sleep(1)
    await ended(system, sender)


async def caller_disconnected_while_its_task_is_stored(system: System) -> None:
    hold = system.engine.hold("tasks.admit")
    sender = asyncio.create_task(system.stream())
    await hold.reached.wait()
    await ended(system, sender)


async def caller_disconnected_before_the_worker_has_begun(system: System) -> None:
    system.forwarder.plan("echo:a", 5.0, task("completed"))
    sender = asyncio.create_task(system.stream())
    await asyncio.sleep(1)
    await ended(system, sender)
    await asyncio.sleep(5)


async def task_is_done(system: System) -> None:
    system.forwarder.plan("echo:a", task("completed"))
    task_stream = await system.hub.stream(CALLER, say())
    await frames(task_stream)
    task_stream.close()
    task_stream.close()


async def task_asks_and_is_answered(system: System) -> None:
    system.forwarder.plan("echo:a", task("input-required", "which?"))
    system.forwarder.plan("echo:a", status("completed"))
    asked = await system.send()
    await asyncio.sleep(0.1)  # as long as its relay runs, it holds its slot
    task_stream = await system.hub.stream(CALLER, say("blue", taskId=asked["id"]))
    await frames(task_stream)
    task_stream.close()


async def subscriber_knows_more_than_there_is(system: System) -> None:
    system.forwarder.plan("echo:a", task("completed"))
    known = (await system.send())["id"]
    with pytest.raises(InvalidParams, match="Last-Event-ID 2 is after the task's last event, 1"):
        await system.subscribe(known, after=2)
    with pytest.raises(TaskOver):
        await system.subscribe(known, dialect="1.0")
    (await system.subscribe(known)).close()


async def the_worker_is_cut_off(system: System) -> None:
    system.forwarder.plan("echo:a", task(), HubError("broken"))
    task_stream = await system.hub.stream(CALLER, say())
    await frames(task_stream)
    task_stream.close()


OUTCOMES = [
    no_such_role,
    store_is_down,
    worker_refused,
    reference_is_unknown,
    task_is_unknown,
    caller_disconnected_while_waiting_for_a_worker,
    caller_disconnected_while_its_task_is_stored,
    caller_disconnected_before_the_worker_has_begun,
    task_is_done,
    task_asks_and_is_answered,
    subscriber_knows_more_than_there_is,
    the_worker_is_cut_off,
]


@pytest.mark.parametrize("way_out", OUTCOMES)
async def test_a_slot_is_released(system: System, way_out: Callable[[System], Awaitable[None]]) -> None:
    """The limits are one: after each outcome there is room for one more call, and not for two."""
    system.with_bounds(shares=shares(open_tasks=1, streams=1))
    await system.enrol("echo:a")
    for _ in range(3):
        await way_out(system)
        await asyncio.sleep(1)
        assert len(system.hub.relays) == 0
    system.forwarder.scripts.clear()
    system.forwarder.plan("echo:a", task(), LONG, status("completed"))
    task_stream = await system.hub.stream(CALLER, say("next"))
    with pytest.raises(Overloaded, match="open streams"):
        await system.hub.stream(CALLER, say("another"))
    with pytest.raises(Overloaded, match="open tasks"):
        await system.send("another")
    task_stream.close()


async def test_a_paused_task_with_an_open_stream_is_counted_once(system: System) -> None:
    """Its old relay still runs when the answer arrives."""
    system.with_bounds(shares=shares(open_tasks=2))
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task("input-required", "which?"), LONG)
    system.forwarder.plan("echo:a", status("working"), 1.0, status("completed"))
    asked = await system.send()
    assert len(system.hub.relays) == 1
    await system.send("blue", taskId=asked["id"])
    await asyncio.sleep(1)
    for _ in range(2):
        system.forwarder.plan("echo:a", task(), LONG)
    for text in ("one", "two"):
        await system.send(text, blocking=False)
    with pytest.raises(Overloaded, match=r"^The hub holds 2 open tasks"):
        await system.send("three", blocking=False)


async def test_an_answer_needs_a_slot_like_any_call(system: System) -> None:
    system.with_bounds(shares=shares(open_tasks=1))
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task("input-required", "which?"))
    system.forwarder.plan("echo:a", task(), LONG)
    asked = await system.send()
    await asyncio.sleep(0.1)
    await system.send("another", blocking=False)
    with pytest.raises(Overloaded):
        await system.send("blue", taskId=asked["id"])
    assert (await system.get(asked["id"]))["status"]["state"] == "input-required"


async def test_a_call_holds_a_slot_while_its_task_is_stored(system: System) -> None:
    system.with_bounds(shares=shares(open_tasks=1, streams=1))
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task("completed"))
    hold = system.engine.hold("tasks.admit")
    first = asyncio.create_task(system.hub.stream(CALLER, say("first")))
    await hold.reached.wait()
    with pytest.raises(Overloaded, match="open tasks"):
        await system.send("second")
    with pytest.raises(Overloaded, match="open streams"):
        await system.hub.stream(CALLER, say("second"))
    hold.release()
    (await first).close()


async def test_a_repeated_message_needs_no_slot(system: System) -> None:
    system.with_bounds(shares=shares(open_tasks=1))
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), 1.0, status("completed"))
    answers = await asyncio.gather(*(system.send(messageId="m") for _ in range(5)))
    assert {answer["status"]["state"] for answer in answers} == {"completed"}


async def test_a_draining_hub_refuses_new_calls_and_answers_all_waiting_ones(system: System) -> None:
    await system.enrol("echo:a")
    for _ in range(2):
        system.forwarder.plan("echo:a", task(), LONG, status("completed"))
    task_stream = await system.hub.stream(CALLER, say())
    waiting = asyncio.create_task(system.send())
    await asyncio.sleep(0.1)
    began = system.clock.monotonic()
    system.hub.drain()
    assert (await waiting)["status"]["state"] == "working"
    assert task_stream.broken_off
    assert system.clock.monotonic() - began < 0.01
    for refused in (system.send("new"), system.stream("new")):
        with pytest.raises(HubDraining):
            await refused
    assert system.observer.streams == 0


async def test_a_subscription_to_a_draining_hub_is_broken_off_at_once(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), LONG, status("completed"))
    known = (await system.send(blocking=False))["id"]
    system.hub.drain()
    task_stream = await system.subscribe(known, after=0)
    assert (task_stream.broken_off, task_stream.closed) == (True, True)
    assert system.observer.streams == 0


async def test_a_reader_gets_the_task_as_of_now_or_as_of_its_cursor(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), status("working", "half"), status("completed"))
    known = (await system.send())["id"]
    assert [frame["cursor"] for frame in await frames(await system.subscribe(known))] == [3]
    assert [frame["cursor"] for frame in await frames(await system.subscribe(known, after=0))] == [1, 2, 3]
    assert [frame["cursor"] for frame in await frames(await system.subscribe(known, after=2))] == [2, 3]
    last = await system.hub.subscribe(CALLER, Subscribe(Target(), TaskId(known), ("1.0",), Cursor(2)))
    assert [logged.cursor for logged in await read_all(last)] == [2, 3]
