"""Lists of tasks: what is asked for, page by page, and no more of it than can be read at once."""

from __future__ import annotations

from typing import Any

import pytest

from hub.core.hub import TaskList
from hub.core.tasks import reader as views
from rolecall.errors import InvalidParams
from rolecall.model.ids import Caller
from rolecall.protocol.callers import requests
from rolecall.protocol.text.jsontext import parse
from tests.flow.callers import ANY, OTHER, Speaker
from tests.flow.conftest import ME, House
from tests.helpers.scripted import chunk, message, status, task


async def made(house: House, *states: str, dialect: str = "0.3", role: str = "echo", **members: Any) -> list[str]:
    """Tasks in these states, a second apart; their ids, newest first."""
    ids: list[str] = []
    for number, state in enumerate(states):
        name = f"w{role}{len(ids)}{state}{number}{members.get('contextId', '')}"
        house.forwarder.plan(f"{role}:a", task(task_id=name), chunk("x", append=False, task_id=name), status(state, "so", name))
        ids.insert(0, (await Speaker(house, dialect).send(role=role, **members)).document["id"])
        house.clock.advance(1)
    return ids


async def listed(house: House, caller: Caller = ME, dialect: str = "1.0", **params: Any) -> TaskList:
    return await house.hub.list(caller, requests.read_list(params, ANY, dialect))


def ids_of(found: TaskList) -> list[str]:
    return [parse(body)["id"] for body in found.tasks]


@pytest.fixture
async def five(house: House) -> list[str]:
    await house.enrol("echo:a")
    return await made(house, "completed", "failed", "completed", "input-required", "completed")


async def test_everything_newest_change_first_with_the_whole_count(house: House, five: list[str]) -> None:
    found = await listed(house)
    assert ids_of(found) == five
    assert (found.total, found.next_page) == (5, None)


async def test_page_by_page_every_task_comes_once_even_while_others_come_in(house: House, five: list[str]) -> None:
    first = await listed(house, pageSize=2)
    assert (ids_of(first), first.total) == (five[:2], 5)
    await made(house, "completed")
    second = await listed(house, pageSize=2, pageToken=first.next_page)
    third = await listed(house, pageSize=2, pageToken=second.next_page)
    assert [*ids_of(second), *ids_of(third)] == five[2:]
    assert third.next_page is None


async def test_a_page_that_ends_with_the_last_task_has_no_next_one(house: House, five: list[str]) -> None:
    assert (await listed(house, pageSize=5)).next_page is None
    assert (await listed(house, pageSize=4)).next_page is not None


@pytest.mark.parametrize(
    ("state", "places"), [("TASK_STATE_COMPLETED", [0, 2, 4]), ("input-required", [1]), ("TASK_STATE_WORKING", [])]
)
async def test_by_state(house: House, five: list[str], state: str, places: list[int]) -> None:
    found = await listed(house, status=state)
    assert (ids_of(found), found.total) == ([five[place] for place in places], len(places))


async def test_by_context_and_by_role(house: House, five: list[str]) -> None:
    await house.enrol("other:a")
    (one,) = await made(house, "completed", contextId="c")
    (two,) = await made(house, "completed", role="other")
    assert ids_of(await listed(house, contextId="c")) == [one]
    assert ids_of(await listed(house, tenant="other")) == [two]
    assert (await listed(house, tenant="other", contextId="c")).total == 0


async def test_from_a_moment_on_that_moment_included(house: House, five: list[str]) -> None:
    stamps = [parse(body)["status"]["timestamp"] for body in (await listed(house)).tasks]
    assert ids_of(await listed(house, statusTimestampAfter=stamps[2])) == five[:3]
    assert (await listed(house, statusTimestampAfter="2999-01-01T00:00:00Z")).total == 0


async def test_artifacts_and_history_come_where_they_are_wanted(house: House, five: list[str]) -> None:
    (plain,) = (await listed(house, pageSize=1)).tasks
    assert "artifacts" not in parse(plain)
    assert len(parse(plain)["history"]) == 1
    (whole,) = (await listed(house, pageSize=1, includeArtifacts=True, historyLength=0)).tasks
    assert parse(whole)["artifacts"][0]["parts"] == [{"text": "x"}]
    assert "history" not in parse(whole)


@pytest.mark.parametrize(("dialect", "state"), [("0.3", "completed"), ("1.0", "TASK_STATE_COMPLETED")])
async def test_tasks_of_every_dialect_are_spelled_in_the_lists(house: House, five: list[str], dialect: str, state: str) -> None:
    for begun_in in ("0.1", "1.0"):
        await made(house, "completed", dialect=begun_in)
    for body in (await listed(house, dialect=dialect, status="completed")).tasks:
        document = parse(body)
        assert document["status"]["state"] == state
        assert document.get("kind") == ("task" if dialect == "0.3" else None)


async def test_nobody_sees_the_tasks_of_another_nor_counts_them(house: House, five: list[str]) -> None:
    found = await listed(house, OTHER)
    assert (found.tasks, found.total, found.next_page) == ([], 0, None)
    token = (await listed(house, pageSize=2)).next_page
    assert (await listed(house, OTHER, pageToken=token)).tasks == []


async def test_a_bare_message_is_no_task(house: House, five: list[str]) -> None:
    house.forwarder.plan("echo:a", message("yes"))
    await Speaker(house, "1.0").send()
    assert (await listed(house)).total == 5


async def test_a_token_of_another_query_only_says_where_to_go_on(house: House, five: list[str]) -> None:
    token = (await listed(house, pageSize=2)).next_page
    assert ids_of(await listed(house, pageToken=token, status="completed")) == [five[2], five[4]]


@pytest.mark.parametrize("token", ["x", "1.0", "/", "x/y", "1.0.0/x", "0x1/y"])
async def test_a_token_that_is_none_is_refused(house: House, five: list[str], token: str) -> None:
    with pytest.raises(InvalidParams, match="The page token is not one that this hub issued"):
        await listed(house, pageToken=token)


@pytest.mark.parametrize("token", ["nan/x", "inf/x", "-inf/x", "1e400/x", "1/", "1/\0"])
async def test_a_token_that_was_made_up_shows_nothing_that_is_not_the_callers(
    house: House, five: list[str], token: str
) -> None:
    assert set(ids_of(await listed(house, pageToken=token))) <= {*five}


async def test_a_page_ends_where_too_much_would_have_to_be_read(
    house: House, five: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One task at least, and what follows is on the next page."""
    size = (await house.hub.task(ME, requests.read_get({"id": five[0]}, ANY, "1.0").task_id, ANY)).size
    monkeypatch.setattr(views, "_READ_AT_ONCE", int(size * 2.5))
    pages: list[list[str]] = []
    token: str | None = ""
    while token is not None and len(pages) < 9:
        found = await listed(house, pageToken=token)
        pages.append(ids_of(found))
        assert found.total == 5
        token = found.next_page
    assert [place for page in pages for place in page] == five
    assert [len(page) for page in pages] == [2, 2, 1]
    monkeypatch.setattr(views, "_READ_AT_ONCE", 1)
    assert len((await listed(house)).tasks) == 1
