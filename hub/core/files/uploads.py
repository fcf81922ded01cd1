"""Uploads under way: bytes come from a client, and go to the disk in pieces, as fast as the disk takes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from hub.core.relay.context import Dependencies
from hub.core.supervisor import Supervisor
from hub.ports.state.files import Upload
from rolecall.errors import (
    ClientDisconnected,
    FileNotFound,
    FileTooLarge,
    HubDraining,
    HubError,
    NoRoomForFile,
    Overloaded,
    StoreUnavailable,
    TooManyBytes,
    UploadTakenOver,
)
from rolecall.model.ids import FileId
from rolecall.model.task import StoredFile

T = TypeVar("T")

_PIECE = 256 * 1024
"""Bytes that are chunks for one write."""


class Body(Protocol):
    """The bytes of an upload as they come."""

    async def read(self) -> bytes:
        """The next ones. Empty: the client has sent all. ClientDisconnected, BodyTooSlow, TokenEnded."""

    def stop(self, why: HubError) -> None:
        """Whoever reads it gets this error, now and from now on."""


@dataclass(slots=True)
class _UnderWay:
    body: Body
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    upload: Upload | None = None


class Uploads:
    """`limit`: bytes of the largest file."""

    def __init__(self, deps: Dependencies, supervisor: Supervisor, limit: int) -> None:
        self._files = deps.engine.files
        self._observer = deps.observer
        self._pieces = deps.shares.file_pieces
        self._supervisor = supervisor
        self._limit = limit
        self._under_way: dict[FileId, _UnderWay] = {}

    @property
    def files(self) -> Collection[FileId]:
        """Those that are being uploaded."""
        return self._under_way.keys()

    def offset_of(self, file: StoredFile) -> int:
        """How many bytes have come, those included that are not durable yet."""
        own = self._under_way.get(file.id)
        return file.offset if own is None or own.upload is None else own.upload.offset

    @asynccontextmanager
    async def exclusive(self, file: FileId, body: Body) -> AsyncIterator[None]:
        """Within the block nobody else adds to the file: who did is stopped, and has stored what came."""
        await self.stop(file, UploadTakenOver())
        own = self._under_way[file] = _UnderWay(body)
        try:
            yield
        finally:
            del self._under_way[file]
            own.ended.set()

    async def stop(self, file: FileId, why: HubError) -> None:
        while (other := self._under_way.get(file)) is not None:
            other.body.stop(why)
            await other.ended.wait()

    def drain(self) -> None:
        """What has come of them is kept, and they can go on later."""
        for upload in self._under_way.values():
            upload.body.stop(HubDraining())

    async def receive(self, file: StoredFile, body: Body, *, whole: bool) -> StoredFile:
        """To be called within `exclusive`. What has come is kept, whatever happens, unless there is no room for more."""
        upload = self._under_way[file.id].upload = self._files.open(file)
        try:
            pieces = _Pieces(body)
            while piece := await pieces.read():
                self._check(file, upload.offset + len(piece))
                async with self._pieces.slot(file.owner.workspace):
                    await upload.write(piece)
                self._observer.file_bytes("in", len(piece))
        except (Overloaded, NoRoomForFile, FileTooLarge, FileNotFound):
            upload.drop()
            await self.delete(file.id)
            raise
        except BaseException:
            await self._close(upload, complete=False)
            raise
        complete = whole if file.length is None else upload.offset == file.length
        return await self._close(upload, complete=complete)

    async def delete(self, file: FileId) -> None:
        """Nothing of it stays, even if the request is cancelled. What the store does not delete now, it sweeps later."""
        with suppress(StoreUnavailable):
            await self._to_the_end(f"deleting file {file}", self._files.delete(file))

    async def _close(self, upload: Upload, *, complete: bool) -> StoredFile:
        """FileNotFound, NoRoomForFile, StoreUnavailable."""
        return await self._to_the_end("storing what came of a file", upload.close(complete=complete))

    async def _to_the_end(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        """Also when the request is cancelled, and not later: then the next one may add to the file."""
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        task = self._supervisor.run_once(name, _settle(outcome, work))
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            if outcome.done() and not outcome.cancelled():
                outcome.exception()  # nobody is left to whom it matters
            raise cancelled
        return outcome.result()

    def _check(self, file: StoredFile, size: int) -> None:
        if file.length is not None and size > file.length:
            raise TooManyBytes(file.length)
        if size > self._limit:
            raise FileTooLarge(self._limit)


class _Pieces:
    """The body in larger ones. What came before an error comes before it."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self._error: Exception | None = None

    async def read(self) -> bytes:
        chunks, size = list[bytes](), 0
        while size < _PIECE:
            try:
                if self._error is not None:
                    raise self._error
                data = await self._body.read()
            except (HubError, ClientDisconnected) as error:
                if not chunks:
                    raise
                self._error = error
                break
            if not data:
                break
            chunks.append(data)
            size += len(data)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def _settle(outcome: asyncio.Future[T], work: Coroutine[Any, Any, T]) -> None:
    """An error is for whoever waits, and not for the log."""
    try:
        result = await work
    except HubError as error:
        outcome.set_exception(error)
    except BaseException:
        outcome.cancel()  # the hub is closing
        raise
    else:
        outcome.set_result(result)
