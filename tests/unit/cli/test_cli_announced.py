"""`rolecall announce` in this process: what it shows to the server, and what it tells the hub."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import pytest

from rolecall.cli.announced import AnnounceOptions, find_card, hold
from tests.helpers.raw_server import Peer, RawServer, answer
from tests.unit.worker_sdk.registry import Registry, listening
from worker_sdk.config import HubAddress, TokenFile

pytestmark = pytest.mark.virtual_time


async def test_a_token_that_is_replaced_is_shown_to_the_server_and_given_to_the_hub(tmp_path: Path) -> None:
    file, seen = tmp_path / "agent.token", list[str]()
    file.write_text("old")

    async def agent(peer: Peer) -> None:
        while (request := await peer.read_request()) is not None:
            seen.append(request.headers["authorization"])
            await peer.write(answer(b'{"name": "parrot"}'))

    registry = Registry(heartbeat=60)
    async with listening(registry) as hub, RawServer(agent) as server:
        options = AnnounceOptions("parrot", "a", server.url, capacity=None, wait=5, agent_token=TokenFile(file))
        held = asyncio.create_task(hold(options, HubAddress(hub.url, None)))
        await registry.until(lambda requests: registry.count("PUT") == 1)
        file.write_text("newer")
        await registry.until(lambda requests: registry.count("PUT") == 2)
        held.cancel()
        with suppress(asyncio.CancelledError):
            await held
    assert [body["authorization"] for method, _, body in registry.requests if method == "PUT"] == ["Bearer old", "Bearer newer"]
    assert (seen[0], seen[-1]) == ("Bearer old", "Bearer newer")


async def test_a_server_that_asks_for_a_token_is_told_as_that(tmp_path: Path) -> None:
    import httpx

    async def agent(peer: Peer) -> None:
        while await peer.read_request() is not None:
            await peer.write(answer(json.dumps({}).encode(), status="401 Unauthorized"))

    async with RawServer(agent) as server, httpx.AsyncClient(trust_env=False) as client:
        assert await find_card(client, server.url, None) == (None, "HTTP 401: --agent-token-file names a file with its token")
