"""What operators see of the hub: how tasks end, and what it is in want of."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from hub.core.condition import Checks, Condition
from hub.core.shares.descriptors import Descriptors
from hub.ports.identity import TokenEnd
from hub.ports.state.engine import DiskRoom
from rolecall.errors import DiskLow, RoleUnknown, StoreUnavailable, WorkerRefused
from tests.flow.conftest import System
from tests.flow.relayed import CUT, REFUSED, asked
from tests.helpers.scripted import message, status, task


class _Tokens:
    """One that ends in an hour."""

    empty = False
    required = True
    problem = ""

    def __init__(self, now: float) -> None:
        self._now = now

    def end_times(self) -> Sequence[TokenEnd]:
        return [TokenEnd("t1", "anna", "team", self._now + 3600)]

    def is_valid(self, token_id: str) -> bool:
        return True

    def find(self, token: str) -> None:
        return None


def condition_of(system: System) -> Condition:
    tokens = _Tokens(system.clock.wall())
    return Condition(system.hub, system.engine, Descriptors(), tokens, system.clock, None, audit_required=False)


async def test_each_end_of_a_task_is_counted_once_with_its_state_and_the_hubs_reason(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), status("completed"))
    await system.send()
    system.forwarder.plan("echo:a", task(), status("failed", "of its own"))
    await system.send()
    assert system.observer.ended == [("echo", "completed", ""), ("echo", "failed", "")]
    system.observer.ended.clear()
    system.forwarder.plan("echo:a", task(), CUT)
    system.forwarder.plan_fetch("echo:a", *[REFUSED] * 20)
    await system.send()
    assert system.observer.ended == [("echo", "failed", "WorkerLost")]


async def test_a_canceled_pause_is_counted_as_canceled(system: System) -> None:
    paused = await asked(system)
    assert system.observer.ended == []
    system.forwarder.plan_fetch("echo:a", task("canceled"))
    await system.cancel(paused)
    assert system.observer.ended == [("echo", "canceled", "")]


async def test_what_leaves_no_task_is_counted_as_none(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", WorkerRefused("echo:a"))
    with pytest.raises(WorkerRefused):
        await system.send()
    system.forwarder.plan("echo:a", message("a bare answer"))
    await system.send()
    assert system.observer.ended == []


async def test_the_checks_tell_a_full_disk_from_a_store_that_fails(system: System) -> None:
    condition = condition_of(system)
    assert await condition.checks() == Checks(*[True] * 6)
    system.engine.fail("ping", DiskLow(5))
    assert condition.missing(await condition.checks()) == ["disk"]
    system.engine.fail("ping", StoreUnavailable())
    assert condition.missing(await condition.checks()) == ["store"]
    system.hub.drain()
    assert condition.missing(await condition.checks()) == ["taking_calls"]


async def test_figures_are_left_out_where_they_cannot_be_read(system: System) -> None:
    condition = condition_of(system)
    system.engine.room = DiskRoom(7, 5, low=False)
    figures = await condition.figures()
    assert (figures.disk_free, figures.disk_reserve, figures.owed, figures.dead_letters) == (7, 5, 0, 0)
    assert [(one.holder, one.workspace, one.left) for one in figures.tokens] == [("anna", "team", 3600)]
    system.engine.fail("pushes.backlog", StoreUnavailable())
    system.engine.room = None
    figures = await condition.figures()
    assert (figures.disk_free, figures.disk_reserve, figures.owed, figures.dead_letters) == (None, None, None, None)


async def test_a_caller_whose_worker_cannot_enrol_for_lack_of_room_is_told_so(system: System) -> None:
    with pytest.raises(RoleUnknown):
        await system.send()
    system.engine.room = DiskRoom(7, 5, low=True)
    with pytest.raises(DiskLow, match="less than 5 bytes free"):
        await system.send()
    pending = asyncio.create_task(system.send(metadata={"waitSeconds": 1}))
    await asyncio.sleep(0.5)
    assert not pending.done()  # a worker may come all the same
    with pytest.raises(DiskLow):
        await pending
