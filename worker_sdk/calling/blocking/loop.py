"""A loop in a thread, and what it runs for other threads, which may have a loop of their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from types import TracebackType
from typing import Any, TypeVar

from rolecall.model.a2a import JsonObject
from worker_sdk.calling.feed import HubFeed as AsyncHubFeed
from worker_sdk.calling.reply import Reply, StreamEvent
from worker_sdk.calling.stream import HubStream as AsyncHubStream
from worker_sdk.errors import RolecallError

_T = TypeVar("_T")
_LOOK = 0.5
"""Seconds between two looks whether Ctrl-C was pressed: on Windows nothing interrupts a longer wait."""
_CLEAN_UP = 5.0


class LoopThread:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rolecall client", daemon=True)
        self._thread.start()
        self.streams: set[AsyncHubStream] = set()
        """Those that are open."""

    @property
    def closed(self) -> bool:
        return self._loop.is_closed()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Its result. A wait that is interrupted, as by Ctrl-C, cancels it. RuntimeError: the client is closed. An error of the
        client says in words what happened: it comes without the frames of the other thread.
        """
        if self._loop.is_closed() or threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("This client is closed, or is called by its own loop.")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            while True:
                try:
                    return future.result(_LOOK)
                except TimeoutError:
                    if future.done():
                        raise
        except RolecallError as error:
            failure = error
        except BaseException:
            future.cancel()
            raise
        raise failure.with_traceback(None)

    def run_any(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The same, where the type of the result depends on the arguments."""
        return self.run(work)

    def close(self) -> None:
        """Cancel what still runs, and end the thread."""
        if self._loop.is_closed():
            return
        try:
            asyncio.run_coroutine_threadsafe(_end_all(self.streams), self._loop).result(_CLEAN_UP)
        except TimeoutError:
            pass  # the thread ends all the same
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLEAN_UP)
        if not self._thread.is_alive():
            self._loop.close()


async def _end_all(streams: set[AsyncHubStream]) -> None:
    for stream in tuple(streams):
        await stream.__aexit__(None, None, None)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


class HubStream:
    """`with hub.stream(role, text) as stream: for event in stream: …`, or `for event in hub.stream(role, text):`"""

    def __init__(self, thread: LoopThread, stream: AsyncHubStream) -> None:
        self._thread = thread
        self._stream = stream
        self._opened = False
        self._events = stream.__aiter__()

    @property
    def task_id(self) -> str | None:
        return self._stream.task_id

    @property
    def context_id(self) -> str | None:
        return self._stream.context_id

    @property
    def cursor(self) -> str | None:
        return self._stream.cursor

    def __enter__(self) -> HubStream:
        if not self._opened:
            self._thread.run(self._stream.__aenter__())
            self._thread.streams.add(self._stream)
            self._opened = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._thread.streams.discard(self._stream)
        if not self._thread.closed:
            self._thread.run(self._stream.__aexit__(None, None, None))

    def __iter__(self) -> Iterator[StreamEvent]:
        with self:
            while (event := self._thread.run(self._next())) is not None:
                yield event

    def reply(self) -> Reply:
        """As that of the other client."""
        with self:
            return self._thread.run(self._stream.reply())

    async def _next(self) -> StreamEvent | None:
        return await anext(self._events, None)


class HubFeed:
    """`for change in hub.task_changes(): …`, without an end."""

    def __init__(self, thread: LoopThread, feed: AsyncHubFeed) -> None:
        self._thread = thread
        self._feed = feed
        self._changes = feed.__aiter__()

    @property
    def cursor(self) -> str | None:
        return self._feed.cursor

    def __iter__(self) -> Iterator[JsonObject]:
        while True:
            yield self._thread.run(self._next())

    async def _next(self) -> JsonObject:
        return await anext(self._changes)
