"""Push configs and the outbox, on every engine."""

from __future__ import annotations

import asyncio

import pytest

from hub.ports.state.engine import Engine
from hub.ports.state.pushes import DeliveryRoom
from rolecall.errors import InvalidParams, PushConfigNotFound, TaskNotFound
from rolecall.model.a2a import Event
from rolecall.model.ids import Caller, Cursor, new_task_id
from tests.contract.conftest import Store
from tests.contract.pushing import DAY, LEASE, NOTHING, a_config, add_config, claimed, owed, the_claim
from tests.contract.words import ANNA, BERT, DONE, NAME, OTHER_ANNA, a_row, a_turn, admitted, append, message, text
from tests.helpers.clock import ManualClock

# --- configs


@pytest.mark.parametrize("own", [{"numbers": True}, {"by_reference": True}])
async def test_a_config_is_given_back_as_it_was_set(engine: Engine, own: dict[str, bool]) -> None:
    task = await admitted(engine)
    config = a_config(task, token=b"\x00sealed", schemes=("Bearer", "Basic"), credentials=b"\xffsealed", **own)
    await engine.pushes.set(ANNA, config, limit=10)
    assert await engine.pushes.get(ANNA, task, "c") == config
    assert list(await engine.pushes.list(ANNA, task)) == [config]


async def test_a_config_of_the_same_id_replaces_the_one_before_and_keeps_its_place(engine: Engine) -> None:
    task = await admitted(engine)
    for name in ("one", "two", "three"):
        await add_config(engine, task, name)
    await add_config(engine, task, "two", url="https://other.example/", token=b"new")
    configs = await engine.pushes.list(ANNA, task)
    assert [config.id for config in configs] == ["one", "two", "three"]
    assert (configs[1].url, configs[1].token) == ("https://other.example/", b"new")


async def test_a_task_has_a_limit_of_configs(engine: Engine) -> None:
    task = await admitted(engine)
    for name in ("one", "two"):
        await engine.pushes.set(ANNA, a_config(task, name), limit=2)
    with pytest.raises(InvalidParams, match="2 push configs"):
        await engine.pushes.set(ANNA, a_config(task, "three"), limit=2)
    await engine.pushes.set(ANNA, a_config(task, "two", url="https://other.example/"), limit=2)
    assert [config.id for config in await engine.pushes.list(ANNA, task)] == ["one", "two"]


async def test_deleting_a_config_twice_is_deleting_it_once(engine: Engine) -> None:
    task = await admitted(engine)
    await add_config(engine, task)
    for _ in range(2):
        await engine.pushes.delete(ANNA, task, "c")
        assert not await engine.pushes.list(ANNA, task)
        with pytest.raises(PushConfigNotFound):
            await engine.pushes.get(ANNA, task, "c")


async def test_the_configs_of_another_callers_task_look_like_those_of_an_unknown_task(engine: Engine) -> None:
    task = await admitted(engine)
    await add_config(engine, task)
    pushes = engine.pushes
    for caller, asked in ((BERT, task), (OTHER_ANNA, task), (ANNA, new_task_id())):
        for call in (
            pushes.set(caller, a_config(asked), limit=10),
            pushes.get(caller, asked, "c"),
            pushes.list(caller, asked),
            pushes.delete(caller, asked, "c"),
        ):
            with pytest.raises(TaskNotFound):
                await call
    for caller, asked in ((OTHER_ANNA, task), (ANNA, new_task_id())):
        with pytest.raises(TaskNotFound):
            await pushes.redeliver(caller, asked, "c", Cursor(1))
    assert len(await pushes.list(ANNA, task)) == 1


@pytest.mark.parametrize("event", [text(), DONE])
async def test_an_event_that_is_stored_together_with_a_config_is_owed(engine: Engine, event: Event) -> None:
    task = await admitted(engine)
    await asyncio.gather(add_config(engine, task), append(engine, task, event))
    assert await owed(engine) == [("c", 0, 1)]


async def test_a_bare_message_has_no_configs_and_is_not_delivered(engine: Engine) -> None:
    task = await admitted(engine)
    await add_config(engine, task)
    await append(engine, task, message())
    assert not await claimed(engine)
    with pytest.raises(TaskNotFound):
        await engine.pushes.list(ANNA, task)


async def test_a_task_is_admitted_together_with_its_first_receiver_or_not_at_all(store: Store) -> None:
    """A killed hub never leaves one without the other."""
    engine = await store.open()
    row, late = a_row(), a_row()
    config = a_config(row.id, token=b"sealed")
    assert await engine.tasks.admit(row, a_turn(), names=[NAME], push=config)
    assert not await engine.tasks.admit(late, a_turn(), names=[NAME], push=a_config(late.id))
    if store.on_disk:
        engine = await store.reopen()
    assert list(await engine.pushes.list(ANNA, row.id)) == [config]
    with pytest.raises(TaskNotFound):
        await engine.pushes.list(ANNA, late.id)
    await append(engine, row.id, text("1"))
    assert await owed(engine) == [("c", 0, 1)]


# --- owed events


async def test_a_receiver_is_owed_what_is_logged_after_it_was_set(engine: Engine) -> None:
    task = await admitted(engine)
    await append(engine, task, text("1"), text("2"))
    await add_config(engine, task)
    assert await owed(engine) == []
    await append(engine, task, text("3"), text("4"), after=2)
    assert await owed(engine) == [("c", 2, 4)]


async def test_a_receiver_that_is_set_before_the_first_event_is_owed_them_all(engine: Engine) -> None:
    task = await admitted(engine)
    await add_config(engine, task)
    await append(engine, task, text("1"), DONE)
    assert await owed(engine) == [("c", 0, 2)]


async def test_a_receiver_that_is_set_after_the_end_is_owed_the_end(engine: Engine) -> None:
    task = await admitted(engine)
    await append(engine, task, text("1"), DONE)
    await add_config(engine, task)
    assert await owed(engine) == [("c", 1, 2)]


@pytest.mark.parametrize("state", ["empty", "running", "ended"])
async def test_a_receiver_can_be_set_with_the_newest_event(engine: Engine, state: str) -> None:
    """One that has it gets it again; one that lacks more gets all of that."""
    task = await admitted(engine)
    new, known, behind = (a_config(task, name) for name in ("new", "known", "behind"))
    await engine.pushes.set(ANNA, behind, limit=10)
    if state != "empty":
        await append(engine, task, text("1"), text("2"), *((DONE,) if state == "ended" else ()))
    last = {"empty": 0, "running": 2, "ended": 3}[state]
    await engine.pushes.set(ANNA, known, limit=10)
    for claim in await claimed(engine):
        if claim.config.id == "known":
            assert await engine.pushes.delivered(claim, claim.last, hold=NOTHING) is None
    for config in (new, known, behind):
        await engine.pushes.set(ANNA, config, limit=10, newest=True)
    if state == "empty":
        await append(engine, task, text("1"))
        assert await owed(engine) == [("behind", 0, 1), ("known", 0, 1), ("new", 0, 1)]
    else:
        assert await owed(engine) == [("behind", 0, last), ("known", last - 1, last), ("new", last - 1, last)]


async def test_a_receiver_that_is_set_while_the_log_grows_is_owed_all_that_follows(engine: Engine) -> None:
    tasks = [await admitted(engine) for _ in range(40)]
    for place in range(4):
        setting = [add_config(engine, task, f"{at:02}") for at, task in enumerate(tasks) if at % 4 == place]
        await asyncio.gather(*setting, *(append(engine, task, text(), after=place) for task in tasks))
    assert await owed(engine, 100, at_once=100) == [(f"{at:02}", at % 4, 4) for at in range(40)]


async def test_an_appended_position_without_events_is_owed_to_nobody(engine: Engine) -> None:
    task = await admitted(engine)
    await add_config(engine, task)
    await append(engine, task, position="p")
    assert await owed(engine) == []


async def test_tasks_without_configs_owe_nothing(engine: Engine) -> None:
    for _ in range(3):
        await append(engine, await admitted(engine), text("1"), DONE)
    assert await owed(engine) == []


async def test_each_receiver_has_a_cursor_of_its_own(engine: Engine) -> None:
    task = await admitted(engine)
    await add_config(engine, task, "early")
    await append(engine, task, text("1"))
    await add_config(engine, task, "late")
    await append(engine, task, text("2"), after=1)
    assert await owed(engine) == [("early", 0, 2), ("late", 1, 2)]


async def test_a_claim_names_whose_task_it_is_and_the_whole_config(engine: Engine) -> None:
    task = await admitted(engine, BERT)
    config = a_config(task, token=b"t", schemes=("Bearer",), credentials=b"c")
    await engine.pushes.set(BERT, config, limit=10)
    await append(engine, task, text("1"))
    claim = await the_claim(engine)
    assert (claim.caller, claim.config, claim.only, claim.failures) == (BERT, config, False, 0)


async def test_a_new_url_takes_over_what_the_old_one_was_owed_and_the_old_claim_is_lost(
    engine: Engine, clock: ManualClock
) -> None:
    task = await admitted(engine)
    await add_config(engine, task)
    await append(engine, task, text("1"), text("2"))
    old = await the_claim(engine)
    await add_config(engine, task, url="https://new.example/", host="new.example")
    assert await engine.pushes.delivered(old, Cursor(2), hold=LEASE) is None
    await engine.pushes.postpone(old, DAY)
    claim = await the_claim(engine)
    assert (claim.config.url, claim.sent, claim.last, claim.failures) == ("https://new.example/", 0, 2, 0)


async def test_a_new_address_begins_without_the_failures_of_the_old_one_and_counts_for_its_own_host(
    engine: Engine, clock: ManualClock
) -> None:
    task = await admitted(engine)
    await add_config(engine, task)
    await append(engine, task, text("1"))
    await engine.pushes.postpone(await the_claim(engine), DAY)
    await add_config(engine, task, url="https://new.example/", host="new.example")
    assert not await claimed(engine, busy={"new.example": 10})
    (claim,) = await claimed(engine, busy={"app.example": 10})
    assert (claim.failures, claim.failing_for) == (0, NOTHING)


async def test_a_config_that_is_set_again_after_the_end_gets_the_end_again(engine: Engine) -> None:
    task = await admitted(engine)
    await add_config(engine, task)
    await append(engine, task, text("1"), DONE)
    await engine.pushes.delivered(await the_claim(engine), Cursor(2), hold=LEASE)
    await add_config(engine, task)
    assert await owed(engine) == [("c", 1, 2)]


async def test_a_deleted_config_is_owed_nothing_and_its_claim_is_lost(engine: Engine) -> None:
    task = await admitted(engine)
    await add_config(engine, task)
    await append(engine, task, text("1"))
    old = await the_claim(engine)
    await engine.pushes.delete(ANNA, task, "c")
    assert await engine.pushes.delivered(old, Cursor(1), hold=LEASE) is None
    await add_config(engine, task)
    await append(engine, task, text("2"), after=1)
    new = await the_claim(engine)
    assert await engine.pushes.delivered(old, Cursor(1), hold=LEASE) is None
    assert await engine.pushes.delivered(new, Cursor(2), hold=LEASE) is None
    assert await owed(engine) == []


# --- one holder


async def test_what_is_claimed_is_held_until_the_lease_ends(engine: Engine, clock: ManualClock) -> None:
    task = await admitted(engine)
    await add_config(engine, task)
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


async def test_events_that_are_appended_during_a_delivery_belong_to_the_same_claim(engine: Engine) -> None:
    task = await admitted(engine)
    await add_config(engine, task)
    await append(engine, task, text("1"))
    claim = await the_claim(engine)
    await append(engine, task, text("2"), after=1)
    assert not await claimed(engine)
    assert await engine.pushes.delivered(claim, Cursor(1), hold=LEASE) == 2
    assert not await claimed(engine)
    assert await engine.pushes.delivered(claim, Cursor(2), hold=LEASE) is None
    await append(engine, task, text("3"), after=2)
    assert await owed(engine) == [("c", 2, 3)]


async def test_a_delivery_renews_the_claim(engine: Engine, clock: ManualClock) -> None:
    task = await admitted(engine)
    await add_config(engine, task)
    await append(engine, task, text("1"), text("2"))
    claim = await the_claim(engine)
    clock.advance(25)
    assert await engine.pushes.delivered(claim, Cursor(1), hold=LEASE) == 2
    clock.advance(25)
    assert not await claimed(engine)
    assert await engine.pushes.delivered(claim, Cursor(2), hold=LEASE) is None


async def test_a_delivery_without_hold_releases_the_rest_to_be_claimed(engine: Engine) -> None:
    task = await admitted(engine)
    await add_config(engine, task)
    await append(engine, task, text("1"), text("2"))
    claim = await the_claim(engine)
    assert await engine.pushes.delivered(claim, Cursor(1), hold=NOTHING) is None
    assert await owed(engine) == [("c", 1, 2)]


async def test_what_is_released_is_due_at_once(engine: Engine) -> None:
    task = await admitted(engine)
    await add_config(engine, task)
    await append(engine, task, text("1"))
    await engine.pushes.release(await the_claim(engine))
    assert await owed(engine) == [("c", 0, 1)]


async def test_a_claim_takes_no_more_than_its_limit_and_nothing_twice(engine: Engine) -> None:
    for _ in range(5):
        task = await admitted(engine)
        await add_config(engine, task)
        await append(engine, task, text("1"))
    batches = [await claimed(engine, 2) for _ in range(4)]
    assert [len(batch) for batch in batches] == [2, 2, 1, 0]
    assert len({claim.config.task for batch in batches for claim in batch}) == 5


async def test_one_host_cannot_take_every_slot(engine: Engine) -> None:
    for host, count in (("big.example", 6), ("small.example", 1), ("other.example", 2)):
        for _ in range(count):
            task = await admitted(engine)
            await add_config(engine, task, host=host)
            await append(engine, task, text("1"))
    hosts = [claim.config.host for claim in await claimed(engine, 10, at_once=2)]
    assert sorted(hosts) == ["big.example", "big.example", "other.example", "other.example", "small.example"]
    assert not await claimed(engine, 10, at_once=2, busy={"big.example": 2})
    assert len(await claimed(engine, 10, at_once=2, busy={"big.example": 1})) == 1


async def test_hosts_take_turns(engine: Engine) -> None:
    for host in ("a.example", "b.example", "c.example"):
        for _ in range(3):
            task = await admitted(engine)
            await add_config(engine, task, host=host)
            await append(engine, task, text("1"))
    turns = [(await claimed(engine, 1))[0].config.host[0] for _ in range(9)]
    assert [turns.count(host) for host in "abc"] == [3, 3, 3]
    assert sorted(turns[:3]) == sorted(turns[3:6]) == ["a", "b", "c"]


async def add_owed(engine: Engine, caller: Caller, *hosts: str, count: int = 1) -> None:
    """So many tasks of the caller for each of these hosts, each with an event that is owed."""
    for host in hosts:
        for _ in range(count):
            task = await admitted(engine, caller)
            await engine.pushes.set(caller, a_config(task, host=host), limit=10)
            await append(engine, task, text("1"))


async def test_workspaces_take_turns_however_many_hosts_one_has(engine: Engine) -> None:
    busy, quiet = Caller("busy", "b"), Caller("quiet", "q")
    await add_owed(engine, busy, *(f"h{number}.example" for number in range(6)), count=2)
    await add_owed(engine, quiet, "h1.example", "q.example", count=2)
    turns = [(await claimed(engine, 1))[0] for _ in range(8)]
    assert sorted(claim.caller.workspace for claim in turns[:2]) == ["busy", "quiet"]
    assert [claim.caller.workspace for claim in turns].count("quiet") == 4
    assert len({claim.config.host for claim in turns if claim.caller == busy}) == 4


async def test_one_claim_serves_each_workspace_before_any_twice(engine: Engine) -> None:
    await add_owed(engine, Caller("a", "x"), "h1.example", "h2.example", "h3.example")
    await add_owed(engine, Caller("b", "x"), "h1.example")
    await add_owed(engine, Caller("c", "x"), "h9.example")
    assert sorted(claim.caller.workspace for claim in await claimed(engine, 3)) == ["a", "b", "c"]
    assert [claim.caller.workspace for claim in await claimed(engine, 3)] == ["a", "a"]


async def test_one_workspace_cannot_take_every_slot(engine: Engine) -> None:
    busy, quiet = Caller("busy", "b"), Caller("quiet", "q")
    await add_owed(engine, busy, "h1.example", "h2.example", "h3.example", count=3)
    await add_owed(engine, quiet, "h1.example")
    first = await claimed(engine, 10, per_workspace=4)
    assert sorted(claim.caller.workspace for claim in first) == [*["busy"] * 4, "quiet"]
    under_way = {("busy", "h1.example"): 2, ("busy", "h2.example"): 1}
    more = await engine.pushes.claim(DeliveryRoom(10, 4, 10, under_way), LEASE)
    assert [claim.caller.workspace for claim in more] == ["busy"]


async def test_the_limit_of_a_host_counts_each_workspace_by_itself(engine: Engine) -> None:
    busy, quiet = Caller("busy", "b"), Caller("quiet", "q")
    await add_owed(engine, busy, "shared.example", count=5)
    await add_owed(engine, quiet, "shared.example", count=5)
    found = await engine.pushes.claim(DeliveryRoom(10, 10, 2, {("busy", "shared.example"): 2}), LEASE)
    assert [claim.caller.workspace for claim in found] == ["quiet", "quiet"]


async def test_a_workspace_whose_receivers_are_not_due_delays_no_other(engine: Engine) -> None:
    busy, quiet = Caller("busy", "b"), Caller("quiet", "q")
    await add_owed(engine, busy, *(f"h{number}.example" for number in range(20)))
    for claim in await claimed(engine, 20):
        await engine.pushes.postpone(claim, DAY)
    await add_owed(engine, quiet, "h1.example")
    assert [claim.caller for claim in await claimed(engine, 1)] == [quiet]


async def test_of_one_host_the_longest_waiting_receiver_comes_first(engine: Engine, clock: ManualClock) -> None:
    tasks = []
    for _ in range(3):
        task = await admitted(engine)
        await add_config(engine, task)
        tasks.append(task)
        clock.advance(1)
    for task in reversed(tasks):
        await append(engine, task, text("1"))
    assert [(await claimed(engine, 1))[0].config.task for _ in tasks] == tasks
