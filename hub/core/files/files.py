"""What callers and workers do with files. Inbound rooms, and what handles messages and events, call only this."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from hub.core.files.uploads import Body, Uploads
from hub.core.relay.context import Dependencies
from hub.core.shares.share import HeldShare
from hub.core.supervisor import Supervisor
from rolecall.errors import (
    FileBound,
    FileLost,
    FileNotFound,
    FileTooLarge,
    HubDraining,
    NoFiles,
    UploadElsewhere,
)
from rolecall.model.ids import Caller, FileId, TaskId, is_file_id, new_file_id
from rolecall.model.principal import Principal
from rolecall.model.task import Holder, StoredFile

_PIECE = 128 * 1024
"""Bytes of a file that are read at once."""


@dataclass(frozen=True, slots=True)
class FileLimits:
    """`size`: bytes of the largest file; 0: the hub takes none. `grace`: how long one is kept that no task has. `address`: what
    the URL of a file has before its id.
    """

    size: int = 2 * 1024**3
    grace: timedelta = timedelta(hours=1)
    address: str = "/registry/files/"


FILE_LIMITS = FileLimits()


@dataclass(frozen=True, slots=True)
class NewFile:
    """What is known of a file before its bytes. `task`: the one that has it from the beginning, as its worker sends it."""

    owner: Caller
    name: str
    media_type: str
    length: int | None = None
    task: TaskId | None = None


class Files:
    def __init__(self, deps: Dependencies, supervisor: Supervisor, limits: FileLimits) -> None:
        self._files = deps.engine.files
        self._registry = deps.engine.registry
        self._clock = deps.clock
        self._observer = deps.observer
        self._transfers = deps.shares.transfers
        self._pieces = deps.shares.file_pieces
        self._limits = limits
        self._uploads = Uploads(deps, supervisor, limits.size)
        self._draining = False

    # --- uploads

    async def create(self, new: NewFile, body: Body, *, whole: bool) -> StoredFile:
        """Store a new file, of what comes now. `whole`: with the end of the body it is complete, if its length is not known.
        When that fails nothing is kept, as nobody knows its id yet. NoFiles, FileTooLarge, HubDraining, Overloaded,
        NoRoomForFile, TaskNotFound, TooManyBytes, and what the body raises.
        """
        self._check(new.length or 0)
        file = StoredFile(
            id=new_file_id(),
            owner=new.owner,
            name=new.name,
            media_type=new.media_type,
            length=new.length,
            offset=0,
            sha256="",
            changed=self._clock.wall(),
            bound=new.task is not None,
        )
        with self.transfer(new.owner):
            try:
                await self._files.create(file, task=new.task)
                async with self._uploads.exclusive(file.id, body):
                    return await self._uploads.receive(file, body, whole=whole)
            except BaseException:
                await self._uploads.delete(file.id)
                raise

    async def add(
        self, owner: Caller, file: FileId, body: Body, *, offset: int, whole: bool, task: TaskId | None = None
    ) -> StoredFile:
        """Go on with a file of the owner; `task`: of a worker, whose task has it. Another request that still adds to it is
        stopped: its client has come back. FileNotFound, FileLost; UploadElsewhere: the file has not `offset` bytes; else as
        `create`, but what has come is kept, unless there is no room for more.
        """
        self._check(0)
        await self._own(owner, file, task)
        with self.transfer(owner):
            async with self._uploads.exclusive(file, body):
                stored = _there(await self._own(owner, file, task))
                if stored.complete or stored.offset != offset:
                    raise UploadElsewhere(stored.offset, complete=stored.complete)
                return await self._uploads.receive(stored, body, whole=whole)

    async def delete(self, owner: Caller, file: FileId) -> None:
        """FileNotFound, FileBound."""
        await self._own(owner, file, None)
        await self._uploads.stop(file, FileNotFound())
        if not await self._files.delete(file):
            with suppress(FileNotFound):  # its upload has deleted it
                await self._own(owner, file, None)
                raise FileBound

    # --- reading

    async def of_caller(self, caller: Caller, file: FileId) -> StoredFile:
        """A file of the caller. FileNotFound, FileLost."""
        return _there(await self._own(caller, file, None))

    async def readable(self, holder: Principal, file: FileId) -> StoredFile:
        """A file that the holder of a token may read: their own, or one that a task has on which they work, as long as their
        lease lives. FileNotFound, FileLost.
        """
        stored = await self._get(holder.workspace, file)
        if stored.owner != holder.caller and not any(map(partial(self._has_lease, holder), await self._files.workers(file))):
            raise FileNotFound
        return _there(stored)

    async def content(self, file: StoredFile, start: int = 0, stop: int | None = None) -> AsyncGenerator[bytes, None]:
        """In pieces. FileLost: it has been deleted meanwhile, or its bytes are missing."""
        at, end = start, file.offset if stop is None else min(stop, file.offset)
        while at < end:
            async with self._pieces.slot(file.owner.workspace):
                piece = await self._files.read(file.id, at, min(_PIECE, end - at))
            at += len(piece)
            self._observer.file_bytes("out", len(piece))
            yield piece

    def offset_of(self, file: StoredFile) -> int:
        """How many bytes have come, those included that are not stored yet."""
        return self._uploads.offset_of(file)

    def transfer(self, caller: Caller) -> HeldShare:
        """One upload or download, within the block. Overloaded."""
        return self._transfers.hold(caller.workspace)

    # --- addresses

    def url_of(self, file: FileId) -> str:
        return f"{self._limits.address}{file}"

    def id_in(self, url: str) -> FileId | None:
        """None: not the URL of a file of this hub."""
        name = url.removeprefix(self._limits.address)
        return FileId(name) if name != url and is_file_id(name) else None

    # --- how long

    def expires_in(self, file: StoredFile) -> timedelta | None:
        """None: it goes with its tasks."""
        if file.bound and file.complete:
            return None
        return self._limits.grace - timedelta(seconds=self._clock.wall() - file.changed)

    async def sweep(self) -> None:
        """Delete what has expired."""
        await self._delete_all(lambda: self._files.sweep(unused_for=self._limits.grace, keep=self._uploads.files))

    async def erase_of(self, owner: Caller) -> None:
        """Delete the owner's files that no task has, but those that are being uploaded."""
        await self._delete_all(lambda: self._files.erase_of(owner, keep=self._uploads.files))

    async def _delete_all(self, piece: Callable[[], Awaitable[int]]) -> None:
        """In pieces. Sleep as long as each of them took, so that calls can run."""
        more = 1
        while more:
            began = self._clock.monotonic()
            more = await piece()
            await asyncio.sleep(self._clock.monotonic() - began)

    def drain(self) -> None:
        self._draining = True
        self._uploads.drain()

    # --- details

    def _check(self, size: int) -> None:
        if not self._limits.size:
            raise NoFiles
        if self._draining:
            raise HubDraining
        if size > self._limits.size:
            raise FileTooLarge(self._limits.size)

    async def _get(self, workspace: str, file: FileId) -> StoredFile:
        """FileNotFound: unknown, of another workspace, or expired."""
        stored = await self._files.get(file)
        left = None if file in self._uploads.files else self.expires_in(stored)
        if stored.owner.workspace != workspace or (left is not None and left <= timedelta()):
            raise FileNotFound
        return stored

    async def _own(self, owner: Caller, file: FileId, task: TaskId | None) -> StoredFile:
        """FileNotFound."""
        stored = await self._get(owner.workspace, file)
        if stored.owner != owner:
            raise FileNotFound
        if task is not None and not await self._files.has(task, file):
            raise FileNotFound
        return stored

    def _has_lease(self, holder: Principal, worker: Holder) -> bool:
        lease = self._registry.get(worker.workspace, worker.worker)
        return lease is not None and lease.owner == holder.name and lease.epoch == worker.epoch


def _there(file: StoredFile) -> StoredFile:
    if file.lost:
        raise FileLost
    return file
