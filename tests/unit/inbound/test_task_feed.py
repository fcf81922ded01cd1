"""The feed of tasks over HTTP: its frames, where it begins, and in which pieces it comes."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import httpx
import pytest
from quart import Quart

from hub.app import create_app, parts_of
from hub.core.tasks.feeds import TaskFeeds, Words
from hub.ports.state.engine import Engine
from hub.settings.model import Settings
from hub.storage.common.task_changes import ChangeFollower
from rolecall.errors import StoreUnavailable
from rolecall.model.a2a import Event, EventKind, TaskState
from rolecall.model.ids import TaskId
from rolecall.model.principal import LOCAL as LOCAL_HOLDER
from rolecall.model.task import Branch, TaskChange
from rolecall.protocol.text.jsontext import dump
from tests.contract.words import DONE, a_row, a_turn, append
from tests.unit.inbound.feeds import LOCAL, read_feed, read_pieces

FEED = "/registry/tasks/events"
KEEP_ALIVE = 0.3
US = LOCAL_HOLDER.caller


@pytest.fixture
async def app() -> AsyncIterator[Quart]:
    app = create_app(Settings.of(store="memory:", keep_alive=KEEP_ALIVE), port=8420)
    async with app.test_app():
        yield app


@pytest.fixture
async def http(app: Quart) -> AsyncIterator[httpx.AsyncClient]:
    untyped: Any = app
    transport = httpx.ASGITransport(app=untyped, client=LOCAL)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


def engine_of(app: Quart) -> Engine:
    return parts_of(app).engine


async def admitted(app: Quart, branch: Branch | None = None, **members: Any) -> TaskId:
    row = a_row(US, **members)
    await engine_of(app).tasks.admit(row, a_turn(), branch=branch)
    return row.id


def asks(words: str) -> Event:
    status = {"state": "input-required", "message": {"parts": [{"kind": "text", "text": words}]}}
    return Event(EventKind.STATUS, TaskState.INPUT_REQUIRED, "0.3", dump({"status": status}))


def failed() -> Event:
    message = {"parts": [{"kind": "text", "text": "no ink"}]}
    document = {"status": {"state": "failed", "message": message}, "metadata": {"rolecall": {"reason": "WORKER_LOST"}}}
    return Event(EventKind.STATUS, TaskState.FAILED, "0.3", dump(document))


def counted(asked: list[TaskChange]) -> Callable[[TaskFeeds, TaskChange], Awaitable[Words]]:
    """In place of `words`: notes each change for which a frame is made."""
    words = TaskFeeds.words

    async def noted(feeds: TaskFeeds, change: TaskChange) -> Words:
        asked.append(change)
        return await words(feeds, change)

    return noted


def data_of(frames: Sequence[bytes]) -> list[dict[str, Any]]:
    return [json.loads(frame.partition(b"data: ")[2]) for frame in frames]


async def test_a_frame_has_the_task_as_in_a_list_and_what_it_says(app: Quart, http: httpx.AsyncClient) -> None:
    task = await admitted(app, Branch(TaskId("above"), TaskId("above"), ("planner",)))
    listed = [(await http.get("/registry/tasks")).json()["tasks"][0]]
    await append(engine_of(app), task, asks("Which one?"))
    listed.append((await http.get("/registry/tasks")).json()["tasks"][0])
    await append(engine_of(app), task, failed(), after=1)
    listed.append((await http.get("/registry/tasks")).json()["tasks"][0])
    frames = [frame for piece in await read_feed(app, FEED, "after=0", None, 3) for frame in piece]
    found = data_of(frames)
    assert [frame.split(b"\n")[:2] for frame in frames] == [
        [b"id: %d" % data["revision"], b"event: " + data["event"].encode()] for data in found
    ]
    assert [data["event"] for data in found] == ["admitted", "changed", "ended"]
    for data, item in zip(found, listed, strict=True):
        excerpt = {name: item.pop(name) for name in ("asked", "detail", "reason") if name in item}
        assert excerpt == {name: data[name] for name in ("detail", "reason") if name in data}
        assert data["task"].keys() == item.keys()
        assert {name for name, value in item.items() if value != data["task"][name]} <= {"updated", "since"}  # by milliseconds
        assert (data["parent"], data["holder"]) == ("above", "local")
    assert found[1]["task"]["question"] == "Which one?"
    assert [data.get("detail") for data in found] == [None, None, "no ink"]
    assert [data.get("reason") for data in found] == [None, None, "WORKER_LOST"]


@pytest.mark.parametrize(
    ("query", "header", "first"), [("after={}", None, 1), ("after=0", "{}", 1), ("after={}", "0", 0), ("after={}", "", 1)]
)
async def test_the_header_of_a_feed_wins_over_its_query(app: Quart, query: str, header: str | None, first: int) -> None:
    tasks = [await admitted(app) for _ in range(2)]
    (frames,) = await read_feed(app, FEED, "after=0", None, 2)
    revision = data_of(frames)[0]["revision"]
    (frames, *_) = await read_feed(app, FEED, query.format(revision), header and header.format(revision), 1)
    assert data_of(frames)[0]["task"]["id"] == tasks[first]


async def test_a_feed_has_a_role_or_some_states_alone(app: Quart) -> None:
    one = await admitted(app, role="coder")
    await append(engine_of(app), one, asks("?"))
    await append(engine_of(app), await admitted(app, role="echo"), DONE)
    (pieces,) = await read_feed(app, FEED, "after=0&role=coder", None, 2)
    assert [data["task"]["role"] for data in data_of(pieces)] == ["coder", "coder"]
    (pieces,) = await read_feed(app, FEED, "after=0&state=completed,input-required", None, 2)
    assert [data["task"]["state"] for data in data_of(pieces)] == ["input-required", "completed"]


async def test_a_feed_says_where_it_begins_and_keeps_alive_with_the_newest_revision(app: Quart) -> None:
    await admitted(app)
    newest = data_of((await read_feed(app, FEED, "after=0", None, 1))[0])[0]["revision"]
    reading = asyncio.create_task(read_pieces(app, FEED, "role=coder", frames=1))
    await asyncio.sleep(0.1)
    await admitted(app, role="echo")
    await asyncio.sleep(2 * KEEP_ALIVE)
    await admitted(app, role="coder")
    begin, where, alive, *_, last = await reading
    assert begin == b": keep-alive\n\n"
    assert where == b": keep-alive\n\nid: %d\n\n" % newest
    passed = int(alive.removeprefix(b": keep-alive\n\nid: "))
    assert newest < passed < data_of([last.strip()])[0]["revision"]


async def test_a_feed_from_an_old_revision_comes_in_small_pieces_between_which_others_run(app: Quart) -> None:
    for number in range(120):
        await append(engine_of(app), await admitted(app), *([asks("x" * 4_000)] if number >= 60 else []))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(count())
    pieces = await read_pieces(app, FEED, "after=0", frames=180)
    others.cancel()
    assert sum(piece.count(b"data: ") for piece in pieces) == 180
    assert all(piece.count(b"data: ") <= 50 and len(piece) < 32 * 1024 for piece in pieces)
    assert turns > len(pieces) > 15


async def test_a_reader_that_takes_nothing_costs_a_piece_and_gets_everything_later(
    app: Quart, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, asked = asyncio.Event(), list[TaskChange]()
    monkeypatch.setattr(TaskFeeds, "words", counted(asked))
    reading = asyncio.create_task(read_pieces(app, FEED, "after=0", frames=3_000, takes=taken.wait))
    for _ in range(3):
        for _ in range(1_000):
            await admitted(app)
        await asyncio.sleep(0.2)
    assert len(asked) <= 50
    taken.set()
    frames = [frame for piece in await reading for frame in piece.split(b"\n\n") if b"data: " in frame]
    revisions = [data["revision"] for data in data_of(frames)]
    assert revisions == sorted(set(revisions))
    assert len(revisions) == 3_000


async def test_readers_of_the_same_tasks_share_the_frames(app: Quart, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[TaskChange] = []
    monkeypatch.setattr(TaskFeeds, "words", counted(asked))
    for _ in range(3):
        await admitted(app)
    readers = [read_feed(app, FEED, "after=0", None, 3) for _ in range(5)]
    first, *others = await asyncio.gather(*readers)
    assert all(other == first for other in others)
    assert len(asked) == 3


async def test_a_change_whose_words_cannot_be_read_now_is_sent_without_them(
    app: Quart, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(feeds: TaskFeeds, change: TaskChange) -> Words:
        raise StoreUnavailable

    task = await admitted(app)
    await append(engine_of(app), task, asks("Which one?"))
    with monkeypatch.context() as patch:
        patch.setattr(TaskFeeds, "words", broken)
        (frames,) = await read_feed(app, FEED, "after=0", None, 2)
        assert "question" not in data_of(frames)[1]["task"]
    (frames,) = await read_feed(app, FEED, "after=0", None, 2)
    assert data_of(frames)[1]["task"]["question"] == "Which one?"


@pytest.mark.parametrize("query", ["after=x", "after=-1", "state=working,gone", "after=9999999999999999999"])
async def test_a_wrong_query_is_refused(http: httpx.AsyncClient, query: str) -> None:
    assert (await http.get(f"{FEED}?{query}")).status_code == 400


async def test_head_opens_no_feed_and_a_reader_that_leaves_closes_it(app: Quart, http: httpx.AsyncClient) -> None:
    answer = await http.head(FEED)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert not [found for found in gc.get_objects() if isinstance(found, ChangeFollower)]
    await admitted(app)
    await read_pieces(app, FEED, "after=0", frames=1)
    assert parts_of(app).shares.feeds.held("default") == 0


async def test_a_task_of_that_name_can_be_erased(http: httpx.AsyncClient) -> None:
    """The feed's address stands before that of tasks."""
    answer = await http.delete(FEED)
    assert (answer.status_code, answer.json()["reason"]) == (404, "TASK_NOT_FOUND")
