"""The task log: exact for every reader, bounded in memory, and no event is dropped before it was received."""

from __future__ import annotations

import asyncio
import random

import pytest

from rolecall.model.a2a import EventKind, TaskState
from rolecall.protocol.text.jsontext import parse
from worker_sdk.tasks.log import TaskLog
from worker_sdk.words import TooLarge

pytestmark = pytest.mark.virtual_time


def begun(cap: int = 10_000) -> TaskLog:
    log = TaskLog("t", "c", cap=cap)
    history = [{"kind": "message", "role": "user", "messageId": "m", "parts": []}]
    task = {"kind": "task", "id": "t", "contextId": "c", "status": {"state": "working"}, "history": history}
    log.append(EventKind.TASK, task, TaskState.WORKING)
    return log


def put_text(log: TaskLog, text: str) -> None:
    artifact = {"artifactId": "a", "parts": [{"kind": "text", "text": text}]}
    log.append(EventKind.ARTIFACT, {"kind": "artifact-update", "artifact": artifact, "append": True})


def end(log: TaskLog) -> None:
    status = {"kind": "status-update", "status": {"state": "completed"}, "final": True}
    log.append(EventKind.STATUS, status, TaskState.COMPLETED)


async def read_all(log: TaskLog, after: int, *, pause: float = 0) -> list[int]:
    reader, cursors = log.follow(after), []
    while (batch := await reader.batch(10)) is not None:
        cursors += [logged.cursor for logged in batch]
        await asyncio.sleep(pause)
    reader.close()
    return cursors


async def test_concurrent_readers_from_any_place_each_get_exactly_what_follows() -> None:
    chance, log = random.Random(7), begun(cap=10**7)
    positions = [1, 1]
    readers = [asyncio.create_task(read_all(log, 1)) for _ in positions]
    for n in range(600):
        put_text(log, str(n))
        if n % 40 == 0:
            positions.append(chance.randint(0, log.end))
            readers.append(asyncio.create_task(read_all(log, positions[-1])))
        if n % 3 == 0:
            await asyncio.sleep(0)
    end(log)
    positions.append(5)
    readers.append(asyncio.create_task(read_all(log, 5)))
    for position, cursors in zip(positions, await asyncio.gather(*readers), strict=True):
        assert cursors == list(range(position + 1, log.end + 1))


async def test_a_silent_log_gives_an_empty_batch_and_stop_ends_the_reader() -> None:
    log = begun()
    reader = log.follow(1)
    assert await reader.batch(0.001) == ()
    reader.stop()
    assert await reader.batch(10) is None
    reader.close()


async def test_at_the_cap_the_handler_waits_without_a_reader() -> None:
    log = begun(cap=2_000)
    while log.size < 2_000:
        put_text(log, "x" * 100)
    waiting = asyncio.create_task(log.wait_for_space())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    cursors: list[int] = []
    reader = log.follow(0)
    while not waiting.done():
        cursors += [logged.cursor for logged in await reader.batch(1) or ()]
        await asyncio.sleep(0)
    assert cursors == list(range(1, log.end + 1))
    assert log.first > 1
    reader.close()


async def test_the_handler_waits_when_the_log_is_exactly_at_the_cap() -> None:
    log = begun(cap=begun().size)
    waiting = asyncio.create_task(log.wait_for_space())
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()


async def test_a_handler_does_not_wait_for_ever_behind_an_event_that_is_larger_than_half_the_cap() -> None:
    log = begun(cap=10_000)
    reading = asyncio.create_task(read_all(log, 0))
    for size in (7_000, 4_000, 9_000, 12_000, 4_000, 100):
        async with asyncio.timeout(5):
            await log.wait_for_space()
        put_text(log, "x" * size)
    end(log)
    assert await reading == list(range(1, log.end + 1))


def test_an_event_above_its_limit_is_refused_and_names_the_settings_of_both_sides() -> None:
    log = TaskLog("t", "c", max_event=1_000)
    log.append(EventKind.TASK, {"kind": "task", "text": "x" * 2_000}, TaskState.WORKING)
    put_text(log, "x" * 500)
    with pytest.raises(TooLarge, match=r"may take 1000 \(max_event of the Worker, and ROLECALL_MAX_EVENT of its hub\)"):
        put_text(log, "x" * 1_000)
    assert log.end == 2


async def test_memory_stays_bounded_and_a_slow_reader_misses_nothing() -> None:
    log, largest = begun(cap=4_000), 0
    slow, quick = asyncio.create_task(read_all(log, 0, pause=0.0005)), asyncio.create_task(read_all(log, 0))
    await asyncio.sleep(0)
    for n in range(400):
        await log.wait_for_space()
        put_text(log, f"{n:0100}")
        largest = max(largest, log.size)
    end(log)
    assert await slow == await quick == list(range(1, log.end + 1))
    assert largest < 4_000 + 400
    assert log.first > 300


async def test_recently_delivered_events_are_kept_for_a_reader_that_was_cut() -> None:
    log = begun(cap=4_000)
    reader = log.follow(0)
    for _ in range(100):
        await log.wait_for_space()
        put_text(log, "x" * 100)
        await reader.batch(1)
    reader.close()
    kept = log.end - log.first + 1
    assert kept * 150 > 1_500
    again = log.follow(log.first - 1)
    batch = await again.batch(1)
    assert batch and batch[0].cursor == log.first
    again.close()


async def test_a_snapshot_is_the_fold_up_to_its_event_with_turns_in_order() -> None:
    log = begun()
    put_text(log, "one")
    log.append(
        EventKind.STATUS,
        {"kind": "status-update", "status": {"state": "input-required"}, "final": True},
        TaskState.INPUT_REQUIRED,
    )
    log.add_turn({"kind": "message", "role": "user", "messageId": "m2", "parts": []})
    log.append(EventKind.STATUS, {"kind": "status-update", "status": {"state": "working"}, "final": False}, TaskState.WORKING)
    put_text(log, "two")
    early, late = parse(log.snapshot(upto=2)), parse(log.snapshot())
    assert [part["text"] for part in early["artifacts"][0]["parts"]] == ["one"]
    assert [message["messageId"] for message in early["history"]] == ["m"]
    assert [part["text"] for part in late["artifacts"][0]["parts"]] == ["one", "two"]
    assert [message["messageId"] for message in late["history"]] == ["m", "m2"]
    assert late["status"]["state"] == "working"
    assert "history" not in parse(log.snapshot(history_length=0))


@pytest.mark.parametrize("ended", [False, True])
async def test_a_snapshot_counts_dropped_events(ended: bool) -> None:
    log = begun(cap=1_000)
    reader = log.follow(0)
    for _ in range(40):
        await log.wait_for_space()
        put_text(log, "x" * 50)
        await reader.batch(1)
    if ended:
        end(log)
    task = parse(log.snapshot())
    assert task["metadata"]["rolecall"]["eventsLetGo"] == log.first - 1 > 0
    assert task["status"]["state"] == ("completed" if ended else "working")
    assert [message["messageId"] for message in task["history"]] == ["m"]
    reader.close()


async def test_no_turn_is_lost_with_dropped_events() -> None:
    """A turn follows every event: whichever event is the last one dropped, its turn stays in the history."""
    log = begun(cap=1_000)
    message_ids = ["m"]
    reader = log.follow(0)
    first_events = set()
    for number in range(60):
        await log.wait_for_space()
        put_text(log, "x" * 20)
        log.add_turn({"kind": "message", "role": "user", "messageId": f"m{number}", "parts": []})
        message_ids.append(f"m{number}")
        await reader.batch(1)
        first_events.add(log.first)
        assert [message["messageId"] for message in parse(log.snapshot())["history"]] == message_ids
    reader.close()
    assert len(first_events) > 5


async def test_a_snapshot_of_an_earlier_event_has_only_the_turns_before_it() -> None:
    log = begun()
    for number in (2, 3):
        put_text(log, str(number))
        log.add_turn({"kind": "message", "role": "user", "messageId": f"m{number}", "parts": []})
    snapshots = [[message["messageId"] for message in parse(log.snapshot(upto=at))["history"]] for at in (1, 2, 3)]
    assert snapshots == [["m"], ["m", "m2"], ["m", "m2", "m3"]]


async def test_a_log_reports_whether_its_task_is_resting() -> None:
    log = TaskLog("t", "c")
    assert (log.state, log.end, log.first, log.size) == (TaskState.SUBMITTED, 0, 1, 0)
    log = begun()
    assert (log.state, log.resting, log.ended) == (TaskState.WORKING, False, False)
    put_text(log, "x")
    assert log.state is TaskState.WORKING
    log.append(EventKind.STATUS, {"kind": "status-update", "status": {"state": "input-required"}}, TaskState.INPUT_REQUIRED)
    assert (log.resting, log.ended) == (True, False)
    await asyncio.wait_for(log.wait_until_resting(), 1)
    log.append(EventKind.STATUS, {"kind": "status-update", "status": {"state": "working"}}, TaskState.WORKING)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(log.wait_until_resting(), 0.01)
    end(log)
    assert (log.resting, log.ended) == (True, True)
    await asyncio.wait_for(log.wait_until_resting(), 1)


async def test_text_after_the_end_leaves_a_task_resting() -> None:
    log = begun()
    end(log)
    put_text(log, "late")
    await asyncio.wait_for(log.wait_until_resting(), 1)
    assert log.state is TaskState.COMPLETED


async def test_a_late_reader_counts_earlier_events_as_received() -> None:
    """So it does not keep events that every reader has, and gets those that are still stored."""
    log = begun(cap=1_000)
    reader = log.follow(0)
    for _ in range(30):
        await log.wait_for_space()
        put_text(log, "x" * 20)
        await reader.batch(1)
    first = log.first
    assert first > 1
    late = log.follow(log.end)
    for _ in range(30):
        await asyncio.wait_for(log.wait_for_space(), 1)
        put_text(log, "x" * 20)
        await reader.batch(1)
        batch = await late.batch(1)
        assert batch is not None
        assert [logged.cursor for logged in batch] == [log.end]
    assert log.first > first + 20
    for one in (reader, late):
        one.close()


async def test_with_a_reader_that_has_everything_half_the_cap_is_kept() -> None:
    log = begun()
    first = log.size
    put_text(log, "x" * 100)
    size = log.size - first
    log = begun(cap=10 * size)
    while log.size < 10 * size:
        put_text(log, "x" * 100)
    reader = log.follow(log.end)
    await asyncio.wait_for(log.wait_for_space(), 1)
    assert 5 * size <= log.size < 6 * size
    reader.close()


async def test_a_page_has_at_most_256_events() -> None:
    log = begun(cap=10**7)
    for number in range(600):
        put_text(log, str(number))
    reader = log.follow(0)
    sizes = []
    while log.end > sum(sizes):
        sizes.append(len(await reader.batch(1) or ()))
    reader.close()
    assert sizes == [256, 256, 89]


async def test_a_snapshot_of_the_beginning_is_the_first_event_and_its_history_can_be_cut() -> None:
    log = begun()
    assert parse(log.snapshot())["history"][0]["messageId"] == "m"
    assert "history" not in parse(log.snapshot(history_length=0))
    log.add_turn({"kind": "message", "role": "user", "messageId": "m2", "parts": []})
    assert [message["messageId"] for message in parse(log.snapshot(history_length=1))["history"]] == ["m2"]
    put_text(log, "x")
    # An event that was dropped or does not exist means now.
    assert parse(log.snapshot(upto=0)) == parse(log.snapshot())


async def test_a_reader_that_is_closed_no_longer_blocks_the_handler() -> None:
    """A reader that does not read blocks the handler only while it is attached."""
    log = begun(cap=500)
    quick, blocked = log.follow(0), log.follow(0)
    while log.size < 500:
        put_text(log, "x" * 20)
    waiting = asyncio.create_task(log.wait_for_space())
    while await quick.batch(0.001):
        pass
    assert not waiting.done()
    blocked.close()
    await quick.batch(0.001)
    await asyncio.wait_for(waiting, 1)
    quick.close()


async def test_a_dropped_status_is_still_the_tasks_status() -> None:
    log = begun(cap=1_000)
    status = {"state": "working", "message": {"kind": "message", "role": "agent", "messageId": "half", "parts": []}}
    log.append(EventKind.STATUS, {"kind": "status-update", "status": status, "final": False}, TaskState.WORKING)
    reader = log.follow(0)
    for _ in range(40):
        await log.wait_for_space()
        put_text(log, "x" * 50)
        await reader.batch(1)
    reader.close()
    assert log.first > 2
    assert parse(log.snapshot())["status"] == status
