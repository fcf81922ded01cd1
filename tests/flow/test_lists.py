"""Lists of tasks: filters, pages, and the limit of what is read at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from hub.core.tasks import reader as views
from hub.core.tasks.folding import FoldingThread
from hub.core.tasks.lists import TaskList
from rolecall.errors import ClientDisconnected, InvalidParams, ListTooSlow
from rolecall.model.a2a import PAUSED, TaskState
from rolecall.model.command import TaskQuery
from rolecall.model.ids import Caller, TaskId
from rolecall.model.task import Excerpt
from rolecall.protocol.dialects import DIALECTS
from rolecall.protocol.text.jsontext import parse
from rolecall.protocol.v0_3.events import read_result
from tests.flow.callers import ANY, OTHER, DialectCaller, enrol
from tests.flow.conftest import CALLER, System
from tests.helpers.scripted import chunk, message, status, task


async def made(system: System, *states: str, dialect: str = "0.3", role: str = "echo", **members: Any) -> list[str]:
    """Make tasks in these states, a second apart; returns their ids, newest first."""
    ids: list[str] = []
    for number, state in enumerate(states):
        name = f"w{role}{len(ids)}{state}{number}{members.get('contextId', '')}"
        system.forwarder.plan(
            f"{role}:a", task(task_id=name), chunk("x", append=False, task_id=name), status(state, "so", name)
        )
        ids.insert(0, (await DialectCaller(system, dialect).send(role=role, **members)).document["id"])
        system.clock.advance(1)
    return ids


async def list_tasks(system: System, caller: Caller = CALLER, dialect: str = "1.0", **params: Any) -> TaskList:
    return await system.hub.list(caller, DIALECTS[dialect].requests.read_list(params, ANY))


def ids_of(found: TaskList) -> list[str]:
    return [parse(answer.body)["id"] for answer in found.tasks]


@pytest.fixture
async def five(system: System) -> list[str]:
    await system.enrol("echo:a")
    return await made(system, "completed", "failed", "completed", "input-required", "completed")


async def test_everything_newest_change_first_with_the_whole_count(system: System, five: list[str]) -> None:
    found = await list_tasks(system)
    assert ids_of(found) == five
    assert (found.total, found.next_page) == (5, None)


async def test_page_by_page_every_task_comes_once_even_while_others_come_in(system: System, five: list[str]) -> None:
    first = await list_tasks(system, pageSize=2)
    assert (ids_of(first), first.total) == (five[:2], 5)
    await made(system, "completed")
    second = await list_tasks(system, pageSize=2, pageToken=first.next_page)
    last = await list_tasks(system, pageSize=2, pageToken=second.next_page)
    assert [*ids_of(second), *ids_of(last)] == five[2:]
    assert last.next_page is None


async def test_a_page_that_ends_with_the_last_task_has_no_next_one(system: System, five: list[str]) -> None:
    assert (await list_tasks(system, pageSize=5)).next_page is None
    assert (await list_tasks(system, pageSize=4)).next_page is not None


@pytest.mark.parametrize(
    ("state", "positions"), [("TASK_STATE_COMPLETED", [0, 2, 4]), ("input-required", [1]), ("TASK_STATE_WORKING", [])]
)
async def test_by_state(system: System, five: list[str], state: str, positions: list[int]) -> None:
    found = await list_tasks(system, status=state)
    assert (ids_of(found), found.total) == ([five[place] for place in positions], len(positions))


async def test_by_context_and_by_role(system: System, five: list[str]) -> None:
    await system.enrol("other:a")
    (one,) = await made(system, "completed", contextId="c")
    (two,) = await made(system, "completed", role="other")
    assert ids_of(await list_tasks(system, contextId="c")) == [one]
    assert ids_of(await list_tasks(system, tenant="other")) == [two]
    assert (await list_tasks(system, tenant="other", contextId="c")).total == 0


async def test_from_a_time_on_including_that_time(system: System, five: list[str]) -> None:
    times = [parse(answer.body)["status"]["timestamp"] for answer in (await list_tasks(system)).tasks]
    assert ids_of(await list_tasks(system, statusTimestampAfter=times[2])) == five[:3]
    assert (await list_tasks(system, statusTimestampAfter="2999-01-01T00:00:00Z")).total == 0


async def test_artifacts_and_history_come_where_they_are_wanted(system: System, five: list[str]) -> None:
    (plain,) = (await list_tasks(system, pageSize=1)).tasks
    assert "artifacts" not in parse(plain.body)
    assert len(parse(plain.body)["history"]) == 1
    (whole,) = (await list_tasks(system, pageSize=1, includeArtifacts=True, historyLength=0)).tasks
    assert parse(whole.body)["artifacts"][0]["parts"] == [{"text": "x"}]
    assert "history" not in parse(whole.body)


@pytest.mark.parametrize(("dialect", "state"), [("0.3", "completed"), ("1.0", "TASK_STATE_COMPLETED")])
async def test_tasks_of_every_dialect_are_spelled_in_the_lists(
    system: System, five: list[str], dialect: str, state: str
) -> None:
    for begun_in in ("0.1", "1.0"):
        await made(system, "completed", dialect=begun_in)
    for answer in (await list_tasks(system, dialect=dialect, status="completed")).tasks:
        document = parse(answer.body)
        assert document["status"]["state"] == state
        assert document.get("kind") == ("task" if dialect == "0.3" else None)


async def test_a_caller_neither_sees_nor_counts_the_tasks_of_another(system: System, five: list[str]) -> None:
    found = await list_tasks(system, OTHER)
    assert (found.tasks, found.total, found.next_page) == ([], 0, None)
    token = (await list_tasks(system, pageSize=2)).next_page
    assert (await list_tasks(system, OTHER, pageToken=token)).tasks == []


async def test_a_bare_message_is_no_task(system: System, five: list[str]) -> None:
    system.forwarder.plan("echo:a", message("yes"))
    await DialectCaller(system, "1.0").send()
    assert (await list_tasks(system)).total == 5


async def test_a_page_token_of_another_query_only_gives_the_position(system: System, five: list[str]) -> None:
    token = (await list_tasks(system, pageSize=2)).next_page
    assert ids_of(await list_tasks(system, pageToken=token, status="completed")) == [five[2], five[4]]


@pytest.mark.parametrize("token", ["x", "1.0", "/", "x/y", "1.0.0/x", "0x1/y"])
async def test_an_invalid_page_token_is_refused_by_the_hub(system: System, five: list[str], token: str) -> None:
    with pytest.raises(InvalidParams, match="The page token is not one that this hub issued"):
        await list_tasks(system, pageToken=token)


@pytest.mark.parametrize("token", ["nan/x", "inf/x", "-inf/x", "1e400/x", "1/", "1/\0"])
async def test_an_invented_page_token_shows_only_the_callers_tasks(system: System, five: list[str], token: str) -> None:
    assert set(ids_of(await list_tasks(system, pageToken=token))) <= {*five}


async def test_a_page_ends_before_too_many_bytes_are_read(
    system: System, five: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page has at least one task; the others are on the next page."""
    size = (await system.hub.task(CALLER, TaskId(five[0]), ANY)).size
    monkeypatch.setattr(views, "_READ_AT_ONCE", int(size * 2.5))
    seen_ids: list[list[str]] = []
    token: str | None = ""
    while token is not None and len(seen_ids) < 9:
        found = await list_tasks(system, pageToken=token)
        seen_ids.append(ids_of(found))
        assert found.total == 5
        token = found.next_page
    assert [place for page in seen_ids for place in page] == five
    assert [len(page) for page in seen_ids] == [2, 2, 1]
    monkeypatch.setattr(views, "_READ_AT_ONCE", 1)
    assert len((await list_tasks(system)).tasks) == 1


# --- what paused tasks ask


async def questions(system: System, *states: TaskState) -> dict[str, str]:
    """What the listed tasks ask, by their ids."""
    page = await system.hub.page(CALLER, TaskQuery(states=states))
    return {task_id: question.words for task_id, question in page.questions.items()}


@pytest.mark.parametrize("dialect", ["0.3", "1.0"])
async def test_a_list_has_the_questions_of_paused_tasks_alone(system: System, dialect: str) -> None:
    await enrol(system, "echo:a", dialect)
    system.forwarder.plan("echo:a", task("input-required", "at once?"))
    first = (await DialectCaller(system, "0.3").send()).document["id"]
    _, third, second = await made(system, "auth-required", "input-required", "completed")
    for states in ((), tuple(PAUSED)):
        assert await questions(system, *states) == {first: "at once?", second: "so", third: "so"}
    assert await questions(system, TaskState.COMPLETED) == {}


async def test_a_question_without_words_is_empty_and_a_long_one_is_cut(system: System) -> None:
    await system.enrol("echo:a")
    data = {
        "role": "agent",
        "messageId": "m",
        "parts": [{"kind": "data", "data": {}}, *({"kind": "text", "text": "x" * 1_500},) * 4],
    }
    for step in (
        task("input-required"),
        read_result({**task().document, "status": {"state": "input-required", "message": data}}),
    ):
        system.forwarder.plan("echo:a", step)
        await system.send()
    lines = "\n".join(["x" * 1_500] * 4)
    assert sorted((await questions(system)).values()) == ["", lines[:4_000]]


async def test_a_large_question_is_read_in_the_thread_that_folds(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task("input-required", "x" * 300_000))
    await system.send()
    folded = watch_folding(monkeypatch)
    assert [*(await questions(system)).values()] == ["x" * 4_000]
    assert len(folded) == 1


def watch_folding(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The jobs that the thread gets from now on."""
    folded, run = list[Any](), FoldingThread.run

    def recorded(thread: FoldingThread, caller: Caller, job: Any, *arguments: Any) -> Any:
        folded.append(job)
        return run(thread, caller, job, *arguments)

    monkeypatch.setattr(FoldingThread, "run", recorded)
    return folded


async def test_what_comes_behind_a_pause_does_not_hide_its_question(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", [task(), status("input-required", "which?"), chunk("x", append=False), chunk("y")])
    task_id = (await system.send(blocking=False))["id"]
    await asyncio.sleep(1)
    assert (await system.row()).at == 4
    assert await questions(system) == {task_id: "which?"}


# --- what tasks are about


async def excerpts(system: System, caller: Caller = CALLER) -> dict[str, Excerpt]:
    return {**(await system.hub.page(caller, TaskQuery())).excerpts}


@pytest.mark.parametrize("dialect", ["0.1", "0.3", "1.0"])
async def test_a_list_has_the_beginning_of_what_was_asked_and_why_it_failed(stored_system: System, dialect: str) -> None:
    system, anna = stored_system, DialectCaller(stored_system, dialect)
    await enrol(system, "echo:a", "1.0" if dialect == "1.0" else "0.3")
    expected = {}
    for number, (state, detail) in enumerate((("completed", ""), ("failed", "so"), ("rejected", "so"), ("canceled", "so"))):
        system.forwarder.plan("echo:a", task(task_id=f"w{number}"), status(state, "so", f"w{number}"))
        done = await anna.send(f" look\n at  {number}" + "." * 300)
        expected[done.document["id"]] = Excerpt(f"look at {number}".ljust(200, "."), detail, "")
    system.forwarder.plan_together("echo:a", task(task_id="lost"))
    lost = (await anna.send("and this")).document["id"]
    await asyncio.sleep(10)  # 0.1 does not wait for the end
    found = await excerpts(system)
    asked, detail, reason = found.pop(lost)
    assert (asked, "echo:a" in detail, reason) == ("and this", True, "WORKER_LOST")
    assert found == expected
    assert await excerpts(system, OTHER) == {}
    assert [len(system.engine.arguments(port)) for port in ("tasks.first_turns", "events.last_events")] == [1, 1]


@pytest.mark.parametrize("dialect", ["0.3", "1.0"])
async def test_a_list_has_data_where_there_is_no_text_and_nothing_of_what_is_large(stored_system: System, dialect: str) -> None:
    system, anna = stored_system, DialectCaller(stored_system, dialect)
    await system.enrol("echo:a")
    data, kind = (
        ({"kind": "data", "data": {"order": 7}}, {"kind": "text"}) if dialect == "0.3" else ({"data": {"order": 7}}, {})
    )
    sent = [('{"order":7}', [data, data]), ("so", [data, {**kind, "text": "so"}])]
    sent += [("", [{**kind, "text": "x" * size}]) for size in (33_000, 70_000)]
    expected = {}
    for number, (asked, parts) in enumerate(sent):
        detail = "why" * (20_000 if number == 0 else 400)
        system.forwarder.plan("echo:a", task(task_id=f"w{number}"), status("failed", detail, f"w{number}"))
        done = await anna.send(parts=parts)
        expected[done.document["id"]] = (asked, detail[:500] if number else "")
    assert {name: found[:2] for name, found in (await excerpts(system)).items()} == expected


async def test_large_messages_are_read_in_the_thread_that_folds(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    folded = watch_folding(monkeypatch)
    await system.enrol("echo:a")
    for number in range(8):
        system.forwarder.plan("echo:a", task("completed", task_id=f"w{number}"))
        await system.send("x" * 30_000)
        assert {one.asked for one in (await excerpts(system)).values()} == {"x" * 200}
    assert len(folded) == 2


# --- turns


async def test_lists_are_read_two_at_a_time_and_workspaces_take_turns(system: System) -> None:
    read: list[str] = []

    async def list_of(workspace: str) -> None:
        await list_tasks(system, Caller(workspace, "anna"))
        read.append(workspace)

    holds = [system.engine.hold("tasks.page") for _ in range(2)]
    first = [asyncio.create_task(list_of("busy")) for _ in range(5)]
    for hold in holds:
        await hold.reached.wait()
    quiet = asyncio.create_task(list_of("quiet"))
    await asyncio.sleep(0)
    assert len(system.engine.arguments("tasks.page")) == 2
    holds[0].release()
    await quiet
    assert read.index("quiet") <= 2
    holds[1].release()
    await asyncio.gather(*first)


async def test_a_list_whose_caller_disconnects_ends_and_leaves_its_turn(system: System) -> None:
    for _ in range(5):
        hold = system.engine.hold("tasks.page")
        leave: list[Callable[[], None]] = []
        answer = asyncio.create_task(system.hub.list(CALLER, DIALECTS["1.0"].requests.read_list({}, ANY), leave.append))
        await hold.reached.wait()
        leave[0]()
        with pytest.raises(ClientDisconnected):
            await answer
        leave[0]()
    assert (await list_tasks(system)).total == 0


async def test_a_list_whose_caller_disconnects_while_it_waits_is_not_read(system: System) -> None:
    holds = [system.engine.hold("tasks.page") for _ in range(2)]
    running = [asyncio.create_task(list_tasks(system)) for _ in range(2)]
    for hold in holds:
        await hold.reached.wait()
    leave: list[Callable[[], None]] = []
    waiting = asyncio.create_task(system.hub.list(CALLER, DIALECTS["1.0"].requests.read_list({}, ANY), leave.append))
    await asyncio.sleep(0)
    leave[0]()
    with pytest.raises(ClientDisconnected):
        await waiting
    for hold in holds:
        hold.release()
    await asyncio.gather(*running)
    assert len(system.engine.arguments("tasks.page")) == 2


async def test_a_list_that_takes_too_long_ends_with_a_reason(system: System) -> None:
    for read in (lambda: list_tasks(system), lambda: system.hub.page(CALLER, TaskQuery())):
        hold = system.engine.hold("tasks.page")
        began = asyncio.get_running_loop().time()
        with pytest.raises(ListTooSlow, match="longer than 10 s"):
            await read()
        assert asyncio.get_running_loop().time() - began == pytest.approx(10)
        hold.release()
