"""Parses a worker's answer into events. Errors contain nothing of the worker's content."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import NoReturn

from hub.outbound.connection import Response
from hub.outbound.worker_protocol import WorkerProtocol
from rolecall.errors import InvalidAnswer, WorkerBroke, WorkerError, WorkerFault, WorkerRefused
from rolecall.model.a2a import PAUSED, TERMINAL, EventKind, WorkerEvent
from rolecall.protocol.jsonrpc import Reply
from rolecall.protocol.sse import Frame, FrameReader, FrameTooLong
from rolecall.protocol.workers.events import Malformed

_BUSY_CODE = -32000
_BUSY = "WORKER_BUSY"
_PARSE_CHUNK = 16 * 1024


def is_stream(response: Response) -> bool:
    return _media_type(response) == b"text/event-stream"


def check_type(response: Response) -> None:
    """InvalidAnswer if the body cannot be JSON. A missing Content-Type is accepted."""
    kind = _media_type(response)
    if kind in (b"text/html", b"application/xhtml+xml"):
        raise InvalidAnswer(response.worker, f"it is an HTML page (HTTP {response.status})")
    if kind and not (kind == b"application/json" or kind.endswith(b"+json")):
        raise InvalidAnswer(response.worker, f"it is neither JSON nor an event stream (HTTP {response.status})")


def _media_type(response: Response) -> bytes:
    return response.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()


async def raise_failure(response: Response, protocol: WorkerProtocol, limit: int) -> NoReturn:
    """Raises the error for a status outside 200 to 299."""
    status = response.status
    if status == 503 and b"x-not-processed" in response.headers:
        raise WorkerRefused(response.worker)
    if 300 <= status < 400:
        raise InvalidAnswer(response.worker, f"it redirects (HTTP {status}), and the hub follows no redirects")
    if _media_type(response).endswith(b"json"):
        body = await response.read_all(limit)
        try:
            reply = protocol.reply(body)
        except ValueError:
            reply = Reply(None, None, "")
        if reply.code is not None:
            raise fault_of(response.worker, reply, fresh=True)
    raise InvalidAnswer(response.worker, f"HTTP {status}")


def fault_of(worker: str, reply: Reply, *, fresh: bool) -> WorkerError:
    """`fresh`: this answer had no earlier event, so WORKER_BUSY means that nothing was executed."""
    if fresh and reply.code == _BUSY_CODE and reply.reason == _BUSY:
        return WorkerRefused(worker)
    return WorkerFault(reply.code if reply.code is not None else -32603, reply.text)


def read_worker_event(
    worker: str, protocol: WorkerProtocol, text: bytes | bytearray, *, position: str | None = None, fresh: bool = True
) -> WorkerEvent:
    reply = _reply(worker, protocol, text, fresh=fresh)
    try:
        return protocol.read_event(reply.result, position=position)
    except Malformed as error:
        raise InvalidAnswer(worker, str(error)) from error


def read_worker_task(worker: str, protocol: WorkerProtocol, text: bytes | bytearray) -> WorkerEvent:
    reply = _reply(worker, protocol, text, fresh=True)
    try:
        return protocol.read_task(reply.result)
    except Malformed as error:
        raise InvalidAnswer(worker, str(error)) from error


def _reply(worker: str, protocol: WorkerProtocol, text: bytes | bytearray, *, fresh: bool) -> Reply:
    try:
        reply = protocol.reply(text)
    except ValueError as error:
        raise InvalidAnswer(worker, f"it is not {protocol.form}") from error
    if reply.code is not None:
        raise fault_of(worker, reply, fresh=fresh)
    return reply


class StreamedAnswer(AsyncIterator[Sequence[WorkerEvent]]):
    """The events of a stream; a batch is what arrived together. An empty batch is a sign of life: bytes without a complete
    event, such as a comment or a part of a long event.
    """

    def __init__(self, response: Response, protocol: WorkerProtocol, *, replays: bool, max_event: int) -> None:
        self._response = response
        self._protocol = protocol
        self._replays = replays
        self._max_event = max_event
        self._reader = FrameReader(limit=max_event)
        self._unread = b""
        self._fresh = True
        self.finished = False
        """The last event was one that ends a worker's stream."""
        self._failure: WorkerError | None = None

    async def __anext__(self) -> Sequence[WorkerEvent]:
        if self._failure is not None:
            raise self._failure
        chunk = await self._next_piece()
        if not chunk:
            if self._reader.unfinished:
                raise WorkerBroke(self._response.worker, "its stream ended within an event")
            raise StopAsyncIteration
        try:
            frames = self._reader.feed(chunk)
        except FrameTooLong as error:
            failure = InvalidAnswer(self._response.worker, f"an event is longer than {self._max_event} bytes")
            self._end(failure)
            raise failure from error
        return self._read(frames)

    async def _next_piece(self) -> bytes:
        """Large input is parsed in pieces, so that other tasks run in between."""
        if self._unread:
            await asyncio.sleep(0)
        else:
            self._unread = await self._response.next_chunk()
        piece, self._unread = self._unread[:_PARSE_CHUNK], self._unread[_PARSE_CHUNK:]
        return piece

    def _read(self, frames: Sequence[Frame]) -> Sequence[WorkerEvent]:
        batch: list[WorkerEvent] = []
        for frame in frames:
            if not frame.data:
                continue
            position = frame.id if self._replays else None
            try:
                batch.append(
                    read_worker_event(self._response.worker, self._protocol, frame.data, position=position, fresh=self._fresh)
                )
            except WorkerError as error:
                self._end(error)
                if batch:
                    break
                raise
            self._fresh = False
        if batch:
            last = batch[-1]
            self.finished = last.state in TERMINAL or last.state in PAUSED or last.kind is EventKind.MESSAGE
        return batch

    def _end(self, failure: WorkerError) -> None:
        """Earlier events still count; nothing is read after this."""
        self._failure = failure
        self._response.close()


class SingleAnswer(AsyncIterator[Sequence[WorkerEvent]]):
    """One response as a stream of one event. Empty batches are signs of life while a long one arrives."""

    def __init__(self, response: Response, protocol: WorkerProtocol, *, limit: int) -> None:
        self._response = response
        self._protocol = protocol
        self._limit = limit
        self._body = bytearray()
        self.finished = False

    async def __anext__(self) -> Sequence[WorkerEvent]:
        if self.finished:
            raise StopAsyncIteration
        chunk = await self._response.next_chunk()
        if chunk and len(self._body) + len(chunk) > self._limit:
            self._response.close()
            raise InvalidAnswer(self._response.worker, f"it is longer than {self._limit} bytes")
        self._body += chunk
        if chunk and not self._response.complete:
            return ()
        self.finished = True
        return (read_worker_event(self._response.worker, self._protocol, self._body),)
