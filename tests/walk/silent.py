"""What a hub keeps in memory for a stream that is open and silent, counted in its own process.

The official figure of the memory is the benchmark's; this one comes with the objects and tasks that it consists of.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from asyncio.subprocess import Process
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import uuid4

from tests.helpers.processes import free_port
from tests.helpers.raw_server import Peer, RawServer, chunk, chunked_head, frame
from tests.walk.asking import PATIENCE, ask, enrol, open_hub, streaming_call, until_idle
from tests.walk.counting import Kept

STREAMS = 300
_FIRST_STREAMS = 20
"""They load modules and fill caches, and end before the count."""


async def silent_worker(peer: Peer) -> None:
    """Every call gets a Task, and nothing more."""
    while request := await peer.read_request():
        task = {"kind": "task", "id": str(uuid4()), "contextId": "c", "status": {"state": "working"}}
        answer = {"jsonrpc": "2.0", "id": json.loads(request.body)["id"], "result": task}
        await peer.write(chunked_head() + chunk(frame(json.dumps(answer).encode())))


async def kept_by_stream(streams: int = STREAMS) -> Kept:
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        async with RawServer(silent_worker) as server, open_hub(Path(folder), port, "auto") as hub:
            await enrol(port, server.url)
            async with AsyncExitStack() as first_streams:
                await _open(first_streams, port, _FIRST_STREAMS)
            before = await _kept(hub)
            async with AsyncExitStack() as open_streams:
                await _open(open_streams, port, streams)
                return (await _kept(hub)).since(before, streams)


async def _kept(hub: Process) -> Kept:
    await until_idle(hub)
    return Kept(*await ask(hub, "kept"))


async def _open(open_streams: AsyncExitStack, port: int, count: int) -> None:
    """Streams that have had their first event. They are closed with the stack."""
    for _ in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        open_streams.callback(writer.close)
        writer.write(streaming_call())
        async with asyncio.timeout(PATIENCE):
            await reader.readuntil(b"\n\n")
