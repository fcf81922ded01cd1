"""Failures, dead letters, and how long owed events are kept, on every engine."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from hub.ports.state.engine import Engine
from rolecall.errors import DeadLetterNotFound, InvalidParams, TaskNotFound
from rolecall.model.a2a import TaskState
from rolecall.model.ids import Cursor
from rolecall.model.push import Backlog
from tests.contract.conftest import Store
from tests.contract.pushing import DAY, LEASE, NOTHING, a_config, add_config, buried, claimed, owed, the_claim
from tests.contract.words import ANNA, BERT, DONE, OTHER_ANNA, a_row, a_turn, admitted, append, status, text
from tests.helpers.clock import ManualClock


async def test_a_failed_delivery_is_due_again_after_its_delay_and_has_the_time_since_its_first_failure(
    engine: Engine, clock: ManualClock
) -> None:
    task = await admitted(engine)
    await add_config(engine, task)
    await append(engine, task, text("1"))
    claim = await the_claim(engine)
    for failures in (1, 2, 3):
        await engine.pushes.postpone(claim, timedelta(seconds=60))
        clock.advance(59)
        assert not await claimed(engine)
        clock.advance(2)
        claim = await the_claim(engine)
        assert (claim.failures, claim.failing_for) == (failures, timedelta(seconds=61 * failures))
    await engine.pushes.delivered(claim, Cursor(1), hold=LEASE)
    await append(engine, task, text("2"), after=1)
    claim = await the_claim(engine)
    assert (claim.failures, claim.failing_for, claim.waiting_for) == (0, NOTHING, NOTHING)


async def test_a_wall_clock_step_does_not_change_a_retry(engine: Engine, clock: ManualClock) -> None:
    task = await admitted(engine)
    await add_config(engine, task)
    await append(engine, task, text("1"))
    await engine.pushes.postpone(await the_claim(engine), timedelta(seconds=60))
    clock.step_wall(-7200)
    clock.advance(61)
    assert (await the_claim(engine)).failing_for == timedelta(seconds=61)


async def test_a_retry_keeps_its_time_when_the_machine_was_rebooted(store: Store, engine: Engine, clock: ManualClock) -> None:
    """The monotonic clock begins again at a reboot."""
    task = await admitted(engine)
    await add_config(engine, task)
    await append(engine, task, text("1"))
    await engine.pushes.postpone(await the_claim(engine), timedelta(hours=1))
    store.clock = ManualClock(monotonic=5.0, wall=clock.wall() + 3_599)
    engine = await store.reopen()
    assert not await claimed(engine)
    store.clock.advance(1)
    assert (await the_claim(engine)).failures == 1


async def test_a_failing_receiver_does_not_delay_another_one_of_its_task(engine: Engine) -> None:
    task = await admitted(engine)
    await add_config(engine, task, "bad")
    await add_config(engine, task, "good")
    await append(engine, task, text("1"))
    for claim in await claimed(engine):
        if claim.config.id == "bad":
            await engine.pushes.postpone(claim, DAY)
        else:
            await engine.pushes.delivered(claim, Cursor(1), hold=LEASE)
    await append(engine, task, text("2"), after=1)
    assert await owed(engine) == [("good", 1, 2)]


async def test_a_claim_has_the_time_since_which_events_are_owed(engine: Engine, clock: ManualClock) -> None:
    task = await admitted(engine)
    await add_config(engine, task)
    clock.advance(500)
    await append(engine, task, text("1"))
    clock.advance(7)
    await append(engine, task, text("2"), after=1)
    clock.advance(3)
    assert (await the_claim(engine)).waiting_for == timedelta(seconds=10)


async def test_an_event_that_is_given_up_is_a_dead_letter_and_the_next_one_is_due(engine: Engine, clock: ManualClock) -> None:
    task = await admitted(engine)
    await add_config(engine, task, url="https://app.example/hook?a=b")
    await append(engine, task, text("1"), text("2"), text("3"))
    claim = await the_claim(engine)
    assert await engine.pushes.delivered(claim, Cursor(1), hold=LEASE) == 3
    assert await engine.pushes.bury(claim, Cursor(2), "HTTP 404", hold=LEASE) == 3
    assert await engine.pushes.delivered(claim, Cursor(3), hold=LEASE) is None
    page = await engine.pushes.dead_letters(ANNA, limit=10)
    assert list(page.letters) == [(task, "c", 2, "https://app.example/hook?a=b", "HTTP 404", clock.wall())]
    assert page.before is None
    assert await owed(engine) == []


async def test_giving_up_an_event_keeps_the_time_of_the_first_failure(engine: Engine, clock: ManualClock) -> None:
    task = await admitted(engine)
    await add_config(engine, task)
    await append(engine, task, text("1"), text("2"))
    await engine.pushes.postpone(await the_claim(engine), NOTHING)
    clock.advance(3600)
    await engine.pushes.bury(await the_claim(engine), Cursor(1), "HTTP 500", hold=NOTHING)
    claim = await the_claim(engine)
    assert (claim.sent, claim.failing_for) == (1, timedelta(hours=1))


async def test_dead_letters_are_listed_newest_first_in_pages_for_their_owner_only(engine: Engine, clock: ManualClock) -> None:
    dead: list[tuple[float, str]] = []
    for number in range(5):
        task = await admitted(engine)
        await add_config(engine, task)
        await append(engine, task, text("1"))
        await buried(engine, task)
        dead.append((clock.wall(), task))
        clock.advance(number % 2)  # some at the same moment
    found = [await engine.pushes.dead_letters(ANNA, limit=2)]
    while found[-1].before is not None:
        found.append(await engine.pushes.dead_letters(ANNA, limit=2, before=found[-1].before))
    assert [len(page.letters) for page in found] == [2, 2, 1]
    assert [(letter.at, letter.task) for page in found for letter in page.letters] == sorted(dead, reverse=True)
    for caller in (BERT, OTHER_ANNA):
        assert not (await engine.pushes.dead_letters(caller, limit=10)).letters
    page = await engine.pushes.dead_letters(BERT, limit=2, whole=True)
    rest = await engine.pushes.dead_letters(BERT, limit=9, before=page.before, whole=True)
    assert [(letter.at, letter.task) for letter in (*page.letters, *rest.letters)] == sorted(dead, reverse=True)
    assert not (await engine.pushes.dead_letters(OTHER_ANNA, limit=10, whole=True)).letters
    for invalid in ("x", "1/2/3", "a/1/t/c", "1.0/x/t/c"):
        with pytest.raises(InvalidParams):
            await engine.pushes.dead_letters(ANNA, limit=10, before=invalid)


async def test_a_dead_letter_can_be_redelivered_beside_later_events(engine: Engine) -> None:
    task = await admitted(engine)
    await add_config(engine, task)
    await append(engine, task, text("1"), text("2"))
    await engine.pushes.bury(await the_claim(engine), Cursor(1), "HTTP 404", hold=NOTHING)
    await engine.pushes.redeliver(ANNA, task, "c", Cursor(1))
    await engine.pushes.redeliver(ANNA, task, "c", Cursor(1))
    claims = sorted(await claimed(engine), key=lambda claim: claim.only)
    assert [(claim.only, claim.sent, claim.last) for claim in claims] == [(False, 1, 2), (True, 0, 1)]
    await engine.pushes.redeliver(ANNA, task, "c", Cursor(1))
    assert not await claimed(engine)
    assert len((await engine.pushes.dead_letters(ANNA, limit=10)).letters) == 1
    assert await engine.pushes.delivered(claims[1], Cursor(1), hold=LEASE) is None
    assert not (await engine.pushes.dead_letters(ANNA, limit=10)).letters
    assert await engine.pushes.delivered(claims[0], Cursor(2), hold=LEASE) is None
    with pytest.raises(DeadLetterNotFound):
        await engine.pushes.redeliver(ANNA, task, "c", Cursor(1))


async def test_an_operator_redelivers_the_letters_of_its_own_workspace_only(engine: Engine) -> None:
    task = await admitted(engine)
    await add_config(engine, task)
    await append(engine, task, text("1"))
    await buried(engine, task)
    with pytest.raises(TaskNotFound):
        await engine.pushes.redeliver(OTHER_ANNA, task, "c", Cursor(1))
    with pytest.raises(DeadLetterNotFound):
        await engine.pushes.redeliver(BERT, task, "d", Cursor(1))
    assert not await claimed(engine)
    await engine.pushes.redeliver(BERT, task, "c", Cursor(1))
    claim = await the_claim(engine)
    assert (claim.only, claim.caller) == (True, ANNA)


async def test_a_dead_letter_that_fails_again_is_the_same_dead_letter(engine: Engine, clock: ManualClock) -> None:
    task = await admitted(engine)
    await add_config(engine, task)
    await append(engine, task, text("1"))
    await buried(engine, task)
    await engine.pushes.redeliver(ANNA, task, "c", Cursor(1))
    await engine.pushes.postpone(await the_claim(engine), timedelta(seconds=5))
    clock.advance(6)
    again = await the_claim(engine)
    assert (again.only, again.failures) == (True, 1)
    assert await engine.pushes.bury(again, Cursor(1), "HTTP 410", hold=LEASE) is None
    (letter,) = (await engine.pushes.dead_letters(ANNA, limit=10)).letters
    assert (letter.reason, letter.at) == ("HTTP 410", clock.wall())
    assert not await claimed(engine)


async def test_a_dead_letter_that_waits_for_a_retry_is_due_at_once_when_it_is_redelivered(engine: Engine) -> None:
    task = await admitted(engine)
    await add_config(engine, task)
    await append(engine, task, text("1"))
    await buried(engine, task)
    await engine.pushes.redeliver(ANNA, task, "c", Cursor(1))
    await engine.pushes.postpone(await the_claim(engine), DAY)
    assert not await claimed(engine)
    await engine.pushes.redeliver(ANNA, task, "c", Cursor(1))
    claim = await the_claim(engine)
    assert (claim.only, claim.failures) == (True, 0)


async def test_a_new_url_gets_the_dead_letters_that_are_being_redelivered(engine: Engine) -> None:
    task = await admitted(engine)
    await add_config(engine, task)
    await append(engine, task, text("1"))
    await buried(engine, task)
    await engine.pushes.redeliver(ANNA, task, "c", Cursor(1))
    old = await the_claim(engine)
    await add_config(engine, task, host="new.example", url="https://new.example/")
    assert await engine.pushes.delivered(old, Cursor(1), hold=LEASE) is None
    claim = await the_claim(engine)
    assert (claim.only, claim.config.host) == (True, "new.example")
    (letter,) = (await engine.pushes.dead_letters(ANNA, limit=10)).letters
    assert letter.url == "https://new.example/"


async def test_the_dead_letters_of_a_deleted_config_are_gone(engine: Engine) -> None:
    task = await admitted(engine)
    await add_config(engine, task)
    await add_config(engine, task, "other")
    await append(engine, task, text("1"))
    for claim in await claimed(engine):
        await engine.pushes.bury(claim, Cursor(1), "HTTP 404", hold=NOTHING)
    await engine.pushes.redeliver(ANNA, task, "c", Cursor(1))
    await engine.pushes.delete(ANNA, task, "c")
    assert not await claimed(engine)
    assert [letter.config for letter in (await engine.pushes.dead_letters(ANNA, limit=10)).letters] == ["other"]


# --- hints


async def test_the_deliverer_is_woken_when_a_delivery_may_be_due(engine: Engine) -> None:
    wakes_seen: list[str] = []
    engine.pushes.on_due(lambda: wakes_seen.append("!"))

    async def wakes(call: Any) -> bool:
        wakes_seen.clear()
        await call
        return bool(wakes_seen)

    task, plain = await admitted(engine), await admitted(engine)
    assert not await wakes(append(engine, plain, text("1")))
    await append(engine, task, text("1"))
    await add_config(engine, task)
    assert await wakes(append(engine, task, DONE, after=1))
    claim = await the_claim(engine)
    assert await wakes(engine.pushes.release(claim))
    assert await wakes(add_config(engine, task))
    await buried(engine, task, 2)
    assert await wakes(engine.pushes.redeliver(ANNA, task, "c", Cursor(2)))


# --- retention


async def forgotten(engine: Engine, kept_for: float) -> int:
    return await engine.tasks.forget(ended_for=timedelta(seconds=kept_for), paused_for=DAY)


async def test_a_task_is_not_deleted_while_events_of_it_are_owed(engine: Engine, clock: ManualClock) -> None:
    task, plain = await admitted(engine), await admitted(engine)
    await add_config(engine, task)
    for one in (task, plain):
        await append(engine, one, DONE)
    for _ in range(3):
        await engine.pushes.postpone(await the_claim(engine), timedelta(hours=1))
        clock.advance(3601)
    assert await forgotten(engine, 600) == 1
    await buried(engine, task)
    clock.advance(500)
    assert await forgotten(engine, 600) == 0
    await engine.pushes.redeliver(ANNA, task, "c", Cursor(1))
    clock.advance(500)
    assert await forgotten(engine, 600) == 0
    clock.advance(200)
    assert await forgotten(engine, 600) == 1


async def test_a_receiver_that_is_set_long_after_the_end_gets_the_end_before_the_task_is_deleted(
    engine: Engine, clock: ManualClock
) -> None:
    task = await admitted(engine)
    await append(engine, task, DONE)
    clock.advance(601)
    await add_config(engine, task)
    assert await forgotten(engine, 600) == 0
    assert await owed(engine) == [("c", 0, 1)]


async def test_a_deleted_task_has_no_configs_left(engine: Engine, clock: ManualClock) -> None:
    task = await admitted(engine)
    await add_config(engine, task)
    await append(engine, task, text("1"), DONE)
    await engine.pushes.bury(await the_claim(engine), Cursor(1), "HTTP 404", hold=NOTHING)
    claim = await the_claim(engine)
    clock.advance(1000)
    assert await forgotten(engine, 600) == 1
    assert await engine.pushes.delivered(claim, Cursor(2), hold=LEASE) is None
    assert not await claimed(engine)
    assert not (await engine.pushes.dead_letters(ANNA, limit=10)).letters


async def test_a_discarded_task_has_no_configs_left(engine: Engine) -> None:
    row = a_row()
    await engine.tasks.admit(row, a_turn())
    await add_config(engine, row.id)
    await engine.tasks.discard(row.id)
    with pytest.raises(TaskNotFound):
        await engine.pushes.list(ANNA, row.id)
    await engine.tasks.admit(row, a_turn())
    assert not await engine.pushes.list(ANNA, row.id)


async def test_a_late_delivery_does_not_change_when_a_task_ended(engine: Engine, clock: ManualClock) -> None:
    task = await admitted(engine)
    await append(engine, task, DONE)
    ended = await engine.tasks.get(ANNA, task)
    clock.advance(3600)
    await add_config(engine, task)
    assert await engine.tasks.get(ANNA, task) == ended


async def test_the_pause_of_a_task_is_delivered(engine: Engine) -> None:
    task = await admitted(engine)
    await add_config(engine, task)
    await append(engine, task, status(TaskState.INPUT_REQUIRED))
    assert await owed(engine) == [("c", 0, 1)]


# --- restarts


async def test_after_a_restart_due_deliveries_are_due_and_claims_of_dead_holders_are_free(store: Store) -> None:
    engine = await store.open()
    running, waiting, delayed, done = [await admitted(engine) for _ in range(4)]
    for task in (running, delayed, done):
        await add_config(engine, task, token=b"sealed")
        await append(engine, task, text("1"))
    for claim in await claimed(engine):
        if claim.config.task == delayed:
            await engine.pushes.postpone(claim, timedelta(seconds=600))
        if claim.config.task == done:
            await engine.pushes.delivered(claim, Cursor(1), hold=LEASE)
    await add_config(engine, waiting)
    await append(engine, waiting, text("1"), text("2"))
    engine = await store.reopen()
    assert {claim.config.task: (claim.sent, claim.last) for claim in await claimed(engine)} == {
        running: (0, 1),
        waiting: (0, 2),
    }
    store.clock.advance(601)
    claim = next(claim for claim in await claimed(engine) if claim.config.task == delayed)
    assert (claim.failures, claim.failing_for, claim.config.token) == (1, timedelta(seconds=601), b"sealed")
    await append(engine, done, text("2"), after=1)
    assert [claim.config.task for claim in await claimed(engine)] == [done]


async def test_a_restarted_hub_is_woken_by_an_open_task_that_had_configs_before(store: Store) -> None:
    engine = await store.open()
    task = await admitted(engine)
    await add_config(engine, task)
    engine = await store.reopen()
    wakes_seen: list[str] = []
    engine.pushes.on_due(lambda: wakes_seen.append("!"))
    await append(engine, task, text("1"))
    assert wakes_seen


async def test_dead_letters_and_their_redelivery_outlive_a_restart(store: Store) -> None:
    engine = await store.open()
    task = await admitted(engine)
    await add_config(engine, task)
    await append(engine, task, text("1"))
    await buried(engine, task)
    engine = await store.reopen()
    assert len((await engine.pushes.dead_letters(ANNA, limit=10)).letters) == 1
    await engine.pushes.redeliver(ANNA, task, "c", Cursor(1))
    engine = await store.reopen()
    assert (await the_claim(engine)).only


async def test_the_backlog_counts_receivers_that_lack_events_and_letters_of_all_workspaces(engine: Engine) -> None:
    assert await engine.pushes.backlog() == Backlog(0, 0)
    for owner in (ANNA, OTHER_ANNA):
        task = await admitted(engine, owner)
        await engine.pushes.set(owner, a_config(task), limit=10)
        await append(engine, task, text("1"))
        await append(engine, task, text("2"), after=1)
    assert await engine.pushes.backlog() == Backlog(2, 0)
    (claim, _) = await claimed(engine)
    await engine.pushes.bury(claim, Cursor(1), "HTTP 404", hold=NOTHING)
    assert await engine.pushes.backlog() == Backlog(2, 1)
    claim = next(one for one in await claimed(engine) if one.config.task == claim.config.task)
    await engine.pushes.delivered(claim, Cursor(2), hold=NOTHING)
    assert await engine.pushes.backlog() == Backlog(1, 1)
