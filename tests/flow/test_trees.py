"""Workers call in the name of the task's caller: rights, guards, and what the end of a task ends below it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta

import pytest

from hub.core.tasks.trees import TreeLimits
from rolecall.errors import (
    ChainTooLong,
    DeadlineBefore,
    HubError,
    LeaseUnknown,
    ParentOver,
    RoleInChain,
    TaskNotFound,
    TreeTooLarge,
    WorkerBroke,
    WorkerUnreachable,
)
from rolecall.model.a2a import Logged, TaskState
from rolecall.model.ids import TaskId, WorkerId
from rolecall.model.principal import LOCAL, Kind, Principal
from rolecall.model.value import replace
from rolecall.protocol.text.jsontext import parse
from tests.flow.branches import begun, cancelled, child, row_of, settled, state_of, within, working
from tests.flow.conftest import CALLER, System, hub_limits, proof, say
from tests.flow.relayed import CUT, end
from tests.helpers.scripted import Step, message, status, task
from tests.helpers.watched_engine import Hold


async def test_a_child_belongs_to_the_caller_of_its_parent(system: System) -> None:
    root = await working(system, "planner")
    one = await child(system, root, "writer")
    two = await child(system, one, "editor")
    assert (await row_of(system, two)).caller == CALLER
    found, below = await system.hub.trees.tree(await row_of(system, two))
    assert found.id == root
    assert [(one.row.id, one.branch.parent, one.branch.roles) for one in below] == [
        (one, root, ("planner",)),
        (two, one, ("planner", "writer")),
    ]


async def test_a_tree_says_why_its_tasks_have_failed(system: System) -> None:
    root = await working(system, "planner")
    failed = await child(system, root, "writer", task(), status("failed", "no ink"))
    lost = await child(system, root, "editor", task(), CUT, replays=False)
    done = await child(system, root, "tester", task(), status("completed", "fine"))
    await settled()
    rows = [await row_of(system, task_id) for task_id in (root, failed, lost, done)]
    found = await system.hub.excerpts(CALLER, rows)
    assert (found[failed].detail, found[failed].reason) == ("no ink", "")
    assert found[lost].reason == "WORKER_LOST" and found[lost].detail.startswith("editor:a no longer knows the task.")
    assert {found[one].detail for one in (root, done)} == {""}


async def test_a_task_whose_end_has_been_read_calls_nobody_more(system: System) -> None:
    """Also before the hub has ended what it started."""
    root = await working(system, "planner")
    await child(system, root, "writer", goes_on=True)
    call, refused = await within(system, root), list[bool]()

    def try_to_call() -> None:
        try:
            system.hub.trees.caller_of(LOCAL, call)
        except ParentOver:
            refused.append(True)
        else:
            refused.append(False)

    def try_soon(events: Sequence[Logged]) -> bool:
        asyncio.get_running_loop().call_soon(try_to_call)
        return True

    at = (await row_of(system, root)).at
    reader = system.engine.events.follow(root, after=at, idle=timedelta(hours=1))
    assert not await reader.page()
    following = asyncio.create_task(reader.live(try_soon), name="reader")
    await asyncio.sleep(0)
    await system.cancel(root)
    assert not await following
    assert refused == [True]


Ending = Callable[[System, TaskId, Hold], Awaitable[None]]


async def it_is_cancelled(system: System, task_id: TaskId, hold: Hold) -> None:
    await system.cancel(task_id)


async def it_is_cancelled_by_its_worker(system: System, task_id: TaskId, hold: Hold) -> None:
    system.forwarder.plan_fetch("planner:a", task("canceled"))
    await system.cancel(task_id)


async def it_is_erased(system: System, task_id: TaskId, hold: Hold) -> None:
    await system.hub.erasure.task(CALLER, task_id)


async def its_worker_ends_it(system: System, task_id: TaskId, hold: Hold) -> None:
    hold.release()


async def its_worker_goes(system: System, task_id: TaskId, hold: Hold) -> None:
    (lease,) = system.engine.registry.live("default", "planner")
    await system.directory.withdraw(LOCAL, lease.worker, proof(lease))
    hold.release()


async def its_worker_is_gone(system: System, task_id: TaskId, hold: Hold) -> None:
    for _ in range(2):
        system.forwarder.plan("planner:a", WorkerUnreachable("planner:a", "http://w/", "refused", refused=True))
    hold.release()


async def its_time_is_over(system: System, task_id: TaskId, hold: Hold) -> None:
    await asyncio.sleep(30)


ENDED_BY: list[tuple[Ending, tuple[Step, ...], str]] = [
    (it_is_cancelled, (), "canceled"),
    (it_is_cancelled_by_its_worker, (), "canceled"),
    (it_is_erased, (), ""),
    (its_worker_ends_it, (status("completed"),), "completed"),
    (its_worker_ends_it, (status("failed"),), "failed"),
    (its_worker_ends_it, (status("rejected"),), "rejected"),
    (its_worker_ends_it, (status("canceled"),), "canceled"),
    (its_worker_ends_it, (message("done"),), "completed"),
    (its_worker_goes, (CUT,), "failed"),
    (its_worker_is_gone, (CUT,), "failed"),
    (its_time_is_over, (), "failed"),
]


@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize(("end_it", "then", "ending"), ENDED_BY)
async def test_whatever_ends_a_task_ends_what_it_started_unless_that_goes_on(
    system: System, end_it: Ending, then: tuple[Step, ...], ending: str, goes_on: bool
) -> None:
    system.with_bounds(deadline=timedelta(seconds=20), silence=timedelta(hours=1))
    system.watch()
    root = await begun(system, "planner", task(), hold := Hold(), *then)
    one = await child(system, root, "writer", goes_on=goes_on)
    question = task(), status("input-required")
    below = [await child(system, one, "editor"), await child(system, one, "tester", *question)]
    try:
        await asyncio.wait_for(end_it(system, root, hold), 60)
    finally:
        await settled()
    if ending:
        assert await state_of(system, root) == ending
    if not goes_on:
        states = {await state_of(system, task_id) for task_id in (one, *below)}
        # What is at work has no more time than its parent, and fails with it.
        assert (
            states <= {TaskState.CANCELED, TaskState.FAILED} if end_it is its_time_is_over else states == {TaskState.CANCELED}
        )
    elif end_it is not its_time_is_over:  # the hub ends each task that takes too long
        assert await state_of(system, one) is TaskState.WORKING
        assert [await state_of(system, task_id) for task_id in below] == [TaskState.WORKING, TaskState.INPUT_REQUIRED]


async def test_a_child_ends_although_its_worker_cannot_be_told(system: System) -> None:
    root = await working(system, "planner")
    one = await child(system, root, "writer")
    system.forwarder.plan_fetch("writer:a", WorkerBroke("writer:a", "cut"))
    await cancelled(system, root)
    assert await state_of(system, one) is TaskState.CANCELED


async def test_the_end_of_a_paused_task_ends_what_it_started(system: System) -> None:
    """Its worker withdraws, or it is cancelled."""
    system.with_bounds(silence=timedelta(seconds=60))
    system.supervisor.keep_running("paused", system.hub.paused_tasks.watch)
    for role, how in (("planner", its_worker_goes), ("reviewer", it_is_cancelled)):
        root = await begun(system, role, task(), hold := Hold(), status("input-required"))
        one = await child(system, root, "writer")
        hold.release()
        await settled()
        await how(system, root, Hold())
        await settled()
        assert (await row_of(system, root)).ended
        assert await state_of(system, one) is TaskState.CANCELED


async def test_guards_name_the_chain(system: System) -> None:
    system.with_bounds(limits=hub_limits(tree=TreeLimits(depth=2, calls=3)))
    root = await working(system, "planner")
    one = await child(system, root, "writer")
    with pytest.raises(RoleInChain, match="planner > writer > planner"):
        await child(system, one, "planner")
    two = await child(system, one, "planner", again=True)
    with pytest.raises(ChainTooLong, match="planner > writer > planner > editor"):
        await child(system, two, "editor")
    await child(system, root, "editor")
    with pytest.raises(TreeTooLarge, match="planner > tester"):
        await child(system, root, "tester")


async def test_a_child_has_no_later_deadline_than_its_parent(system: System) -> None:
    system.with_bounds(silence=timedelta(hours=1))
    root = await working(system, "planner")
    one = await child(system, root, "writer", within=10.0)
    two = await child(system, one, "editor", within=60.0)
    system.watch()
    await asyncio.sleep(9)
    assert await state_of(system, two) is TaskState.WORKING
    await asyncio.sleep(3)
    await settled()
    assert [await state_of(system, one), await state_of(system, two)] == [TaskState.FAILED] * 2
    assert await state_of(system, root) is TaskState.WORKING
    with pytest.raises((DeadlineBefore, ParentOver)):
        await child(system, one, "editor")
    with pytest.raises(DeadlineBefore):
        await child(system, root, "editor", within=0.0)


def remaining(system: System, role: str) -> list[float | None]:
    """What each message to that role's worker said of its time."""
    calls = [call for kind, worker, call in system.forwarder.calls if (kind, worker) == ("deliver", f"{role}:a")]
    return [round(call.remaining, 1) if call.remaining is not None else None for call in calls]


async def test_a_worker_is_told_how_much_time_remains(system: System) -> None:
    root = await working(system, "planner")
    one = await child(system, root, "writer", within=10.0)
    await asyncio.sleep(4)
    await child(system, one, "editor", within=60.0)
    await child(system, one, "tester", within=2.0, goes_on=True)
    found = [remaining(system, role) for role in ("planner", "writer", "editor", "tester")]
    assert found == [[None], [10.0], [6.0], [2.0]]


async def test_a_child_has_no_more_time_than_the_hub_gives_its_parent_unless_it_goes_on(system: System) -> None:
    system.with_bounds(silence=timedelta(hours=1), deadline=timedelta(seconds=30))
    root = await working(system, "planner")
    await asyncio.sleep(10)
    await child(system, root, "writer")
    await child(system, root, "editor", goes_on=True)
    found = [remaining(system, role) for role in ("planner", "writer", "editor")]
    assert found == [[30.0], [20.0], [30.0]]


async def test_a_pause_does_not_stop_the_time_of_a_child(system: System) -> None:
    system.with_bounds(silence=timedelta(hours=1))
    system.supervisor.keep_running("deadlines", system.hub.trees.watch)
    system.watch()
    root = await working(system, "planner")
    question = task(), status("input-required")
    one, two = [await child(system, root, role, *question, within=30.0) for role in ("writer", "editor")]
    await asyncio.sleep(20)
    system.forwarder.plan("writer:a", status("working"), Hold())
    answer = replace(say("blue", role="writer", taskId=one), blocking=False)
    await system.hub.send(CALLER, answer)
    assert remaining(system, "writer") == [30.0, 10.0]
    assert [await state_of(system, task_id) for task_id in (one, two)] == [TaskState.WORKING, TaskState.INPUT_REQUIRED]
    await asyncio.sleep(12)
    for task_id in (one, two):
        assert end(await system.get(task_id)) == ("failed", "DEADLINE_EXCEEDED")
    assert sorted(system.forwarder.asked("cancel")) == ["editor:a", "writer:a"]
    assert await state_of(system, root) is TaskState.WORKING


async def test_the_deadline_of_a_child_outlasts_a_restart(stored_system: System) -> None:
    system = stored_system
    root = await working(system, "planner")
    one = await child(system, root, "writer", within=30.0)
    two = await child(system, root, "editor", task(), status("input-required"), within=30.0)
    await asyncio.sleep(20)
    for role in ("planner", "writer"):
        system.forwarder.plan(f"{role}:a", Hold())
    await system.restart(silence=timedelta(hours=1))
    system.supervisor.keep_running("deadlines", system.hub.trees.watch)
    system.watch()
    await asyncio.sleep(5)
    assert [await state_of(system, task_id) for task_id in (one, two)] == [TaskState.WORKING, TaskState.INPUT_REQUIRED]
    await asyncio.sleep(8)
    assert [await state_of(system, task_id) for task_id in (one, two)] == [TaskState.FAILED] * 2


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize(
    ("lost", "reason"),
    [(WorkerBroke("writer:a", "cut"), "WORKER_LOST"), (None, "WORKER_SILENT"), (CUT, "WORKER_LOST")],
)
async def test_the_end_of_a_lost_worker_tells_whether_it_may_be_called_again(
    system: System, lost: Exception | None, reason: str, idempotent: bool
) -> None:
    system.watch()
    await system.enrol("echo:a", idempotent=idempotent)
    system.forwarder.plan("echo:a", task(), *([lost] if lost is not None else [Hold()]))
    answer = await system.send()
    own = answer["metadata"]["rolecall"]
    assert end(answer) == ("failed", reason)
    assert own.get("idempotent", False) is idempotent
    assert answer["status"]["message"]["metadata"]["rolecall"] == own


@pytest.mark.parametrize("idempotent", [True, False])
async def test_the_refusal_of_an_unreachable_worker_tells_whether_it_may_be_called_again(
    system: System, idempotent: bool
) -> None:
    await system.enrol("echo:a", idempotent=idempotent)
    system.forwarder.plan("echo:a", WorkerUnreachable("echo:a", "http://w/", "refused"))
    with pytest.raises(WorkerUnreachable) as refused:
        await system.send()
    assert refused.value.facts == ({"idempotent": "true"} if idempotent else {})


async def test_only_what_the_worker_that_ran_it_declares_counts(system: System) -> None:
    """The call moves from an idempotent worker to another, which is lost."""
    await system.enrol("echo:a", idempotent=True)
    system.forwarder.plan("echo:a", hold := Hold(), WorkerUnreachable("echo:a", "http://w/", "refused"))
    pending = asyncio.create_task(system.send())
    await hold.reached.wait()
    await system.enrol("echo:b")
    system.forwarder.plan("echo:b", task(), WorkerBroke("echo:b", "cut"))
    hold.release()
    answer = await pending
    assert answer["status"]["state"] == "failed"
    assert answer["metadata"]["rolecall"] == {"reason": "WORKER_LOST"}


async def test_a_passed_deadline_is_no_loss_of_the_worker(system: System) -> None:
    system.with_bounds(deadline=timedelta(seconds=5), silence=timedelta(hours=1))
    system.watch()
    await system.enrol("echo:a", idempotent=True)
    system.forwarder.plan("echo:a", task(), Hold())
    assert (await system.send())["metadata"]["rolecall"] == {"reason": "DEADLINE_EXCEEDED"}


async def test_a_failure_of_the_handler_is_no_loss_of_its_worker(system: System) -> None:
    await system.enrol("echo:a", idempotent=True)
    system.forwarder.plan("echo:a", task(), status("failed", "no"))
    answer = await system.send()
    assert answer["status"]["state"] == "failed" and "rolecall" not in (answer.get("metadata") or {})


async def test_only_the_worker_of_a_running_task_calls_in_it(system: System) -> None:
    root, other = await working(system, "planner"), await working(system, "writer")
    call, foreign = await within(system, root), await within(system, other)
    trees = system.hub.trees
    assert trees.caller_of(LOCAL, call) == CALLER
    for forged in (replace(call, secret="0" * 64), replace(call, secret=""), replace(call, epoch=call.epoch + 1)):
        with pytest.raises(LeaseUnknown):
            trees.caller_of(LOCAL, forged)
    with pytest.raises(LeaseUnknown):
        trees.caller_of(Principal("stranger", Kind.WORKER, roles=("*",)), call)
    for wrong in (replace(foreign, task=root), replace(call, task=TaskId("none"))):
        with pytest.raises(ParentOver):
            trees.caller_of(LOCAL, wrong)
    await cancelled(system, root)
    with pytest.raises(ParentOver):
        trees.caller_of(LOCAL, call)


async def test_a_paused_task_may_start_others_until_it_ends(stored_system: System) -> None:
    system = stored_system
    root = await begun(system, "planner", task(), status("input-required"))
    await settled()
    call = await within(system, root)
    with pytest.raises(ParentOver):
        system.hub.trees.caller_of(LOCAL, call)
    for wrong in (replace(call, task=TaskId("none")), replace(call, worker=WorkerId("planner", "b"))):
        with suppress(LeaseUnknown):
            await system.hub.trees.recall(LOCAL, wrong)
    await system.hub.trees.recall(LOCAL, call)
    one = await child(system, root, "writer")
    await cancelled(system, root)
    assert await state_of(system, one) is TaskState.CANCELED
    await system.hub.trees.recall(LOCAL, call)
    with pytest.raises(ParentOver):
        system.hub.trees.caller_of(LOCAL, call)


async def test_a_task_that_ends_while_it_is_taken_up_starts_no_other(system: System) -> None:
    root = await begun(system, "planner", task(), status("input-required"))
    await settled()
    call = await within(system, root)
    read = system.engine.hold_after("tasks.paused_task")
    pending = asyncio.create_task(system.hub.trees.recall(LOCAL, call))
    await read.reached.wait()
    await cancelled(system, root)
    read.release()
    await pending
    with pytest.raises(ParentOver):
        system.hub.trees.caller_of(LOCAL, call)


async def test_a_worker_has_to_do_with_its_own_children_only(system: System) -> None:
    root, other = await working(system, "planner"), await working(system, "writer")
    mine = await child(system, root, "editor")
    call = await within(system, root)
    await system.hub.trees.check_child(call, mine)
    for task_id in (other, root, TaskId("none")):
        with pytest.raises(TaskNotFound):
            await system.hub.trees.check_child(call, task_id)
        answer = replace(say("hi", role="writer", taskId=task_id), parent=call)
        with pytest.raises(HubError):
            await system.hub.send(CALLER, answer)


async def test_a_repeated_call_is_the_same_only_within_its_task(system: System) -> None:
    root, other = await working(system, "planner"), await working(system, "writer")
    found = []
    for parent in (root, root, other, None):
        send = replace(say("hi", role="editor", messageId="1"), blocking=False)
        if parent is not None:
            send = replace(send, parent=await within(system, parent))
        if not system.engine.registry.live("default", "editor"):
            await system.enrol("editor:a", replays=True)
        system.forwarder.plan("editor:a", task(), Hold())
        found.append(parse((await system.hub.send(CALLER, send)).body)["id"])
    assert found[0] == found[1] and len(set(found)) == 3


async def test_after_a_restart_a_child_whose_parent_has_ended_ends_too(stored_system: System) -> None:
    system = stored_system
    root = await working(system, "planner")
    one, two = await child(system, root, "writer"), await child(system, root, "editor", goes_on=True)
    system.hub.relays.on_end = lambda task_id: None  # the hub dies before it can act
    await cancelled(system, root)
    assert await state_of(system, one) is TaskState.WORKING
    for role in ("writer", "editor"):
        system.forwarder.plan(f"{role}:a", Hold())
    await system.restart()
    await settled()
    assert await state_of(system, one) is TaskState.CANCELED
    assert await state_of(system, two) is TaskState.WORKING


async def test_a_deleted_task_leaves_no_branch(stored_system: System) -> None:
    system = stored_system
    root = await working(system, "planner")
    one = await child(system, root, "writer")
    assert await system.engine.tasks.branch_of(one) is not None
    await system.engine.tasks.discard(one)
    assert await system.engine.tasks.branch_of(one) is None
    assert list(await system.engine.tasks.tree(root, limit=10)) == []


async def test_a_tree_without_its_root_is_still_shown(system: System) -> None:
    root = await working(system, "planner")
    one = await child(system, root, "writer", goes_on=True)
    two = await child(system, one, "editor")
    await system.engine.tasks.discard(root)
    found, below = await system.hub.trees.tree(await row_of(system, one))
    assert (found.id, [child.row.id for child in below]) == (one, [two])
