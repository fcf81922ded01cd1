"""The stream of a task in memory, and the connection of its client, which refuses data where a test says so."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from datetime import timedelta

from hub.core.observe import NullObserver
from hub.core.shares.table import Shares
from hub.core.tasks.stream import TaskStream
from hub.core.token_watch import OpenUses
from hub.inbound.a2a.sse_response import EventStream
from hub.inbound.middleware.request import Request
from hub.ports.state.engine import Engine
from hub.server.asgi import STREAM, Scope
from hub.server.cycle import RequestCycle
from hub.storage.memory.engine import MemoryEngine
from rolecall.model.ids import START, TaskId
from rolecall.model.principal import Kind, Principal
from tests.helpers.clock import ManualClock

KEEP_ALIVE = 5.0
TOKEN = "1234"


def memory_engine() -> Engine:
    return MemoryEngine(ManualClock())


def stream_of(engine: Engine, task: TaskId) -> TaskStream:
    return TaskStream(
        engine.events,
        task,
        after=START,
        idle=timedelta(seconds=KEEP_ALIVE),
        first=None,
        observer=NullObserver(),
        workspace="default",
        role="echo",
        dialect="0.3",
        alias="",
        on_close=lambda _: None,
    )


class Connection:
    """The transport under a request cycle. The writes whose numbers are in `refused` are refused once; the client then takes
    data again after a millisecond.
    """

    closes_after_answer = False

    def __init__(self, refused: Iterable[int] = ()) -> None:
        self.written = b""
        self._refused = set(refused)
        self._attempts = 0

    @property
    def write_paused(self) -> bool:
        self._attempts += 1
        return self._attempts in self._refused

    @property
    def cursors(self) -> list[int]:
        return [int(cursor) for cursor in re.findall(rb"id: (\d+)\n", self.written)]

    def write(self, data: bytes) -> None:
        self.written += data

    def on_drain(self, callback: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(0.001, callback)

    async def drain(self) -> None: ...
    def resume_reading(self) -> None: ...


class StreamRequest:
    """One request on that connection, whose answer is a stream."""

    def __init__(self, connection: Connection) -> None:
        scope: Scope = {"type": "http", "path": "/", "method": "POST", "headers": [], "http_version": "1.1", "extensions": {}}
        self.cycle = RequestCycle(connection, asyncio.get_running_loop(), scope, keep_alive=True, expects_continue=False)
        self.cycle.finish()
        scope["extensions"][STREAM] = self.cycle
        self.uses = OpenUses()
        self.request = Request(scope, self.cycle.receive, self.cycle.send, self.uses)
        self.request.principal = Principal("anna", Kind.CLIENT, token=TOKEN)
        self.unsent = Shares().unsent

    async def opened(self, task_stream: TaskStream) -> EventStream:
        event_stream = EventStream(self.request, KEEP_ALIVE, self.unsent)

        async def opening() -> TaskStream:
            return task_stream

        await event_stream.wait_for(asyncio.create_task(opening()))
        return event_stream
