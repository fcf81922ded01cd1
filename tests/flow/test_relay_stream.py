"""A task's events as its readers get them, and what a worker's stream may do."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rolecall.errors import InvalidAnswer, InvalidParams, TaskOver
from rolecall.model.a2a import WorkerEvent
from tests.flow.conftest import ME, House, frames, say
from tests.flow.relayed import end, gaps, reaches, texts
from tests.helpers.scripted import Step, chunk, status, task
from tests.helpers.watched_engine import Hold


async def test_a_stream_begins_with_a_task_and_has_contiguous_cursors(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", chunk("one", append=False), chunk("two"), status("completed"), chunk("late"))
    got = await house.stream()
    assert [frame["cursor"] for frame in got] == [1, 2, 3, 4]
    assert [frame["kind"] for frame in got] == ["task", "artifact-update", "artifact-update", "status-update"]
    assert {frame.get("taskId", frame.get("id")) for frame in got[1:]} == {got[1]["taskId"]}
    assert got[-1]["final"] is True
    assert gaps(got) == []


async def test_a_reader_comes_back_exactly_where_it_was(house: House) -> None:
    await house.enrol("echo:a")
    half = [chunk(str(n)) for n in range(20)]
    hold = Hold()
    house.forwarder.plan("echo:a", task(), *half, hold, *half, status("completed"))
    whole = asyncio.create_task(house.stream())
    await hold.reached.wait()
    row = await house.row()
    back = [await house.subscribe(row.id, after) for after in (1, 7, 20)]
    hold.release()
    everything = await whole
    for after, task_stream in zip((1, 7, 20), back, strict=True):
        got = await frames(task_stream)
        assert (got[0]["kind"], got[0]["cursor"], len(texts(got[0]))) == ("task", after, after - 1)
        assert got[1:] == everything[after:]


async def test_a_reader_without_cursor_gets_the_task_as_of_now(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), chunk("x", append=False), status("completed"))
    answer = await house.send()
    got = await frames(await house.subscribe(answer["id"]))
    assert [end(frame) for frame in got] == [("completed", "")]
    assert got[0]["cursor"] == 3


async def test_a_reader_with_the_cursor_zero_gets_the_log_from_its_beginning(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), chunk("x", append=False), status("completed"))
    answer = await house.send()
    got = await frames(await house.subscribe(answer["id"], after=0))
    assert [frame["kind"] for frame in got] == ["task", "artifact-update", "status-update"]


async def test_a_reader_of_a_task_without_an_event_gets_all_that_comes(house: House) -> None:
    await house.enrol("echo:a")
    sending, hold = await reaches(house, then=(task(), chunk("x", append=False), status("completed")))
    task_stream = await house.subscribe((await house.row()).id)
    hold.release()
    await sending
    assert [frame["cursor"] for frame in await frames(task_stream)] == [1, 2, 3]


async def test_a_cursor_behind_the_end_is_refused(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task("completed"))
    answer = await house.send()
    assert len(await frames(await house.subscribe(answer["id"], after=1))) == 1
    with pytest.raises(InvalidParams):
        await house.subscribe(answer["id"], after=2)


async def test_nobody_subscribes_to_what_has_ended_in_1_0(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), status("completed"))
    answer = await house.send()
    with pytest.raises(TaskOver):
        await house.subscribe(answer["id"], dialect="1.0")
    with pytest.raises(TaskOver):
        await house.subscribe(answer["id"], after=2, dialect="1.0")
    assert len(await frames(await house.subscribe(answer["id"], after=1, dialect="1.0"))) == 2
    assert len(await frames(await house.subscribe(answer["id"], after=2, dialect="0.3"))) == 1


async def test_the_relay_follows_a_stream_that_nobody_reads(house: House) -> None:
    await house.enrol("echo:a")
    hold = Hold()
    house.forwarder.plan("echo:a", task(), hold, chunk("x", append=False), status("completed"))
    task_stream = await house.hub.stream(ME, say())
    await hold.reached.wait()
    task_stream.close()
    hold.release()
    await asyncio.sleep(0.1)
    row = await house.row()
    assert end(await house.get(row.id)) == ("completed", "")
    assert house.observer.streams == 0


async def test_a_worker_that_goes_on_after_its_end_is_left(house: House) -> None:
    await house.enrol("echo:a")
    house.with_bounds(silence=timedelta(seconds=60))
    house.watch()
    house.forwarder.plan("echo:a", task(), status("completed"), 3600.0)
    assert end(await house.send()) == ("completed", "")
    await asyncio.sleep(4.9)
    assert house.forwarder.left == []
    await asyncio.sleep(1.2)
    assert house.forwarder.left == ["echo:a"]
    assert len(house.hub.relays) == 0


async def test_what_comes_after_the_end_is_dropped_and_counted(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), status("completed"), [chunk("late", append=False), status("failed")])
    answer = await house.send()
    await asyncio.sleep(0.1)
    assert await house.get(answer["id"]) == answer
    assert dict(house.observer.drops) == {"after the end": 2}


@pytest.mark.parametrize(
    ("steps", "fetched"),
    [
        ((task(), InvalidAnswer("echo:a", "an endless line")), 3),
        ((task(), chunk("x", append=False)), 3),
    ],
    ids=["nonsense", "cut"],
)
async def test_a_worker_is_given_up_after_its_third_nonsense(house: House, steps: tuple[Step, ...], fetched: int) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", *steps)
    house.forwarder.plan_fetch("echo:a", *[InvalidAnswer("echo:a", "HTML")] * 9)
    assert end((await house.stream())[-1]) == ("failed", "INVALID_AGENT_RESPONSE")
    assert len(house.forwarder.asked("fetch")) == fetched


async def test_nonsense_twice_may_be_a_cut_in_disguise(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task())
    nonsense = InvalidAnswer("echo:a", "HTML")
    house.forwarder.plan_fetch("echo:a", nonsense, nonsense, task("completed"))
    assert end((await house.stream())[-1]) == ("completed", "")


@pytest.mark.parametrize("sign", [[], chunk("x", append=False)], ids=["a comment", "an event"])
async def test_a_worker_that_gives_signs_of_life_may_take_its_time(house: House, sign: WorkerEvent | list[WorkerEvent]) -> None:
    await house.enrol("echo:a")
    house.with_bounds(silence=timedelta(seconds=60))
    house.watch()
    steps: list[Step] = []
    for _ in range(10):
        steps += [50.0, sign]
    house.forwarder.plan("echo:a", task(), *steps, status("completed"))
    assert end(await house.send()) == ("completed", "")


async def test_a_worker_that_gives_no_sign_of_life_is_given_up(house: House) -> None:
    await house.enrol("echo:a")
    house.with_bounds(silence=timedelta(seconds=60))
    house.watch()
    house.forwarder.plan("echo:a", task(), 50.0, chunk("x", append=False), 3600.0)
    began = house.clock.monotonic()
    got = await house.stream()
    assert end(got[-1]) == ("failed", "WORKER_SILENT")
    assert house.clock.monotonic() - began == pytest.approx(110.5, abs=0.6)
    assert house.forwarder.left == ["echo:a"]
    assert house.forwarder.asked("cancel") == []
    assert house.observer.failures == ["WorkerSilent"]


async def test_a_worker_that_is_silent_from_the_start_is_given_up(house: House) -> None:
    await house.enrol("echo:a")
    house.with_bounds(silence=timedelta(seconds=60))
    house.watch()
    house.forwarder.plan("echo:a", 3600.0)
    began = house.clock.monotonic()
    assert end(await house.send()) == ("failed", "WORKER_SILENT")
    assert house.clock.monotonic() - began == pytest.approx(60.5, abs=0.6)


async def test_silence_is_looked_for_four_times_in_a_short_one(house: House) -> None:
    await house.enrol("echo:a")
    house.watch()
    house.forwarder.plan("echo:a", 0.1, task(), 3600.0)
    began = house.clock.monotonic()
    assert end(await house.send()) == ("failed", "WORKER_SILENT")
    assert house.clock.monotonic() - began == pytest.approx(1.0, abs=0.01)
