"""Withdrawing with a proof in the body and in the query, and where the registry feed begins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from quart import Quart

from hub.app import create_app
from hub.settings.model import Settings
from tests.unit.inbound.feeds import LOCAL, read_feed, read_pieces

ADDRESS = "/registry/agents/echo:a"
FEED = "/registry/events"


@pytest.fixture
async def app() -> AsyncIterator[Quart]:
    app = create_app(Settings.of(store="memory:"), port=8420)
    async with app.test_app():
        yield app


@pytest.fixture
async def http(app: Quart) -> AsyncIterator[httpx.AsyncClient]:
    untyped: Any = app
    transport = httpx.ASGITransport(app=untyped, client=LOCAL)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


async def enrol(http: httpx.AsyncClient, instance: str = "a") -> dict[str, Any]:
    lease: dict[str, Any] = (await http.put(f"/registry/agents/echo/{instance}", json={"url": "http://127.0.0.1:9/"})).json()
    return lease


@pytest.mark.parametrize(
    ("query", "body", "status"),
    [
        ({}, {}, 200),
        ({"epoch": True}, None, 200),
        ({"epoch": False}, None, 409),
        ({"lease": True}, None, 200),
        ({"lease": False}, None, 409),
        ({"epoch": False, "lease": True}, {"epoch": True}, 200),
        ({"epoch": True, "lease": False}, {"epoch": True}, 409),
        ({"epoch": True}, {"epoch": False}, 409),
        ({"epoch": False, "lease": False}, {"epoch": None, "lease": None}, 200),
    ],
)
async def test_a_proof_in_the_body_wins_over_one_in_the_query(
    http: httpx.AsyncClient, query: dict[str, bool], body: dict[str, bool | None] | None, status: int
) -> None:
    """True: the right value, False: a wrong one, None: null."""
    lease = await enrol(http)
    right: dict[bool | None, dict[str, Any]] = {
        True: {"epoch": lease["epoch"], "lease": lease["lease"]},
        False: {"epoch": lease["epoch"] + 1, "lease": "wrong"},
        None: {"epoch": None, "lease": None},
    }
    sent = {} if body is None else {"json": {name: right[value][name] for name, value in body.items()}}
    answer = await http.request("DELETE", ADDRESS, params={n: right[value][n] for n, value in query.items()}, **sent)
    assert answer.status_code == status
    assert answer.json()["registered"] is False


@pytest.mark.parametrize(
    ("query", "header", "revision"), [("after=1", None, 2), ("after=0", "1", 2), ("after=1", "0", 1), ("after=1", "", 2)]
)
async def test_the_header_of_a_feed_wins_over_its_query(
    app: Quart, http: httpx.AsyncClient, query: str, header: str | None, revision: int
) -> None:
    for instance in ("a", "b"):
        await enrol(http, instance)
    pieces = await read_feed(app, FEED, query, header, 1)
    assert pieces[0][0].startswith(b"id: %d\n" % revision)


async def test_a_feed_from_an_old_cursor_comes_in_pieces_between_which_others_run(app: Quart, http: httpx.AsyncClient) -> None:
    for _ in range(60):
        await enrol(http, "a")
        await http.delete(ADDRESS)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(count())
    pieces = await read_feed(app, FEED, "after=0", None, 120)
    others.cancel()
    assert [len(piece) for piece in pieces] == [50, 50, 20]
    assert [frame.split(b"\n")[0] for piece in pieces for frame in piece] == [b"id: %d" % (at + 1) for at in range(120)]
    assert turns > 3


async def test_a_feed_says_where_it_begins_so_that_its_reader_can_come_back(app: Quart, http: httpx.AsyncClient) -> None:
    reading = asyncio.create_task(read_pieces(app, FEED, frames=1))
    await asyncio.sleep(0.1)
    await enrol(http)
    first, *_ = await reading
    assert first == b": keep-alive\n\nid: 0\n\n"
    reading = asyncio.create_task(read_pieces(app, FEED, frames=1))
    await asyncio.sleep(0.1)
    await enrol(http, "b")
    assert (await reading)[0] == b": keep-alive\n\nid: 1\n\n"
