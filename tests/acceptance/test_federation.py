"""A role of one hub is a worker of another one: streams, cuts, cancellation and circles, and the page that says how."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from rolecall.model.card import REPLAY_EXTENSION
from tests.acceptance.callers import ClientStream, numbers
from tests.helpers.client import text_message
from tests.helpers.pages import Shell, blocks_of
from tests.helpers.processes import HubProcess, is_live, start_announce, start_hub, start_worker, wait_for

NAMES = ("a", "b", "c")
COMMANDS = blocks_of("docs/howto/federation.md")


class Chain:
    """A worker at hub `a`, whose role is a worker of `b`, whose role is a worker of `c`."""

    def __init__(self, folder: Path, closing: ExitStack) -> None:
        self._folder = folder
        self.hubs = {name: closing.enter_context(start_hub(folder / name)) for name in NAMES}
        closing.enter_context(
            start_worker("tests.acceptance.workers:counter", "counter:w", self.url("a"), log=folder / "worker.log")
        )
        for below, above in (("a", "b"), ("b", "c")):
            log, url = folder / f"{below}-{above}.log", f"{self.url(below)}/agents/counter/"
            closing.enter_context(start_announce("counter", url, self.url(above), log=log))

    def url(self, name: str) -> str:
        return self.hubs[name].url

    def start_again(self, name: str) -> None:
        """After kill -9, on the same port."""
        killed = self.hubs[name]
        self.hubs[name] = start_hub(killed.data_dir, port=killed.port)

    def tasks(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = httpx.get(f"{self.url(name)}/registry/tasks", trust_env=False).json()["tasks"]
        return found


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    with ExitStack() as closing:
        chain = Chain(tmp_path_factory.mktemp("chain"), closing)
        yield chain
        for hub in chain.hubs.values():
            hub.end()
            assert "Traceback" not in hub.output


@asynccontextmanager
async def reading(stream: ClientStream) -> AsyncIterator[tuple[httpx.AsyncClient, asyncio.Task[None]]]:
    """The stream has begun, and is read in the background."""
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        task = asyncio.create_task(stream.begin(http))
        await asyncio.to_thread(wait_for, lambda: len(stream.chunks) >= 10)
        yield http, task


@pytest.mark.parametrize("killed", [pytest.param("a", marks=pytest.mark.soak), "b", pytest.param("c", marks=pytest.mark.soak)])
async def test_kill_9_of_any_hub_of_a_chain_loses_and_repeats_no_event(chain: Chain, killed: str) -> None:
    stream = ClientStream(chain.url("c"), "counter", "60 0.03")
    known = len(chain.tasks("a"))
    async with reading(stream) as (http, task):
        chain.hubs[killed].kill9()
        await asyncio.to_thread(chain.start_again, killed)
        if killed == "c":
            with pytest.raises(httpx.TransportError):
                await task
            await stream.come_back(http)
        else:
            await task
    assert stream.ended and stream.frames[-1][1]["status"]["state"] == "completed"
    assert "".join(stream.chunks) == "".join(numbers(60))
    assert len(stream.chunks) == 60
    assert [cursor for cursor, _ in stream.frames] == list(range(1, len(stream.frames) + 1))
    assert len(chain.tasks("a")) == known + 1


async def test_a_cancellation_passes_all_hubs_down_to_the_worker(chain: Chain) -> None:
    stream = ClientStream(chain.url("c"), "counter", "1000 0.03")
    async with reading(stream) as (http, task):
        body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/cancel", "params": {"id": stream.task}}
        answer = (await http.post(f"{chain.url('c')}/", json=body)).json()
        assert answer["result"]["status"]["state"] == "canceled"
        await task
    await asyncio.to_thread(wait_for, lambda: [chain.tasks(name)[0]["state"] for name in NAMES] == ["canceled"] * 3)


async def test_a_second_answer_of_a_conversation_is_another_call_below(chain: Chain, tmp_path: Path) -> None:
    with ExitStack() as closing:
        log = tmp_path / "asker.log"
        closing.enter_context(start_worker("tests.acceptance.workers:asker", "asker:w", chain.url("a"), log=log))
        url = f"{chain.url('a')}/agents/asker/"
        closing.enter_context(start_announce("asker", url, chain.url("b"), log=tmp_path / "asker-b.log"))
        async with httpx.AsyncClient(base_url=chain.url("b"), trust_env=False, timeout=30) as http:
            asked = await _send(http, "asker", text_message("paint"))
            assert asked["result"]["status"]["state"] == "input-required"
            answer = text_message("blue")
            answer["message"] |= {"taskId": asked["result"]["id"], "contextId": asked["result"]["contextId"]}
            done = await _send(http, "asker", answer)
    assert done["result"]["status"]["state"] == "completed"
    assert done["result"]["artifacts"][0]["parts"][0]["text"] == "blue it is"


async def _send(http: httpx.AsyncClient, role: str, params: dict[str, Any]) -> dict[str, Any]:
    answer = await http.post(f"/agents/{role}/", json={"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params})
    found: dict[str, Any] = answer.json()
    return found


def enrol(hub: HubProcess, role: str, url: str) -> None:
    replay = {"uri": REPLAY_EXTENSION, "params": {"durable": True}}
    card = {"name": role, "capabilities": {"streaming": True, "extensions": [replay]}}
    offer = {"url": url, "card": card}
    httpx.put(f"{hub.url}/registry/agents/{role}/next", json=offer, trust_env=False).raise_for_status()


async def test_a_ring_of_hubs_is_refused_with_its_reason_and_leaves_nothing(tmp_path: Path) -> None:
    with ExitStack() as closing:
        hubs = [closing.enter_context(start_hub(tmp_path / name)) for name in NAMES]
        for hub, following in zip(hubs, [*hubs[1:], hubs[0]], strict=True):
            enrol(hub, "lost", f"{following.url}/agents/lost/")
        async with httpx.AsyncClient(base_url=hubs[0].url, trust_env=False, timeout=30) as http:
            answer = await _send(http, "lost", text_message("hello"))
            for hub in hubs:
                left = await http.get(f"{hub.url}/registry/tasks")
                assert left.json()["tasks"] == []
                assert "Traceback" not in hub.output
        assert answer["error"]["data"][0]["reason"] == "LOOP"
        assert "passed through 8 hubs, the limit" in answer["error"]["message"]
        assert "no hub is enrolled as its own worker" in answer["error"]["message"]


def test_every_command_of_the_page_works(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    made = shell.run(COMMANDS["tokens"])
    assert made.returncode == 0, made.stderr
    with start_hub(tmp_path / "near") as near, start_hub(tmp_path / "far") as far, ExitStack() as closing:
        own = (tmp_path / "far-worker.token").read_text().strip()
        closing.enter_context(
            start_worker(
                "tests.acceptance.workers:instant", "echo:w", far.url, log=tmp_path / "w.log", env={"ROLECALL_TOKEN": own}
            )
        )
        urls = {"NEAR": near.url, "FAR": far.url}
        with shell.process(COMMANDS["announce"], "announce.log", **urls) as announce:
            token = (tmp_path / "near-client.token").read_text().strip()
            announce.wait_until(lambda: is_live(near.url, "echo:far", token))
            called = shell.run(COMMANDS["call"], **urls)
            assert (called.returncode, called.stdout) == (0, COMMANDS["called"]), called.stderr
        assert not is_live(near.url, "echo:far", token)
