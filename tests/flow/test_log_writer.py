"""The writer of a task's log: what it appends, what it drops, and what happens when the store fails."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from hub.ports.forwarder import Attach
from hub.ports.state.event_log import LogEntry
from rolecall.errors import StoreUnavailable, TaskNotCancelable, WorkerBroke
from rolecall.model.a2a import Ids, TaskState
from rolecall.model.ids import TaskId
from rolecall.model.task import TaskRow
from rolecall.model.value import replace
from tests.flow.conftest import CALLER, System, frames, open_system, say
from tests.helpers.databases import empty_database
from tests.helpers.disk import Disk
from tests.helpers.scripted import chunk, status, task
from tests.helpers.watched_engine import Hold, append_to

CUT = WorkerBroke("echo:a", "cut")


async def logged(system: System, task_id: str) -> list[tuple[int, str, str | None]]:
    """Cursor, kind and state of each event in the log."""
    log = await system.engine.events.read(TaskId(task_id))
    return [(one.cursor, one.event.kind.value, one.event.state and one.event.state.value) for one in log]


async def sizes(system: System, task_id: str) -> list[int]:
    return [len(one.event.body) for one in await system.engine.events.read(TaskId(task_id))]


async def row_of(system: System, task_id: str) -> TaskRow:
    return await system.engine.tasks.get(CALLER, TaskId(task_id))


def append_count(system: System) -> int:
    return len(system.engine.arguments("events.append"))


def attach_positions(system: System) -> list[str | None]:
    """The positions of all attach calls."""
    return [call.position for _, _, call in system.forwarder.calls if isinstance(call, Attach)]


def texts(document: dict[str, Any]) -> list[str]:
    return [part["text"] for artifact in document.get("artifacts", []) for part in artifact["parts"]]


def reason(document: dict[str, Any]) -> str:
    return str(document["metadata"]["rolecall"]["reason"])


def with_text(*parts: str) -> dict[str, Any]:
    """Members of a task whose only artifact has these parts."""
    return {"artifacts": [{"artifactId": "a", "parts": [{"kind": "text", "text": part} for part in parts]}]}


# --- appends


async def test_a_batch_is_one_append_and_is_counted_with_its_bytes(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), [chunk("one", append=False), chunk("three")], status("completed"))
    answer = await system.send()
    assert await logged(system, answer["id"]) == [
        (1, "task", "working"),
        (2, "artifact-update", None),
        (3, "artifact-update", None),
        (4, "status-update", "completed"),
    ]
    first, second, third, last = await sizes(system, answer["id"])
    await asyncio.sleep(1)
    assert system.observer.logged == [("echo", 1, first), ("echo", 2, second + third), ("echo", 1, last)]
    row = await row_of(system, answer["id"])
    assert (row.at, row.size, row.state) == (4, first + second + third + last, TaskState.COMPLETED)


async def test_the_row_has_the_last_position_that_its_worker_gave(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a", replays=True)
    system.forwarder.plan("echo:a", task(position="b.1"), [chunk("x", append=False, position="b.2"), chunk("y")], CUT)
    system.forwarder.plan("echo:a", status("completed", position="b.4"))
    answer = await system.send()
    assert attach_positions(system) == ["b.2"]
    assert (await row_of(system, answer["id"])).position == "b.4"


async def test_a_restarted_hub_continues_after_the_last_event_of_a_batch(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a", replays=True)
    here = Hold()
    batch = [chunk("x", append=False, position="b.2"), chunk("y", position="b.3")]
    system.forwarder.plan("echo:a", task(position="b.1"), batch, here)
    lost = asyncio.create_task(system.send())
    await here.reached.wait()
    lost.cancel()
    task_id = (await system.row()).id
    system.forwarder.plan("echo:a", chunk("z", position="b.4"), status("completed", position="b.5"))
    await system.restart()
    await frames(await system.subscribe(task_id))
    assert attach_positions(system) == ["b.3"]
    assert texts(await system.get(task_id)) == ["x", "y", "z"]


async def test_a_repeated_task_without_new_content_changes_only_the_position(system: System) -> None:
    await system.enrol("echo:a", replays=True)
    here = Hold()
    system.forwarder.plan("echo:a", task(position="b.1"), task(position="b.2"), here, CUT)
    system.forwarder.plan("echo:a", status("completed", position="b.3"))
    pending = asyncio.create_task(system.send())
    await here.reached.wait()
    row = await system.row()
    assert (row.at, row.position) == (1, "b.2")
    assert system.observer.logged == [("echo", 1, row.size)]
    here.release()
    await pending
    assert attach_positions(system) == ["b.2"]


async def test_a_repeated_task_without_new_content_or_position_writes_nothing(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), task(), status("completed"))
    await system.send()
    assert append_count(system) == 2


async def test_a_task_repeated_after_other_events_of_its_batch_is_compared_with_them(system: System) -> None:
    await system.enrol("echo:a")
    again = task("completed", **with_text("x", "y"))
    system.forwarder.plan("echo:a", [task(), chunk("x", append=False), again])
    answer = await system.send()
    assert texts(answer) == ["x", "y"]
    assert await logged(system, answer["id"]) == [
        (1, "task", "working"),
        (2, "artifact-update", None),
        (3, "artifact-update", None),
        (4, "status-update", "completed"),
    ]


async def test_a_paused_task_that_continues_without_a_status_gets_a_working_status_first(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), status("input-required"))
    task_id = (await system.send())["id"]
    before = append_count(system)
    system.forwarder.plan("echo:a", chunk("x", append=False), chunk("y"), status("completed"))
    await system.send("blue", taskId=task_id)
    assert (await logged(system, task_id))[2:] == [
        (3, "status-update", "working"),
        (4, "artifact-update", None),
        (5, "artifact-update", None),
        (6, "status-update", "completed"),
    ]
    assert append_count(system) - before == 3


async def test_a_status_of_a_paused_task_is_logged_unchanged(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), status("input-required"))
    task_id = (await system.send())["id"]
    system.forwarder.plan("echo:a", status("working"), chunk("x", append=False), status("completed"))
    await system.send("blue", taskId=task_id)
    assert [kind for _, kind, _ in await logged(system, task_id)][2:] == ["status-update", "artifact-update", "status-update"]


# --- ids


@pytest.mark.parametrize("given", ["mine", None])
async def test_the_context_is_the_callers_or_else_the_hubs(stored_system: System, given: str | None) -> None:
    system = stored_system
    await system.enrol("echo:a")
    members = {} if given is None else {"contextId": given}
    system.forwarder.plan("echo:a", task(contextId="wc"), status("completed"))
    answer = await system.send(**members)
    row = await row_of(system, answer["id"])
    assert row.context == given or UUID(row.context).version == 7
    assert row.ids == Ids(TaskId(answer["id"]), row.context, "wt", "wc", "0.3")
    assert answer["contextId"] == row.context


async def test_the_hub_makes_a_context_for_a_worker_without_one_and_stores_the_workers_later(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a")
    without_context = replace(status("working"), context="")
    system.forwarder.plan(
        "echo:a", without_context, replace(chunk("x", append=False), context="theirs"), status("input-required")
    )
    answer = await system.send()
    await system.restart()
    row = await row_of(system, answer["id"])
    assert (row.worker_task, row.worker_context) == ("wt", "theirs")
    assert row.context == answer["contextId"]
    assert row.context not in ("", "theirs")


async def test_a_further_task_of_a_context_keeps_the_workers_name_for_it(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task("completed", contextId="wc"))
    await system.send(contextId="mine")
    system.forwarder.plan("echo:a", task("completed", contextId="another", task_id="second"))
    answer = await system.send(contextId="mine")
    assert (await row_of(system, answer["id"])).ids == Ids(TaskId(answer["id"]), "mine", "second", "wc", "0.3")


async def test_a_later_context_of_the_worker_changes_nothing(system: System) -> None:
    await system.enrol("echo:a")
    first, second = replace(task(), context=""), replace(chunk("x", append=False), context="one")
    system.forwarder.plan("echo:a", first, second, replace(chunk("y"), context="two"), status("completed"))
    answer = await system.send()
    assert (await row_of(system, answer["id"])).worker_context == "one"


# --- drops


@pytest.mark.parametrize(
    "script",
    [
        [[task(), chunk("theirs", append=False, task_id="other"), status("completed")]],
        [task(), [chunk("theirs", append=False, task_id="other"), status("completed")]],
        [task(), chunk("theirs", append=False, task_id="other"), status("completed")],
    ],
    ids=["learned within the batch", "in a later batch", "alone"],
)
async def test_an_event_of_another_task_is_dropped_and_counted(system: System, script: list[Any]) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", *script)
    answer = await system.send()
    assert system.observer.drops == {"foreign task": 1}
    assert texts(answer) == []
    assert await logged(system, answer["id"]) == [(1, "task", "working"), (2, "status-update", "completed")]


async def test_the_end_of_another_task_ends_nothing_and_its_position_is_not_taken(system: System) -> None:
    await system.enrol("echo:a", replays=True)
    foreign = status("completed", task_id="other", position="b.9")
    system.forwarder.plan("echo:a", [task(position="b.1"), foreign], foreign, CUT)
    system.forwarder.plan("echo:a", status("failed", position="b.2"))
    assert (await system.send())["status"]["state"] == "failed"
    assert attach_positions(system) == ["b.1"]
    assert system.observer.drops == {"foreign task": 2}


async def test_an_event_that_names_no_task_belongs_to_the_call(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), replace(chunk("x", append=False), task=""), status("completed"))
    assert texts(await system.send()) == ["x"]
    assert system.observer.drops == {}


async def test_events_after_the_end_are_dropped_and_counted_by_the_log_writer(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a")
    late = [status("completed"), chunk("late"), task("failed")]
    system.forwarder.plan("echo:a", task(), late, chunk("later"), status("failed"))
    answer = await system.send()
    await system.engine.tasks.get(CALLER, TaskId(answer["id"]))
    await asyncio.sleep(1)
    assert system.observer.drops == {"after the end": 4}
    assert await logged(system, answer["id"]) == [(1, "task", "working"), (2, "status-update", "completed")]


# --- ends by the hub


async def test_a_cancel_that_waited_for_the_last_event_finds_the_task_completed(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a")
    here = Hold()
    system.forwarder.plan("echo:a", task(), here, status("completed"))
    pending = asyncio.create_task(system.send())
    await here.reached.wait()
    append = system.engine.hold("events.append")
    here.release()
    await append.reached.wait()
    cancelling = asyncio.create_task(system.cancel((await system.row()).id))
    await asyncio.sleep(3)
    append.release()
    assert (await cancelling)["status"]["state"] == "completed"
    assert (await pending)["status"]["state"] == "completed"
    assert append_count(system) == 2


async def test_the_last_event_that_waited_for_a_cancel_is_dropped(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a")
    here = Hold()
    system.forwarder.plan("echo:a", task(), here, status("completed"))
    pending = asyncio.create_task(system.send())
    await here.reached.wait()
    append = system.engine.hold("events.append")
    cancelling = asyncio.create_task(system.cancel((await system.row()).id))
    await append.reached.wait()
    here.release()
    await asyncio.sleep(1)
    append.release()
    assert (await cancelling)["status"]["state"] == "canceled"
    assert (await pending)["status"]["state"] == "canceled"
    await asyncio.sleep(1)
    assert append_count(system) == 2


async def test_a_cancel_logs_the_end_that_the_worker_gave(system: System) -> None:
    await system.enrol("echo:a")
    here = Hold()
    system.forwarder.plan("echo:a", task(), here)
    pending = asyncio.create_task(system.send())
    await here.reached.wait()
    system.forwarder.plan_fetch("echo:a", task("canceled", "as you wish", **with_text("half")))
    cancelled = await system.cancel((await system.row()).id)
    assert (cancelled["status"]["state"], texts(cancelled)) == ("canceled", ["half"])
    assert await pending == cancelled


@pytest.mark.parametrize("given", ["mine", None])
async def test_a_task_that_fails_before_the_first_event_is_complete(stored_system: System, given: str | None) -> None:
    """It has the caller's message and a context; both events are one append."""
    system = stored_system
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", CUT)
    members = {} if given is None else {"contextId": given}
    answer = await system.send("hello", **members)
    assert await logged(system, answer["id"]) == [(1, "task", "submitted"), (2, "status-update", "failed")]
    assert append_count(system) == 1
    assert [part["text"] for part in answer["history"][0]["parts"]] == ["hello"]
    row = await row_of(system, answer["id"])
    assert row.context == answer["contextId"] == (given or row.context) != ""
    assert (row.state, row.at, row.size) == (TaskState.FAILED, 2, sum(await sizes(system, answer["id"])))


async def test_the_context_of_a_task_that_is_revealed_early_is_kept(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", 3.0, task(contextId="wc"), status("completed"))
    shown = await system.send(blocking=False)
    assert shown["status"]["state"] == "submitted"
    (row,) = await system.rows()
    assert row.context == shown["contextId"] != ""
    await frames(await system.subscribe(shown["id"]))
    row = await row_of(system, shown["id"])
    assert (row.context, row.worker_context) == (shown["contextId"], "wc")
    assert [cursor for cursor, _, _ in await logged(system, shown["id"])] == [1, 2, 3]


async def test_a_task_is_revealed_once_if_its_first_event_arrives_at_that_moment(system: System) -> None:
    await system.enrol("echo:a")
    append = system.engine.hold("events.append")
    system.forwarder.plan("echo:a", task(), 3.0, status("completed"))
    pending = asyncio.create_task(system.send(blocking=False))
    await append.reached.wait()
    await asyncio.sleep(1.5)
    append.release()
    answer = await pending
    assert answer["status"]["state"] == "working"
    assert await logged(system, answer["id"]) == [(1, "task", "working")]


@pytest.mark.parametrize(("free", "state"), [(0, "completed"), (-1, "failed")])
async def test_a_log_may_be_as_large_as_the_limit_and_no_larger(system: System, free: int, state: str) -> None:
    await system.enrol("echo:a")
    for _ in range(2):
        system.forwarder.plan("echo:a", task(), [chunk("x", append=False), chunk("y")], chunk("z"), status("completed"))
    measured = sum((await sizes(system, (await system.send())["id"]))[:4])
    system.with_bounds(max_log=measured + free)
    assert (await system.send())["status"]["state"] == state


# --- a store that fails


@dataclass
class FailingStore:
    """A system, and a function that makes its next appends fail."""

    system: System
    break_append: Callable[..., None]


@pytest.fixture(params=["refused", "commit fails"])
async def failing(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[FailingStore]:
    """The store refuses an append, or all its statements run and the commit fails."""
    if request.param == "refused":
        async with open_system() as system:
            yield FailingStore(system, lambda times=1: system.engine.fail("events.append", StoreUnavailable(), times=times))
    else:
        disk = Disk()
        disk.install(monkeypatch)
        async with open_system(f"sqlite://{empty_database(tmp_path / 'hub.db')}") as system:
            yield FailingStore(system, lambda times=1: system.engine.before("events.append", disk.fail_commits, times=times))


async def whole(system: System, task_id: str) -> None:
    """Cursors have no gap, and all counts agree."""
    await asyncio.sleep(1)
    log, row = await logged(system, task_id), await row_of(system, task_id)
    bodies = await sizes(system, task_id)
    assert [cursor for cursor, _, _ in log] == list(range(1, len(log) + 1))
    assert (row.at, row.size) == (len(log), sum(bodies))
    assert sum(count for _, count, _ in system.observer.logged) == len(log)
    assert sum(size for _, _, size in system.observer.logged) == row.size


async def test_a_stream_whose_append_failed_gets_what_a_poll_finds(failing: FailingStore) -> None:
    system = failing.system
    await system.enrol("echo:a")
    here = Hold()
    system.forwarder.plan("echo:a", task(), chunk("x", append=False), here, chunk("y"), status("completed"))
    system.forwarder.plan_fetch("echo:a", task("working", **with_text("x", "y")), task("completed", **with_text("x", "y")))
    streaming = asyncio.create_task(system.stream())
    await here.reached.wait()
    failing.break_append()
    here.release()
    got = await streaming
    assert [frame["cursor"] for frame in got] == [1, 2, 3, 4]
    assert got[2]["artifact"]["parts"] == [{"kind": "text", "text": "y"}]
    assert got[3]["status"]["state"] == "completed"
    assert system.forwarder.asked("deliver") == ["echo:a"]
    await whole(system, got[0]["id"])


async def test_a_stream_whose_append_failed_is_replayed_from_what_is_stored(failing: FailingStore) -> None:
    system = failing.system
    await system.enrol("echo:a", replays=True)
    here = Hold()
    batch = [chunk("x", append=False, position="b.2"), chunk("y", position="b.3")]
    system.forwarder.plan("echo:a", task(position="b.1"), here, batch)
    system.forwarder.plan("echo:a", *batch, status("completed", position="b.4"))
    streaming = asyncio.create_task(system.stream())
    await here.reached.wait()
    failing.break_append()
    here.release()
    got = await streaming
    assert [frame["cursor"] for frame in got] == [1, 2, 3, 4]
    assert attach_positions(system) == ["b.1"]
    assert texts(await system.get(got[0]["id"])) == ["x", "y"]
    await whole(system, got[0]["id"])


async def test_a_first_event_that_was_not_stored_is_repeated_by_a_worker_that_replays(
    failing: FailingStore,
) -> None:
    system = failing.system
    await system.enrol("echo:a", replays=True)
    failing.break_append()
    for _ in range(2):
        system.forwarder.plan("echo:a", task(position="b.1"), status("completed", position="b.2"))
    answer = await system.send()
    assert answer["status"]["state"] == "completed"
    first, second = system.forwarder.delivered_messages()
    assert first["messageId"] == second["messageId"]
    await whole(system, answer["id"])


async def test_a_first_event_that_was_not_stored_fails_the_task_of_any_other_worker(failing: FailingStore) -> None:
    """Its call may have run, and no id of the worker is known."""
    system = failing.system
    await system.enrol("echo:a")
    failing.break_append()
    system.forwarder.plan("echo:a", task(), status("completed"))
    answer = await system.send()
    assert answer["status"]["state"] == "failed"
    assert reason(answer) == "OVERLOADED"
    assert await logged(system, answer["id"]) == [(1, "task", "submitted"), (2, "status-update", "failed")]
    assert (await row_of(system, answer["id"])).worker_task == ""
    assert system.forwarder.asked("deliver") == ["echo:a"]
    await whole(system, answer["id"])


async def test_a_last_event_that_was_not_stored_is_polled_for(failing: FailingStore) -> None:
    system = failing.system
    await system.enrol("echo:a")
    here = Hold()
    system.forwarder.plan("echo:a", task(), here, status("completed", "done"))
    system.forwarder.plan_fetch("echo:a", task("completed", "done"))
    pending = asyncio.create_task(system.send())
    await here.reached.wait()
    failing.break_append()
    here.release()
    answer = await pending
    assert answer["status"]["state"] == "completed"
    assert await logged(system, answer["id"]) == [(1, "task", "working"), (2, "status-update", "completed")]
    await whole(system, answer["id"])


async def test_a_long_store_failure_is_reported_and_the_task_ends_when_it_is_over(failing: FailingStore) -> None:
    system = failing.system
    await system.enrol("echo:a")
    failing.break_append(times=4)
    system.forwarder.plan("echo:a", task(), status("completed"))
    with pytest.raises(StoreUnavailable):
        await system.send()
    assert (await system.row()).state is TaskState.SUBMITTED
    await asyncio.sleep(5)
    row = await system.row()
    assert (row.state, row.at) == (TaskState.FAILED, 2)
    await whole(system, row.id)


async def test_an_answer_whose_first_event_was_not_stored_is_polled_for(failing: FailingStore) -> None:
    system = failing.system
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), status("input-required", "which?"))
    task_id = (await system.send())["id"]
    failing.break_append()
    system.forwarder.plan("echo:a", status("working"), status("completed"))
    system.forwarder.plan_fetch("echo:a", task("completed"))
    answer = await system.send("blue", taskId=task_id)
    assert answer["status"]["state"] == "completed"
    assert [turn["parts"][0]["text"] for turn in answer["history"]] == ["hi", "which?", "blue"]
    assert system.forwarder.asked("deliver") == ["echo:a", "echo:a"]
    await whole(system, task_id)


async def test_an_answer_whose_first_event_was_not_stored_is_repeated_to_a_worker_that_replays(failing: FailingStore) -> None:
    system = failing.system
    await system.enrol("echo:a", replays=True)
    system.forwarder.plan("echo:a", task(position="b.1"), status("input-required", "which?", position="b.2"))
    task_id = (await system.send())["id"]
    failing.break_append()
    for _ in range(2):
        system.forwarder.plan("echo:a", status("working", position="b.3"), status("completed", position="b.4"))
    answer = await system.send("blue", taskId=task_id)
    assert answer["status"]["state"] == "completed"
    assert [message["parts"][0]["text"] for message in system.forwarder.delivered_messages()] == ["hi", "blue", "blue"]
    assert (await row_of(system, task_id)).position == "b.4"
    await whole(system, task_id)


async def test_a_task_that_could_not_be_revealed_continues(failing: FailingStore) -> None:
    system = failing.system
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", 2.0, task(), status("completed"))
    failing.break_append()
    with pytest.raises(StoreUnavailable):
        await system.send(blocking=False)
    row = await system.row()
    assert row.at == 0
    await asyncio.sleep(2)
    assert await logged(system, row.id) == [(1, "task", "working"), (2, "status-update", "completed")]
    await whole(system, row.id)


async def test_a_cancel_that_could_not_be_stored_is_an_error_and_the_task_continues(failing: FailingStore) -> None:
    system = failing.system
    await system.enrol("echo:a")
    here = Hold()
    system.forwarder.plan("echo:a", task(), here, status("completed"))
    pending = asyncio.create_task(system.send())
    await here.reached.wait()
    failing.break_append()
    with pytest.raises(StoreUnavailable):
        await system.cancel((await system.row()).id)
    here.release()
    answer = await pending
    assert answer["status"]["state"] == "completed"
    await whole(system, answer["id"])


async def test_a_call_that_could_not_be_stored_reaches_no_worker(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a")
    system.engine.fail("tasks.admit", StoreUnavailable())
    with pytest.raises(StoreUnavailable):
        await system.send()
    assert system.forwarder.calls == []
    assert await system.rows() == []
    system.forwarder.plan("echo:a", task("completed"))
    assert (await system.send())["status"]["state"] == "completed"


async def test_an_answer_that_could_not_be_stored_reaches_no_worker_and_the_task_stays_paused(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), status("input-required", "which?"))
    task_id = (await system.send())["id"]
    system.engine.fail("tasks.add_turn", StoreUnavailable())
    with pytest.raises(StoreUnavailable):
        await system.send("red", taskId=task_id)
    assert system.forwarder.asked("deliver") == ["echo:a"]
    assert (await system.get(task_id))["status"]["state"] == "input-required"
    system.forwarder.plan("echo:a", status("completed"))
    answer = await system.send("blue", taskId=task_id)
    assert [turn["parts"][0]["text"] for turn in answer["history"]] == ["hi", "which?", "blue"]


async def test_another_writer_of_the_log_stops_the_relay_and_its_events_are_kept(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a")
    here = Hold()
    system.forwarder.plan("echo:a", task(), here, status("completed"))
    task_stream = await system.hub.stream(CALLER, say())
    await here.reached.wait()
    row = await system.row()
    ended = system.deps.codec.verdict(row.ids, TaskState.CANCELED, TaskNotCancelable())
    await append_to(system.engine.events, row.id, LogEntry([ended]), after=row.at)
    here.release()
    assert [(frame["cursor"], frame["status"]["state"]) for frame in await frames(task_stream)] == [
        (1, "working"),
        (2, "canceled"),
    ]
    await asyncio.sleep(1)
    assert await logged(system, row.id) == [(1, "task", "working"), (2, "status-update", "canceled")]
    assert len(system.hub.relays) == 0


# --- comparisons with the log


async def test_each_comparison_reads_only_what_was_logged_since_the_last_one(stored_system: System) -> None:
    """A worker that sends whole tasks between its events must not make the hub fold the log each time."""
    system = stored_system
    await system.enrol("echo:a")
    steps = [step for n in range(1_200) for step in ([chunk(f"{n} ")] if n % 100 else [chunk(f"{n} "), task("working")])]
    system.forwarder.plan("echo:a", task(), *steps, status("completed"))
    answer = await system.send()
    reads = [kwargs for _, kwargs in system.engine.arguments("events.read") if "upto" in kwargs]
    ranges = [(kwargs["after"], kwargs["upto"]) for kwargs in reads]
    assert len(ranges) >= 12
    assert all(upto == after for (_, upto), (after, _) in itertools.pairwise(ranges))
    assert ranges[-1][1] <= 1_203
    assert texts(answer) == [f"{n} " for n in range(1_200)]
