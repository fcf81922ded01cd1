"""A child's question is also its parent's: an answer to either goes on, and only one is taken."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from rolecall.errors import InvalidParams, WorkerBroke, WorkerFault, WorkerUnreachable
from rolecall.model.a2a import TaskState, WorkerEvent
from rolecall.model.command import TaskQuery
from rolecall.model.ids import TaskId
from rolecall.model.principal import LOCAL
from rolecall.model.value import replace
from rolecall.model.worker import Beat
from tests.flow.branches import asking, asks_for, begun, cancelled, child, row_of, settled, state_of, within
from tests.flow.conftest import CALLER, System, proof, say
from tests.flow.relayed import CUT
from tests.helpers.scripted import chunk, status, task
from tests.helpers.watched_engine import Hold

PAUSED, WORKING, COMPLETED = TaskState.INPUT_REQUIRED, TaskState.WORKING, TaskState.COMPLETED
ROLES = ("planner", "writer", "asker")
REFUSED = WorkerUnreachable("planner:a", "http://w/", "connection refused", refused=True)


def goes_on(done: bool = True) -> tuple[WorkerEvent, ...]:
    """What a worker sends when its task goes on."""
    return (status("working", position="b.8"), *((status("completed", position="b.9"),) if done else ()))


def answer(role: str, task_id: TaskId, text: str = "blue", **members: Any) -> Any:
    return replace(say(text, role=role, taskId=task_id, **members), blocking=False)


async def states(system: System, tasks: list[TaskId]) -> list[TaskState]:
    return [await state_of(system, task_id) for task_id in tasks]


async def refused(system: System, role: str, task_id: TaskId) -> None:
    with pytest.raises(InvalidParams, match="Another answer to this question"):
        await system.hub.send(CALLER, answer(role, task_id, "red"))


def attached(system: System, role: str) -> int:
    """How often the hub has attached to that worker's stream."""
    return system.forwarder.asked("attach").count(f"{role}:a")


async def test_a_list_tells_whose_question_a_task_asks(system: System) -> None:
    root, middle, below = await asking(system, *ROLES)
    page = await system.hub.page(CALLER, TaskQuery(states=(PAUSED,)))
    assert {task_id: question.child for task_id, question in page.questions.items()} == {
        root: middle,
        middle: below,
        below: None,
    }
    assert page.questions[below].words == "which?"


@pytest.mark.parametrize("answered", [1, 2])
async def test_an_answer_to_any_task_that_asks_wakes_those_above_it(system: System, answered: int) -> None:
    tasks = await asking(system, *ROLES)
    for role in ROLES[: answered + 1]:
        system.forwarder.plan(f"{role}:a", *goes_on())
    await system.hub.send(CALLER, answer(ROLES[answered], tasks[answered]))
    await settled()
    assert (await states(system, tasks))[: answered + 1] == [COMPLETED] * (answered + 1)


async def test_a_worker_that_has_not_noticed_is_asked_again(system: System) -> None:
    root, below = await asking(system, "planner", "asker")
    before = attached(system, "planner")
    for steps in ((), (WorkerBroke("planner:a", "cut"),), (REFUSED,), goes_on()):
        system.forwarder.plan("planner:a", *steps)
    system.forwarder.plan("asker:a", *goes_on(done=False))
    await system.hub.send(CALLER, answer("asker", below))
    await settled()
    assert (await state_of(system, root), attached(system, "planner") - before) == (COMPLETED, 4)


async def test_a_worker_that_lost_the_task_fails_it(system: System) -> None:
    root, below = await asking(system, "planner", "asker")
    system.forwarder.plan("planner:a", WorkerFault(-32001, "unknown"))
    system.forwarder.plan("asker:a", *goes_on(done=False))
    await system.hub.send(CALLER, answer("asker", below))
    await settled()
    assert await state_of(system, root) is TaskState.FAILED
    assert await state_of(system, below) is TaskState.CANCELED


async def test_a_parent_that_asks_the_next_question_of_its_child_is_paused_again(system: System) -> None:
    root, middle, below = await asking(system, *ROLES)
    together = [status("working", position="b.3"), status("input-required", "how?", position="b.4")]
    system.forwarder.plan("asker:a", together)
    for role, asked in (("writer", below), ("planner", middle)):
        system.forwarder.plan(f"{role}:a", status("working", position="b.3"), asks_for(asked, 4, position="b.4"))
    await system.hub.send(CALLER, answer("asker", below))
    await settled()
    assert await states(system, [root, middle, below]) == [PAUSED] * 3
    assert [(await row_of(system, task_id)).at for task_id in (root, middle)] == [4, 4]
    for role in ROLES:
        system.forwarder.plan(f"{role}:a", *goes_on())
    await system.hub.send(CALLER, answer("asker", below, "so"))
    await settled()
    assert await states(system, [root, middle, below]) == [COMPLETED] * 3


async def test_a_worker_that_does_not_replay_is_asked_for_its_task(system: System) -> None:
    root, below = await asking(system, "planner", "asker", replays=False)
    system.forwarder.plan("asker:a", *goes_on(done=False), Hold())
    system.forwarder.plan_fetch("planner:a", task("input-required"), task("working"), task("completed"))
    await system.hub.send(CALLER, answer("asker", below))
    await settled()
    assert await state_of(system, root) is COMPLETED


async def test_a_parent_that_goes_on_has_its_deadline_as_before(system: System) -> None:
    system.with_bounds(silence=timedelta(hours=1))
    system.watch()
    root = await begun(system, "planner", task(position="b.1"), Hold())
    middle = await child(system, root, "writer", task(position="b.1"), hold := Hold(), CUT, within=30.0)
    below = await child(system, middle, "asker", task(position="b.1"), status("input-required", position="b.2"), goes_on=True)
    await settled()
    for steps in ((asks_for(below, 2),), (status("working", position="b.3"), Hold())):
        system.forwarder.plan("writer:a", *steps)
    hold.release()
    await settled()
    system.forwarder.plan("asker:a", *goes_on())
    await system.hub.send(CALLER, answer("asker", below))
    await settled()
    assert await state_of(system, middle) is WORKING
    await asyncio.sleep(20)
    assert await state_of(system, middle) is TaskState.FAILED


@pytest.mark.parametrize("how", ["canceled", "failed"])
async def test_the_end_of_the_child_wakes_its_parent(system: System, how: str) -> None:
    root, below = await asking(system, "planner", "asker")
    system.forwarder.plan("planner:a", *goes_on())
    if how == "canceled":
        await cancelled(system, below)
    else:
        system.forwarder.plan("asker:a", status("failed"))
        await system.hub.send(CALLER, answer("asker", below))
        await settled()
    assert await state_of(system, root) is COMPLETED


async def test_a_question_of_the_parents_own_is_left_alone(system: System) -> None:
    hold = Hold()
    root = await begun(system, "planner", task(position="b.1"), hold, status("input-required", "who?", position="b.2"))
    below = await child(system, root, "asker", task(position="b.1"), status("input-required", "which?", position="b.2"))
    hold.release()
    await settled()
    system.forwarder.plan("asker:a", *goes_on())
    await system.hub.send(CALLER, answer("asker", below))
    await settled()
    assert await states(system, [root, below]) == [PAUSED, COMPLETED]
    assert attached(system, "planner") == 0
    system.forwarder.plan("planner:a", *goes_on())
    await system.hub.send(CALLER, answer("planner", root, "me"))
    await settled()
    assert await state_of(system, root) is COMPLETED


async def test_a_worker_cannot_ask_for_a_task_of_others(system: System) -> None:
    other = await begun(system, "writer", task(position="b.1"), Hold())
    foreign = await child(system, other, "editor", task(position="b.1"), status("input-required", position="b.2"))
    root = await begun(system, "planner", task(position="b.1"), hold := Hold(), CUT)
    await child(system, root, "asker")
    system.forwarder.plan("planner:a", asks_for(foreign, 2))
    hold.release()
    await settled()
    system.forwarder.plan("planner:a", Hold())
    await system.hub.send(CALLER, answer("planner", root))
    system.forwarder.plan("editor:a", *goes_on())
    await system.hub.send(CALLER, answer("editor", foreign))
    await settled()
    assert await state_of(system, foreign) is COMPLETED


# --- one answer only


@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize("second", [0, 1, 2])
async def test_of_two_answers_at_the_same_moment_one_is_taken(system: System, first: int, second: int) -> None:
    tasks = await asking(system, *ROLES)
    for role in ROLES:
        system.forwarder.plan(f"{role}:a", Hold(), *goes_on())
    delivered = len(system.forwarder.asked("deliver"))
    sends = [
        system.hub.send(CALLER, answer(ROLES[place], tasks[place], text)) for place, text in ((first, "blue"), (second, "red"))
    ]
    outcomes = await asyncio.gather(*sends, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes].count(InvalidParams) == 1, outcomes
    assert len(system.forwarder.asked("deliver")) == delivered + 1


async def test_a_later_answer_is_refused_until_the_first_has_gone_down(system: System) -> None:
    root, middle, below = tasks = await asking(system, *ROLES)
    system.forwarder.plan("planner:a", status("working", position="b.3"), hold := Hold(), *goes_on())
    await system.hub.send(CALLER, answer("planner", root))
    for place in (1, 2):
        await refused(system, ROLES[place], tasks[place])
    passed_on = replace(answer("writer", middle), parent=await within(system, root))
    system.forwarder.plan("writer:a", status("working", position="b.3"), Hold())
    await system.hub.send(CALLER, passed_on)
    await refused(system, "asker", below)
    passed_on = replace(answer("asker", below), parent=await within(system, middle))
    system.forwarder.plan("asker:a", *goes_on())
    await system.hub.send(CALLER, passed_on)
    hold.release()
    await settled()
    assert (await states(system, tasks))[::2] == [COMPLETED, COMPLETED]


async def test_an_answer_that_is_being_stored_has_won(system: System) -> None:
    root, below = await asking(system, "planner", "asker")
    hold = system.engine.hold("tasks.add_turn")
    system.forwarder.plan("asker:a", *goes_on())
    system.forwarder.plan("planner:a", *goes_on())
    first = asyncio.create_task(system.hub.send(CALLER, answer("asker", below)))
    await hold.reached.wait()
    await refused(system, "planner", root)
    hold.release()
    await first
    await settled()
    assert await states(system, [root, below]) == [COMPLETED, COMPLETED]


async def test_the_next_question_of_a_child_is_answered_directly_while_its_parent_works(system: System) -> None:
    root, below = await asking(system, "planner", "asker")
    system.forwarder.plan("planner:a", status("working", position="b.3"), Hold())
    await system.hub.send(CALLER, answer("planner", root))
    passed_on = replace(answer("asker", below), parent=await within(system, root))
    system.forwarder.plan("asker:a", status("working", position="b.3"), status("input-required", "how?", position="b.4"))
    await system.hub.send(CALLER, passed_on)
    await settled()
    system.forwarder.plan("asker:a", *goes_on())
    await system.hub.send(CALLER, answer("asker", below))
    await settled()
    assert await states(system, [root, below]) == [WORKING, COMPLETED]


async def test_a_parents_own_question_is_answered_while_a_child_ends(system: System) -> None:
    root = await begun(system, "planner", task(position="b.1"), hold := Hold(), status("input-required", position="b.2"))
    below = await child(system, root, "asker")
    hold.release()
    await settled()
    await cancelled(system, below)
    looks = system.engine.hold("tasks.get")
    system.hub.relays.on_rest(root)
    await looks.reached.wait()
    system.forwarder.plan("planner:a", *goes_on())
    await system.hub.send(CALLER, answer("planner", root))
    looks.release()
    await settled()
    assert await state_of(system, root) is COMPLETED


async def test_a_later_answer_is_refused_until_the_first_has_gone_up(system: System) -> None:
    tasks = await asking(system, *ROLES)
    system.forwarder.plan("asker:a", started := Hold(), *goes_on())
    system.forwarder.plan("writer:a", in_the_middle := Hold(), *goes_on())
    system.forwarder.plan("planner:a", at_the_root := Hold(), *goes_on())
    await system.hub.send(CALLER, answer("asker", tasks[2]))
    for hold, asked in ((started, (0, 1)), (in_the_middle, (0, 1)), (at_the_root, (0,))):
        await hold.reached.wait()
        for place in asked:
            await refused(system, ROLES[place], tasks[place])
        hold.release()
    await settled()
    assert await states(system, tasks) == [COMPLETED] * 3


async def test_an_answer_that_its_worker_refuses_leaves_the_question_open(system: System) -> None:
    root, below = await asking(system, "planner", "asker")
    for role, task_id in (("asker", below), ("planner", root)):
        system.forwarder.plan(f"{role}:a", REFUSED)
        with pytest.raises(WorkerUnreachable):
            await system.hub.send(CALLER, say("blue", role=role, taskId=task_id))
        await settled()
    assert await states(system, [root, below]) == [PAUSED, PAUSED]
    for role in ("asker", "planner"):
        system.forwarder.plan(f"{role}:a", *goes_on())
    await system.hub.send(CALLER, answer("asker", below))
    await settled()
    assert await states(system, [root, below]) == [COMPLETED, COMPLETED]


async def test_an_answer_that_is_not_passed_on_leaves_the_child_to_others(system: System) -> None:
    root, below = await asking(system, "planner", "asker")
    system.forwarder.plan("planner:a", status("working", position="b.3"), status("input-required", "sure?", position="b.4"))
    await system.hub.send(CALLER, answer("planner", root))
    await settled()
    system.forwarder.plan("asker:a", *goes_on())
    await system.hub.send(CALLER, answer("asker", below))
    await settled()
    assert await states(system, [root, below]) == [PAUSED, COMPLETED]


async def test_a_repeated_answer_is_the_same_answer(system: System) -> None:
    _, below = await asking(system, "planner", "asker")
    for role in ("asker", "planner"):
        system.forwarder.plan(f"{role}:a", Hold(), *goes_on())
    delivered = len(system.forwarder.asked("deliver"))
    for _ in range(2):
        await system.hub.send(CALLER, answer("asker", below, messageId="again"))
    assert len(system.forwarder.asked("deliver")) == delivered + 1


# --- kills, and workers that are away


@pytest.mark.parametrize("when", ["accepted", "at work", "ended"])
async def test_after_a_restart_the_parent_of_an_answered_child_goes_on(stored_system: System, when: str) -> None:
    system = stored_system
    tasks = await asking(system, *ROLES)
    for role in ("writer", "planner"):
        system.forwarder.plan(f"{role}:a", Hold())
    begins = [Hold()] if when == "accepted" else []
    done = when == "ended"
    rest = [status("completed", position="b.9")] if done else [Hold()]
    system.forwarder.plan("asker:a", *begins, status("working", position="b.8"), *rest)
    await system.hub.send(CALLER, answer("asker", tasks[2]))
    await asyncio.sleep(0.5)
    for role in ROLES:
        system.forwarder.scripts[f"{role}:a"].clear()
        system.forwarder.plan(f"{role}:a", *(goes_on() if role != "asker" else (status("working", position="b.8"), Hold())))
    await system.restart(silence=timedelta(hours=1))
    await settled()
    assert await states(system, tasks) == [COMPLETED, COMPLETED, COMPLETED if done else TaskState.CANCELED]


async def test_after_a_restart_a_tree_that_still_asks_is_left_alone(stored_system: System) -> None:
    system = stored_system
    tasks = await asking(system, *ROLES)
    calls = len(system.forwarder.calls)
    await system.restart()
    await settled()
    assert (await states(system, tasks), len(system.forwarder.calls)) == ([PAUSED] * 3, calls)


async def test_a_parent_whose_worker_has_withdrawn_fails(system: System) -> None:
    system.with_bounds(silence=timedelta(seconds=60), pause_grace=timedelta(seconds=60))
    system.supervisor.keep_running("paused", system.hub.paused_tasks.watch)
    root, below = await asking(system, "planner", "asker")
    before = attached(system, "planner")
    (lease,) = system.engine.registry.live("default", "planner")
    await system.directory.withdraw(LOCAL, lease.worker, proof(lease))
    system.forwarder.plan("asker:a", status("working", position="b.8"), Hold())
    system.forwarder.plan_fetch("asker:a", task("canceled"))
    try:
        await system.hub.send(CALLER, answer("asker", below))
    except InvalidParams:
        pass  # the parent has failed already, and its child is canceled
    await settled()
    assert await states(system, [root, below]) == [TaskState.FAILED, TaskState.CANCELED]
    assert attached(system, "planner") == before


async def test_a_parent_is_woken_when_its_worker_is_back(system: System) -> None:
    """The same process enrols again, after its lease has run out."""
    system.with_bounds(silence=timedelta(seconds=60), pause_grace=timedelta(hours=1))
    system.supervisor.keep_running("paused", system.hub.paused_tasks.watch)
    root, below = await asking(system, "planner", "asker")
    system.forwarder.plan_fetch("planner:a", *[WorkerUnreachable("planner:a", "http://w/", "no route")] * 1000)
    for _ in range(3):
        await asyncio.sleep(60)
        (lease,) = system.engine.registry.live("default", "asker")
        await system.directory.beat(LOCAL, lease.worker, proof(lease), Beat())
        await system.engine.registry.sweep()
    system.forwarder.plan("asker:a", *goes_on())
    await system.hub.send(CALLER, answer("asker", below))
    await settled()
    assert await state_of(system, root) is PAUSED
    await system.enrol("planner:a", replays=True)
    assert system.engine.registry.live("default", "planner")[0].epoch == 2
    await asyncio.sleep(1)
    assert system.hub.trees.caller_of(LOCAL, await within(system, root)) == CALLER
    system.forwarder.plan("planner:a", *goes_on())
    await asyncio.sleep(60)
    assert await state_of(system, root) is COMPLETED


async def test_a_parent_that_pauses_when_its_child_has_gone_on_is_woken(system: System) -> None:
    root = await begun(system, "planner", task(position="b.1"), hold := Hold(), CUT)
    below = await child(system, root, "asker", task(position="b.1"), status("input-required", "which?", position="b.2"))
    await settled()
    system.forwarder.plan("asker:a", *goes_on(done=False))
    await system.hub.send(CALLER, answer("asker", below))
    await settled()
    for steps in ((asks_for(below, 2),), goes_on()):
        system.forwarder.plan("planner:a", *steps)
    hold.release()
    await settled()
    assert await state_of(system, root) is COMPLETED


async def test_a_worker_tells_that_a_paused_task_goes_on_by_itself(system: System) -> None:
    root, below = await asking(system, "planner", "asker")
    system.forwarder.plan("planner:a", status("working", position="b.3"), chunk("on", position="b.4"), Hold())
    system.hub.trees.caller_of(LOCAL, await within(system, root, resumed=True))
    await settled()
    assert await states(system, [root, below]) == [WORKING, PAUSED]
