"""What is scarce is divided among workspaces: held within a cap, or given in rotation."""

from __future__ import annotations

import asyncio
import re
from collections import Counter

import pytest

from hub.core.shares.answers import AnswerShare
from hub.core.shares.rotation import Rotation
from hub.core.shares.share import WorkspaceShare
from hub.core.shares.slots import WorkspaceSlots
from hub.core.shares.table import ShareLimits, Shares
from rolecall.errors import AnswerNotSent, Overloaded
from tests.helpers.clock import ManualClock

HUB = r"^The hub holds 3 things, its limit \(ROLECALL_MOST\)"
MINE = r"^This workspace holds 2 things, its limit \(ROLECALL_MOST_PER_WORKSPACE\)"
FEWER = r"^Others wait, and this workspace holds 1 things, its limit \(ROLECALL_MOST\)"


def three(clock: ManualClock | None = None) -> WorkspaceShare:
    return WorkspaceShare("things", "most", 3, 2, monotonic=(clock or ManualClock()).monotonic)


def taken(share: WorkspaceShare, workspaces: str) -> None:
    for workspace in workspaces:
        share.take(workspace)


def is_refused(share: WorkspaceShare, workspace: str, why: str) -> None:
    with pytest.raises(Overloaded, match=why):
        share.take(workspace)


# --- what is held


def test_a_workspace_gets_its_cap_and_no_more() -> None:
    share = three()
    taken(share, "aa")
    is_refused(share, "a", MINE)
    share.take("b")


def test_all_workspaces_together_get_what_the_hub_has() -> None:
    share = three()
    taken(share, "aab")
    is_refused(share, "b", HUB)
    is_refused(share, "c", HUB)
    is_refused(share, "a", MINE)


def test_what_is_given_back_is_free_in_its_workspace_and_in_the_hub() -> None:
    share = three()
    taken(share, "aab")
    share.give_back("a")
    share.check("b")
    share.check("a")
    taken(share, "b")
    for workspace in "abb":
        share.give_back(workspace)
    taken(share, "aac")


def test_an_amount_counts_as_that_many() -> None:
    share = WorkspaceShare("bytes", "most", 100, 60)
    share.take("a", 50)
    with pytest.raises(Overloaded, match="60 bytes"):
        share.take("a", 11)
    share.take("b", 50)
    with pytest.raises(Overloaded, match="The hub holds 100 bytes"):
        share.take("a", 10)
    share.give_back("b", 20)
    share.take("c", 20)


def test_one_is_held_within_the_block_and_given_back_after_an_error() -> None:
    share = three()
    with share.hold("a"), share.hold("a"):
        is_refused(share, "a", MINE)
    for _ in range(9):
        with pytest.raises(ZeroDivisionError), share.hold("a"):
            raise ZeroDivisionError
    taken(share, "aab")
    for _ in range(9):
        with pytest.raises(Overloaded), share.hold("c"):
            raise AssertionError("was admitted")
    share.give_back("b")
    share.check("b")


def test_nothing_can_be_held_by_several_at_once() -> None:
    share = three()
    with share.hold("a", 0), share.hold("a", 0):
        assert share.use.used == 0
    assert share.use.workspaces == 0


def test_what_is_there_already_counts_above_the_limit() -> None:
    share = three()
    for _ in range(5):
        share.fill("a")
    for _ in range(3):
        share.give_back("a")
    is_refused(share, "a", MINE)
    share.give_back("a")
    share.check("a")


def test_what_exceeds_a_limit_is_told_with_the_setting() -> None:
    share = three()
    assert (share.cap, share.held("a"), share.excess("a")) == (2, 0, None)
    share.fill("a", 2)
    assert (share.held("a"), share.excess("a")) == (2, None)
    share.fill("a")
    assert re.match(MINE, share.excess("a").message)  # type: ignore[union-attr]
    assert share.excess("b") is None
    share.fill("b")
    assert re.match(HUB, share.excess("b").message)  # type: ignore[union-attr]


def test_while_another_workspace_waits_nobody_gets_more_than_an_equal_share() -> None:
    share = three()
    taken(share, "aab")
    is_refused(share, "c", HUB)
    share.give_back("a")
    is_refused(share, "a", FEWER)
    is_refused(share, "b", FEWER)
    share.take("c")
    share.give_back("b")
    share.take("a")  # nobody waits any more


def test_a_workspace_that_asks_whether_there_is_room_is_still_waited_for() -> None:
    share = three()
    taken(share, "aab")
    is_refused(share, "c", HUB)
    share.give_back("a")
    share.check("c")
    is_refused(share, "a", FEWER)
    share.take("c")


def test_a_workspace_that_was_refused_at_its_own_cap_makes_nobody_wait() -> None:
    share = three()
    taken(share, "aa")
    is_refused(share, "a", MINE)
    taken(share, "b")
    share.give_back("a")
    share.take("b")


def test_a_workspace_that_does_not_come_back_is_not_waited_for() -> None:
    clock = ManualClock()
    share = three(clock)
    taken(share, "aab")
    is_refused(share, "c", HUB)
    share.give_back("a")
    clock.advance(9.9)
    is_refused(share, "b", FEWER)
    clock.advance(0.2)
    share.take("b")


def test_its_use_is_told() -> None:
    share = three()
    taken(share, "aab")
    is_refused(share, "c", HUB)
    is_refused(share, "a", MINE)
    assert share.use == ("things", 3, 3, 2, 2, 1, 2)


# --- memory for answers


def memory() -> AnswerShare:
    return AnswerShare("bytes", "most", 300_000, 200_000, monotonic=ManualClock().monotonic)


def test_small_answers_are_not_counted() -> None:
    share = memory()
    for _ in range(100):
        share.take("a", 63_000)
    assert share.use.used == 0
    share.give_back("a", 63_000)
    assert share.use.used == 0


def test_an_answer_that_does_not_fit_is_refused_with_its_size_and_the_setting() -> None:
    share = memory()
    share.take("a", 150_000)
    with pytest.raises(
        AnswerNotSent, match=r"of about 150000 bytes .* This workspace .*\(ROLECALL_MOST_PER_WORKSPACE\)"
    ) as refused:
        share.take("a", 150_000)
    assert refused.value.facts == {"retryAfter": "5"}
    share.take("b", 150_000)
    with pytest.raises(AnswerNotSent, match=r"The hub .* \(ROLECALL_MOST\)"):
        share.take("c", 65_536)


def test_an_answer_above_the_cap_is_sent_while_its_workspace_has_no_other() -> None:
    share = memory()
    with share.hold("a", 5_000_000):
        assert share.use.used == 200_000
        with pytest.raises(AnswerNotSent):
            share.take("a", 65_536)
    assert share.use.used == 0


# --- what is given back at once


async def wait_for(slots: WorkspaceSlots, name: str, order: list[str], proceed: asyncio.Event) -> None:
    async with slots.slot(name[0]):
        order.append(name)
        await proceed.wait()


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_workspaces_get_slots_in_rotation_each_first_come_first_served() -> None:
    slots, order, proceed = WorkspaceSlots("reads", 1, queue=10, setting="max_at_once"), list[str](), asyncio.Event()
    names = ["a1", "a2", "a3", "a4", "b1", "b2", "c1"]
    jobs = [asyncio.create_task(wait_for(slots, name, order, proceed)) for name in names]
    await turns()
    assert order == ["a1"]
    proceed.set()
    await asyncio.gather(*jobs)
    assert order == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]
    assert slots.use == ("reads", 1, 0, 0, 0, 0, 0)


async def test_a_workspace_with_a_cap_leaves_the_other_slots_free_and_waits_for_its_own() -> None:
    slots, order = WorkspaceSlots("reads", 4, queue=10, setting="max_at_once", per_workspace=2), list[str]()
    proceed = {name: asyncio.Event() for name in ("a", "b")}
    names = ("a1", "a2", "a3", "a4", "b1", "b2", "b3")
    jobs = [asyncio.create_task(wait_for(slots, name, order, proceed[name[0]])) for name in names]
    await asyncio.sleep(0)
    assert (slots.use.used, slots.use.largest, slots.use.waiting) == (4, 2, 3)
    proceed["b"].set()
    await asyncio.gather(*jobs[4:])
    assert (slots.use.used, slots.use.largest, slots.use.waiting) == (2, 2, 2)
    async with slots.slot("c"):
        assert slots.use.used == 3
    jobs[2].cancel()
    proceed["a"].set()
    await asyncio.gather(*jobs, return_exceptions=True)
    assert slots.use == ("reads", 4, 0, 0, 0, 0, 0)
    assert [name for name in order if name[0] == "a"] == ["a1", "a2", "a4"]


async def test_as_many_run_at_once_as_there_are_slots() -> None:
    slots, order, proceed = WorkspaceSlots("reads", 2, queue=10, setting="max_at_once"), list[str](), asyncio.Event()
    jobs = [asyncio.create_task(wait_for(slots, name, order, proceed)) for name in ("a1", "a2", "b1")]
    await turns()
    assert order == ["a1", "a2"]
    assert slots.use == ("reads", 2, 2, 2, 1, 1, 0)
    proceed.set()
    await asyncio.gather(*jobs)


async def test_who_comes_while_others_wait_does_not_overtake_them() -> None:
    slots, order, proceed = WorkspaceSlots("reads", 1, queue=10, setting="max_at_once"), list[str](), asyncio.Event()
    proceed.set()
    async with slots.slot("a"):
        waiting = asyncio.create_task(wait_for(slots, "b1", order, proceed))
        await turns()
    await wait_for(slots, "a1", order, proceed)
    await waiting
    assert order == ["b1", "a1"]


async def test_a_long_queue_of_one_workspace_is_refused_and_others_are_not() -> None:
    slots, proceed = WorkspaceSlots("reads", 1, queue=2, setting="max_at_once"), asyncio.Event()
    jobs = [asyncio.create_task(wait_for(slots, name, [], proceed)) for name in ("a1", "a2", "a3")]
    await turns()
    with pytest.raises(Overloaded, match=r"This workspace holds 2 waiting reads, its limit \(ROLECALL_MAX_AT_ONCE\)"):
        await wait_for(slots, "a4", [], proceed)
    jobs.append(asyncio.create_task(wait_for(slots, "b1", [], proceed)))
    await turns()
    assert slots.use.waiting == 3
    proceed.set()
    await asyncio.gather(*jobs)


@pytest.mark.parametrize("served_first", [False, True])
async def test_a_cancelled_waiter_takes_no_slot_with_it(served_first: bool) -> None:
    slots, order, proceed = WorkspaceSlots("reads", 1, queue=10, setting="max_at_once"), list[str](), asyncio.Event()
    proceed.set()
    async with slots.slot("a"):
        first, second = (asyncio.create_task(wait_for(slots, name, order, proceed)) for name in ("b1", "c1"))
        await turns()
        if not served_first:
            first.cancel()
    first.cancel()  # in the turn of the loop in which it got the slot
    await asyncio.wait([first, second])
    assert order == ["c1"]
    assert slots.use.used == 0


async def test_the_rotation_serves_each_workspace_once_before_any_twice() -> None:
    rotation, served = Rotation("starts"), Counter[str]()
    for workspace in ("a" * 50) + "bcd":
        rotation.add(workspace).add_done_callback(lambda _, one=workspace: served.update(one))
    for _ in range(4):
        assert rotation.wake_next()
    await turns()
    assert served == Counter("abcd")
    assert len(rotation) == 49
    assert rotation.waiting("a") == 49


# --- the table


def test_every_scarce_thing_is_in_the_table_under_a_name_of_its_own() -> None:
    shares = Shares(ShareLimits())
    listed = [use.thing for use in shares.uses()]
    assert len(set(listed)) == len(listed) == len(vars(shares))
