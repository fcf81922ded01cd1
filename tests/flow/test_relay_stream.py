"""The events of a task for its readers, and what the stream of a worker may do."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rolecall.errors import AnswerTooLarge, EventTooLarge, InvalidAnswer, InvalidParams, TaskOver
from rolecall.model.a2a import WorkerEvent
from tests.flow.conftest import CALLER, System, frames, say
from tests.flow.relayed import end, gap_cursors, reaches, texts
from tests.helpers.scripted import Step, chunk, status, task
from tests.helpers.watched_engine import Hold


async def test_a_stream_begins_with_a_task_and_has_contiguous_cursors(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", chunk("one", append=False), chunk("two"), status("completed"), chunk("late"))
    got = await system.stream()
    assert [frame["cursor"] for frame in got] == [1, 2, 3, 4]
    assert [frame["kind"] for frame in got] == ["task", "artifact-update", "artifact-update", "status-update"]
    assert {frame.get("taskId", frame.get("id")) for frame in got[1:]} == {got[1]["taskId"]}
    assert got[-1]["final"] is True
    assert gap_cursors(got) == []


async def test_a_reader_resumes_exactly_where_it_was(system: System) -> None:
    await system.enrol("echo:a")
    half = [chunk(str(n)) for n in range(20)]
    hold = Hold()
    system.forwarder.plan("echo:a", task(), *half, hold, *half, status("completed"))
    whole = asyncio.create_task(system.stream())
    await hold.reached.wait()
    row = await system.row()
    back = [await system.subscribe(row.id, after) for after in (1, 7, 20)]
    hold.release()
    everything = await whole
    for after, task_stream in zip((1, 7, 20), back, strict=True):
        got = await frames(task_stream)
        assert (got[0]["kind"], got[0]["cursor"], len(texts(got[0]))) == ("task", after, after - 1)
        assert got[1:] == everything[after:]


async def test_a_reader_without_cursor_gets_the_task_as_of_now(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), chunk("x", append=False), status("completed"))
    answer = await system.send()
    got = await frames(await system.subscribe(answer["id"]))
    assert [end(frame) for frame in got] == [("completed", "")]
    assert got[0]["cursor"] == 3


async def test_a_reader_with_the_cursor_zero_gets_the_log_from_its_beginning(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), chunk("x", append=False), status("completed"))
    answer = await system.send()
    got = await frames(await system.subscribe(answer["id"], after=0))
    assert [frame["kind"] for frame in got] == ["task", "artifact-update", "status-update"]


async def test_a_reader_of_a_task_without_an_event_gets_all_that_comes(system: System) -> None:
    await system.enrol("echo:a")
    pending, hold = await reaches(system, then=(task(), chunk("x", append=False), status("completed")))
    task_stream = await system.subscribe((await system.row()).id)
    hold.release()
    await pending
    assert [frame["cursor"] for frame in await frames(task_stream)] == [1, 2, 3]


async def test_a_cursor_after_the_end_is_refused(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task("completed"))
    answer = await system.send()
    assert len(await frames(await system.subscribe(answer["id"], after=1))) == 1
    with pytest.raises(InvalidParams):
        await system.subscribe(answer["id"], after=2)


async def test_a_subscription_to_an_ended_task_is_refused_in_1_0(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), status("completed"))
    answer = await system.send()
    with pytest.raises(TaskOver):
        await system.subscribe(answer["id"], dialect="1.0")
    with pytest.raises(TaskOver):
        await system.subscribe(answer["id"], after=2, dialect="1.0")
    assert len(await frames(await system.subscribe(answer["id"], after=1, dialect="1.0"))) == 2
    assert len(await frames(await system.subscribe(answer["id"], after=2, dialect="0.3"))) == 1


async def test_the_relay_follows_a_stream_without_readers(system: System) -> None:
    await system.enrol("echo:a")
    hold = Hold()
    system.forwarder.plan("echo:a", task(), hold, chunk("x", append=False), status("completed"))
    task_stream = await system.hub.stream(CALLER, say())
    await hold.reached.wait()
    task_stream.close()
    hold.release()
    await asyncio.sleep(0.1)
    row = await system.row()
    assert end(await system.get(row.id)) == ("completed", "")
    assert system.observer.streams == 0


async def test_a_stream_that_continues_after_the_end_is_closed(system: System) -> None:
    await system.enrol("echo:a")
    system.with_bounds(silence=timedelta(seconds=60))
    system.watch()
    system.forwarder.plan("echo:a", task(), status("completed"), 3600.0)
    assert end(await system.send()) == ("completed", "")
    await asyncio.sleep(4.9)
    assert system.forwarder.left == []
    await asyncio.sleep(1.2)
    assert system.forwarder.left == ["echo:a"]
    assert len(system.hub.relays) == 0


async def test_events_after_the_end_are_dropped_and_counted(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), status("completed"), [chunk("late", append=False), status("failed")])
    answer = await system.send()
    await asyncio.sleep(0.1)
    assert await system.get(answer["id"]) == answer
    assert dict(system.observer.drops) == {"after the end": 2}


@pytest.mark.parametrize(
    ("steps", "fetched"),
    [
        ((task(), InvalidAnswer("echo:a", "an endless line")), 3),
        ((task(), chunk("x", append=False)), 3),
    ],
    ids=["invalid_answer", "cut"],
)
async def test_a_worker_is_given_up_after_its_third_invalid_answer(
    system: System, steps: tuple[Step, ...], fetched: int
) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", *steps)
    system.forwarder.plan_fetch("echo:a", *[InvalidAnswer("echo:a", "HTML")] * 9)
    assert end((await system.stream())[-1]) == ("failed", "INVALID_AGENT_RESPONSE")
    assert len(system.forwarder.asked("fetch")) == fetched


@pytest.mark.parametrize("error", [EventTooLarge("echo:a", 100), AnswerTooLarge("echo:a", 100)])
async def test_a_worker_that_sends_too_much_is_not_asked_for_it_again(system: System, error: AnswerTooLarge) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), error)
    last = (await system.stream())[-1]
    assert end(last) == ("failed", "INVALID_AGENT_RESPONSE")
    assert error.message in str(last)
    await asyncio.sleep(0.1)
    assert not system.forwarder.asked("fetch")
    assert len(system.forwarder.asked("cancel")) == 1


async def test_two_invalid_answers_are_tolerated(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task())
    invalid_answer = InvalidAnswer("echo:a", "HTML")
    system.forwarder.plan_fetch("echo:a", invalid_answer, invalid_answer, task("completed"))
    assert end((await system.stream())[-1]) == ("completed", "")


@pytest.mark.parametrize("sign", [[], chunk("x", append=False)], ids=["a comment", "an event"])
async def test_a_worker_that_gives_signs_of_life_may_take_its_time(
    system: System, sign: WorkerEvent | list[WorkerEvent]
) -> None:
    await system.enrol("echo:a")
    system.with_bounds(silence=timedelta(seconds=60))
    system.watch()
    steps: list[Step] = []
    for _ in range(10):
        steps += [50.0, sign]
    system.forwarder.plan("echo:a", task(), *steps, status("completed"))
    assert end(await system.send()) == ("completed", "")


async def test_a_worker_that_gives_no_sign_of_life_is_given_up(system: System) -> None:
    await system.enrol("echo:a")
    system.with_bounds(silence=timedelta(seconds=60))
    system.watch()
    system.forwarder.plan("echo:a", task(), 50.0, chunk("x", append=False), 3600.0)
    began = system.clock.monotonic()
    got = await system.stream()
    assert end(got[-1]) == ("failed", "WORKER_SILENT")
    assert system.clock.monotonic() - began == pytest.approx(110.5, abs=0.6)
    assert system.forwarder.left == ["echo:a"]
    assert system.forwarder.asked("cancel") == []
    assert system.observer.failures == ["WorkerSilent"]


async def test_a_worker_that_is_silent_from_the_start_is_given_up(system: System) -> None:
    await system.enrol("echo:a")
    system.with_bounds(silence=timedelta(seconds=60))
    system.watch()
    system.forwarder.plan("echo:a", 3600.0)
    began = system.clock.monotonic()
    assert end(await system.send()) == ("failed", "WORKER_SILENT")
    assert system.clock.monotonic() - began == pytest.approx(60.5, abs=0.6)


async def test_a_short_silence_is_checked_four_times(system: System) -> None:
    await system.enrol("echo:a")
    system.watch()
    system.forwarder.plan("echo:a", 0.1, task(), 3600.0)
    began = system.clock.monotonic()
    assert end(await system.send()) == ("failed", "WORKER_SILENT")
    assert system.clock.monotonic() - began == pytest.approx(1.0, abs=0.01)
