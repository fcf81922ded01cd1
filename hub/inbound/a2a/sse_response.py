"""Sends logged events to a client as server-sent events, each batch in one write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from hub.core.files.inline import InlineFiles
from hub.core.shares.answers import AnswerShare
from hub.core.shares.share import SMALL
from hub.core.tasks.stream import TaskStream
from hub.inbound.middleware.request import Request
from hub.server.asgi import Headers
from rolecall.errors import ClientDisconnected, HubError, TaskNotFound, TokenEnded
from rolecall.model.a2a import Logged
from rolecall.model.ids import TaskId
from rolecall.protocol.sse import COME_BACK, KEEP_ALIVE, RESPONSE_HEADERS

_TASK = b"a2a-task"
_LARGE_PAGE = 8
"""Events in a page that show that the reader lags."""
_STORE_TIMEOUT = 5.0
"""Seconds for a message to be stored. Cancelling earlier could leave a task that nothing runs."""


class StreamEncoder(Protocol):
    """Encodes events as the frames of one binding."""

    def frames(self, batch: Sequence[Logged]) -> bytes: ...


class EventStream:
    """One SSE response. If the answer takes long, the response starts with comments, so that the client sees it alive."""

    __slots__ = (
        "_drained",
        "_encoder",
        "_gone",
        "_head",
        "_inline",
        "_keep_alive",
        "_on_disconnect",
        "_request",
        "_stream",
        "_unsent",
        "_workspace",
        "open",
        "task",
    )

    def __init__(self, request: Request, keep_alive: float, unsent: AnswerShare, headers: Headers = ()) -> None:
        self._request = request
        self._stream = request.stream
        self._head = [*RESPONSE_HEADERS, *headers, *request.cors]
        self._stream.begin({"type": "http.response.start", "status": 200, "headers": self._head})
        self._keep_alive = keep_alive
        self._unsent = unsent
        self._workspace = ""
        self._encoder: StreamEncoder
        self._inline: InlineFiles | None = None
        self._gone = False
        self._on_disconnect: Callable[[], object] | None = None
        self._drained: asyncio.Future[None] | None = None
        self.open = False
        """Something has been written, and the head before it."""
        self.task = ""

    def name_task(self, task: TaskId) -> None:
        """Send the head now, with the task's id, and a comment behind it."""
        self.task = task
        if not self.open:
            head = [*self._head, (_TASK, task.encode())]
            self._stream.begin({"type": "http.response.start", "status": 200, "headers": head})
            self.open = True
            self._stream.try_write(KEEP_ALIVE)

    async def wait_for(self, opening: asyncio.Task[TaskStream]) -> TaskStream:
        """The task stream, once its worker has begun to answer; comments keep the connection alive until then.
        ClientDisconnected, TokenEnded.
        """
        changed = asyncio.Event()
        opening.add_done_callback(lambda _: changed.set())
        self._on_disconnect = changed.set
        self._request.on_token_end(self._disconnected)
        self._stream.on_disconnect(self._disconnected)
        try:
            while not changed.is_set():
                try:
                    async with asyncio.timeout(self._keep_alive):
                        await changed.wait()
                except TimeoutError:
                    await self._write(KEEP_ALIVE)
            if opening.done():
                if not opening.cancelled() and isinstance(error := opening.exception(), HubError):
                    raise error.copy()
                return opening.result()
        except BaseException:
            opening.cancel()
            # The error's answer may read the rest of the body, and `receive` allows only one reader.
            await self._stream.forget_callbacks()
            raise
        _cancel_later(opening)
        await self._stream.forget_callbacks()
        raise self._request.gone()

    async def copy(self, task_stream: TaskStream, encoder: StreamEncoder, inline: InlineFiles | None = None) -> None:
        """While it is live, no task is woken for an event: it is encoded and written where it was committed. `inline`: for a
        client that gets the bytes of files. ClientDisconnected, TokenEnded, AnswerNotSent.
        """
        self._encoder = encoder
        self._inline = inline
        self._workspace = task_stream.workspace
        self._on_disconnect = task_stream.close
        try:
            more = not self._gone
            while more:
                while page := await task_stream.page():
                    count = len(page)
                    if self._names_files(page):
                        await self._write_with_files(page, task_stream)
                        page = ()
                    elif (frames := self._frames(page)) is None:
                        await self._write_one_by_one(page)
                    else:
                        page = ()  # of something large, one copy is enough
                        await self._write_page(frames)
                    if count > _LARGE_PAGE:
                        # More is stored, and nothing here waits: this lets other tasks run.
                        await asyncio.sleep(0)
                more = await task_stream.live(self._write_now)
            if self._request.token_ended:
                raise TokenEnded
            if task_stream.broken_off:
                await self._write(COME_BACK)
            elif not self.open:
                # The task was withdrawn while this reader waited for its first event, or the client disconnected.
                raise ClientDisconnected if self._gone else TaskNotFound
            await self.close()
        except TimeoutError:
            pass
        finally:
            task_stream.close()
            self._on_disconnect = None
            await self._stream.forget_callbacks()

    async def fail(self, frame: bytes) -> None:
        """Ends with an error as an event."""
        await self._write(frame)
        await self.close()

    async def close(self) -> None:
        await self._stream.end()

    def _disconnected(self) -> None:
        """Or its token has ended."""
        self._gone = True
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        if self._on_disconnect is not None:
            self._on_disconnect()

    async def _write(self, body: bytes) -> None:
        """ClientDisconnected: the token has ended, and the client takes no data, so it is not told."""
        self.open = True
        while not self._stream.try_write(body):
            if self._request.token_ended:
                raise ClientDisconnected
            await self._until_drained()

    async def _until_drained(self) -> None:
        """Returns when more may be written, or nobody is to get more."""
        drained = self._drained = asyncio.get_running_loop().create_future()
        self._stream.on_drain(lambda: None if drained.done() else drained.set_result(None))
        if not self._request.token_ended:
            await drained

    def _write_now(self, events: Sequence[Logged]) -> bool:
        """False: the client lags, they are large, one of them cannot be encoded, or files have to be read for them: they are
        read again as a page.
        """
        if len(events) == 1 and len(events[0].event.body) >= SMALL:
            return False
        if self._names_files(events):
            return False
        frames = self._frames(events) if events else KEEP_ALIVE
        if frames is None or len(frames) >= SMALL:
            return False
        self.open = True
        return self._stream.try_write(frames)

    def _frames(self, events: Sequence[Logged]) -> bytes | None:
        """None: one of them cannot be encoded in this dialect."""
        try:
            return self._encoder.frames(events)
        except HubError:
            return None

    def _names_files(self, events: Sequence[Logged]) -> bool:
        """Whether bytes of files may have to be put into one of them."""
        inline = self._inline
        return inline is not None and any([inline.may_be_in(logged.event.body) for logged in events])

    async def _write_with_files(self, page: Sequence[Logged], task_stream: TaskStream) -> None:
        """One after the other: each may become large. AnswerNotSent."""
        assert self._inline is not None
        for logged in page:
            event = await self._inline.event(task_stream.workspace, task_stream.task, logged.event)
            frames, event = self._encoder.frames((Logged(logged.cursor, event),)), logged.event
            await self._write_page(frames)

    async def _write_one_by_one(self, page: Sequence[Logged]) -> None:
        """The client gets those before the one that cannot be encoded, then the error."""
        for logged in page:
            await self._write_page(self._encoder.frames((logged,)))

    async def _write_page(self, frames: bytes) -> None:
        """A large page counts for its workspace until the client has taken it. AnswerNotSent."""
        if len(frames) < SMALL:
            await self._write(frames)
            return
        with self._unsent.hold(self._workspace, len(frames)):
            for at in range(0, len(frames), SMALL):
                await self._write(frames[at : at + SMALL])
            await self._until_drained()


def opening(task_stream: Coroutine[Any, Any, TaskStream], task: str) -> asyncio.Task[TaskStream]:
    return asyncio.create_task(task_stream, name=f"opening of {task}")


def _cancel_later(opening: asyncio.Task[TaskStream]) -> None:
    """The client has disconnected, so this must not hold its reserved place while the worker is silent."""
    opening.add_done_callback(_close_unread)
    asyncio.get_running_loop().call_later(_STORE_TIMEOUT, opening.cancel)


def _close_unread(opening: asyncio.Task[TaskStream]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
