"""Shared helpers of the tests of trees: tasks that start others, and ask for them."""

from __future__ import annotations

import asyncio
from typing import Any

from rolecall.model.a2a import TaskState, WorkerEvent
from rolecall.model.command import ParentCall, Send
from rolecall.model.ids import Caller, TaskId
from rolecall.model.principal import LOCAL
from rolecall.model.task import TaskRow
from rolecall.model.value import replace
from rolecall.protocol.text.jsontext import parse
from rolecall.protocol.v0_3.events import read_result
from tests.flow.conftest import CALLER, System, say
from tests.flow.relayed import CUT
from tests.helpers.scripted import Step, status, task
from tests.helpers.watched_engine import Hold


async def begun(
    system: System, role: str, *steps: Step, send: Send | None = None, caller: Caller = CALLER, replays: bool = True
) -> TaskId:
    """A task of that role, whose worker steps these steps."""
    if not system.engine.registry.live(caller.workspace, role):
        await system.enrol(f"{role}:a", replays=replays)
    system.forwarder.plan(f"{role}:a", *steps)
    send = send or say("hi", role=role)
    answer = parse((await system.hub.send(caller, replace(send, blocking=False))).body)
    return TaskId(answer["id"])


async def working(system: System, role: str, *, hold: Hold | None = None, then: str = "completed", **how: Any) -> TaskId:
    """A task of that role that works until it is ended, or its hold is released."""
    return await begun(system, role, task(), hold or Hold(), status(then), **how)


async def settled() -> None:
    await asyncio.sleep(5)


async def within(system: System, parent: TaskId, **members: Any) -> ParentCall:
    row = await row_of(system, parent)
    assert row.worker is not None
    lease = system.engine.registry.get(row.caller.workspace, row.worker)
    assert lease is not None
    return ParentCall(parent, row.worker, lease.epoch, lease.secret, **members)


async def child(system: System, parent: TaskId, role: str, *steps: Step, replays: bool = True, **members: Any) -> TaskId:
    """It works until it is ended, or steps these steps."""
    call = await within(system, parent, **members)
    caller = system.hub.trees.caller_of(LOCAL, call)
    send = replace(say("hi", role=role), parent=call)
    steps = steps or (task(), Hold(), status("completed"))
    return await begun(system, role, *steps, send=send, caller=caller, replays=replays)


async def row_of(system: System, task_id: TaskId) -> TaskRow:
    return await system.engine.tasks.get(CALLER, task_id)


async def state_of(system: System, task_id: TaskId) -> TaskState:
    return (await row_of(system, task_id)).state


async def cancelled(system: System, task_id: TaskId) -> None:
    await system.cancel(task_id)
    await settled()


def asks_for(child: TaskId, event: int | None = None, *, position: str = "b.2") -> WorkerEvent:
    """A worker asks the question that its child has asked with that event."""
    document = {
        "kind": "status-update",
        "taskId": "wt",
        "contextId": "wc",
        "status": {"state": "input-required"},
        "metadata": {"child": child} | ({"event": event} if event is not None else {}),
    }
    return read_result(document, position=position)


async def asking(system: System, *roles: str, replays: bool = True) -> list[TaskId]:
    """A task of each role, each a child of the one before. The last one asks something, and so do those above it."""
    first, *below = roles
    steps = task(position="b.1"), (hold := Hold()), CUT
    found, holds = [await begun(system, first, *steps, replays=replays)], [hold]
    for role in below[:-1]:
        steps = task(position="b.1"), (hold := Hold()), CUT
        holds.append(hold)
        found.append(await child(system, found[-1], role, *steps, replays=replays))
    question = task(position="b.1"), status("input-required", "which?", position="b.2")
    found.append(await child(system, found[-1], below[-1], *question, replays=replays))
    await settled()
    for role, hold, asked in reversed(list(zip(roles, holds, found[1:], strict=False))):
        at = (await row_of(system, asked)).at
        if replays:
            system.forwarder.plan(f"{role}:a", asks_for(asked, at))
        else:
            system.forwarder.plan_fetch(f"{role}:a", task("input-required", metadata={"child": asked, "event": at}))
        hold.release()
        await settled()
    assert [await state_of(system, task_id) for task_id in found] == [TaskState.INPUT_REQUIRED] * len(roles)
    return found
