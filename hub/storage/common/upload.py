"""One file that bytes are added to. Implements ports.files.Upload for both engines."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable

from hub.ports.clock import Clock
from hub.ports.shares import Share
from hub.storage.common.file_bytes import FileBytes
from rolecall.model.task import StoredFile
from rolecall.model.value import replace

SYNC_BYTES = 8 * 1024 * 1024
"""So many are written again, at most, after the hub was killed; and so many the disk has to take at once."""


class FileUpload:
    """`store` makes a row durable that has more bytes than before: FileNotFound, StoreUnavailable. It counts them, so what this
    one has counted is given back first.
    """

    def __init__(
        self, file: StoredFile, folder: FileBytes, disk: Share, clock: Clock, store: Callable[[StoredFile], Awaitable[None]]
    ) -> None:
        self._file = file
        """As it is stored."""
        self._folder = folder
        self._disk = disk
        self._clock = clock
        self._store = store
        self._digest = None if file.offset else hashlib.sha256()
        """Of what was written; None: it began before."""
        self._counted = 0
        """Bytes that the row does not count yet."""
        self.offset = file.offset

    async def write(self, data: bytes) -> None:
        if not data:
            return
        if self._file.length is None:
            self._disk.take(self._file.owner.workspace, len(data))
            self._counted += len(data)
        try:
            await self._folder.write(self._file.id, self.offset, data, self._digest)
        except BaseException:
            self._digest = None
            raise
        self.offset += len(data)
        if self.offset - self._file.offset >= SYNC_BYTES:
            await self._keep(self._file.sha256, self._file.length)

    def drop(self) -> None:
        if self._counted:
            self._disk.give_back(self._file.owner.workspace, self._counted)
            self._counted = 0

    async def close(self, *, complete: bool = False) -> StoredFile:
        try:
            if complete:
                await self._keep(await self._whole_digest(), self.offset)
            elif self.offset > self._file.offset:
                await self._keep("", self._file.length)
            return self._file
        finally:
            self.drop()

    async def _whole_digest(self) -> str:
        if self._digest is not None:
            return self._digest.hexdigest()
        return await self._folder.digest(self._file.id, self.offset)

    async def _sync(self) -> None:
        if self.offset > self._file.offset:
            await self._folder.sync(self._file.id, first=not self._file.offset)

    async def _keep(self, sha256: str, length: int | None) -> None:
        """Make the bytes durable, then the row that counts them."""
        await self._sync()
        changed = replace(self._file, offset=self.offset, length=length, sha256=sha256, changed=self._clock.wall())
        await self._store(changed)
        self._file = changed
        self.drop()
