"""The writer of a task's log: what it appends, what it drops, and what it does when the store fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hub.ports.event_log import LogEntry
from hub.ports.forwarder import Attach
from rolecall.errors import StoreUnavailable, TaskNotCancelable, WorkerBroke
from rolecall.model.a2a import Ids, TaskState
from rolecall.model.ids import TaskId
from rolecall.model.task import TaskRow
from rolecall.model.value import replace
from tests.flow.conftest import ME, House, frames, made_house, say
from tests.helpers.disk import Disk
from tests.helpers.scripted import chunk, status, task
from tests.helpers.watched_engine import Hold

CUT = WorkerBroke("echo:a", "cut")


async def logged(house: House, task_id: str) -> list[tuple[int, str, str | None]]:
    """Cursor, kind and state of each event in the log."""
    log = await house.engine.events.read(TaskId(task_id))
    return [(one.cursor, one.event.kind.value, one.event.state and one.event.state.value) for one in log]


async def sizes(house: House, task_id: str) -> list[int]:
    return [len(one.event.body) for one in await house.engine.events.read(TaskId(task_id))]


async def row_of(house: House, task_id: str) -> TaskRow:
    return await house.engine.tasks.get(ME, TaskId(task_id))


def appends(house: House) -> int:
    return len(house.engine.arguments("events.append"))


def attached_at(house: House) -> list[str | None]:
    """The positions from which workers were asked to replay."""
    return [call.position for _, _, call in house.forwarder.calls if isinstance(call, Attach)]


def texts(document: dict[str, Any]) -> list[str]:
    return [part["text"] for artifact in document.get("artifacts", []) for part in artifact["parts"]]


def reason(document: dict[str, Any]) -> str:
    return str(document["metadata"]["rolecall"]["reason"])


def with_text(*parts: str) -> dict[str, Any]:
    """Members of a task whose only artifact has these parts."""
    return {"artifacts": [{"artifactId": "a", "parts": [{"kind": "text", "text": part} for part in parts]}]}


# --- what is appended


async def test_a_batch_is_one_append_and_is_counted_with_its_bytes(stored_house: House) -> None:
    house = stored_house
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), [chunk("one", append=False), chunk("three")], status("completed"))
    answer = await house.send()
    assert await logged(house, answer["id"]) == [
        (1, "task", "working"),
        (2, "artifact-update", None),
        (3, "artifact-update", None),
        (4, "status-update", "completed"),
    ]
    first, second, third, last = await sizes(house, answer["id"])
    await asyncio.sleep(1)
    assert house.observer.logged == [("echo", 1, first), ("echo", 2, second + third), ("echo", 1, last)]
    row = await row_of(house, answer["id"])
    assert (row.at, row.size, row.state) == (4, first + second + third + last, TaskState.COMPLETED)


async def test_the_row_has_the_last_position_that_its_worker_gave(stored_house: House) -> None:
    house = stored_house
    await house.enrol("echo:a", replays=True)
    house.forwarder.plan("echo:a", task(position="b.1"), [chunk("x", append=False, position="b.2"), chunk("y")], CUT)
    house.forwarder.plan("echo:a", status("completed", position="b.4"))
    answer = await house.send()
    assert attached_at(house) == ["b.2"]
    assert (await row_of(house, answer["id"])).position == "b.4"


async def test_a_restarted_hub_goes_on_behind_the_last_event_of_a_batch(stored_house: House) -> None:
    house = stored_house
    await house.enrol("echo:a", replays=True)
    here = Hold()
    batch = [chunk("x", append=False, position="b.2"), chunk("y", position="b.3")]
    house.forwarder.plan("echo:a", task(position="b.1"), batch, here)
    lost = asyncio.create_task(house.send())
    await here.reached.wait()
    lost.cancel()
    task_id = (await house.row()).id
    house.forwarder.plan("echo:a", chunk("z", position="b.4"), status("completed", position="b.5"))
    await house.restart()
    await frames(await house.subscribe(task_id))
    assert attached_at(house) == ["b.3"]
    assert texts(await house.get(task_id)) == ["x", "y", "z"]


async def test_a_repeated_task_without_news_moves_the_position_and_nothing_else(house: House) -> None:
    await house.enrol("echo:a", replays=True)
    here = Hold()
    house.forwarder.plan("echo:a", task(position="b.1"), task(position="b.2"), here, CUT)
    house.forwarder.plan("echo:a", status("completed", position="b.3"))
    sending = asyncio.create_task(house.send())
    await here.reached.wait()
    row = await house.row()
    assert (row.at, row.position) == (1, "b.2")
    assert house.observer.logged == [("echo", 1, row.size)]
    here.release()
    await sending
    assert attached_at(house) == ["b.2"]


async def test_nothing_is_written_of_a_repeated_task_without_news_and_without_a_new_position(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), task(), status("completed"))
    await house.send()
    assert appends(house) == 2


async def test_a_task_repeated_behind_other_events_of_its_batch_is_compared_with_them(house: House) -> None:
    await house.enrol("echo:a")
    again = task("completed", **with_text("x", "y"))
    house.forwarder.plan("echo:a", [task(), chunk("x", append=False), again])
    answer = await house.send()
    assert texts(answer) == ["x", "y"]
    assert await logged(house, answer["id"]) == [
        (1, "task", "working"),
        (2, "artifact-update", None),
        (3, "artifact-update", None),
        (4, "status-update", "completed"),
    ]


async def test_a_paused_task_that_goes_on_without_a_word_is_first_said_to_work(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), status("input-required"))
    task_id = (await house.send())["id"]
    before = appends(house)
    house.forwarder.plan("echo:a", chunk("x", append=False), chunk("y"), status("completed"))
    await house.send("blue", taskId=task_id)
    assert (await logged(house, task_id))[2:] == [
        (3, "status-update", "working"),
        (4, "artifact-update", None),
        (5, "artifact-update", None),
        (6, "status-update", "completed"),
    ]
    assert appends(house) - before == 3


async def test_a_paused_task_that_says_how_it_goes_on_is_believed(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), status("input-required"))
    task_id = (await house.send())["id"]
    house.forwarder.plan("echo:a", status("working"), chunk("x", append=False), status("completed"))
    await house.send("blue", taskId=task_id)
    assert [kind for _, kind, _ in await logged(house, task_id)][2:] == ["status-update", "artifact-update", "status-update"]


# --- ids


@pytest.mark.parametrize("given", ["mine", None])
async def test_the_context_is_the_callers_or_else_the_workers(stored_house: House, given: str | None) -> None:
    house = stored_house
    await house.enrol("echo:a")
    members = {} if given is None else {"contextId": given}
    house.forwarder.plan("echo:a", task(contextId="wc"), status("completed"))
    answer = await house.send(**members)
    row = await row_of(house, answer["id"])
    assert row.ids == Ids(TaskId(answer["id"]), given or "wc", "wt", "wc", "0.3")
    assert answer["contextId"] == row.context


async def test_a_worker_that_names_no_context_gets_one_made_and_its_own_is_learned_later(stored_house: House) -> None:
    house = stored_house
    await house.enrol("echo:a")
    nameless = replace(status("working"), context="")
    house.forwarder.plan("echo:a", nameless, replace(chunk("x", append=False), context="theirs"), status("input-required"))
    answer = await house.send()
    await house.restart()
    row = await row_of(house, answer["id"])
    assert (row.worker_task, row.worker_context) == ("wt", "theirs")
    assert row.context == answer["contextId"]
    assert row.context not in ("", "theirs")


async def test_a_further_task_of_a_context_keeps_what_its_worker_calls_it(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task("completed", contextId="wc"))
    await house.send(contextId="mine")
    house.forwarder.plan("echo:a", task("completed", contextId="another", task_id="second"))
    answer = await house.send(contextId="mine")
    assert (await row_of(house, answer["id"])).ids == Ids(TaskId(answer["id"]), "mine", "second", "wc", "0.3")


async def test_a_worker_that_changes_its_mind_about_the_context_changes_nothing(house: House) -> None:
    await house.enrol("echo:a")
    first, second = replace(task(), context=""), replace(chunk("x", append=False), context="one")
    house.forwarder.plan("echo:a", first, second, replace(chunk("y"), context="two"), status("completed"))
    answer = await house.send()
    assert (await row_of(house, answer["id"])).worker_context == "one"


# --- what is dropped


@pytest.mark.parametrize(
    "script",
    [
        [[task(), chunk("theirs", append=False, task_id="other"), status("completed")]],
        [task(), [chunk("theirs", append=False, task_id="other"), status("completed")]],
        [task(), chunk("theirs", append=False, task_id="other"), status("completed")],
    ],
    ids=["learned within the batch", "in a later batch", "alone"],
)
async def test_an_event_of_another_task_is_dropped_and_counted(house: House, script: list[Any]) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", *script)
    answer = await house.send()
    assert house.observer.drops == {"foreign task": 1}
    assert texts(answer) == []
    assert await logged(house, answer["id"]) == [(1, "task", "working"), (2, "status-update", "completed")]


async def test_the_end_of_another_task_ends_nothing_and_its_position_is_not_taken(house: House) -> None:
    await house.enrol("echo:a", replays=True)
    foreign = status("completed", task_id="other", position="b.9")
    house.forwarder.plan("echo:a", [task(position="b.1"), foreign], foreign, CUT)
    house.forwarder.plan("echo:a", status("failed", position="b.2"))
    assert (await house.send())["status"]["state"] == "failed"
    assert attached_at(house) == ["b.1"]
    assert house.observer.drops == {"foreign task": 2}


async def test_an_event_that_names_no_task_belongs_to_the_call(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), replace(chunk("x", append=False), task=""), status("completed"))
    assert texts(await house.send()) == ["x"]
    assert house.observer.drops == {}


async def test_what_comes_behind_the_end_is_dropped_and_counted(stored_house: House) -> None:
    house = stored_house
    await house.enrol("echo:a")
    late = [status("completed"), chunk("late"), task("failed")]
    house.forwarder.plan("echo:a", task(), late, chunk("later"), status("failed"))
    answer = await house.send()
    await house.engine.tasks.get(ME, TaskId(answer["id"]))
    await asyncio.sleep(1)
    assert house.observer.drops == {"after the end": 4}
    assert await logged(house, answer["id"]) == [(1, "task", "working"), (2, "status-update", "completed")]


# --- an end of the hub's own


async def test_a_cancel_that_waited_for_the_last_event_finds_the_task_completed(stored_house: House) -> None:
    house = stored_house
    await house.enrol("echo:a")
    here = Hold()
    house.forwarder.plan("echo:a", task(), here, status("completed"))
    sending = asyncio.create_task(house.send())
    await here.reached.wait()
    append = house.engine.hold("events.append")
    here.release()
    await append.reached.wait()
    cancelling = asyncio.create_task(house.cancel((await house.row()).id))
    await asyncio.sleep(3)
    append.release()
    assert (await cancelling)["status"]["state"] == "completed"
    assert (await sending)["status"]["state"] == "completed"
    assert appends(house) == 2


async def test_the_last_event_that_waited_for_a_cancel_is_dropped(stored_house: House) -> None:
    house = stored_house
    await house.enrol("echo:a")
    here = Hold()
    house.forwarder.plan("echo:a", task(), here, status("completed"))
    sending = asyncio.create_task(house.send())
    await here.reached.wait()
    append = house.engine.hold("events.append")
    cancelling = asyncio.create_task(house.cancel((await house.row()).id))
    await append.reached.wait()
    here.release()
    await asyncio.sleep(1)
    append.release()
    assert (await cancelling)["status"]["state"] == "canceled"
    assert (await sending)["status"]["state"] == "canceled"
    await asyncio.sleep(1)
    assert appends(house) == 2


async def test_a_cancel_takes_over_how_its_worker_ended_the_task(house: House) -> None:
    await house.enrol("echo:a")
    here = Hold()
    house.forwarder.plan("echo:a", task(), here)
    sending = asyncio.create_task(house.send())
    await here.reached.wait()
    house.forwarder.plan_fetch("echo:a", task("canceled", "as you wish", **with_text("half")))
    cancelled = await house.cancel((await house.row()).id)
    assert (cancelled["status"]["state"], texts(cancelled)) == ("canceled", ["half"])
    assert await sending == cancelled


@pytest.mark.parametrize("given", ["mine", None])
async def test_a_task_that_fails_before_its_worker_spoke_is_whole(stored_house: House, given: str | None) -> None:
    """It has the caller's message, a context, and both events in one append."""
    house = stored_house
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", CUT)
    members = {} if given is None else {"contextId": given}
    answer = await house.send("hello", **members)
    assert await logged(house, answer["id"]) == [(1, "task", "submitted"), (2, "status-update", "failed")]
    assert appends(house) == 1
    assert [part["text"] for part in answer["history"][0]["parts"]] == ["hello"]
    row = await row_of(house, answer["id"])
    assert row.context == answer["contextId"] == (given or row.context) != ""
    assert (row.state, row.at, row.size) == (TaskState.FAILED, 2, sum(await sizes(house, answer["id"])))


async def test_a_context_that_is_made_for_a_task_that_is_shown_early_stays(stored_house: House) -> None:
    house = stored_house
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", 3.0, task(contextId="wc"), status("completed"))
    shown = await house.send(blocking=False)
    assert shown["status"]["state"] == "submitted"
    (row,) = await house.rows()
    assert row.context == shown["contextId"] != ""
    await frames(await house.subscribe(shown["id"]))
    row = await row_of(house, shown["id"])
    assert (row.context, row.worker_context) == (shown["contextId"], "wc")
    assert [cursor for cursor, _, _ in await logged(house, shown["id"])] == [1, 2, 3]


async def test_a_task_is_shown_once_though_its_worker_speaks_at_that_moment(house: House) -> None:
    await house.enrol("echo:a")
    append = house.engine.hold("events.append")
    house.forwarder.plan("echo:a", task(), 1.0, status("completed"))
    sending = asyncio.create_task(house.send(blocking=False))
    await append.reached.wait()
    await asyncio.sleep(1.5)
    append.release()
    answer = await sending
    assert answer["status"]["state"] == "working"
    assert await logged(house, answer["id"]) == [(1, "task", "working")]


@pytest.mark.parametrize(("spare", "state"), [(0, "completed"), (-1, "failed")])
async def test_a_log_may_be_as_large_as_the_limit_and_no_larger(house: House, spare: int, state: str) -> None:
    await house.enrol("echo:a")
    for _ in range(2):
        house.forwarder.plan("echo:a", task(), [chunk("x", append=False), chunk("y")], chunk("z"), status("completed"))
    measured = sum((await sizes(house, (await house.send())["id"]))[:4])
    house.with_bounds(most_logged=measured + spare)
    assert (await house.send())["status"]["state"] == state


# --- a store that fails


@dataclass
class Faulty:
    """A house, and a way to break its next appends."""

    house: House
    break_appends: Callable[..., None]


@pytest.fixture(params=["refused", "commit fails"])
async def faulty(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Faulty]:
    """The store refuses an append, or all its statements run and the commit fails."""
    if request.param == "refused":
        async with made_house() as house:
            yield Faulty(house, lambda times=1: house.engine.fail("events.append", StoreUnavailable(), times=times))
    else:
        disk = Disk()
        disk.install(monkeypatch)
        async with made_house(f"sqlite://{tmp_path}/hub.db") as house:
            yield Faulty(house, lambda times=1: house.engine.before("events.append", disk.fail_commits, times=times))


async def whole(house: House, task_id: str) -> None:
    """Cursors have no gap, and every count says the same."""
    await asyncio.sleep(1)
    log, row = await logged(house, task_id), await row_of(house, task_id)
    bodies = await sizes(house, task_id)
    assert [cursor for cursor, _, _ in log] == list(range(1, len(log) + 1))
    assert (row.at, row.size) == (len(log), sum(bodies))
    assert sum(count for _, count, _ in house.observer.logged) == len(log)
    assert sum(size for _, _, size in house.observer.logged) == row.size


async def test_a_stream_whose_append_failed_gets_what_a_poll_finds(faulty: Faulty) -> None:
    house = faulty.house
    await house.enrol("echo:a")
    here = Hold()
    house.forwarder.plan("echo:a", task(), chunk("x", append=False), here, chunk("y"), status("completed"))
    house.forwarder.plan_fetch("echo:a", task("working", **with_text("x", "y")), task("completed", **with_text("x", "y")))
    streaming = asyncio.create_task(house.stream())
    await here.reached.wait()
    faulty.break_appends()
    here.release()
    got = await streaming
    assert [frame["cursor"] for frame in got] == [1, 2, 3, 4]
    assert got[2]["artifact"]["parts"] == [{"kind": "text", "text": "y"}]
    assert got[3]["status"]["state"] == "completed"
    assert house.forwarder.asked("deliver") == ["echo:a"]
    await whole(house, got[0]["id"])


async def test_a_stream_whose_append_failed_is_replayed_from_what_is_stored(faulty: Faulty) -> None:
    house = faulty.house
    await house.enrol("echo:a", replays=True)
    here = Hold()
    batch = [chunk("x", append=False, position="b.2"), chunk("y", position="b.3")]
    house.forwarder.plan("echo:a", task(position="b.1"), here, batch)
    house.forwarder.plan("echo:a", *batch, status("completed", position="b.4"))
    streaming = asyncio.create_task(house.stream())
    await here.reached.wait()
    faulty.break_appends()
    here.release()
    got = await streaming
    assert [frame["cursor"] for frame in got] == [1, 2, 3, 4]
    assert attached_at(house) == ["b.1"]
    assert texts(await house.get(got[0]["id"])) == ["x", "y"]
    await whole(house, got[0]["id"])


async def test_a_first_event_that_was_not_stored_is_got_again_from_a_worker_that_knows_the_message(faulty: Faulty) -> None:
    house = faulty.house
    await house.enrol("echo:a", replays=True)
    faulty.break_appends()
    for _ in range(2):
        house.forwarder.plan("echo:a", task(position="b.1"), status("completed", position="b.2"))
    answer = await house.send()
    assert answer["status"]["state"] == "completed"
    first, second = house.forwarder.told()
    assert first["messageId"] == second["messageId"]
    await whole(house, answer["id"])


async def test_a_first_event_that_was_not_stored_fails_the_task_of_any_other_worker(faulty: Faulty) -> None:
    """Its call may have run, and no id is known to ask for."""
    house = faulty.house
    await house.enrol("echo:a")
    faulty.break_appends()
    house.forwarder.plan("echo:a", task(), status("completed"))
    answer = await house.send()
    assert answer["status"]["state"] == "failed"
    assert reason(answer) == "OVERLOADED"
    assert await logged(house, answer["id"]) == [(1, "task", "submitted"), (2, "status-update", "failed")]
    assert (await row_of(house, answer["id"])).worker_task == ""
    assert house.forwarder.asked("deliver") == ["echo:a"]
    await whole(house, answer["id"])


async def test_a_last_event_that_was_not_stored_is_polled_for(faulty: Faulty) -> None:
    house = faulty.house
    await house.enrol("echo:a")
    here = Hold()
    house.forwarder.plan("echo:a", task(), here, status("completed", "done"))
    house.forwarder.plan_fetch("echo:a", task("completed", "done"))
    sending = asyncio.create_task(house.send())
    await here.reached.wait()
    faulty.break_appends()
    here.release()
    answer = await sending
    assert answer["status"]["state"] == "completed"
    assert await logged(house, answer["id"]) == [(1, "task", "working"), (2, "status-update", "completed")]
    await whole(house, answer["id"])


async def test_a_store_that_fails_for_long_is_told_of_and_the_task_ends_once_it_works(faulty: Faulty) -> None:
    house = faulty.house
    await house.enrol("echo:a")
    faulty.break_appends(times=4)
    house.forwarder.plan("echo:a", task(), status("completed"))
    with pytest.raises(StoreUnavailable):
        await house.send()
    assert (await house.row()).state is TaskState.SUBMITTED
    await asyncio.sleep(5)
    row = await house.row()
    assert (row.state, row.at) == (TaskState.FAILED, 2)
    await whole(house, row.id)


async def test_an_answer_whose_first_event_was_not_stored_is_polled_for(faulty: Faulty) -> None:
    house = faulty.house
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), status("input-required", "which?"))
    task_id = (await house.send())["id"]
    faulty.break_appends()
    house.forwarder.plan("echo:a", status("working"), status("completed"))
    house.forwarder.plan_fetch("echo:a", task("completed"))
    answer = await house.send("blue", taskId=task_id)
    assert answer["status"]["state"] == "completed"
    assert [turn["parts"][0]["text"] for turn in answer["history"]] == ["hi", "which?", "blue"]
    assert house.forwarder.asked("deliver") == ["echo:a", "echo:a"]
    await whole(house, task_id)


async def test_an_answer_whose_first_event_was_not_stored_is_repeated_to_a_worker_that_knows_it(faulty: Faulty) -> None:
    house = faulty.house
    await house.enrol("echo:a", replays=True)
    house.forwarder.plan("echo:a", task(position="b.1"), status("input-required", "which?", position="b.2"))
    task_id = (await house.send())["id"]
    faulty.break_appends()
    for _ in range(2):
        house.forwarder.plan("echo:a", status("working", position="b.3"), status("completed", position="b.4"))
    answer = await house.send("blue", taskId=task_id)
    assert answer["status"]["state"] == "completed"
    assert [message["parts"][0]["text"] for message in house.forwarder.told()] == ["hi", "blue", "blue"]
    assert (await row_of(house, task_id)).position == "b.4"
    await whole(house, task_id)


async def test_a_task_that_could_not_be_shown_goes_on(faulty: Faulty) -> None:
    house = faulty.house
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", 2.0, task(), status("completed"))
    faulty.break_appends()
    with pytest.raises(StoreUnavailable):
        await house.send(blocking=False)
    row = await house.row()
    assert row.at == 0
    await asyncio.sleep(2)
    assert await logged(house, row.id) == [(1, "task", "working"), (2, "status-update", "completed")]
    await whole(house, row.id)


async def test_a_cancel_that_could_not_be_stored_is_told_of_and_the_task_goes_on(faulty: Faulty) -> None:
    house = faulty.house
    await house.enrol("echo:a")
    here = Hold()
    house.forwarder.plan("echo:a", task(), here, status("completed"))
    sending = asyncio.create_task(house.send())
    await here.reached.wait()
    faulty.break_appends()
    with pytest.raises(StoreUnavailable):
        await house.cancel((await house.row()).id)
    here.release()
    answer = await sending
    assert answer["status"]["state"] == "completed"
    await whole(house, answer["id"])


async def test_a_call_that_could_not_be_stored_is_made_to_nobody(stored_house: House) -> None:
    house = stored_house
    await house.enrol("echo:a")
    house.engine.fail("tasks.admit", StoreUnavailable())
    with pytest.raises(StoreUnavailable):
        await house.send()
    assert house.forwarder.calls == []
    assert await house.rows() == []
    house.forwarder.plan("echo:a", task("completed"))
    assert (await house.send())["status"]["state"] == "completed"


async def test_an_answer_that_could_not_be_stored_is_given_to_nobody_and_the_task_waits_on(stored_house: House) -> None:
    house = stored_house
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), status("input-required", "which?"))
    task_id = (await house.send())["id"]
    house.engine.fail("tasks.add_turn", StoreUnavailable())
    with pytest.raises(StoreUnavailable):
        await house.send("red", taskId=task_id)
    assert house.forwarder.asked("deliver") == ["echo:a"]
    assert (await house.get(task_id))["status"]["state"] == "input-required"
    house.forwarder.plan("echo:a", status("completed"))
    answer = await house.send("blue", taskId=task_id)
    assert [turn["parts"][0]["text"] for turn in answer["history"]] == ["hi", "which?", "blue"]


async def test_another_writer_of_the_log_stops_the_relay_and_its_events_are_kept(stored_house: House) -> None:
    house = stored_house
    await house.enrol("echo:a")
    here = Hold()
    house.forwarder.plan("echo:a", task(), here, status("completed"))
    task_stream = await house.hub.stream(ME, say())
    await here.reached.wait()
    row = await house.row()
    ended = house.deps.codec.verdict(row.ids, TaskState.CANCELED, TaskNotCancelable())
    await house.engine.events.append(row.id, LogEntry([ended]), after=row.at)
    here.release()
    assert [(frame["cursor"], frame["status"]["state"]) for frame in await frames(task_stream)] == [
        (1, "working"),
        (2, "canceled"),
    ]
    await asyncio.sleep(1)
    assert await logged(house, row.id) == [(1, "task", "working"), (2, "status-update", "canceled")]
    assert len(house.hub.relays) == 0
