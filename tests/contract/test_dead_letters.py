"""Failures, dead letters, and how long what is owed is kept, on every engine."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from hub.ports.engine import Engine
from rolecall.errors import DeadLetterNotFound, InvalidParams, TaskNotFound
from rolecall.model.a2a import TaskState
from rolecall.model.ids import Cursor
from tests.contract.conftest import Store
from tests.contract.pushing import DAY, LEASE, NOTHING, buried, claimed, owed, the_claim, told
from tests.contract.words import ANNA, BERT, DONE, OTHER_ANNA, a_row, a_turn, admitted, append, status, text
from tests.helpers.clock import MovableClock


async def test_what_failed_is_due_again_after_its_time_and_knows_how_long_it_has_been_failing(
    engine: Engine, clock: MovableClock
) -> None:
    task = await admitted(engine)
    await told(engine, task)
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


async def test_setting_the_machines_time_moves_no_retry(engine: Engine, clock: MovableClock) -> None:
    task = await admitted(engine)
    await told(engine, task)
    await append(engine, task, text("1"))
    await engine.pushes.postpone(await the_claim(engine), timedelta(seconds=60))
    clock.step_wall(-7200)
    clock.advance(61)
    assert (await the_claim(engine)).failing_for == timedelta(seconds=61)


async def test_a_receiver_that_fails_does_not_hold_up_another_one_of_its_task(engine: Engine) -> None:
    task = await admitted(engine)
    await told(engine, task, "bad")
    await told(engine, task, "good")
    await append(engine, task, text("1"))
    for claim in await claimed(engine):
        if claim.config.id == "bad":
            await engine.pushes.postpone(claim, DAY)
        else:
            await engine.pushes.delivered(claim, Cursor(1), hold=LEASE)
    await append(engine, task, text("2"), after=1)
    assert await owed(engine) == [("good", 1, 2)]


async def test_what_has_waited_is_told_with_the_claim(engine: Engine, clock: MovableClock) -> None:
    task = await admitted(engine)
    await told(engine, task)
    clock.advance(500)
    await append(engine, task, text("1"))
    clock.advance(7)
    await append(engine, task, text("2"), after=1)
    clock.advance(3)
    assert (await the_claim(engine)).waiting_for == timedelta(seconds=10)


async def test_an_event_that_is_given_up_is_a_dead_letter_and_the_next_one_is_due(engine: Engine, clock: MovableClock) -> None:
    task = await admitted(engine)
    await told(engine, task, url="https://app.example/hook?a=b")
    await append(engine, task, text("1"), text("2"), text("3"))
    claim = await the_claim(engine)
    assert await engine.pushes.delivered(claim, Cursor(1), hold=LEASE) == 3
    assert await engine.pushes.bury(claim, Cursor(2), "HTTP 404", hold=LEASE) == 3
    assert await engine.pushes.delivered(claim, Cursor(3), hold=LEASE) is None
    page = await engine.pushes.dead_letters(ANNA, limit=10)
    assert list(page.letters) == [(task, "c", 2, "https://app.example/hook?a=b", "HTTP 404", clock.wall())]
    assert page.before is None
    assert await owed(engine) == []


async def test_giving_up_does_not_forget_since_when_a_receiver_has_been_failing(engine: Engine, clock: MovableClock) -> None:
    task = await admitted(engine)
    await told(engine, task)
    await append(engine, task, text("1"), text("2"))
    await engine.pushes.postpone(await the_claim(engine), NOTHING)
    clock.advance(3600)
    await engine.pushes.bury(await the_claim(engine), Cursor(1), "HTTP 500", hold=NOTHING)
    claim = await the_claim(engine)
    assert (claim.sent, claim.failing_for) == (1, timedelta(hours=1))


async def test_dead_letters_come_newest_first_in_pages_and_to_their_owner_alone(engine: Engine, clock: MovableClock) -> None:
    died: list[tuple[float, str]] = []
    for number in range(5):
        task = await admitted(engine)
        await told(engine, task)
        await append(engine, task, text("1"))
        await buried(engine, task)
        died.append((clock.wall(), task))
        clock.advance(number % 2)  # some died at the same moment
    pages = [await engine.pushes.dead_letters(ANNA, limit=2)]
    while pages[-1].before is not None:
        pages.append(await engine.pushes.dead_letters(ANNA, limit=2, before=pages[-1].before))
    assert [len(page.letters) for page in pages] == [2, 2, 1]
    assert [(letter.at, letter.task) for page in pages for letter in page.letters] == sorted(died, reverse=True)
    for caller in (BERT, OTHER_ANNA):
        assert not (await engine.pushes.dead_letters(caller, limit=10)).letters
    page = await engine.pushes.dead_letters(BERT, limit=2, whole=True)
    rest = await engine.pushes.dead_letters(BERT, limit=9, before=page.before, whole=True)
    assert [(letter.at, letter.task) for letter in (*page.letters, *rest.letters)] == sorted(died, reverse=True)
    assert not (await engine.pushes.dead_letters(OTHER_ANNA, limit=10, whole=True)).letters
    for nonsense in ("x", "1/2/3", "a/1/t/c", "1.0/x/t/c"):
        with pytest.raises(InvalidParams):
            await engine.pushes.dead_letters(ANNA, limit=10, before=nonsense)


async def test_a_dead_letter_can_be_sent_again_beside_what_follows(engine: Engine) -> None:
    task = await admitted(engine)
    await told(engine, task)
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


async def test_whoever_operates_sends_the_letters_of_his_workspace_again_and_no_others(engine: Engine) -> None:
    task = await admitted(engine)
    await told(engine, task)
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


async def test_a_dead_letter_that_fails_again_is_the_same_dead_letter(engine: Engine, clock: MovableClock) -> None:
    task = await admitted(engine)
    await told(engine, task)
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


async def test_a_dead_letter_that_waits_for_its_next_try_is_due_at_once_when_it_is_sent_again(engine: Engine) -> None:
    task = await admitted(engine)
    await told(engine, task)
    await append(engine, task, text("1"))
    await buried(engine, task)
    await engine.pushes.redeliver(ANNA, task, "c", Cursor(1))
    await engine.pushes.postpone(await the_claim(engine), DAY)
    assert not await claimed(engine)
    await engine.pushes.redeliver(ANNA, task, "c", Cursor(1))
    claim = await the_claim(engine)
    assert (claim.only, claim.failures) == (True, 0)


async def test_a_new_address_gets_the_dead_letters_that_are_on_their_way(engine: Engine) -> None:
    task = await admitted(engine)
    await told(engine, task)
    await append(engine, task, text("1"))
    await buried(engine, task)
    await engine.pushes.redeliver(ANNA, task, "c", Cursor(1))
    old = await the_claim(engine)
    await told(engine, task, host="new.example", url="https://new.example/")
    assert await engine.pushes.delivered(old, Cursor(1), hold=LEASE) is None
    claim = await the_claim(engine)
    assert (claim.only, claim.config.host) == (True, "new.example")
    (letter,) = (await engine.pushes.dead_letters(ANNA, limit=10)).letters
    assert letter.url == "https://new.example/"


async def test_the_dead_letters_of_a_deleted_config_are_gone(engine: Engine) -> None:
    task = await admitted(engine)
    await told(engine, task)
    await told(engine, task, "other")
    await append(engine, task, text("1"))
    for claim in await claimed(engine):
        await engine.pushes.bury(claim, Cursor(1), "HTTP 404", hold=NOTHING)
    await engine.pushes.redeliver(ANNA, task, "c", Cursor(1))
    await engine.pushes.delete(ANNA, task, "c")
    assert not await claimed(engine)
    assert [letter.config for letter in (await engine.pushes.dead_letters(ANNA, limit=10)).letters] == ["other"]


# --- hints


async def test_whoever_delivers_is_woken_by_what_may_be_due(engine: Engine) -> None:
    woken: list[str] = []
    engine.pushes.on_due(lambda: woken.append("!"))

    async def wakes(call: Any) -> bool:
        woken.clear()
        await call
        return bool(woken)

    task, plain = await admitted(engine), await admitted(engine)
    assert not await wakes(append(engine, plain, text("1")))
    await append(engine, task, text("1"))
    await told(engine, task)
    assert await wakes(append(engine, task, DONE, after=1))
    claim = await the_claim(engine)
    assert await wakes(engine.pushes.release(claim))
    assert await wakes(told(engine, task))
    await buried(engine, task, 2)
    assert await wakes(engine.pushes.redeliver(ANNA, task, "c", Cursor(2)))


# --- how long things are kept


async def forgotten(engine: Engine, kept_for: float) -> int:
    return await engine.tasks.forget(ended_for=timedelta(seconds=kept_for), paused_for=DAY)


async def test_a_task_is_not_forgotten_while_somebody_is_to_be_told_of_it(engine: Engine, clock: MovableClock) -> None:
    task, plain = await admitted(engine), await admitted(engine)
    await told(engine, task)
    for each in (task, plain):
        await append(engine, each, DONE)
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


async def test_a_receiver_that_is_set_long_after_the_end_is_told_before_the_task_is_forgotten(
    engine: Engine, clock: MovableClock
) -> None:
    task = await admitted(engine)
    await append(engine, task, DONE)
    clock.advance(601)
    await told(engine, task)
    assert await forgotten(engine, 600) == 0
    assert await owed(engine) == [("c", 0, 1)]


async def test_a_forgotten_task_takes_its_configs_along(engine: Engine, clock: MovableClock) -> None:
    task = await admitted(engine)
    await told(engine, task)
    await append(engine, task, text("1"), DONE)
    await engine.pushes.bury(await the_claim(engine), Cursor(1), "HTTP 404", hold=NOTHING)
    claim = await the_claim(engine)
    clock.advance(1000)
    assert await forgotten(engine, 600) == 1
    assert await engine.pushes.delivered(claim, Cursor(2), hold=LEASE) is None
    assert not await claimed(engine)
    assert not (await engine.pushes.dead_letters(ANNA, limit=10)).letters


async def test_a_discarded_task_takes_its_configs_along(engine: Engine) -> None:
    row = a_row()
    await engine.tasks.admit(row, a_turn())
    await told(engine, row.id)
    await engine.tasks.discard(row.id)
    with pytest.raises(TaskNotFound):
        await engine.pushes.list(ANNA, row.id)
    await engine.tasks.admit(row, a_turn())
    assert not await engine.pushes.list(ANNA, row.id)


async def test_being_told_of_late_does_not_make_a_task_end_late(engine: Engine, clock: MovableClock) -> None:
    task = await admitted(engine)
    await append(engine, task, DONE)
    clock.advance(3600)
    await told(engine, task)
    assert not await engine.tasks.recent(ended_within=timedelta(seconds=60))


async def test_a_paused_task_tells_its_question(engine: Engine) -> None:
    task = await admitted(engine)
    await told(engine, task)
    await append(engine, task, status(TaskState.INPUT_REQUIRED))
    assert await owed(engine) == [("c", 0, 1)]


# --- over a restart


async def test_what_was_due_is_due_again_and_dead_holders_have_let_go(store: Store) -> None:
    engine = await store.open()
    held, waiting, retried, done = [await admitted(engine) for _ in range(4)]
    for task in (held, retried, done):
        await told(engine, task, token=b"sealed")
        await append(engine, task, text("1"))
    for claim in await claimed(engine):
        if claim.config.task == retried:
            await engine.pushes.postpone(claim, timedelta(seconds=600))
        if claim.config.task == done:
            await engine.pushes.delivered(claim, Cursor(1), hold=LEASE)
    await told(engine, waiting)
    await append(engine, waiting, text("1"), text("2"))
    engine = await store.reopen()
    assert {claim.config.task: (claim.sent, claim.last) for claim in await claimed(engine)} == {held: (0, 1), waiting: (0, 2)}
    store.clock.advance(601)
    claim = next(claim for claim in await claimed(engine) if claim.config.task == retried)
    assert (claim.failures, claim.failing_for, claim.config.token) == (1, timedelta(seconds=601), b"sealed")
    await append(engine, done, text("2"), after=1)
    assert [claim.config.task for claim in await claimed(engine)] == [done]


async def test_a_restarted_hub_is_woken_by_an_open_task_that_had_configs_before(store: Store) -> None:
    engine = await store.open()
    task = await admitted(engine)
    await told(engine, task)
    engine = await store.reopen()
    woken: list[str] = []
    engine.pushes.on_due(lambda: woken.append("!"))
    await append(engine, task, text("1"))
    assert woken


async def test_dead_letters_and_their_redelivery_outlive_a_restart(store: Store) -> None:
    engine = await store.open()
    task = await admitted(engine)
    await told(engine, task)
    await append(engine, task, text("1"))
    await buried(engine, task)
    engine = await store.reopen()
    assert len((await engine.pushes.dead_letters(ANNA, limit=10)).letters) == 1
    await engine.pushes.redeliver(ANNA, task, "c", Cursor(1))
    engine = await store.reopen()
    assert (await the_claim(engine)).only
