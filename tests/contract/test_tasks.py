from __future__ import annotations

from datetime import timedelta

import pytest

from hub.ports.state.engine import Engine
from rolecall.errors import HubError, InvalidParams, LogMoved, TaskNotFound
from rolecall.model.a2a import PAUSED, TERMINAL, Event, EventKind, Ids, Logged, TaskState
from rolecall.model.command import TaskQuery
from rolecall.model.ids import START, Cursor, TaskId, WorkerId
from rolecall.model.task import Branch, Conversation, Holder, TaskPage
from rolecall.model.value import replace
from tests.contract.conftest import Store
from tests.contract.words import (
    ANNA,
    BERT,
    DONE,
    OTHER_ANNA,
    SOON,
    WORKER,
    a_row,
    a_turn,
    admitted,
    append,
    message,
    status,
    text,
)
from tests.helpers.clock import ManualClock
from tests.helpers.reading import next_batch

DAY = timedelta(days=1)


async def ids_of(engine: Engine, query: TaskQuery) -> list[TaskId]:
    return [row.id for row in (await engine.tasks.page(ANNA, query)).rows]


# --- rows


async def test_admitted_task_is_found_as_it_was_given(engine: Engine) -> None:
    row = a_row(worker_task="w-1", worker_context="wc-1", position="b.0", epoch=7)
    await engine.tasks.admit(row, a_turn())
    assert await engine.tasks.get(ANNA, row.id) == row


async def test_task_without_a_worker_gets_one_by_assignment(engine: Engine) -> None:
    row = a_row(worker=None, epoch=0)
    await engine.tasks.admit(row, a_turn())
    assert (await engine.tasks.get(ANNA, row.id)).worker is None
    worker = WorkerId("echo", "Zone:A:1")
    await engine.tasks.assign(row.id, worker, 4, "1.0")
    assert await engine.tasks.get(ANNA, row.id) == replace(row, worker=worker, epoch=4, log_dialect="1.0")


async def test_same_id_is_not_admitted_twice(engine: Engine) -> None:
    row = a_row()
    await engine.tasks.admit(row, a_turn("first"))
    with pytest.raises(HubError):
        await engine.tasks.admit(row, a_turn("second"))
    assert [turn.message_id for turn in await engine.tasks.turns(row.id)] == ["first"]


@pytest.mark.parametrize("stranger", [BERT, OTHER_ANNA], ids=["other caller", "other workspace"])
async def test_another_callers_task_is_not_found(engine: Engine, stranger: object) -> None:
    assert stranger in (BERT, OTHER_ANNA)
    who = BERT if stranger is BERT else OTHER_ANNA
    task = await admitted(engine)
    errors = []
    for wanted in (task, TaskId("never-was")):
        with pytest.raises(TaskNotFound) as caught:
            await engine.tasks.get(who, wanted)
        errors.append(caught.value.message)
    assert errors[0] == errors[1]
    assert (await engine.tasks.page(who, TaskQuery())).total == 0
    assert await engine.tasks.conversation(who, "ctx", None) is None
    await append(engine, task, status(TaskState.INPUT_REQUIRED))
    assert list(await engine.tasks.paused(who, "ctx", None)) == []


async def test_row_is_the_fold_of_the_log_up_to_the_cursor_it_names(engine: Engine, clock: ManualClock) -> None:
    row = a_row(context="")
    await engine.tasks.admit(row, a_turn())
    clock.advance(5)
    ids = Ids(row.id, "ctx-w", "w-1", "wc-1")
    await append(engine, row.id, status(TaskState.WORKING), text(), position="b.2", ids=ids)
    after = await engine.tasks.get(ANNA, row.id)
    assert (after.state, after.at, after.position, after.ids) == (TaskState.WORKING, 2, "b.2", ids)
    assert (after.updated, after.created) == (clock.wall(), row.created)
    await append(engine, row.id, text(), after=2)
    after = await engine.tasks.get(ANNA, row.id)
    assert (after.state, after.at, after.position, after.ids) == (TaskState.WORKING, 3, "b.2", ids)


@pytest.mark.parametrize("chunks", [1, 7, 450])
async def test_row_of_a_task_that_only_grows_is_never_older_than_its_log(store: Store, engine: Engine, chunks: int) -> None:
    row = a_row()
    await engine.tasks.admit(row, a_turn())
    await append(engine, row.id, status(TaskState.WORKING), position="b.1", ids=Ids(row.id, "ctx", "w-1"))
    size = len(status(TaskState.WORKING).body)
    for at in range(1, chunks + 1):
        await append(engine, row.id, text("12345"), after=at, position=f"b.{at + 1}")
    row = await engine.tasks.get(ANNA, row.id)
    assert (row.at, row.position, row.size) == (chunks + 1, f"b.{chunks + 1}", size + 5 * chunks)
    for _ in range(2 if store.on_disk else 1):
        assert await engine.tasks.get(ANNA, row.id) == row
        assert list((await engine.tasks.page(ANNA, TaskQuery())).rows) == [row]
        assert list(await engine.tasks.unfinished()) == [row]
        engine = await store.reopen() if store.on_disk else engine
    for after in (chunks, chunks + 2):
        with pytest.raises(LogMoved):
            await append(engine, row.id, text("late"), after=after)
    await append(engine, row.id, after=chunks + 1, position="b.further")
    await append(engine, row.id, DONE, after=chunks + 1)
    row = await engine.tasks.get(ANNA, row.id)
    assert (row.at, row.position, row.size) == (chunks + 2, "b.further", size + 5 * chunks + len(DONE.body))
    if store.on_disk:
        engine = await store.reopen()
        assert await engine.tasks.get(ANNA, row.id) == row


async def test_position_is_the_last_one_that_was_given(store: Store, engine: Engine) -> None:
    batch, bare, both = [await admitted(engine) for _ in range(3)]
    await append(engine, batch, text("1"), text("2"), text("3"), position="b.3")
    await append(engine, bare, text("1"), position="b.1")
    await append(engine, bare, text("2"), after=1)
    await append(engine, both, text("1"), position="b.1")
    await append(engine, both, status(TaskState.WORKING), after=1)
    for _ in range(2 if store.on_disk else 1):
        assert [(await engine.tasks.get(ANNA, task)).position for task in (batch, bare, both)] == ["b.3", "b.1", "b.1"]
        engine = await store.reopen() if store.on_disk else engine


async def test_ids_that_are_still_unknown_change_nothing(store: Store, engine: Engine) -> None:
    row = a_row(context="ctx")
    await engine.tasks.admit(row, a_turn())
    for at, ids in enumerate((("ctx", "w-1", ""), ("", "", "wc-1"), ("", "", ""))):
        await append(engine, row.id, text(), after=at, ids=Ids(row.id, *ids))
    for _ in range(2 if store.on_disk else 1):
        assert (await engine.tasks.get(ANNA, row.id)).ids == Ids(row.id, "ctx", "w-1", "wc-1")
        engine = await store.reopen() if store.on_disk else engine


@pytest.mark.parametrize("state", sorted(TERMINAL))
async def test_terminal_state_ends_the_task(engine: Engine, state: TaskState) -> None:
    task = await admitted(engine)
    await append(engine, task, status(TaskState.WORKING), status(state))
    row = await engine.tasks.get(ANNA, task)
    assert row.ended
    assert (row.state, row.at) == (state, 2)


async def test_a_bare_message_leaves_no_visible_task(engine: Engine) -> None:
    task = await admitted(engine)
    await append(engine, task, message())
    with pytest.raises(TaskNotFound):
        await engine.tasks.get(ANNA, task)
    assert (await engine.tasks.page(ANNA, TaskQuery())).total == 0
    assert await engine.tasks.conversation(ANNA, "ctx", None) is None
    assert list(await engine.tasks.paused(ANNA, "ctx", None)) == []
    assert list(await engine.tasks.unfinished()) == []


async def test_rows_survive_reopening(store: Store, engine: Engine) -> None:
    row = a_row()
    await engine.tasks.admit(row, a_turn())
    await append(engine, row.id, status(TaskState.WORKING), position="b.1", ids=Ids(row.id, "ctx", "w", "wc"))
    await engine.tasks.assign(row.id, WorkerId("echo", "two"), 3, "0.3")
    before = await engine.tasks.get(ANNA, row.id)
    gone = await admitted(engine)
    await append(engine, gone, message())
    engine = await store.reopen()
    assert await engine.tasks.get(ANNA, row.id) == before
    with pytest.raises(TaskNotFound):
        await engine.tasks.get(ANNA, gone)


# --- turns


async def test_turns_are_returned_in_the_order_of_their_arrival(store: Store, engine: Engine) -> None:
    row = a_row()
    turns = [a_turn(f"m-{at}", after=at, params=bytes([at, 0, 255])) for at in range(4)]
    await engine.tasks.admit(row, turns[0])
    for turn in turns[1:]:
        await engine.tasks.add_turn(row.id, turn)
    assert list(await engine.tasks.turns(row.id)) == turns
    if store.on_disk:
        engine = await store.reopen()
        assert list(await engine.tasks.turns(row.id)) == turns
        await engine.tasks.add_turn(row.id, a_turn("m-4", after=9))
        assert [turn.message_id for turn in await engine.tasks.turns(row.id)] == ["m-0", "m-1", "m-2", "m-3", "m-4"]


async def test_a_refused_turn_is_dropped_and_may_be_added_again(store: Store, engine: Engine) -> None:
    task = await admitted(engine)
    kept, refused = a_turn("kept", after=1), a_turn("refused", after=2)
    await engine.tasks.add_turn(task, kept)
    await engine.tasks.add_turn(task, refused)
    await engine.tasks.drop_turn(task, refused)
    assert list(await engine.tasks.turns(task)) == [a_turn(), kept]
    await engine.tasks.add_turn(task, refused)
    assert list(await engine.tasks.turns(task)) == [a_turn(), kept, refused]
    await engine.tasks.drop_turn(task, refused)
    if store.on_disk:
        engine = await store.reopen()
        assert list(await engine.tasks.turns(task)) == [a_turn(), kept]
        await engine.tasks.drop_turn(task, kept)
        assert list(await engine.tasks.turns(task)) == [a_turn()]


async def test_only_the_last_turn_is_dropped_and_never_the_first(engine: Engine) -> None:
    task, other = await admitted(engine), await admitted(engine)
    turns = [a_turn(), a_turn("2", after=1), a_turn("3", after=2)]
    await engine.tasks.add_turn(other, turns[2])
    for turn in turns[1:]:
        await engine.tasks.add_turn(task, turn)
    for turn in (turns[1], a_turn("3", after=1), a_turn("4", after=2), turns[0]):
        await engine.tasks.drop_turn(task, turn)
    assert list(await engine.tasks.turns(task)) == turns
    for turn in reversed(turns):
        await engine.tasks.drop_turn(task, turn)
    await engine.tasks.drop_turn(task, turns[0])
    assert list(await engine.tasks.turns(task)) == turns[:1]
    assert list(await engine.tasks.turns(other)) == [turns[0], turns[2]]
    await engine.tasks.drop_turn(TaskId("never-was"), turns[0])


async def test_unknown_task_takes_no_turn_and_no_worker(engine: Engine) -> None:
    with pytest.raises(TaskNotFound):
        await engine.tasks.add_turn(TaskId("never-was"), a_turn())
    with pytest.raises(TaskNotFound):
        await engine.tasks.assign(TaskId("never-was"), WorkerId("echo", "one"), 1, "0.3")
    assert list(await engine.tasks.turns(TaskId("never-was"))) == []


async def test_a_discarded_task_ends_its_readers(engine: Engine) -> None:
    task = await admitted(engine)
    await engine.tasks.add_turn(task, a_turn("second"))
    reader = engine.events.follow(task, after=START, idle=SOON)
    assert list(await next_batch(reader)) == []
    await engine.tasks.discard(task)
    with pytest.raises(TaskNotFound):
        await engine.tasks.get(ANNA, task)
    assert list(await engine.tasks.turns(task)) == []
    with pytest.raises(EOFError):
        await next_batch(reader)
    await engine.tasks.discard(task)


# --- pages


async def all_pages(engine: Engine, query: TaskQuery) -> list[TaskPage]:
    found = [await engine.tasks.page(ANNA, query)]
    while found[-1].before is not None:
        found.append(await engine.tasks.page(ANNA, replace(query, before=found[-1].before)))
    return found


async def test_page_gives_the_newest_change_of_state_first(engine: Engine, clock: ManualClock) -> None:
    tasks = [await admitted(engine) for _ in range(3)]
    for task in (tasks[1], tasks[0], tasks[2]):
        clock.advance(1)
        await append(engine, task, status(TaskState.WORKING))
    changed = (await engine.tasks.get(ANNA, tasks[1])).updated
    clock.advance(1)
    await append(engine, tasks[1], text(), after=1)
    assert await ids_of(engine, TaskQuery()) == [tasks[2], tasks[0], tasks[1]]
    assert (await engine.tasks.get(ANNA, tasks[1])).updated == changed


@pytest.mark.parametrize("limit", [1, 3, 7, 20])
async def test_pages_are_complete_and_stable_among_equal_times(engine: Engine, limit: int) -> None:
    tasks = {await admitted(engine, updated=1_700_000_000.1 + at // 5) for at in range(14)}
    found = await all_pages(engine, TaskQuery(limit=limit))
    seen = [row.id for page in found for row in page.rows]
    assert len(seen) == 14
    assert set(seen) == tasks
    assert {page.total for page in found} == {14}
    assert all(len(page.rows) <= limit for page in found)


@pytest.mark.parametrize("limit", [1, 3, 20])
async def test_pages_of_a_workspace_hold_the_tasks_of_all_its_callers(engine: Engine, limit: int) -> None:
    tasks = [await admitted(engine, (ANNA, BERT)[at % 3 == 0], updated=1_700_000_000.0 + at // 2) for at in range(9)]
    await admitted(engine, OTHER_ANNA)
    found = [await engine.tasks.page_of_workspace("default", TaskQuery(limit=limit))]
    while found[-1].before is not None:
        found.append(await engine.tasks.page_of_workspace("default", TaskQuery(limit=limit, before=found[-1].before)))
    rows = [row for page in found for row in page.rows]
    assert sorted(row.id for row in rows) == sorted(tasks)
    assert rows == sorted(rows, key=lambda row: (row.updated, row.id), reverse=True)
    assert {row.caller for row in rows} == {ANNA, BERT}
    assert {len(page.rows) for page in found[:-1]} <= {limit}
    assert {page.total for page in found} == {9}
    only_role = await engine.tasks.page_of_workspace("default", TaskQuery(role="coder", limit=limit))
    assert (only_role.rows, only_role.total, only_role.before) == ([], 0, None)
    assert (await engine.tasks.page_of_workspace("nowhere", TaskQuery())).total == 0


async def test_a_tasks_caller_is_found_within_its_workspace(store: Store) -> None:
    engine = await store.open()
    task, hidden = await admitted(engine, BERT), await admitted(engine, BERT)
    await append(engine, hidden, message())
    for again in (False, True):
        if again:
            engine = await store.open_again(engine)
        assert await engine.tasks.caller_of("default", task) == BERT
        for workspace, one in (("elsewhere", task), ("default", TaskId("unknown")), ("default", hidden)):
            with pytest.raises(TaskNotFound):
                await engine.tasks.caller_of(workspace, one)


async def test_pages_filter_by_context_role_and_state(engine: Engine) -> None:
    plain = await admitted(engine)
    other_context = await admitted(engine, context="ctx-2")
    other_role = await admitted(engine, role="coder", worker=WorkerId("coder", "one"))
    ended = await admitted(engine)
    await append(engine, ended, DONE)
    assert set(await ids_of(engine, TaskQuery(context_id="ctx"))) == {plain, other_role, ended}
    assert await ids_of(engine, TaskQuery(context_id="ctx-2")) == [other_context]
    assert await ids_of(engine, TaskQuery(role="coder")) == [other_role]
    assert await ids_of(engine, TaskQuery(states=(TaskState.COMPLETED,))) == [ended]
    assert await ids_of(engine, TaskQuery(context_id="ctx", role="coder", states=(TaskState.COMPLETED,))) == []
    assert (await engine.tasks.page(ANNA, TaskQuery(role="echo", limit=1))).total == 3


async def test_totals_follow_what_is_hidden_discarded_and_forgotten(engine: Engine, clock: ManualClock) -> None:
    async def totals(role: str | None = None) -> list[int]:
        queries = (TaskQuery(role=role), TaskQuery(role=role, since=0.0))
        return [(await engine.tasks.page(ANNA, query)).total for query in queries]

    first, second, third = [await admitted(engine) for _ in range(3)]
    await admitted(engine, role="coder", worker=WorkerId("coder", "one"))
    assert [await totals(), await totals("coder"), await totals("nobody")] == [[4, 4], [1, 1], [0, 0]]
    await append(engine, first, message())
    assert await totals() == [3, 3]
    await engine.tasks.discard(second)
    assert await totals("echo") == [1, 1]
    await append(engine, third, DONE)
    clock.advance(DAY.total_seconds() + 1)
    while await engine.tasks.forget(ended_for=DAY, paused_for=7 * DAY):
        pass
    assert [await totals(), await totals("echo")] == [[1, 1], [0, 0]]


async def test_a_total_is_counted_up_to_a_limit(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("memory.tasks", "sqlite.tasks.lists"):
        monkeypatch.setattr(f"hub.storage.{module}.COUNTED", 3)
    for state in (TaskState.WORKING, TaskState.FAILED, TaskState.COMPLETED):
        for _ in range(5):
            await append(engine, await admitted(engine), status(state))
        for query in (TaskQuery(), TaskQuery(states=(state,)), TaskQuery(states=(state,), role="echo"), TaskQuery(since=0.0)):
            page = await engine.tasks.page(ANNA, query)
            assert (len(page.rows), page.total) == (5 if query.states else len(page.rows), 3)
    assert len(await ids_of(engine, TaskQuery())) == 15


@pytest.mark.parametrize("state", TaskState)
async def test_a_list_by_state_follows_each_change(engine: Engine, state: TaskState) -> None:
    tasks = [await admitted(engine) for _ in range(3)]
    before = set(await ids_of(engine, TaskQuery(states=(state,))))
    await append(engine, tasks[1], status(TaskState.WORKING))
    await append(engine, tasks[1], status(state), after=1)
    before -= {tasks[1]}
    assert set(await ids_of(engine, TaskQuery(states=(state,)))) == before | {tasks[1]}
    assert (await engine.tasks.page(ANNA, TaskQuery(states=(state,), role="coder"))).total == 0
    assert (await engine.tasks.page(BERT, TaskQuery(states=(state,)))).total == 0
    await engine.tasks.discard(tasks[1])
    assert set(await ids_of(engine, TaskQuery(states=(state,)))) == before


async def test_a_list_of_several_states_is_one_list_newest_change_first(engine: Engine, clock: ManualClock) -> None:
    tasks = []
    for state in (*PAUSED, TaskState.WORKING, TaskState.COMPLETED, TaskState.SUBMITTED, *PAUSED, TaskState.COMPLETED):
        clock.advance(1)
        tasks.append(await admitted(engine, updated=clock.wall()))
        if state is not TaskState.SUBMITTED:
            await append(engine, tasks[-1], status(state))
    paused = [tasks[6], tasks[5], tasks[1], tasks[0]]
    for states, wanted in (
        (tuple(PAUSED), paused),
        ((TaskState.SUBMITTED, TaskState.COMPLETED), [tasks[7], tasks[4], tasks[3]]),
        (tuple(TaskState), [*reversed(tasks)]),
    ):
        assert await ids_of(engine, TaskQuery(states=states)) == wanted
        for limit in (1, 2, 3):
            found = await all_pages(engine, TaskQuery(states=states, limit=limit))
            assert [row.id for page in found for row in page.rows] == wanted
            assert {page.total for page in found} == {len(wanted)}
    assert (await engine.tasks.page(BERT, TaskQuery(states=tuple(PAUSED)))).total == 0


async def test_an_invalid_page_token_is_refused(engine: Engine) -> None:
    for token in ("", "x", "nothing/at-all"):
        with pytest.raises(InvalidParams):
            await engine.tasks.page(ANNA, TaskQuery(before=token))


# --- conversations


async def test_conversation_is_with_the_holder_of_the_newest_task(engine: Engine) -> None:
    assert await engine.tasks.conversation(ANNA, "ctx", None) is None
    await admitted(engine, worker=WorkerId("echo", "one"), worker_context="w1")
    await admitted(engine, worker=WorkerId("echo", "two"), worker_context="w2")
    await admitted(engine, worker=WorkerId("coder", "three"), role="coder", worker_context="w3")
    await admitted(engine, worker=None)
    await admitted(engine, worker=WorkerId("echo", "four"), context="ctx-2")
    assert await engine.tasks.conversation(ANNA, "ctx", None) == Conversation(WorkerId("coder", "three"), "w3")
    assert await engine.tasks.conversation(ANNA, "ctx", "echo") == Conversation(WorkerId("echo", "two"), "w2")
    assert await engine.tasks.conversation(ANNA, "ctx", "writer") is None


async def test_paused_are_the_tasks_that_wait_for_input(engine: Engine) -> None:
    tasks = {state: await admitted(engine) for state in TaskState}
    for state, task in tasks.items():
        await append(engine, task, status(state))
    other_context = await admitted(engine, context="ctx-2")
    await append(engine, other_context, status(TaskState.INPUT_REQUIRED))
    waiting = [tasks[TaskState.INPUT_REQUIRED], tasks[TaskState.AUTH_REQUIRED]]
    assert list(await engine.tasks.paused(ANNA, "ctx", None)) == waiting
    assert list(await engine.tasks.paused(ANNA, "ctx", "echo")) == waiting
    assert list(await engine.tasks.paused(ANNA, "ctx", "coder")) == []
    await append(engine, waiting[0], status(TaskState.WORKING), after=1)
    assert list(await engine.tasks.paused(ANNA, "ctx", None)) == waiting[1:]


async def test_holders_are_the_workers_at_which_tasks_are_paused(store: Store, engine: Engine) -> None:
    """Once for each epoch, whatever else they hold."""
    other = WorkerId("echo", "two")
    paused = {"worker": WORKER, "epoch": 1}
    for members in (paused, paused, {"worker": WORKER, "epoch": 2}, {"worker": other}, {"worker": WorkerId("coder", "one")}):
        await append(engine, await admitted(engine, **members), status(TaskState.INPUT_REQUIRED))
    await append(engine, await admitted(engine, OTHER_ANNA), status(TaskState.AUTH_REQUIRED))
    for state in set(TaskState) - PAUSED:
        await append(engine, await admitted(engine, worker=WorkerId("echo", "busy")), status(state))
    await append(engine, await admitted(engine, worker=None, epoch=0), status(TaskState.INPUT_REQUIRED))
    expected = [
        Holder("default", WorkerId("coder", "one"), 1),
        Holder("default", WORKER, 1),
        Holder("default", WORKER, 2),
        Holder("default", other, 1),
        Holder("elsewhere", WORKER, 1),
    ]
    assert list(await engine.tasks.holders()) == expected
    assert list(await (await store.open_again(engine)).tasks.holders()) == expected


async def test_a_holder_is_one_no_longer_when_its_task_goes_on_or_elsewhere(engine: Engine) -> None:
    tasks = [await admitted(engine, epoch=epoch) for epoch in (1, 2, 3, 4)]
    for task in tasks:
        await append(engine, task, status(TaskState.INPUT_REQUIRED))
    await append(engine, tasks[0], status(TaskState.WORKING), after=1)
    await append(engine, tasks[1], DONE, after=1)
    await engine.tasks.assign(tasks[2], WorkerId("echo", "two"), 7, "0.3")
    expected = [Holder("default", WORKER, 4), Holder("default", WorkerId("echo", "two"), 7)]
    assert list(await engine.tasks.holders()) == expected


async def test_the_tasks_that_are_paused_at_a_worker_come_in_pieces(store: Store, engine: Engine) -> None:
    tasks = sorted([await admitted(engine, caller) for caller in (ANNA, BERT, ANNA, BERT, ANNA)])
    for task in tasks:
        await append(engine, task, status(TaskState.WORKING), text(), status(TaskState.AUTH_REQUIRED), text(), position="b.4")
    for members in ({"epoch": 2}, {"worker": WorkerId("echo", "two")}, {"caller": OTHER_ANNA}):
        await append(engine, await admitted(engine, **members), status(TaskState.INPUT_REQUIRED))
    await admitted(engine)
    holder = Holder("default", WORKER, 1)
    first = await engine.tasks.paused_at(holder, after=None, limit=3)
    rest = await (await store.open_again(engine)).tasks.paused_at(holder, after=first[-1].id, limit=3)
    assert [row.id for row in (*first, *rest)] == tasks
    assert len(first) == 3
    for row in (first[0], rest[0]):
        assert (row.at, row.position, row.state) == (4, "b.4", TaskState.AUTH_REQUIRED)
    assert {row.caller for row in (*first, *rest)} == {ANNA, BERT}


# --- settling and forgetting


async def test_a_message_to_a_task_that_has_ended_does_not_change_when_it_did(
    store: Store, engine: Engine, clock: ManualClock
) -> None:
    task = await admitted(engine)
    await append(engine, task, DONE)
    row = await engine.tasks.get(ANNA, task)
    clock.advance(60)
    await engine.tasks.add_turn(task, a_turn("late", after=1))
    for _ in range(2 if store.on_disk else 1):
        assert await engine.tasks.get(ANNA, task) == row
        engine = await store.reopen() if store.on_disk else engine


async def test_unfinished_are_all_callers_tasks_in_the_order_of_admission(store: Store, engine: Engine) -> None:
    unfinished = [await admitted(engine, caller) for caller in (ANNA, BERT, OTHER_ANNA)]
    for event in (DONE, message()):
        await append(engine, await admitted(engine), event)
    assert [row.id for row in await engine.tasks.unfinished()] == unfinished
    if store.on_disk:
        engine = await store.reopen()
        assert [row.id for row in await engine.tasks.unfinished()] == unfinished


async def test_forget_deletes_tasks_that_ended_longer_ago_and_no_others(engine: Engine, clock: ManualClock) -> None:
    old, still_open = await admitted(engine), await admitted(engine)
    await append(engine, old, text(), DONE)
    hidden = await admitted(engine)
    await append(engine, hidden, message())
    clock.advance(DAY.total_seconds() / 2)
    recent = await admitted(engine)
    await append(engine, recent, DONE)
    assert await engine.tasks.forget(ended_for=DAY, paused_for=7 * DAY) == 0
    clock.advance(DAY.total_seconds() / 2 + 1)
    assert await engine.tasks.forget(ended_for=DAY, paused_for=7 * DAY) == 2
    assert await engine.tasks.forget(ended_for=DAY, paused_for=7 * DAY) == 0
    with pytest.raises(TaskNotFound):
        await engine.tasks.get(ANNA, old)
    assert list(await engine.events.read(old)) == list(await engine.tasks.turns(old)) == []
    assert set(await ids_of(engine, TaskQuery())) == {recent, still_open}


async def test_answer_to_a_task_that_was_paused_for_long_keeps_it(store: Store, engine: Engine, clock: ManualClock) -> None:
    answered, waiting = await admitted(engine), await admitted(engine)
    for task in (answered, waiting):
        await append(engine, task, status(TaskState.INPUT_REQUIRED))
    clock.advance(DAY.total_seconds() - 1)
    await engine.tasks.add_turn(answered, a_turn("2", after=1))
    assert (await engine.tasks.get(ANNA, answered)).updated == clock.wall()
    clock.advance(2)
    assert await engine.tasks.forget(ended_for=DAY, paused_for=DAY) == 1
    assert await ids_of(engine, TaskQuery()) == [answered]
    if store.on_disk:
        engine = await store.reopen()
        assert (await engine.tasks.get(ANNA, answered)).updated == clock.wall() - 2


async def test_a_deleted_task_ends_its_readers(engine: Engine, clock: ManualClock) -> None:
    task = await admitted(engine)
    await append(engine, task, status(TaskState.INPUT_REQUIRED))
    reader = engine.events.follow(task, after=Cursor(1), idle=SOON)
    assert list(await next_batch(reader)) == []
    clock.advance(DAY.total_seconds() + 1)
    assert await engine.tasks.forget(ended_for=DAY, paused_for=DAY) == 1
    with pytest.raises(EOFError):
        await next_batch(reader)


async def test_forget_takes_a_bounded_piece_per_call(engine: Engine, clock: ManualClock) -> None:
    for _ in range(450):
        await append(engine, await admitted(engine), DONE)
    clock.advance(DAY.total_seconds() + 1)
    pieces = []
    while piece := await engine.tasks.forget(ended_for=DAY, paused_for=7 * DAY):
        pieces.append(piece)
    assert sum(pieces) == 450
    assert len(pieces) > 1


async def test_a_new_task_does_not_get_the_events_of_a_deleted_one(engine: Engine, clock: ManualClock) -> None:
    await append(engine, await admitted(engine), text("old"), DONE)
    clock.advance(DAY.total_seconds() + 1)
    await engine.tasks.forget(ended_for=DAY, paused_for=7 * DAY)
    fresh = await admitted(engine)
    assert list(await engine.events.read(fresh)) == []
    await append(engine, fresh, text("new"))
    assert [logged.cursor for logged in await engine.events.read(fresh)] == [Cursor(1)]


async def test_a_new_task_does_not_get_the_turns_of_a_deleted_one(store: Store, engine: Engine, clock: ManualClock) -> None:
    old = await admitted(engine)
    await engine.tasks.add_turn(old, a_turn("old", after=1))
    await append(engine, old, DONE)
    clock.advance(DAY.total_seconds() + 1)
    await engine.tasks.forget(ended_for=DAY, paused_for=7 * DAY)
    fresh = await admitted(engine)
    if store.on_disk:
        engine = await store.reopen()
    assert [turn.message_id for turn in await engine.tasks.turns(fresh)] == ["m-1"]
    await engine.tasks.add_turn(fresh, a_turn("new", after=1))
    assert [turn.message_id for turn in await engine.tasks.turns(fresh)] == ["m-1", "new"]


async def test_forget_deletes_a_task_that_was_paused_for_too_long(engine: Engine, clock: ManualClock) -> None:
    asked, working = await admitted(engine), await admitted(engine)
    await append(engine, asked, status(TaskState.INPUT_REQUIRED))
    await append(engine, working, status(TaskState.WORKING))
    clock.advance(7 * DAY.total_seconds() - 1)
    assert await engine.tasks.forget(ended_for=DAY, paused_for=7 * DAY) == 0
    clock.advance(2)
    assert await engine.tasks.forget(ended_for=DAY, paused_for=7 * DAY) == 1
    assert set(await ids_of(engine, TaskQuery())) == {working}


async def test_row_knows_the_size_of_its_log(store: Store, engine: Engine) -> None:
    task = await admitted(engine)
    await append(engine, task, text("12345"), text("678"))
    await append(engine, task, text("9"), after=2)
    assert (await engine.tasks.get(ANNA, task)).size == 9
    if store.on_disk:
        again = await store.reopen()
        assert (await again.tasks.get(ANNA, task)).size == 9


async def test_large_messages_and_events_are_kept_as_they_came(store: Store, engine: Engine) -> None:
    first, second = (a_turn(name, 0, name.encode() * 100_000) for name in ("first", "other"))
    row = a_row()
    assert await engine.tasks.admit(row, first)
    events = [text("e" * 300_000), text("small"), text("f" * 3_000_000)]
    await append(engine, row.id, *events)
    assert await engine.tasks.add_turn(row.id, second)
    await engine.tasks.drop_turn(row.id, second)
    assert await engine.tasks.add_turn(row.id, second)
    small = a_turn("small", 0, b"{}")
    assert await engine.tasks.add_turn(row.id, small)
    expected = [first.params, second.params, small.params]
    assert [turn.params for turn in await engine.tasks.turns(row.id)] == expected
    engine = await store.open_again(engine)
    assert [turn.params for turn in await engine.tasks.turns(row.id)] == expected
    assert [logged.event for logged in await engine.events.read(row.id)] == events
    await engine.tasks.discard(row.id)
    assert not await engine.tasks.turns(row.id)


# --- trees


async def test_a_task_that_another_has_started_is_found_in_its_tree(engine: Engine) -> None:
    root = await admitted(engine)
    branches = [
        Branch(root, root, ("planner",), 1234.5, goes_on=True),
        Branch(TaskId("other"), root, ("planner", "writer"), None),
    ]
    rows = [a_row(ANNA), a_row(BERT)]
    for row, branch in zip(rows, branches, strict=True):
        await engine.tasks.admit(row, a_turn(), branch=branch)
    assert [await engine.tasks.branch_of(row.id) for row in rows] == branches
    assert await engine.tasks.branch_of(root) is None
    assert [(child.row.id, child.branch) for child in await engine.tasks.tree(root, limit=9)] == [
        (row.id, branch) for row, branch in zip(rows, branches, strict=True)
    ]
    assert len(await engine.tasks.tree(root, limit=1)) == 1
    assert [child.row.id for child in await engine.tasks.open_children()] == [row.id for row in rows]
    assert list(await engine.tasks.paused_parents()) == []
    await engine.tasks.discard(rows[0].id)
    assert await engine.tasks.branch_of(rows[0].id) is None
    assert [child.row.id for child in await engine.tasks.tree(root, limit=9)] == [rows[1].id]


async def test_paused_tasks_that_have_started_others_are_found(engine: Engine) -> None:
    root, middle, below, other = rows = [a_row() for _ in range(4)]
    branches = [None, Branch(root.id, root.id, ("a",)), Branch(middle.id, root.id, ("a", "b")), None]
    for row, branch in zip(rows, branches, strict=True):
        await engine.tasks.admit(row, a_turn(), branch=branch)
    assert list(await engine.tasks.paused_parents()) == []
    for row in (middle, below, other):
        await append(engine, row.id, status(TaskState.INPUT_REQUIRED))
    assert [row.id for row in await engine.tasks.paused_parents()] == [middle.id]
    await append(engine, root.id, status(TaskState.AUTH_REQUIRED))
    assert {row.id for row in await engine.tasks.paused_parents()} == {root.id, middle.id}
    await append(engine, middle.id, status(TaskState.COMPLETED), after=1)
    assert [row.id for row in await engine.tasks.paused_parents()] == [root.id]


async def test_a_paused_task_is_found_by_its_workspace(engine: Engine) -> None:
    row = a_row()
    await engine.tasks.admit(row, a_turn())
    assert await engine.tasks.paused_task(ANNA.workspace, row.id) is None
    await append(engine, row.id, status(TaskState.INPUT_REQUIRED))
    found = await engine.tasks.paused_task(ANNA.workspace, row.id)
    assert found is not None and (found.id, found.caller, found.state) == (row.id, ANNA, TaskState.INPUT_REQUIRED)
    assert await engine.tasks.paused_task("elsewhere", row.id) is None
    assert await engine.tasks.paused_task(ANNA.workspace, TaskId("none")) is None
    await append(engine, row.id, DONE, after=1)
    assert await engine.tasks.paused_task(ANNA.workspace, row.id) is None


# --- what tasks begin with and end with


async def test_first_messages_of_several_tasks_are_read_together_without_the_large_ones(store: Store, engine: Engine) -> None:
    sizes = {20: True, 30_000: True, 30_001: False, 70_000: False}
    rows = [a_row() for _ in sizes]
    turns = [a_turn(f"m{size}", params=b"x" * size) for size in sizes]
    for row, turn in zip(rows, turns, strict=True):
        await engine.tasks.admit(row, turn)
    await engine.tasks.add_turn(rows[0].id, a_turn("second"))
    asked = [*(row.id for row in rows), TaskId("none")]
    expected = {row.id: turn for row, turn, small in zip(rows, turns, sizes.values(), strict=True) if small}
    for again in (False, True):
        one = await store.open_again(engine) if again else engine
        assert await one.tasks.first_turns(asked, largest=30_000) == expected
        assert await one.tasks.first_turns(asked[1:2], largest=29_999) == {}


async def test_ends_of_several_tasks_are_read_together_without_the_large_ones(store: Store, engine: Engine) -> None:
    sizes = {20: True, 30_000: True, 30_001: False}
    tasks = [await admitted(engine) for _ in sizes]
    events = [Event(EventKind.STATUS, TaskState.FAILED, "0.3", b"x" * size) for size in sizes]
    for task, event in zip(tasks, events, strict=True):
        await append(engine, task, text(), event)
    other = await admitted(engine)
    await append(engine, other, text(), DONE)
    expected = {
        task: Logged(Cursor(2), event) for task, event, small in zip(tasks, events, sizes.values(), strict=True) if small
    }
    for again in (False, True):
        one = await store.open_again(engine) if again else engine
        assert await one.events.last_events([*tasks, TaskId("none")], largest=30_000) == expected
