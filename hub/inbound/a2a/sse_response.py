"""Sends logged events to a client as server-sent events, each batch in one write."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from hub.core.tasks.stream import TaskStream
from hub.inbound.middleware.request import Request
from hub.server.asgi import Headers, drained
from rolecall.errors import ClientDisconnected, HubError, TaskNotFound
from rolecall.model.a2a import Logged
from rolecall.protocol.sse import COME_BACK, KEEP_ALIVE, RESPONSE_HEADERS

_LARGE_BATCH = 8
"""Events in a batch that show that the reader lags."""
_STORE_TIMEOUT = 5.0
"""Seconds for a message to be stored. Cancelling earlier could leave a task that nothing runs."""


class StreamEncoder(Protocol):
    """Encodes events as the frames of one binding."""

    def frames(self, batch: Sequence[Logged]) -> bytes: ...


class EventStream:
    """One SSE response. If the answer takes long, the response starts with comments, so that the client sees it alive."""

    def __init__(self, request: Request, keep_alive: float, headers: Headers = ()) -> None:
        self._send = request.send
        self._receive = request.receive
        self._stream = request.stream
        self._keep_alive = keep_alive
        self._headers = (*RESPONSE_HEADERS, *headers)
        self._gone: asyncio.Task[None] | None = None
        self.open = False

    async def wait_for(self, opening: asyncio.Task[TaskStream]) -> TaskStream:
        """The task stream, once its worker has begun to answer; comments keep the connection alive until then.
        ClientDisconnected.
        """
        gone = self._watch()
        both = (opening, gone)
        try:
            while not (await asyncio.wait(both, timeout=self._keep_alive, return_when=asyncio.FIRST_COMPLETED))[0]:
                await self._write(KEEP_ALIVE)
            if opening.done():
                return opening.result()
        except BaseException:
            opening.cancel()
            gone.cancel()
            # The error's answer may read the rest of the body, and `receive` allows only one reader.
            await asyncio.wait([gone])
            self._gone = None
            raise
        _cancel_later(opening)
        raise ClientDisconnected

    async def copy(self, task_stream: TaskStream, encoder: StreamEncoder) -> None:
        gone = self._watch()
        gone.add_done_callback(lambda _: task_stream.close())
        try:
            async for batch in task_stream:
                await self._write_events(batch, encoder)
                if len(batch) > _LARGE_BATCH:
                    # More is stored, and nothing here waits: this lets other tasks run.
                    await asyncio.sleep(0)
            if task_stream.broken_off:
                await self._write(COME_BACK)
            elif not self.open:
                # The task was withdrawn while this reader waited for its first event, or the client disconnected.
                raise ClientDisconnected if gone.done() else TaskNotFound
            await self.close()
        except TimeoutError:
            pass
        finally:
            task_stream.close()
            gone.cancel()
            self._gone = None  # breaks a reference cycle

    async def fail(self, frame: bytes) -> None:
        """Sends an error as an event: common clients of streaming calls read nothing else."""
        await self._write(frame)
        await self.close()

    async def close(self) -> None:
        await self._stream.end()

    async def _write(self, body: bytes) -> None:
        if not self.open:
            self.open = True
            await self._send({"type": "http.response.start", "status": 200, "headers": list(self._headers)})
        while not self._stream.try_write(body):
            await drained(self._stream)

    async def _write_events(self, batch: Sequence[Logged], encoder: StreamEncoder) -> None:
        try:
            await self._write(encoder.frames(batch) if batch else KEEP_ALIVE)
        except HubError:
            # One of them cannot be encoded in this dialect. The client gets the earlier ones, then the error.
            for logged in batch:
                await self._write(encoder.frames((logged,)))

    def _watch(self) -> asyncio.Task[None]:
        """One task for the whole stream: `receive` allows only one reader."""
        if self._gone is None:
            self._gone = asyncio.create_task(self._until_gone(), name="client of a stream")
        return self._gone

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


def opening(task_stream: Coroutine[Any, Any, TaskStream], task: str) -> asyncio.Task[TaskStream]:
    return asyncio.create_task(task_stream, name=f"opening of {task}")


def _cancel_later(opening: asyncio.Task[TaskStream]) -> None:
    """The client has disconnected, so this must not hold its reserved place while the worker is silent."""
    opening.add_done_callback(_close_unread)
    asyncio.get_running_loop().call_later(_STORE_TIMEOUT, opening.cancel)


def _close_unread(opening: asyncio.Task[TaskStream]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
