"""A client and a worker in one process, in step with the hub in another: the worker sends an event once the hub is idle.

So a call takes the same path each time: two events never arrive together, and no write waits for the previous one.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.helpers.processes import free_port
from tests.helpers.raw_server import Peer, RawServer, chunk, chunked_head
from tests.walk.asking import PATIENCE, ask, enrol, open_hub, streaming_call, until_idle
from tests.walk.counting import Step, Walk, like, shortest, walk_of

_FIRST_CALLS, _AT_MOST = 5, 60
SAME_COUNT = 5
_END = b"0\r\n\r\n"


class EchoWorker:
    """It answers message/stream with a Task, an artifact with the text and the final status, each on `send_next`."""

    def __init__(self) -> None:
        self._next = asyncio.Semaphore(0)

    def send_next(self) -> None:
        self._next.release()

    async def script(self, peer: Peer) -> None:
        while request := await peer.read_request():
            called = json.loads(request.body)
            await peer.write(chunked_head())
            for event in _events(called["params"]["message"]):
                await self._next.acquire()
                answer = {"jsonrpc": "2.0", "id": called["id"], "result": event}
                await peer.write(
                    chunk(b"data: " + json.dumps(answer).encode() + b"\n\n") + (_END if event.get("final") else b"")
                )


def _events(message: dict[str, Any]) -> list[dict[str, Any]]:
    task, context = str(uuid4()), message.get("contextId") or str(uuid4())
    of = {"taskId": task, "contextId": context}
    artifact = {"artifactId": "echo", "parts": message["parts"]}
    return [
        {"kind": "task", "id": task, "contextId": context, "status": {"state": "working"}},
        {"kind": "artifact-update", **of, "artifact": artifact},
        {"kind": "status-update", **of, "status": {"state": "completed"}, "final": True},
    ]


class HubCaller:
    """One connection to the hub, and the pipe for commands to the hub's process."""

    def __init__(self, hub: Process, worker: EchoWorker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._hub = hub
        self._worker = worker
        self._reader = reader
        self._writer = writer

    async def walk(self) -> Walk:
        """The walk of one call with three events."""
        await ask(self._hub, f"begin {self._writer.get_extra_info('sockname')[1]}")
        async with asyncio.timeout(PATIENCE):
            await self._call()
        return walk_of(Step(*step) for step in await ask(self._hub, "end"))

    async def _call(self) -> None:
        self._writer.write(streaming_call())
        for _ in range(3):
            await until_idle(self._hub)
            self._worker.send_next()
            await self._until(b"data:")
        await self._until(b'"completed"')
        await self._until(_END)
        await until_idle(self._hub)

    async def _until(self, mark: bytes) -> None:
        try:
            await self._reader.readuntil(mark)
        except asyncio.IncompleteReadError as cut:
            raise RuntimeError(f"the hub's answer ended before {mark!r}: {cut.partial.decode()}") from cut


async def repeat_walk(same_count: int = SAME_COUNT) -> list[Walk]:
    """Calls until `same_count` took the same walk. The first ones load modules and open connections, and do not count."""
    found: list[Walk] = []
    async with _hub_caller() as hub_caller:
        for _ in range(_FIRST_CALLS):
            await hub_caller.walk()
        while not found or (like(shortest(found), found) < same_count and len(found) < _AT_MOST):
            found.append(await hub_caller.walk())
    return found


@asynccontextmanager
async def _hub_caller() -> AsyncIterator[HubCaller]:
    """A hub with defaults except for the event loop: a profile does not see what uvloop reads and writes."""
    worker, port = EchoWorker(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        async with RawServer(worker.script) as server, open_hub(Path(folder), port, "asyncio") as hub:
            await enrol(port, server.url)
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
            try:
                yield HubCaller(hub, worker, reader, writer)
            finally:
                writer.close()
