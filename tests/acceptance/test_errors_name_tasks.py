"""Whatever goes wrong once there is a task: the client's error names it, and it can be found under that id."""

from __future__ import annotations

import asyncio
import textwrap
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from hub.identity import tokens
from rolecall import AuthError, HubClient, RolecallError, StreamLost, TimedOut
from rolecall.model.principal import Kind, Principal
from tests.helpers.processes import HubProcess, start_hub, start_worker
from tests.helpers.raw_server import Peer, RawServer, answer, chunked_head

ASKER = """
    import asyncio
    from worker_sdk import Artifact, Message, NeedInput, Status, Worker

    worker = Worker("asker")

    @worker.on_message
    async def ask(message: Message):
        yield Status("thinking", done=1, total=2)
        yield "one "
        yield "two"
        yield Artifact("table", data={"n": 1})
        answer = yield NeedInput("Which colour?")
        for number in range(20):
            yield f"{answer.text} {number} "
            await asyncio.sleep(0.05)

    worker.run()
"""


async def silent(peer: Peer) -> None:
    """A worker that takes the call, and sends no event."""
    await peer.read_request()
    await peer.write(chunked_head())
    await peer.gone()


async def html(peer: Peer) -> None:
    while await peer.read_request() is not None:
        await peer.write(answer(b"<html>", kind="text/html"))


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with start_hub(tmp_path_factory.mktemp("open")) as hub:
        yield hub


@asynccontextmanager
async def worker_at(hub_url: str, name: str, script: object, token: str | None = None) -> AsyncIterator[None]:
    async with RawServer(script) as server:  # type: ignore[arg-type]
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        offer = {"url": server.url, "capabilities": {"streaming": True}}
        path = f"{hub_url}/registry/agents/{name.replace(':', '/')}"
        async with httpx.AsyncClient(headers=headers, trust_env=False) as http:
            assert (await http.put(path, json=offer)).status_code == 201
            yield


async def test_a_call_that_times_out_before_its_worker_has_sent_anything(hub: HubProcess) -> None:
    async with worker_at(hub.url, "mute:a", silent), HubClient(hub.url) as client:
        with pytest.raises(TimedOut, match="goes on") as caught:
            await client.send_to_agent("mute", "hi", timeout=0.5)
        assert caught.value.task_id
        assert (await client.cancel_task(caught.value.task_id)).state == "canceled"
        stream = client.stream("mute", "hi")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5), stream:
                await stream.reply()
        assert stream.task_id and (await client.cancel_task(stream.task_id)).task_id == stream.task_id


async def test_a_worker_that_does_not_speak_a2a(hub: HubProcess) -> None:
    async with worker_at(hub.url, "html:a", html), HubClient(hub.url) as client:
        with pytest.raises(RolecallError, match="not A2A") as caught:
            await client.call("html", "hi")
        assert caught.value.task_id
        assert (await client.get_task(caught.value.task_id)).state == "failed"


async def test_an_error_about_a_task_that_there_is_not_names_what_was_asked_for(hub: HubProcess) -> None:
    async with HubClient(hub.url) as client:
        for ask in (client.get_task("none"), client.cancel_task("none"), client.call("asker", "hi", task_id="none")):
            with pytest.raises(RolecallError) as caught:
                await ask
            assert caught.value.task_id == "none"
        with pytest.raises(RolecallError) as caught:
            await client.call("nobody", "hi")
        assert caught.value.task_id is None


async def test_a_token_that_is_revoked_while_the_worker_is_silent(tmp_path: Path) -> None:
    def new(name: str, kind: Kind) -> tuple[str, tokens.TokenEntry]:
        holder = Principal(name, kind, roles=("*",))
        return tokens.new(tmp_path / "tokens.json", holder, lasts=None, now=time.time())

    (serves, _), (anna, entry), (again, _) = new("serves", Kind.WORKER), new("anna", Kind.CLIENT), new("anna", Kind.CLIENT)
    with start_hub(tmp_path) as hub:
        async with worker_at(hub.url, "mute:a", silent, serves), HubClient(hub.url, anna) as client:
            call = asyncio.create_task(client.call("mute", "hi"))
            await asyncio.sleep(0.3)
            tokens.revoke(tmp_path / "tokens.json", entry.id)
            with pytest.raises(AuthError) as caught:
                await call
        assert caught.value.task_id
        async with HubClient(hub.url, again) as client:
            assert (await client.get_task(caught.value.task_id)).task_id == caught.value.task_id


async def test_a_hub_that_is_killed_before_the_first_event(tmp_path: Path) -> None:
    hub = start_hub(tmp_path)
    async with worker_at(hub.url, "mute:a", silent), HubClient(hub.url) as client:
        stream = client.stream("mute", "hi", give_up_after=0.5)
        with pytest.raises(StreamLost, match="did not come back") as caught:
            async with stream:
                hub.kill9()
                await stream.reply()
        with start_hub(hub.data_dir, port=hub.port):
            # It is no worker that replays, so the hub did not call it twice.
            left = await client.get_task(caught.value.task_id or "")
            assert (left.state, left.raw["metadata"]["rolecall"]["reason"]) == ("failed", "HUB_RESTARTED")


async def test_a_call_survives_a_killed_hub_and_its_reply_is_the_hubs_task(tmp_path: Path) -> None:
    (tmp_path / "asker.py").write_text(textwrap.dedent(ASKER))
    hub = start_hub(tmp_path / "data")
    try:
        with start_worker(tmp_path / "asker.py", "asker:a", hub.url, log=tmp_path / "log"):
            async with HubClient(hub.url) as client:
                paused = await client.send_to_agent("asker", "hi")
                assert (paused.state, paused.text) == ("input-required", "one two")
                assert paused.raw == (await client.get_task(paused.task_id or "")).raw
                answered = asyncio.create_task(client.send_to_agent("asker", "red", task_id=paused.task_id))
                await asyncio.sleep(0.4)
                hub.kill9()
                with pytest.raises(RolecallError) as caught:  # nobody is there, so it was not sent, and is not tried again
                    await client.send_to_agent("asker", "blue", task_id=paused.task_id)
                assert caught.value.task_id == paused.task_id
                hub = start_hub(hub.data_dir, port=hub.port)
                done = await answered
                assert done.raw == (await client.get_task(paused.task_id or "")).raw
                assert done.text == "one two\n" + "".join(f"red {number} " for number in range(20))
    finally:
        hub.end()
