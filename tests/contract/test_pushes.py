"""Push configs and the outbox, on every engine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from hub.errors import DeadLetterNotFound, InvalidParams, PushConfigNotFound, StoreUnavailable, TaskNotFound
from hub.model.a2a import TaskState
from hub.model.ids import Cursor, TaskId, new_task_id
from hub.model.push import SealedConfig
from hub.ports import Claim, Engine
from tests.contract.conftest import Store
from tests.contract.words import ANNA, BERT, DONE, OTHER_ANNA, a_row, a_turn, admitted, append, message, status, text
from tests.helpers.clock import MovableClock

LEASE = timedelta(seconds=30)
NOTHING = timedelta()
DAY = timedelta(days=1)


def a_config(task: TaskId, name: str = "c", **members: Any) -> SealedConfig:
    usual: dict[str, Any] = {"url": "https://app.example/hook", "host": "app.example", "dialect": "0.3"}
    return SealedConfig(task, name, **{**usual, **members})


async def told(engine: Engine, task: TaskId, name: str = "c", **members: Any) -> None:
    await engine.pushes.set(ANNA, a_config(task, name, **members), most=10)


async def claimed(engine: Engine, most: int = 10, **more: Any) -> Sequence[Claim]:
    return await engine.pushes.claim(most, more.pop("lease", LEASE), at_once=more.pop("at_once", 10), busy=more.pop("busy", {}))


async def the_claim(engine: Engine) -> Claim:
    (claim,) = await claimed(engine)
    return claim


async def owed(engine: Engine) -> list[tuple[str, int, int]]:
    """Config, what it has, and what it is to have. Claims it all."""
    return sorted((claim.config.id, claim.sent, claim.last) for claim in await claimed(engine))


async def buried(engine: Engine, task: TaskId, cursor: int = 1, reason: str = "HTTP 404") -> None:
    claim = await the_claim(engine)
    await engine.pushes.bury(claim, Cursor(cursor), reason, hold=NOTHING)
    assert claim.config.task == task


# --- configs


async def test_a_config_is_given_back_as_it_was_set(engine: Engine) -> None:
    task = await admitted(engine)
    config = a_config(task, token=b"\x00sealed", schemes=("Bearer", "Basic"), credentials=b"\xffsealed")
    await engine.pushes.set(ANNA, config, most=10)
    assert await engine.pushes.get(ANNA, task, "c") == config
    assert list(await engine.pushes.list(ANNA, task)) == [config]


async def test_a_config_of_the_same_id_replaces_the_one_before_and_keeps_its_place(engine: Engine) -> None:
    task = await admitted(engine)
    for name in ("one", "two", "three"):
        await told(engine, task, name)
    await told(engine, task, "two", url="https://other.example/", token=b"new")
    configs = await engine.pushes.list(ANNA, task)
    assert [config.id for config in configs] == ["one", "two", "three"]
    assert (configs[1].url, configs[1].token) == ("https://other.example/", b"new")


async def test_a_task_takes_only_so_many_configs(engine: Engine) -> None:
    task = await admitted(engine)
    for name in ("one", "two"):
        await engine.pushes.set(ANNA, a_config(task, name), most=2)
    with pytest.raises(InvalidParams, match="2 push configs"):
        await engine.pushes.set(ANNA, a_config(task, "three"), most=2)
    await engine.pushes.set(ANNA, a_config(task, "two", url="https://other.example/"), most=2)
    assert [config.id for config in await engine.pushes.list(ANNA, task)] == ["one", "two"]


async def test_deleting_a_config_twice_is_deleting_it_once(engine: Engine) -> None:
    task = await admitted(engine)
    await told(engine, task)
    for _ in range(2):
        await engine.pushes.delete(ANNA, task, "c")
        assert not await engine.pushes.list(ANNA, task)
        with pytest.raises(PushConfigNotFound):
            await engine.pushes.get(ANNA, task, "c")


async def test_the_configs_of_somebody_elses_task_cannot_be_told_from_those_of_no_task(engine: Engine) -> None:
    task = await admitted(engine)
    await told(engine, task)
    pushes = engine.pushes
    for caller, asked in ((BERT, task), (OTHER_ANNA, task), (ANNA, new_task_id())):
        for call in (
            pushes.set(caller, a_config(asked), most=10),
            pushes.get(caller, asked, "c"),
            pushes.list(caller, asked),
            pushes.delete(caller, asked, "c"),
            pushes.redeliver(caller, asked, "c", Cursor(1)),
        ):
            with pytest.raises(TaskNotFound):
                await call
    assert len(await pushes.list(ANNA, task)) == 1


async def test_a_bare_message_has_no_configs_and_is_told_to_nobody(engine: Engine) -> None:
    task = await admitted(engine)
    await told(engine, task)
    await append(engine, task, message())
    assert not await claimed(engine)
    with pytest.raises(TaskNotFound):
        await engine.pushes.list(ANNA, task)


async def test_a_task_is_admitted_together_with_its_first_receiver_or_not_at_all(store: Store) -> None:
    """Nobody who asked for both finds the one without the other, whenever the hub is killed."""
    engine = await store.open()
    row, late = a_row(), a_row()
    config = a_config(row.id, token=b"sealed")
    await engine.tasks.admit(row, a_turn(), key="k", push=config)
    with pytest.raises(StoreUnavailable):
        await engine.tasks.admit(late, a_turn(), key="k", push=a_config(late.id))
    if store.durable:
        engine = await store.reopen()
    assert list(await engine.pushes.list(ANNA, row.id)) == [config]
    with pytest.raises(TaskNotFound):
        await engine.pushes.list(ANNA, late.id)
    await append(engine, row.id, text("1"))
    assert await owed(engine) == [("c", 0, 1)]


# --- what is owed


async def test_a_receiver_is_owed_what_is_logged_after_it_was_set(engine: Engine) -> None:
    task = await admitted(engine)
    await append(engine, task, text("1"), text("2"))
    await told(engine, task)
    assert await owed(engine) == []
    await append(engine, task, text("3"), text("4"), after=2)
    assert await owed(engine) == [("c", 2, 4)]


async def test_a_receiver_that_is_set_before_the_first_event_is_owed_them_all(engine: Engine) -> None:
    task = await admitted(engine)
    await told(engine, task)
    await append(engine, task, text("1"), DONE)
    assert await owed(engine) == [("c", 0, 2)]


async def test_a_receiver_that_is_set_after_the_end_is_owed_the_end(engine: Engine) -> None:
    task = await admitted(engine)
    await append(engine, task, text("1"), DONE)
    await told(engine, task)
    assert await owed(engine) == [("c", 1, 2)]


async def test_an_appended_position_without_events_is_owed_to_nobody(engine: Engine) -> None:
    task = await admitted(engine)
    await told(engine, task)
    await append(engine, task, position="p")
    assert await owed(engine) == []


async def test_tasks_without_configs_owe_nothing(engine: Engine) -> None:
    for _ in range(3):
        await append(engine, await admitted(engine), text("1"), DONE)
    assert await owed(engine) == []


async def test_each_receiver_has_a_cursor_of_its_own(engine: Engine) -> None:
    task = await admitted(engine)
    await told(engine, task, "early")
    await append(engine, task, text("1"))
    await told(engine, task, "late")
    await append(engine, task, text("2"), after=1)
    assert await owed(engine) == [("early", 0, 2), ("late", 1, 2)]


async def test_a_claim_names_whose_task_it_is_and_the_whole_config(engine: Engine) -> None:
    task = await admitted(engine, BERT)
    config = a_config(task, token=b"t", schemes=("Bearer",), credentials=b"c")
    await engine.pushes.set(BERT, config, most=10)
    await append(engine, task, text("1"))
    claim = await the_claim(engine)
    assert (claim.caller, claim.config, claim.only, claim.failures) == (BERT, config, False, 0)


async def test_a_new_address_takes_over_what_the_old_one_was_owed_and_whoever_sends_there_loses_it(
    engine: Engine, clock: MovableClock
) -> None:
    task = await admitted(engine)
    await told(engine, task)
    await append(engine, task, text("1"), text("2"))
    old = await the_claim(engine)
    await told(engine, task, url="https://new.example/", host="new.example")
    assert await engine.pushes.delivered(old, Cursor(2), hold=LEASE) is None
    await engine.pushes.postpone(old, DAY)
    claim = await the_claim(engine)
    assert (claim.config.url, claim.sent, claim.last, claim.failures) == ("https://new.example/", 0, 2, 0)


async def test_a_config_that_is_set_again_after_the_end_is_told_of_the_end_again(engine: Engine) -> None:
    task = await admitted(engine)
    await told(engine, task)
    await append(engine, task, text("1"), DONE)
    await engine.pushes.delivered(await the_claim(engine), Cursor(2), hold=LEASE)
    await told(engine, task)
    assert await owed(engine) == [("c", 1, 2)]


async def test_a_deleted_config_is_owed_nothing_and_its_holder_has_lost_it(engine: Engine) -> None:
    task = await admitted(engine)
    await told(engine, task)
    await append(engine, task, text("1"))
    old = await the_claim(engine)
    await engine.pushes.delete(ANNA, task, "c")
    assert await engine.pushes.delivered(old, Cursor(1), hold=LEASE) is None
    await told(engine, task)
    await append(engine, task, text("2"), after=1)
    new = await the_claim(engine)
    assert await engine.pushes.delivered(old, Cursor(1), hold=LEASE) is None
    assert await engine.pushes.delivered(new, Cursor(2), hold=LEASE) is None
    assert await owed(engine) == []


# --- one holder


async def test_what_is_claimed_is_held_until_the_lease_ends(engine: Engine, clock: MovableClock) -> None:
    task = await admitted(engine)
    await told(engine, task)
    await append(engine, task, text("1"))
    first = await the_claim(engine)
    clock.advance(29)
    assert not await claimed(engine)
    clock.advance(2)
    second = await the_claim(engine)
    assert second.sent == first.sent
    assert await engine.pushes.delivered(first, Cursor(1), hold=LEASE) is None
    assert await owed(engine) == []
    clock.advance(31)
    assert await owed(engine) == [("c", 0, 1)]


async def test_what_comes_while_a_receiver_is_being_told_belongs_to_the_same_holder(engine: Engine) -> None:
    task = await admitted(engine)
    await told(engine, task)
    await append(engine, task, text("1"))
    claim = await the_claim(engine)
    await append(engine, task, text("2"), after=1)
    assert not await claimed(engine)
    assert await engine.pushes.delivered(claim, Cursor(1), hold=LEASE) == 2
    assert not await claimed(engine)
    assert await engine.pushes.delivered(claim, Cursor(2), hold=LEASE) is None
    await append(engine, task, text("3"), after=2)
    assert await owed(engine) == [("c", 2, 3)]


async def test_a_delivery_renews_the_hold(engine: Engine, clock: MovableClock) -> None:
    task = await admitted(engine)
    await told(engine, task)
    await append(engine, task, text("1"), text("2"))
    claim = await the_claim(engine)
    clock.advance(25)
    assert await engine.pushes.delivered(claim, Cursor(1), hold=LEASE) == 2
    clock.advance(25)
    assert not await claimed(engine)
    assert await engine.pushes.delivered(claim, Cursor(2), hold=LEASE) is None


async def test_a_holder_that_makes_room_leaves_the_rest_to_be_claimed(engine: Engine) -> None:
    task = await admitted(engine)
    await told(engine, task)
    await append(engine, task, text("1"), text("2"))
    claim = await the_claim(engine)
    assert await engine.pushes.delivered(claim, Cursor(1), hold=NOTHING) is None
    assert await owed(engine) == [("c", 1, 2)]


async def test_what_is_released_is_due_at_once(engine: Engine) -> None:
    task = await admitted(engine)
    await told(engine, task)
    await append(engine, task, text("1"))
    await engine.pushes.release(await the_claim(engine))
    assert await owed(engine) == [("c", 0, 1)]


async def test_one_claim_takes_no_more_than_it_was_asked_for_and_nothing_twice(engine: Engine) -> None:
    for _ in range(5):
        task = await admitted(engine)
        await told(engine, task)
        await append(engine, task, text("1"))
    batches = [await claimed(engine, 2) for _ in range(4)]
    assert [len(batch) for batch in batches] == [2, 2, 1, 0]
    assert len({claim.config.task for batch in batches for claim in batch}) == 5


async def test_one_host_cannot_take_every_place(engine: Engine) -> None:
    for host, count in (("big.example", 6), ("small.example", 1), ("other.example", 2)):
        for _ in range(count):
            task = await admitted(engine)
            await told(engine, task, host=host)
            await append(engine, task, text("1"))
    hosts = [claim.config.host for claim in await claimed(engine, 10, at_once=2)]
    assert sorted(hosts) == ["big.example", "big.example", "other.example", "other.example", "small.example"]
    assert not await claimed(engine, 10, at_once=2, busy={"big.example": 2})
    assert len(await claimed(engine, 10, at_once=2, busy={"big.example": 1})) == 1


async def test_hosts_take_turns(engine: Engine) -> None:
    for host in ("a.example", "b.example", "c.example"):
        for _ in range(3):
            task = await admitted(engine)
            await told(engine, task, host=host)
            await append(engine, task, text("1"))
    turns = [(await claimed(engine, 1))[0].config.host[0] for _ in range(9)]
    assert [turns.count(host) for host in "abc"] == [3, 3, 3]
    assert sorted(turns[:3]) == sorted(turns[3:6]) == ["a", "b", "c"]


async def test_of_one_host_whoever_waited_longest_comes_first(engine: Engine, clock: MovableClock) -> None:
    tasks = []
    for _ in range(3):
        task = await admitted(engine)
        await told(engine, task)
        tasks.append(task)
        clock.advance(1)
    for task in reversed(tasks):
        await append(engine, task, text("1"))
    assert [(await claimed(engine, 1))[0].config.task for _ in tasks] == tasks


# --- failures


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
