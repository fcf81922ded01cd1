"""What a caller gets, for everything that a worker can do to a call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hub.errors import (
    HubDraining,
    InvalidAnswer,
    InvalidParams,
    NoLiveWorker,
    RoleUnknown,
    TaskEnded,
    TaskNotCancelable,
    TaskNotFound,
    WorkerBroke,
    WorkerBusy,
    WorkerFault,
    WorkerRefused,
    WorkerUnreachable,
)
from hub.model.a2a import Heard
from hub.model.command import CancelTask, Subscribe, Target, TaskQuery
from hub.model.ids import Cursor, TaskId
from hub.model.principal import LOCAL
from hub.model.worker import Health
from tests.flow.conftest import ME, SILENCE, House, frames, proof, say
from tests.helpers.scripted import chunk, message, status, task

REFUSED = WorkerUnreachable("echo:a", "http://w/", "connection refused")


def texts(document: dict[str, Any]) -> list[str]:
    return [part["text"] for artifact in document.get("artifacts", []) for part in artifact["parts"]]


async def test_a_blocking_send_answers_with_the_finished_task(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), chunk("one", append=False), chunk("two"), status("completed"))
    answer = await house.send()
    assert answer["status"]["state"] == "completed"
    assert texts(answer) == ["one", "two"]
    assert answer["id"] != "wt"
    assert await house.get(answer["id"]) == answer


async def test_a_stream_begins_with_a_task_and_has_contiguous_cursors(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", chunk("one", append=False), chunk("two"), status("completed"), chunk("late"))
    got = await house.stream()
    assert [frame["cursor"] for frame in got] == [1, 2, 3, 4]
    assert [frame["kind"] for frame in got] == ["task", "artifact-update", "artifact-update", "status-update"]
    assert {frame.get("taskId", frame.get("id")) for frame in got[1:]} == {got[1]["taskId"]}
    assert got[-1]["final"] is True


async def test_a_bare_message_goes_straight_back_and_leaves_no_task(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", message("yes"))
    assert (await house.send())["parts"][0]["text"] == "yes"
    house.forwarder.plan("echo:a", message("yes"))
    assert [frame["kind"] for frame in await house.stream()] == ["message"]
    assert (await house.engine.tasks.page(ME, TaskQuery())).total == 0


async def test_a_call_that_was_refused_goes_to_another_worker_once(house: House) -> None:
    for name in ("echo:a", "echo:b"):
        await house.enrol(name)
        house.forwarder.plan(name, REFUSED)
        house.forwarder.plan(name, task("completed"))
    first = house.engine.registry
    with pytest.raises(WorkerUnreachable):
        await house.send()
    assert sorted(house.forwarder.asked("deliver")) == ["echo:a", "echo:b"]
    assert {r.health for r in first.live("default", "echo")} == {Health.SUSPECT}


async def test_a_suspect_worker_gets_nothing_while_another_is_ready(house: House) -> None:
    await house.enrol("echo:a")
    await house.enrol("echo:b")
    await house.engine.registry.mark("default", (await house.enrol("echo:a")).worker, 1, Health.SUSPECT, "test")
    for _ in range(10):
        house.forwarder.plan("echo:b", task("completed"))
        await house.send()
    assert set(house.forwarder.asked("deliver")) == {"echo:b"}


async def test_a_busy_worker_passes_the_call_on_and_is_not_suspected(house: House) -> None:
    for name in ("echo:a", "echo:b"):
        await house.enrol(name)
        house.forwarder.plan(name, WorkerRefused(name))
        house.forwarder.plan(name, task("completed"))
    with pytest.raises(WorkerRefused):
        await house.send()
    assert {r.health for r in house.engine.registry.live("default", "echo")} == {Health.READY}


async def test_workers_at_capacity_are_not_asked(house: House) -> None:
    await house.enrol("echo:a", capacity=1)
    house.forwarder.plan("echo:a", task(), 0.2, status("completed"))
    first = asyncio.create_task(house.send())
    await asyncio.sleep(0.05)
    with pytest.raises(WorkerBusy):
        await house.send()
    assert (await first)["status"]["state"] == "completed"
    house.forwarder.plan("echo:a", task("completed"))
    assert (await house.send())["status"]["state"] == "completed"


async def test_a_caller_may_wait_for_a_worker_that_is_free(house: House) -> None:
    await house.enrol("echo:a", capacity=1)
    house.forwarder.plan("echo:a", task(), 0.3, status("completed"))
    house.forwarder.plan("echo:a", task("completed"))
    first = asyncio.create_task(house.send())
    await asyncio.sleep(0.05)
    second = await house.send(metadata={"waitSeconds": 5})
    assert (await first)["status"]["state"] == second["status"]["state"] == "completed"


async def test_a_caller_may_wait_for_the_first_worker_and_not_for_ever(house: House) -> None:
    waiting = asyncio.create_task(house.send(metadata={"waitSeconds": 5}))
    await asyncio.sleep(0.05)
    house.forwarder.plan("echo:a", task("completed"))
    await house.enrol("echo:a")
    assert (await waiting)["status"]["state"] == "completed"
    late = asyncio.create_task(house.send(role="nobody", metadata={"waitSeconds": 5}))
    await asyncio.sleep(0.05)
    house.clock.advance(6)
    with pytest.raises(RoleUnknown):
        await late


async def test_a_call_that_may_have_run_is_not_repeated(house: House) -> None:
    await house.enrol("echo:a")
    await house.enrol("echo:b")
    for name in ("echo:a", "echo:b"):
        house.forwarder.plan(name, WorkerBroke(name, "cut"))
    answer = await house.send()
    assert answer["status"]["state"] == "failed"
    assert answer["metadata"]["rolecall"]["reason"] == "WORKER_LOST"
    assert len(house.forwarder.calls) == 1


async def test_a_worker_that_recognises_the_message_gets_it_again(house: House) -> None:
    await house.enrol("echo:a", replays=True)
    house.forwarder.plan("echo:a", WorkerBroke("echo:a", "cut"))
    house.forwarder.plan("echo:a", task(), status("completed"))
    assert (await house.send())["status"]["state"] == "completed"
    first, second = (call[2].send.message_id for call in house.forwarder.calls)
    assert first == second


async def test_a_cut_stream_is_continued_at_the_workers_own_position(house: House) -> None:
    await house.enrol("echo:a", replays=True)
    house.forwarder.plan(
        "echo:a", task(position="b.1"), chunk("ha", append=False, position="b.2"), WorkerBroke("echo:a", "cut")
    )
    house.forwarder.plan(
        "echo:a", chunk("ha", position="b.3"), chunk("ha", position="b.4"), status("completed", position="b.5")
    )
    got = await house.stream()
    assert [frame["kind"] for frame in got].count("artifact-update") == 3
    assert house.forwarder.calls[1][0] == "attach"
    assert house.forwarder.calls[1][2].position == "b.2"


async def test_a_worker_that_cannot_replay_is_asked_and_the_gap_is_marked(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), chunk("ha", append=False), WorkerBroke("echo:a", "cut"))
    parts = [{"kind": "text", "text": "ha"}] * 3
    working = task("working", artifacts=[{"artifactId": "a", "parts": parts[:2]}])
    house.forwarder.plan_fetch("echo:a", working, task("completed", artifacts=[{"artifactId": "a", "parts": parts}]))
    got = await house.stream()
    assert texts(await house.get(got[1]["taskId"])) == ["ha"] * 3
    marked = [frame["cursor"] for frame in got if frame.get("metadata", {}).get("rolecall", {}).get("gap")]
    assert marked
    assert "attach" not in {call[0] for call in house.forwarder.calls}


async def test_a_worker_that_no_longer_knows_the_task_has_lost_it(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), chunk("one", append=False), WorkerBroke("echo:a", "cut"))
    got = await house.stream()
    assert got[-1]["status"]["state"] == "failed"
    assert got[-1]["metadata"]["rolecall"]["reason"] == "WORKER_LOST"
    assert "no longer knows" in got[-1]["status"]["message"]["parts"][0]["text"]


async def test_a_worker_that_refuses_twice_within_a_second_is_gone(house: House) -> None:
    await house.enrol("echo:a", replays=True)
    house.forwarder.plan("echo:a", task(position="b.1"), WorkerBroke("echo:a", "cut"))
    house.forwarder.plan("echo:a", REFUSED)
    house.forwarder.plan("echo:a", REFUSED)
    got = await asyncio.wait_for(house.stream(), 3)
    assert got[-1]["metadata"]["rolecall"]["reason"] == "WORKER_LOST"


async def test_a_stream_that_ends_too_early_is_followed_to_its_end(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task())
    house.forwarder.plan_fetch("echo:a", task("working"), task("completed"))
    assert (await house.stream())[-1]["status"]["state"] == "completed"


async def test_a_worker_that_cannot_stream_is_followed_for_a_streaming_caller(house: House) -> None:
    await house.enrol("echo:a", streaming=False)
    house.forwarder.plan("echo:a", task("submitted"))
    done = task("completed", artifacts=[{"artifactId": "a", "parts": [{"kind": "text", "text": "x"}]}])
    house.forwarder.plan_fetch("echo:a", task("working"), done)
    got = await house.stream()
    assert [frame["kind"] for frame in got] == ["task", "status-update", "artifact-update", "status-update"]
    assert not any(frame.get("metadata") for frame in got)


@pytest.mark.parametrize(
    ("failure", "code"),
    [(InvalidAnswer("echo:a", "HTML"), InvalidAnswer), (WorkerFault(-32602, "no"), WorkerFault), (REFUSED, WorkerUnreachable)],
)
async def test_a_call_that_never_began_is_an_error_to_its_caller(
    house: House, failure: Exception, code: type[Exception]
) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", failure)
    house.forwarder.plan("echo:a", failure)
    with pytest.raises(code):
        await house.send()
    with pytest.raises(code):
        await house.stream()


async def test_a_stream_that_turns_to_nonsense_ends_in_a_failed_event(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), InvalidAnswer("echo:a", "an endless line"))
    house.forwarder.plan_fetch("echo:a", InvalidAnswer("echo:a", "HTML"))
    got = await house.stream()
    assert got[-1]["status"]["state"] == "failed"


async def test_a_silent_worker_fails_its_task_unless_it_says_that_it_works(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), 5.0)
    house.forwarder.plan_fetch("echo:a", task("working"))
    house.supervisor.keep_running("watch", house.hub.relays.watch)
    reading = asyncio.create_task(house.stream())
    await asyncio.sleep(1.4 * SILENCE)
    assert house.forwarder.asked("fetch")
    assert not reading.done()
    got = await asyncio.wait_for(reading, SILENCE)
    assert got[-1]["metadata"]["rolecall"]["reason"] == "WORKER_SILENT"


@pytest.mark.parametrize(("ends", "believed"), [((), 1), ((WorkerBroke("echo:a", "cut"),), 10)])
async def test_a_worker_that_leaves_its_stream_is_not_believed_for_ever(
    house: House, ends: tuple[Exception, ...], believed: int
) -> None:
    """Agents whose handler crashed leave their task at work: their stream ends, and the task never changes again."""
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), *ends)
    house.forwarder.plan_fetch("echo:a", *(task("working") for _ in range(100)))
    house.supervisor.keep_running("watch", house.hub.relays.watch)
    reading = asyncio.create_task(house.stream())
    await asyncio.sleep(0.95 * believed * SILENCE)
    assert not reading.done()
    got = await asyncio.wait_for(reading, 4 * SILENCE)
    assert got[-1]["metadata"]["rolecall"]["reason"] == "WORKER_SILENT"


async def test_a_question_pauses_the_task_and_its_answer_goes_to_the_same_worker(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), status("input-required", "which?"))
    got = await house.stream()
    assert got[-1]["final"] is True
    await house.enrol("echo:b")
    task_id = got[-1]["taskId"]
    house.forwarder.plan("echo:a", task("working"), status("completed", "that"))
    answer = await house.send("the blue one", taskId=task_id)
    assert house.forwarder.calls[-1][1] == "echo:a"
    assert house.forwarder.calls[-1][2].ids.worker_task == "wt"
    assert answer["status"]["state"] == "completed"
    assert [m["role"] for m in answer["history"]] == ["user", "agent", "user"]
    with pytest.raises(TaskEnded):
        await house.send("more", taskId=task_id)


@pytest.mark.parametrize("goes_on", [(status("working"), chunk("x", append=False)), (chunk("x", append=False),)])
async def test_the_stream_of_an_answer_begins_with_the_task_at_work(house: House, goes_on: tuple[Heard, ...]) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), status("input-required", "which?"))
    first = await house.stream()
    house.forwarder.plan("echo:a", *goes_on, status("completed"))
    got = await house.stream("blue", taskId=first[-1]["taskId"])
    kinds = ["task", "artifact-update", "status-update"]
    assert [(frame["kind"], frame["cursor"]) for frame in got] == list(zip(kinds, (3, 4, 5), strict=True))
    assert got[0]["status"]["state"] == "working"


async def test_a_lone_context_answers_its_one_paused_task(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), status("input-required", "which?"))
    first = await house.send()
    house.forwarder.plan("echo:a", status("completed"))
    answer = await house.send("blue", contextId=first["contextId"])
    assert answer["id"] == first["id"]


async def test_a_conversation_stays_with_its_worker(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task("completed"))
    first = await house.send()
    for name in ("echo:b", "echo:c", "echo:d"):
        await house.enrol(name)
    for _ in range(5):
        house.forwarder.plan("echo:a", task("completed"))
        again = await house.send(contextId=first["contextId"])
        assert again["contextId"] == first["contextId"]
        assert again["id"] != first["id"]
    assert set(house.forwarder.asked("deliver")) == {"echo:a"}
    assert house.forwarder.calls[-1][2].ids.worker_context == "wc"


async def test_a_conversation_whose_worker_is_gone_goes_to_another_and_the_decision_says_so(house: House) -> None:
    lease = await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task("completed"))
    first = await house.send()
    await house.enrol("echo:b")
    await house.engine.registry.mark("default", lease.worker, lease.epoch, Health.DRAINING, "test")
    house.forwarder.plan("echo:b", task("completed"))
    answer = await house.send(contextId=first["contextId"])
    decision = house.hub.decisions.of(TaskId(answer["id"]))
    assert decision is not None
    assert (str(decision.worker), decision.rule) == ("echo:b", "context holder gone")


async def test_a_busy_holder_of_a_conversation_is_not_a_gone_one(house: House) -> None:
    await house.enrol("echo:a", capacity=1)
    house.forwarder.plan("echo:a", task("completed"))
    first = await house.send()
    await house.enrol("echo:b")
    house.forwarder.plan("echo:a", task(), 0.2, status("completed"))
    running = asyncio.create_task(house.send(contextId=first["contextId"]))
    await asyncio.sleep(0.05)
    with pytest.raises(WorkerBusy):
        await house.send(contextId=first["contextId"])
    await running


async def test_a_caller_who_does_not_wait_gets_the_task_as_it_stands(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), 0.2, status("completed"))
    answer = await house.send(blocking=False)
    assert answer["status"]["state"] == "working"
    await asyncio.sleep(0.3)
    assert (await house.get(answer["id"]))["status"]["state"] == "completed"


async def test_a_caller_who_does_not_wait_sees_the_task_before_its_worker_speaks(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", 1.5, message("done after all"))
    answer = await house.send(blocking=False)
    assert answer["status"]["state"] == "submitted"
    await asyncio.sleep(0.8)
    later = await house.get(answer["id"])
    assert later["status"]["state"] == "completed"
    assert later["status"]["message"]["parts"][0]["text"] == "done after all"


async def test_a_reader_comes_back_exactly_where_it_was(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan(
        "echo:a", task(), *(chunk(str(n)) for n in range(20)), 0.2, *(chunk(str(n)) for n in range(20)), status("completed")
    )
    whole = asyncio.create_task(house.stream())
    await asyncio.sleep(0.1)
    task_id = (await house.engine.tasks.page(ME, TaskQuery())).rows[0].id
    for after in (1, 7, 20):
        got = await frames(await house.hub.subscribe(ME, Subscribe(Target(), task_id, "0.3", Cursor(after))))
        assert got[0]["kind"] == "task"
        assert len(texts(got[0])) == after - 1
        everything = await whole
        assert got[1:] == everything[after:]


async def test_a_reader_without_cursor_gets_the_task_as_of_now(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), chunk("x", append=False), status("completed"))
    answer = await house.send()
    got = await frames(await house.hub.subscribe(ME, Subscribe(Target(), TaskId(answer["id"]), "0.3")))
    assert len(got) == 1
    assert got[0]["status"]["state"] == "completed"


async def test_a_cursor_behind_the_end_is_refused(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task("completed"))
    answer = await house.send()
    with pytest.raises(InvalidParams):
        await house.hub.subscribe(ME, Subscribe(Target(), TaskId(answer["id"]), "0.3", Cursor(99)))


async def test_a_cancelled_task_is_cancelled_at_its_worker(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), 5.0)
    house.forwarder.plan_fetch("echo:a", task("canceled"))
    reading = asyncio.create_task(house.stream())
    await asyncio.sleep(0.05)
    task_id = (await house.engine.tasks.page(ME, TaskQuery())).rows[0].id
    answer = await house.cancel(task_id)
    assert answer["status"]["state"] == "canceled"
    assert (await asyncio.wait_for(reading, 2))[-1]["status"]["state"] == "canceled"
    with pytest.raises(TaskNotCancelable):
        await house.cancel(task_id)


async def test_a_paused_task_can_be_cancelled_and_a_gone_worker_is_no_obstacle(house: House) -> None:
    lease = await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), status("input-required", "?"))
    answer = await house.send()
    await house.directory.withdraw(LOCAL, lease.worker, proof(lease))
    cancelled = await house.cancel(answer["id"])
    assert cancelled["status"]["state"] == "canceled"


async def test_somebody_elses_task_is_not_found(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task("completed"))
    answer = await house.send()
    with pytest.raises(TaskNotFound):
        await house.hub.cancel(ME._replace(name="other"), CancelTask(Target(), TaskId(answer["id"]), "0.3"))
    with pytest.raises(TaskNotFound):
        await house.hub.cancel(ME, CancelTask(Target(path_role="other"), TaskId(answer["id"]), "0.3"))


async def test_events_of_another_task_are_dropped(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), chunk("mine", append=False), chunk("not mine", task_id="other"), status("completed"))
    assert texts(await house.send()) == ["mine"]


async def test_a_draining_hub_refuses_new_calls_and_lets_readers_go(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), 0.5, status("completed"))
    house.forwarder.plan("echo:a", task(), 0.5, status("completed"))
    reading = await house.hub.stream(ME, say())
    waiting = asyncio.create_task(house.send())
    await asyncio.sleep(0.05)
    house.hub.drain()
    got = await asyncio.wait_for(frames(reading), 0.3)
    assert len(got) <= 1
    assert reading.broken_off
    assert (await asyncio.wait_for(waiting, 0.3))["status"]["state"] == "working"
    with pytest.raises(HubDraining):
        await house.send()


async def test_a_message_to_a_task_whose_worker_is_gone_says_so(house: House) -> None:
    lease = await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), status("input-required", "?"))
    answer = await house.send()
    await house.directory.withdraw(LOCAL, lease.worker, proof(lease))
    await house.enrol("echo:b")
    with pytest.raises(NoLiveWorker):
        await house.send("x", taskId=answer["id"])
