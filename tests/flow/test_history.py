"""What is left of tasks that ended long ago: the log until its retention is over, then a summary, then nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rolecall.errors import TaskNotFound
from rolecall.model.command import TaskQuery
from rolecall.model.ids import Caller, TaskId
from tests.flow.callers import OTHER
from tests.flow.conftest import CALLER, System, hub_limits
from tests.helpers.scripted import chunk, status, task

DAY = 86_400.0
KEPT = hub_limits(retention=timedelta(days=7), keep_summaries=timedelta(days=30))


async def finished(system: System, *, caller: Caller = CALLER, **members: str) -> str:
    await system.enrol("echo:a")  # the lease of the day before has run out
    system.forwarder.plan("echo:a", task(), chunk("x", append=False), status("completed"))
    answer = await system.send(caller=caller, **members)
    return str(answer["id"])


async def logs(system: System) -> list[str]:
    return [row.id for row in (await system.hub.page(CALLER, TaskQuery(limit=100))).page.rows]


async def summaries(system: System) -> list[str]:
    return [one.id for one in (await system.hub.summaries(CALLER, TaskQuery(limit=100))).summaries]


async def test_over_a_year_a_week_of_logs_and_a_month_of_summaries_are_kept(stored_system: System) -> None:
    system = stored_system
    system.with_bounds(limits=KEPT)
    newest_first: list[str] = []
    for day in range(365):
        newest_first.insert(0, await finished(system))
        system.clock.advance(DAY)
        await system.hub.forget()
        if day in (6, 20, 100, 364):
            assert await logs(system) == newest_first[:6]
            assert await summaries(system) == newest_first[6:29]


async def test_without_summaries_nothing_is_kept(stored_system: System) -> None:
    system = stored_system
    for limits in (hub_limits(retention=timedelta(days=7)), hub_limits(keep_summaries=timedelta(hours=23))):
        system.with_bounds(limits=limits)
        await finished(system)
        system.clock.advance(8 * DAY)
        await system.hub.forget()
        assert await logs(system) == await summaries(system) == []


async def test_summaries_are_erased_one_by_one_by_context_and_by_holder(stored_system: System) -> None:
    system = stored_system
    system.with_bounds(limits=KEPT)
    one = await finished(system)
    in_context = [await finished(system, contextId="c") for _ in range(2)]
    another = await finished(system)
    of_other = await finished(system, caller=OTHER)
    system.clock.advance(8 * DAY)
    await system.hub.forget()
    with pytest.raises(TaskNotFound):
        await system.hub.erasure.task(OTHER, TaskId(one))
    assert await system.hub.erasure.task(CALLER, TaskId(one)) == (1, False)
    with pytest.raises(TaskNotFound):
        await system.hub.erasure.task(CALLER, TaskId(one))
    with_a_log = await finished(system, contextId="c")
    assert await summaries(system) == [another, *reversed(in_context)]
    assert await system.hub.erasure.all_of(CALLER, "c") == (3, False)
    assert (await logs(system), await summaries(system)) == ([], [another])
    assert with_a_log not in await logs(system)
    assert await system.hub.erasure.all_of(CALLER) == (1, False)
    assert await summaries(system) == []
    assert (await system.engine.summaries.get(OTHER, TaskId(of_other))).id == of_other
