from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence

import pytest

from hub.ports.state.engine import Engine
from hub.ports.state.event_log import Subscription
from hub.storage.common.log_tail import LIVE_EVENTS, PAGE_BYTES, PAGE_EVENTS, TAIL_BYTES, TAIL_EVENTS
from rolecall.errors import LogMoved, TaskNotFound
from rolecall.model.a2a import Event, EventKind, Logged, TaskState
from rolecall.model.ids import START, Cursor, TaskId
from tests.contract.conftest import Store
from tests.contract.words import ANNA, DONE, LONG, SOON, admitted, append, grown, message, status, text
from tests.helpers.reading import next_batch, read_all
from tests.helpers.waiting import until


def cursors(batch: Sequence[Logged]) -> list[int]:
    return [logged.cursor for logged in batch]


# --- appending


async def test_events_are_read_as_they_were_written(engine: Engine) -> None:
    task = await admitted(engine)
    events = [
        Event(EventKind.TASK, TaskState.SUBMITTED, "0.3", '{"ü":"\\u0000 😀"}'.encode()),
        Event(EventKind.ARTIFACT, None, "1.0", b"\x00\xff"),
        Event(EventKind.STATUS, TaskState.INPUT_REQUIRED, "0.3", b""),
    ]
    assert await append(engine, task, *events) == 3
    stored = await engine.events.read(task)
    assert list(stored) == [Logged(Cursor(at), event) for at, event in enumerate(events, 1)]
    assert stored[2].event.pauses


async def test_cursors_are_contiguous_and_start_at_one(engine: Engine) -> None:
    task, other = await admitted(engine), await admitted(engine)
    assert await append(engine, task, text()) == 1
    assert await append(engine, other, text(), text()) == 2
    assert await append(engine, task, text(), text(), after=1) == 3
    assert cursors(await engine.events.read(task)) == [1, 2, 3]


async def test_append_after_another_end_is_refused(engine: Engine) -> None:
    task = await admitted(engine)
    await append(engine, task, text("kept"))
    for after in (0, 2, 5):
        with pytest.raises(LogMoved):
            await append(engine, task, text("lost"), after=after)
    assert [logged.event.body for logged in await engine.events.read(task)] == [b"kept"]


@pytest.mark.parametrize("last", [DONE, message()], ids=["terminal state", "bare message"])
async def test_an_ended_log_takes_no_more_events(engine: Engine, last: Event) -> None:
    task = await admitted(engine)
    await append(engine, task, last)
    with pytest.raises(LogMoved):
        await append(engine, task, text(), after=1)
    assert cursors(await engine.events.read(task)) == [1]


async def test_unknown_task_has_no_log(engine: Engine) -> None:
    unknown = TaskId("never-was")
    with pytest.raises(LogMoved):
        await append(engine, unknown, text())
    assert list(await engine.events.read(unknown)) == []
    with pytest.raises(TaskNotFound):
        await next_batch(engine.events.follow(unknown, after=START, idle=SOON))


async def test_of_concurrent_writers_exactly_one_appends_at_each_cursor(engine: Engine) -> None:
    task = await admitted(engine)
    for place in range(20):
        writes = [append(engine, task, text(f"{place}/{writer}"), after=place) for writer in range(5)]
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert results.count(place + 1) == 1
        assert sum(isinstance(result, LogMoved) for result in results) == 4
    stored = await engine.events.read(task)
    assert cursors(stored) == list(range(1, 21))
    assert [logged.event.body.split(b"/")[0] for logged in stored] == [str(place).encode() for place in range(20)]


async def test_of_an_append_of_events_and_one_of_a_position_the_first_wins(engine: Engine) -> None:
    task = await admitted(engine)
    await append(engine, task, text(), position="b.1")
    results = await asyncio.gather(
        append(engine, task, text(), after=1, position="b.2"),
        append(engine, task, after=1, position="of the loser"),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [int, LogMoved]
    row = await engine.tasks.get(ANNA, task)
    assert (row.at, row.position) == (2, "b.2")


async def test_position_alone_moves_no_end_and_is_refused_where_the_log_is_not(engine: Engine) -> None:
    task = await admitted(engine)
    assert await append(engine, task, position="b.0") == 0
    await append(engine, task, text())
    assert await append(engine, task, after=1, position="b.1") == 1
    for after in (0, 2):
        with pytest.raises(LogMoved):
            await append(engine, task, after=after, position="of the loser")
    row = await engine.tasks.get(ANNA, task)
    assert (row.at, row.position, row.size) == (1, "b.1", len(text().body))


async def test_a_refused_append_does_not_affect_others(engine: Engine) -> None:
    tasks = [await admitted(engine) for _ in range(10)]
    results = await asyncio.gather(
        *(append(engine, task, text(), after=at % 2) for at, task in enumerate(tasks)), return_exceptions=True
    )
    assert [isinstance(result, LogMoved) for result in results] == [bool(at % 2) for at in range(10)]


async def test_logs_survive_reopening(store: Store, engine: Engine) -> None:
    task, ended = await admitted(engine), await admitted(engine)
    expected = await grown(engine, task, 30)
    await append(engine, ended, text(), DONE)
    engine = await store.reopen()
    assert list(await engine.events.read(task)) == expected
    assert await read_all(engine.events.follow(ended, after=START, idle=LONG)) == list(await engine.events.read(ended))
    with pytest.raises(LogMoved):
        await append(engine, ended, text(), after=2)
    with pytest.raises(LogMoved):
        await append(engine, task, text(), after=29)
    assert await append(engine, task, DONE, after=30) == 31
    assert cursors(await read_all(engine.events.follow(task, after=Cursor(28), idle=LONG))) == [29, 30, 31]


# --- reading


async def test_read_gives_what_lies_between_two_cursors(engine: Engine) -> None:
    task = await admitted(engine)
    expected = await grown(engine, task, TAIL_EVENTS + 50)
    for after, upto in [(0, None), (0, 3), (10, 20), (TAIL_EVENTS, None), (40, TAIL_EVENTS + 20), (5, 5), (9, 2), (5, 9_999)]:
        found = await engine.events.read(task, after=Cursor(after), upto=Cursor(upto) if upto is not None else None)
        assert list(found) == expected[after:upto], (after, upto)
    assert list(await engine.events.read(task, after=Cursor(9_999))) == []


# --- following


async def test_follower_gets_stored_then_live_events(engine: Engine) -> None:
    task = await admitted(engine)
    await append(engine, task, text("1"), text("2"))
    reader = engine.events.follow(task, after=START, idle=LONG)
    assert cursors(await next_batch(reader)) == [1, 2]
    waiting = asyncio.ensure_future(next_batch(reader))
    await asyncio.sleep(0)
    await append(engine, task, text("3"), after=2)
    assert cursors(await waiting) == [3]
    await append(engine, task, DONE, after=3)
    assert cursors(await next_batch(reader)) == [4]
    with pytest.raises(EOFError):
        await next_batch(reader)


async def test_follower_begins_after_its_cursor(engine: Engine) -> None:
    task = await admitted(engine)
    await append(engine, task, text(), text(), text(), DONE)
    assert cursors(await read_all(engine.events.follow(task, after=Cursor(2), idle=LONG))) == [3, 4]


@pytest.mark.parametrize("after", [2, 7])
async def test_follower_at_the_end_of_an_ended_log_ends(engine: Engine, after: int) -> None:
    task = await admitted(engine)
    await append(engine, task, text(), DONE)
    assert await read_all(engine.events.follow(task, after=Cursor(after), idle=LONG)) == []


async def test_bare_message_is_followed_to_its_end(engine: Engine) -> None:
    task = await admitted(engine)
    reader = engine.events.follow(task, after=START, idle=LONG)
    await append(engine, task, message("hello"))
    assert [logged.event.body for logged in await read_all(reader)] == [b"hello"]
    assert cursors(await engine.events.read(task)) == [1]


async def test_pause_does_not_end_a_follower(engine: Engine) -> None:
    task = await admitted(engine)
    await append(engine, task, status(TaskState.INPUT_REQUIRED))
    reader = engine.events.follow(task, after=START, idle=SOON)
    assert cursors(await next_batch(reader)) == [1]
    assert list(await next_batch(reader)) == []
    await append(engine, task, status(TaskState.WORKING), after=1)
    assert cursors(await next_batch(reader)) == [2]


async def test_an_idle_follower_gets_empty_batches_and_continues(engine: Engine) -> None:
    task = await admitted(engine)
    reader = engine.events.follow(task, after=START, idle=SOON)
    assert [list(await next_batch(reader)) for _ in range(3)] == [[], [], []]
    await append(engine, task, text())
    assert cursors(await next_batch(reader)) == [1]


async def test_stop_ends_a_waiting_follower_and_one_that_has_more_to_read(engine: Engine) -> None:
    task = await admitted(engine)
    reader = engine.events.follow(task, after=START, idle=LONG)
    waiting = asyncio.ensure_future(next_batch(reader))
    await asyncio.sleep(0.01)
    reader.stop()
    with pytest.raises(EOFError):
        await waiting
    await append(engine, task, text())
    with pytest.raises(EOFError):
        await next_batch(reader)


async def test_cancelled_follower_can_be_asked_again(engine: Engine) -> None:
    task = await admitted(engine)
    reader = engine.events.follow(task, after=START, idle=LONG)
    waiting = asyncio.ensure_future(next_batch(reader))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await append(engine, task, text())
    assert cursors(await next_batch(reader)) == [1]
    reader.stop()


async def test_batch_is_at_most_a_page(engine: Engine) -> None:
    many, large = await admitted(engine), await admitted(engine)
    await grown(engine, many, 3 * PAGE_EVENTS)
    await grown(engine, large, 40, size=PAGE_BYTES // 8)
    for task, count in ((many, 3 * PAGE_EVENTS), (large, 40)):
        reader = engine.events.follow(task, after=START, idle=SOON)
        seen: list[int] = []
        while batch := await next_batch(reader):
            assert len(batch) <= PAGE_EVENTS
            assert sum(len(logged.event.body) for logged in batch[:-1]) < PAGE_BYTES
            seen += cursors(batch)
        assert seen == list(range(1, count + 1))


async def test_event_larger_than_a_page_still_comes_through(engine: Engine) -> None:
    task = await admitted(engine)
    await append(engine, task, text("a"), text("b" * 2 * TAIL_BYTES), text("c"), DONE)
    sizes = [len(logged.event.body) for logged in await read_all(engine.events.follow(task, after=START, idle=LONG))]
    assert sizes == [1, 2 * TAIL_BYTES, 1, len(DONE.body)]


async def test_followers_of_every_speed_get_every_event_once_in_order(engine: Engine) -> None:
    task = await admitted(engine)
    total = 1_500
    rng = random.Random(7)

    async def write() -> None:
        at = 0
        while at < total:
            count = min(rng.choice([1, 1, 2, 40]), total - at)
            at = await append(engine, task, *(text(f"{place}" * 20) for place in range(at, at + count)), after=at)
            await asyncio.sleep(0)
        await append(engine, task, DONE, after=at)

    async def follow(after: int, pause: int) -> list[int]:
        seen: list[int] = []
        reader = engine.events.follow(task, after=Cursor(after), idle=LONG)
        if not pause:
            return cursors(await read_all(reader))
        while not seen or seen[-1] <= total:
            seen += cursors(await next_batch(reader))
            for _ in range(pause):
                await asyncio.sleep(0)
        return seen

    async def come_back_often() -> list[int]:
        seen: list[int] = []
        while not seen or seen[-1] <= total:
            reader = engine.events.follow(task, after=Cursor(seen[-1] if seen else 0), idle=LONG)
            seen += cursors(await next_batch(reader))
            reader.stop()
        return seen

    rates = [(0, 0), (0, 3), (0, 400), (100, 20), (total, 0)]
    _, back, *seen = await asyncio.gather(write(), come_back_often(), *(follow(*rate) for rate in rates))
    assert back == list(range(1, total + 2))
    for (after, _), its in zip(rates, seen, strict=True):
        assert its == list(range(after + 1, total + 2))


async def test_a_follower_that_opens_an_old_log_while_it_grows_misses_nothing(store: Store, engine: Engine) -> None:
    tasks = [await admitted(engine) for _ in range(20)]
    for task in tasks:
        await append(engine, task, text())
    if store.on_disk:
        engine = await store.reopen()

    async def write(task: TaskId) -> None:
        for at in range(1, 30):
            await append(engine, task, DONE if at == 29 else text(), after=at)

    async def follow(task: TaskId, wait: int) -> list[int]:
        for _ in range(wait):
            await asyncio.sleep(0)
        return cursors(await read_all(engine.events.follow(task, after=START, idle=LONG)))

    readers = [follow(task, wait) for wait, task in enumerate(tasks)]
    results = await asyncio.gather(*readers, *(write(task) for task in tasks))
    assert results[: len(tasks)] == [list(range(1, 31))] * len(tasks)


# --- live


class LiveReader:
    """Reads pages until it has all, then live. It refuses what `answers` says, and takes everything after that."""

    def __init__(self, subscription: Subscription, answers: Sequence[bool] = ()) -> None:
        self.subscription = subscription
        self.answers = list(answers)
        self.seen: list[int] = []
        self.calls: list[list[int]] = []
        self.reading = asyncio.ensure_future(self._read())
        self._live = False

    async def live_at(self, cursor: int) -> None:
        """Wait until it has everything up to there, and waits for more."""

        async def is_there() -> bool:
            return self._live and (self.seen or [0])[-1] == cursor

        await until(is_there)

    async def _read(self) -> None:
        more = True
        while more:
            while page := await self.subscription.page():
                self.seen += cursors(page)
            self._live = True
            more = await self.subscription.live(self._deliver)
            self._live = False

    def _deliver(self, events: Sequence[Logged]) -> bool:
        self.calls.append(cursors(events))
        taken = self.answers.pop(0) if self.answers else True
        if taken:
            self.seen += cursors(events)
        return taken


async def test_a_live_reader_has_an_event_before_its_writer_goes_on(engine: Engine) -> None:
    task = await admitted(engine)
    reader = LiveReader(engine.events.follow(task, after=START, idle=LONG))
    await reader.live_at(START)
    for at in range(3):
        await append(engine, task, text(), after=at)
        assert reader.seen == list(range(1, at + 2))
    await append(engine, task, DONE, after=3)
    await asyncio.wait_for(reader.reading, 10)
    assert (reader.seen, reader.calls) == ([1, 2, 3, 4], [[1], [2], [3], [4]])


@pytest.mark.parametrize("turns", [0, 1, 4])
async def test_whenever_a_reader_refuses_it_gets_every_event_once_in_order(engine: Engine, turns: int) -> None:
    """Every pattern of refusals, with appends that meet the reader live, woken, or reading pages."""
    tasks, readers = list[TaskId](), list[LiveReader]()
    for answers in itertools.product((True, False), repeat=4):
        task = await admitted(engine)
        tasks.append(task)
        readers += [LiveReader(engine.events.follow(task, after=START, idle=LONG), answers) for _ in range(2)]
    await asyncio.gather(*(reader.live_at(START) for reader in readers))

    async def write(task: TaskId) -> None:
        at = 0
        for count in (1, 1, 2, LIVE_EVENTS + 1, 1, TAIL_EVENTS + 1, 1, 1):
            at = await append(engine, task, *[text()] * count, after=at)
            for _ in range(turns):
                await asyncio.sleep(0)
        await append(engine, task, DONE, after=at)

    await asyncio.gather(*(write(task) for task in tasks))
    await asyncio.wait_for(asyncio.gather(*(reader.reading for reader in readers)), 10)
    total = LIVE_EVENTS + TAIL_EVENTS + 10
    for reader in readers:
        assert reader.seen == list(range(1, total + 1))
        assert max(map(len, reader.calls), default=0) <= LIVE_EVENTS
    assert turns == 0 or all(reader.answers == [] for reader in readers)


async def test_a_reader_is_called_with_all_that_is_new(engine: Engine) -> None:
    """Nothing of a call is missing at its end: a pause at the end of a call is the end of the log."""
    task = await admitted(engine)
    reader = LiveReader(engine.events.follow(task, after=START, idle=LONG))
    await reader.live_at(START)
    await append(engine, task, text(), status(TaskState.INPUT_REQUIRED), text())
    assert reader.calls == [[1, 2, 3]]
    reader.subscription.stop()
    await reader.reading


async def test_a_live_reader_gets_at_most_a_page_or_one_event(engine: Engine) -> None:
    task = await admitted(engine)
    reader = LiveReader(engine.events.follow(task, after=START, idle=LONG))
    await reader.live_at(START)
    large = text("x" * (PAGE_BYTES - len(text().body)))
    await append(engine, task, large, text())
    await reader.live_at(2)
    await append(engine, task, large, large, after=2)
    await reader.live_at(4)
    await append(engine, task, text("x" * 2 * PAGE_BYTES), after=4)
    await reader.live_at(5)
    assert reader.calls == [[1, 2], [5]]
    await append(engine, task, text("x" * 2 * TAIL_BYTES), text(), after=5)
    await reader.live_at(7)
    assert reader.seen == [1, 2, 3, 4, 5, 6, 7]
    assert reader.calls == [[1, 2], [5]]
    reader.subscription.stop()
    await reader.reading


async def test_a_reader_that_is_not_at_the_end_is_not_live(engine: Engine) -> None:
    task = await admitted(engine)
    await append(engine, task, text())
    subscription = engine.events.follow(task, after=START, idle=LONG)
    assert await subscription.live(lambda events: pytest.fail("called")) is True
    assert cursors(await subscription.page()) == [1]
    assert list(await subscription.page()) == []
    subscription.stop()


async def test_a_refused_reader_is_not_called_again_before_it_has_read(engine: Engine) -> None:
    task = await admitted(engine)
    subscription = engine.events.follow(task, after=START, idle=LONG)
    calls = list[list[int]]()

    def refuse(events: Sequence[Logged]) -> bool:
        calls.append(cursors(events))
        return False

    assert list(await subscription.page()) == []
    live = asyncio.ensure_future(subscription.live(refuse))
    await asyncio.sleep(0)
    for at in range(3):
        await append(engine, task, text(), after=at)
    assert await live is True
    assert calls == [[1]]
    assert cursors(await subscription.page()) == [1, 2, 3]
    subscription.stop()


@pytest.mark.parametrize("inside", [True, False], ids=["in a call", "from outside"])
async def test_stop_ends_a_live_reader(engine: Engine, inside: bool) -> None:
    task = await admitted(engine)
    subscription = engine.events.follow(task, after=START, idle=LONG)
    calls = list[list[int]]()

    def take(events: Sequence[Logged]) -> bool:
        calls.append(cursors(events))
        if inside:
            subscription.stop()
        return True

    assert list(await subscription.page()) == []
    live = asyncio.ensure_future(subscription.live(take))
    await asyncio.sleep(0)
    await append(engine, task, text())
    subscription.stop()
    await append(engine, task, text(), after=1)
    assert await live is False
    assert calls == [[1]]
    assert list(await subscription.page()) == []
    assert await subscription.live(take) is False


async def test_an_idle_live_reader_is_called_with_nothing_and_stays_live(engine: Engine) -> None:
    task = await admitted(engine)
    reader = LiveReader(engine.events.follow(task, after=START, idle=SOON))

    async def was_called_often() -> bool:
        return len(reader.calls) >= 3

    await until(was_called_often)
    assert reader.calls == [[]] * len(reader.calls)
    await append(engine, task, text())
    assert reader.seen == [1]
    reader.subscription.stop()
    await asyncio.wait_for(reader.reading, 10)


async def test_what_one_reader_raises_reaches_that_reader_only(engine: Engine) -> None:
    task = await admitted(engine)
    subscription = engine.events.follow(task, after=START, idle=LONG)
    assert list(await subscription.page()) == []

    def fail(events: Sequence[Logged]) -> bool:
        raise RuntimeError("a bug")

    live = asyncio.ensure_future(subscription.live(fail))
    others = [LiveReader(engine.events.follow(task, after=START, idle=LONG)) for _ in range(2)]
    await asyncio.gather(*(other.live_at(START) for other in others))
    await append(engine, task, text())
    await append(engine, task, DONE, after=1)
    with pytest.raises(RuntimeError, match="a bug"):
        await live
    for other in others:
        await asyncio.wait_for(other.reading, 10)
        assert other.seen == [1, 2]
    assert cursors(await subscription.page()) == [1, 2]


async def test_a_cancelled_live_reader_is_not_called_and_can_read_on(engine: Engine) -> None:
    task = await admitted(engine)
    reader = LiveReader(engine.events.follow(task, after=START, idle=LONG))
    await reader.live_at(START)
    await append(engine, task, text())
    reader.reading.cancel()
    await asyncio.wait([reader.reading])
    await append(engine, task, text(), after=1)
    assert reader.calls == [[1]]
    assert cursors(await reader.subscription.page()) == [2]
    reader.subscription.stop()


@pytest.mark.parametrize("total", range(20, 28))
async def test_many_live_readers_each_get_every_event_once_in_order(engine: Engine, total: int) -> None:
    """They are served in turns, while more is written. The last event comes at another moment of their turns for each total."""
    task, rng = await admitted(engine), random.Random(total)
    readers = [
        LiveReader(engine.events.follow(task, after=START, idle=LONG), rng.choices((True, False), k=5)) for _ in range(60)
    ]
    await asyncio.gather(*(reader.live_at(START) for reader in readers))
    for at in range(total):
        await append(engine, task, text(), after=at)
        if at % 10 == 5:
            rng.choice(readers).reading.cancel()
    await append(engine, task, DONE, after=total)
    await asyncio.wait([reader.reading for reader in readers], timeout=10)
    for reader in readers:
        if reader.reading.cancelled():
            assert reader.seen == list(range(1, len(reader.seen) + 1))
        else:
            assert reader.seen == list(range(1, total + 2))
