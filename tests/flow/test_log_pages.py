"""A task's log as tools read it: page by page, as it is stored, bounded in events and bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from hub.core.tasks import log_pages
from hub.core.tasks.log_pages import LogPage
from hub.storage.common.log_tail import LogFollower
from rolecall.errors import AnswerNotSent, InvalidParams, TaskNotFound
from rolecall.model.a2a import Logged
from rolecall.model.ids import START, Cursor, TaskId
from tests.flow.callers import OTHER, DialectCaller
from tests.flow.conftest import CALLER, System, shares
from tests.helpers.scripted import chunk, status, task


async def ended(system: System, *texts: str) -> TaskId:
    """The id of a task that has sent these texts, and has ended: its log has two more events."""
    await system.enrol("echo:a")
    chunks = [chunk(text, append=bool(at)) for at, text in enumerate(texts)]
    system.forwarder.plan("echo:a", task(), *chunks, status("completed"))
    return TaskId((await DialectCaller(system, "0.3").send()).document["id"])


async def page(system: System, task_id: TaskId, after: int = START, limit: int = 100) -> LogPage:
    return await system.hub.log_pages.read(CALLER, task_id, after=Cursor(after), limit=limit)


async def all_pages(system: System, task_id: TaskId, *, limit: int = 100) -> list[Sequence[Logged]]:
    found = [await page(system, task_id, limit=limit)]
    while (after := found[-1].next_after) is not None:
        found.append(await page(system, task_id, after, limit))
    return [one.events for one in found]


async def test_a_log_comes_as_it_is_stored_page_by_page_without_gap_or_repeat(stored_system: System) -> None:
    task_id = await ended(stored_system, *"abcde")
    log = list(await stored_system.engine.events.read(task_id))
    for limit, sizes in ((100, [7]), (7, [7]), (3, [3, 3, 1]), (1, [1] * 7)):
        found = await all_pages(stored_system, task_id, limit=limit)
        assert [len(one) for one in found] == sizes
        assert [logged for one in found for logged in one] == log
    await stored_system.restart()
    assert [logged for one in await all_pages(stored_system, task_id, limit=2) for logged in one] == log


async def test_a_page_ends_before_it_has_too_many_bytes_and_has_at_least_one_event(
    stored_system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_id = await ended(stored_system, "a" * 9_000, "b" * 9_000, "c" * 30_000, "d" * 9_000)
    monkeypatch.setattr(log_pages, "_PAGE_BYTES", 20_000)
    found = await all_pages(stored_system, task_id)
    assert [[logged.cursor for logged in one] for one in found] == [[1, 2, 3], [4], [5, 6]]


async def test_no_more_of_a_long_log_is_read_than_the_page_needs(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    task_id = await ended(system, *("x" * 9_000 for _ in range(20)))
    read: list[int] = []
    page_of = LogFollower.page

    async def counted(follower: LogFollower) -> Sequence[Logged]:
        piece = await page_of(follower)
        read.append(len(piece))
        return piece

    monkeypatch.setattr(LogFollower, "page", counted)
    await page(system, task_id, limit=1)
    assert sum(read) < 5
    read.clear()
    monkeypatch.setattr(log_pages, "_PAGE_BYTES", 30_000)
    await page(system, task_id)
    assert sum(read) < 8


async def test_a_running_task_shows_what_it_has_and_goes_on_from_there(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), chunk("x", append=False), 5.0, status("completed"))
    task_id = TaskId((await system.send(blocking=False))["id"])
    await asyncio.sleep(1)
    first = await page(system, task_id)
    assert [logged.cursor for logged in first.events] == [1, 2]
    assert first.next_after is None
    assert (await page(system, task_id, 2)).events == []
    await asyncio.sleep(6)
    assert [str(logged.event.state) for logged in (await page(system, task_id, 2)).events] == ["completed"]


async def test_a_position_behind_the_log_is_refused(system: System) -> None:
    task_id = await ended(system, "x")
    assert (await page(system, task_id, 3)).events == []
    with pytest.raises(InvalidParams, match='"after" is 4, and the last event of the task is 3'):
        await page(system, task_id, 4)


async def test_the_log_of_another_callers_task_looks_like_that_of_an_unknown_one(system: System) -> None:
    task_id = await ended(system, "x")
    errors = []
    for name in (task_id, TaskId("x" * len(task_id))):
        with pytest.raises(TaskNotFound) as raised:
            await system.hub.log_pages.read(OTHER, name, after=START, limit=1)
        errors.append(str(raised.value).replace(name, "~"))
    assert errors[0] == errors[1]


async def test_a_page_counts_as_an_answer_that_is_being_made(system: System) -> None:
    system.with_bounds(shares=shares(unsent=100_000, unsent_per_workspace=100_000))
    task_id = await ended(system, "x" * 90_000)
    with system.deps.shares.unsent.hold(CALLER.workspace, 70_000), pytest.raises(AnswerNotSent):
        await page(system, task_id)
    assert len((await page(system, task_id)).events) == 3
    assert system.deps.shares.unsent.use.used == 0
