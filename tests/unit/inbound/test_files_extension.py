"""A hub that stores files says so on its cards and to its workers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from hub.app import create_app, parts_of
from hub.settings.model import Settings
from rolecall.model.a2a import JsonObject
from rolecall.model.card import FILES_EXTENSION

OWN = {"url": "http://127.0.0.1:8420/registry/files", "max_size": 1000}
HUB, ROLE = "/.well-known/agent-card.json", "/agents/echo/.well-known/agent-card.json"


@asynccontextmanager
async def hub_with(**settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(Settings.of(store="memory:", **settings), port=8420)
    async with app.test_app():
        untyped: Any = app
        transport = httpx.ASGITransport(app=untyped, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            yield http


async def enrol(http: httpx.AsyncClient) -> JsonObject:
    """A worker that reads files."""
    card = {"capabilities": {"extensions": [{"uri": FILES_EXTENSION, "description": "the worker's"}]}}
    answer = await http.put("/registry/agents/echo/a", json={"url": "http://127.0.0.1:9/", "boot": "b", "card": card})
    granted: JsonObject = answer.json()
    return granted


async def entries(http: httpx.AsyncClient, path: str) -> list[JsonObject]:
    card = (await http.get(path)).json()
    return [one for one in card["capabilities"].get("extensions", ()) if one["uri"] == FILES_EXTENSION]


async def test_cards_and_leases_say_where_files_are_and_how_large_they_may_be() -> None:
    async with hub_with(max_file=1000) as http:
        granted = await enrol(http)
        assert granted["files"] == OWN
        body = {"epoch": granted["epoch"], "lease": granted["lease"]}
        assert (await http.post("/registry/agents/echo:a/heartbeat", json=body)).json()["files"] == OWN
        for path in (HUB, ROLE):
            (entry,) = await entries(http, path)
            assert entry["params"] == OWN


async def test_a_hub_behind_a_proxy_names_its_public_url() -> None:
    async with hub_with(max_file=1000, public_url="http://localhost:8420/behind/") as http:
        url = "http://localhost:8420/behind/registry/files"
        assert (await enrol(http))["files"]["url"] == url
        (entry,) = await entries(http, HUB)
        assert entry["params"]["url"] == url
        made = (await http.post("/registry/files", content=b"content")).json()
        assert made["url"] == f"{url}/{made['id']}"


async def test_a_hub_that_stores_no_files_says_nothing() -> None:
    async with hub_with(max_file=0) as http:
        assert "files" not in await enrol(http)
        assert [await entries(http, path) for path in (HUB, ROLE)] == [[], []]
        refused = await http.post("/registry/files", content=b"content")
        assert (refused.status_code, refused.json()["reason"]) == (403, "FILES_OFF")


@pytest.mark.parametrize("inline", [True, False])
async def test_whether_others_get_bytes_is_a_setting(inline: bool) -> None:
    app = create_app(Settings.of(store="memory:", inline_files=inline), port=8420)
    async with app.test_app():
        assert parts_of(app).hub.inline.may_be_in(f'{{"uri":"{OWN["url"]}/0a"}}'.encode()) is inline
