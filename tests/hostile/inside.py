"""The whole hub in this process, asked without sockets: for thousands of requests. Its workers are real servers."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote

from hub.app import Rolecall, assemble
from hub.server.asgi import Message
from hub.settings.model import Settings
from tests.helpers.raw_server import Peer, RawServer

_PORT = 8420
_WITHIN = 20.0
_Any = TypeVar("_Any")


class Answer(NamedTuple):
    status: int
    body: bytes


class Inside:
    """A hub with one worker, `echo:a`, that answers with whatever bytes `says` holds."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._rolecall: Rolecall | None = None
        self.says = b""

    def run(self, job: Coroutine[Any, Any, _Any]) -> _Any:
        return self._runner.run(asyncio.wait_for(job, _WITHIN))

    async def open(self, stack: AsyncExitStack) -> None:
        settings = Settings.of(
            store="memory:", worker_silence=0.1, max_streams=1000, keep_alive=0.05, retention=1, max_agents=100
        )
        self._rolecall = await stack.enter_async_context(assemble(settings, port=_PORT))
        worker = await stack.enter_async_context(RawServer(self._play))
        offer = b'{"url":"%b","capabilities":{"streaming":true}}' % worker.url.encode()
        assert (await self.ask("PUT", "/registry/agents/echo/a", body=offer)).status == 201

    async def _play(self, peer: Peer) -> None:
        if await peer.read_request() is not None:
            await peer.write(self.says)

    async def ask(
        self, verb: str, path: str, query: str = "", body: bytes = b"", headers: list[tuple[bytes, bytes]] | None = None
    ) -> Answer:
        """What the hub answers, as far as it comes within a second: streams have no end."""
        assert self._rolecall is not None
        usual = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": verb,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": quote(path, safe="/:%").encode(),
            "query_string": query.encode("ascii", "replace"),
            "root_path": "",
            "headers": [*usual, *(headers or [])],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", _PORT),
            "extensions": {},
        }
        said: list[Message] = []
        asked = False
        answered = asyncio.Event()

        async def receive() -> Message:
            nonlocal asked
            if asked:
                await answered.wait()
                return {"type": "http.disconnect"}
            asked = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            said.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                answered.set()

        answering = asyncio.create_task(self._rolecall.application(scope, receive, send))
        try:
            # A stream has no end of its own; an answer that has not begun is waited for, on a machine that others use too.
            await asyncio.wait([answering], timeout=1)
            if not said:
                await asyncio.wait([answering], timeout=_WITHIN / 2)
            if answering.done():
                answering.result()
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
        started = [message for message in said if message["type"] == "http.response.start"]
        assert len(started) == 1, said
        return Answer(int(started[0]["status"]), b"".join(bytes(message.get("body", b"")) for message in said))


@contextmanager
def hub_inside() -> Iterator[Inside]:
    with asyncio.Runner() as runner:
        inside, stack = Inside(runner), AsyncExitStack()
        runner.run(inside.open(stack))
        try:
            yield inside
        finally:
            runner.run(stack.aclose())
