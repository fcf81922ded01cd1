"""The whole hub in this process, called without sockets: for thousands of requests. Its workers are real servers."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote

from quart import Quart

from hub.app import create_app
from hub.server.asgi import Message
from hub.settings.model import Settings
from tests.helpers.raw_server import Peer, RawServer

_PORT = 8420
_TIMEOUT = 20.0
_Any = TypeVar("_Any")


class Answer(NamedTuple):
    status: int
    body: bytes


class LocalHub:
    """A hub with one worker, `echo:a`, that answers with the bytes in `worker_answer`."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._app: Quart | None = None
        self.worker_answer = b""

    def run(self, job: Coroutine[Any, Any, _Any]) -> _Any:
        return self._runner.run(asyncio.wait_for(job, _TIMEOUT))

    async def open(self, stack: AsyncExitStack) -> None:
        settings = Settings.of(
            store="memory:", worker_silence=0.1, max_streams=1000, keep_alive=0.05, retention=1, max_agents=100
        )
        self._app = create_app(settings, port=_PORT)
        await stack.enter_async_context(self._app.test_app())
        worker = await stack.enter_async_context(RawServer(self._play))
        offer = b'{"url":"%b","capabilities":{"streaming":true}}' % worker.url.encode()
        assert (await self.ask("PUT", "/registry/agents/echo/a", body=offer)).status == 201

    async def _play(self, peer: Peer) -> None:
        if await peer.read_request() is not None:
            await peer.write(self.worker_answer)

    async def ask(
        self, method: str, path: str, query: str = "", body: bytes = b"", headers: list[tuple[bytes, bytes]] | None = None
    ) -> Answer:
        """The hub's answer, as much as arrives within a second: streams have no end."""
        assert self._app is not None
        usual = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
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
        messages: list[Message] = []
        body_read = False
        answered = asyncio.Event()

        async def receive() -> Message:
            nonlocal body_read
            if body_read:
                await answered.wait()
                return {"type": "http.disconnect"}
            body_read = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            messages.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                answered.set()

        answering = asyncio.create_task(self._app.asgi_app(scope, receive, send))
        try:
            # A stream has no end; an answer that has not begun gets more time, because the machine is shared.
            await asyncio.wait([answering], timeout=1)
            if not messages:
                await asyncio.wait([answering], timeout=_TIMEOUT / 2)
            if answering.done():
                answering.result()
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
        started = [message for message in messages if message["type"] == "http.response.start"]
        assert len(started) == 1, messages
        return Answer(int(started[0]["status"]), b"".join(bytes(message.get("body", b"")) for message in messages))


@contextmanager
def local_hub() -> Iterator[LocalHub]:
    with asyncio.Runner() as runner:
        hub, stack = LocalHub(runner), AsyncExitStack()
        runner.run(hub.open(stack))
        try:
            yield hub
        finally:
            runner.run(stack.aclose())
