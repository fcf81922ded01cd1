"""The bytes of files, in a folder, and the threads that write and read them. Both engines use it."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from rolecall.errors import FileLost, FileNotFound, NoRoomForFile, StoreUnavailable
from rolecall.model.ids import FileId, is_file_id
from rolecall.system.files import delete, opened, sync, sync_folder
from rolecall.system.locks import lock_file, unlock

T = TypeVar("T")

THREADS = 4
"""Their own, so that a slow disk holds up nothing else."""
_PIECE = 1024 * 1024
_PREFIX = "rolecall-files-"
_LOCK = "lock"
_NEW_FOR = 60.0
"""Seconds: a folder that is so new may not be held yet."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_SHARDS = frozenset(f"{number:02x}" for number in range(256))
"""Folders in the folder, by the first digits of the ids: none of them gets very long."""


class FileBytes:
    """`folder` None: a temporary one, which goes when this is closed. `reserve`: bytes that stay free on the disk, and
    `has_room`, called on a thread: whether so many more may be written.
    """

    def __init__(self, folder: Path | None, *, reserve: int = 0, has_room: Callable[[int], bool] = lambda size: True) -> None:
        self.path = folder
        self._temporary: TemporaryFolder | None = None
        if folder is None:
            self._temporary = TemporaryFolder()
        self._reserve = reserve
        self._has_room = has_room
        self._threads: ThreadPoolExecutor | None = None

    def start(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="files")

    async def close(self) -> None:
        """Waits for what is under way."""
        threads, self._threads = self._threads, None
        if threads is not None:
            await asyncio.to_thread(threads.shutdown)
        if self._temporary is not None:
            await asyncio.to_thread(self._temporary.close)
            self.path = None

    async def check_room(self, size: int) -> None:
        """NoRoomForFile."""
        await self._run(self._check_room, size)

    async def write(self, file: FileId, offset: int, data: bytes, digest: Any = None) -> None:
        """Write at `offset`, and behind it drop what an earlier writer has left; add to `digest`, a hash, if there is one. Not
        durable. FileNotFound: the file is gone; NoRoomForFile, StoreUnavailable.
        """
        await self._run(self._write, file, offset, data, digest)

    async def sync(self, file: FileId, *, first: bool) -> None:
        """What has been written is durable. `first`: its name is not yet. FileNotFound, NoRoomForFile, StoreUnavailable."""
        await self._run(self._sync, file, first)

    async def read(self, file: FileId, offset: int, size: int) -> bytes:
        """FileLost: it has less, or there is none."""
        return await self._run(self._read, file, offset, size) if size else b""

    async def digest(self, file: FileId, size: int) -> str:
        """Of the whole file: read again. FileLost."""
        return await self._run(self._digest, file, size)

    async def delete(self, *files: FileId) -> None:
        """One that is missing is no error, and one that cannot be deleted goes when the hub is started again."""
        await self._run(self._delete, files)

    async def shards(self) -> Collection[str]:
        """Those that are there: one is made with its first file."""
        return await self._run(self._shards)

    async def delete_unknown(self, shard: str, known: Collection[FileId]) -> set[FileId]:
        """Delete what is in that shard and not known. Returns which of those known are there."""
        return await self._run(self._delete_unknown, shard, known)

    # --- on a thread

    def _path(self, file: FileId) -> Path:
        if not is_file_id(file):
            raise FileNotFound  # never reaches the disk
        if self.path is None:
            assert self._temporary is not None
            self.path = self._temporary.path()
        return self.path / file[:2] / file

    def _check_room(self, size: int) -> None:
        if not self._has_room(size):
            raise NoRoomForFile(self._reserve)

    def _write(self, file: FileId, offset: int, data: bytes, digest: Any) -> None:
        self._check_room(len(data))
        path, flags = self._path(file), os.O_WRONLY
        if not offset:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags |= os.O_CREAT | os.O_TRUNC
        with opened(path, flags) as number:
            if os.fstat(number).st_size != offset:
                os.ftruncate(number, offset)
            os.lseek(number, offset, os.SEEK_SET)
            view = memoryview(data)
            while view:
                view = view[os.write(number, view) :]
        if digest is not None:
            digest.update(data)

    def _sync(self, file: FileId, first: bool) -> None:
        path = self._path(file)
        with opened(path, os.O_WRONLY) as number:
            sync(number)
        for folder in (path.parent, path.parent.parent, path.parent.parent.parent) if first else ():
            sync_folder(folder)

    def _read(self, file: FileId, offset: int, size: int) -> bytes:
        try:
            with opened(self._path(file), os.O_RDONLY) as number:
                os.lseek(number, offset, os.SEEK_SET)
                pieces, at = [], offset
                while at < offset + size and (piece := os.read(number, offset + size - at)):
                    pieces.append(piece)
                    at += len(piece)
        except FileNotFoundError:
            raise FileLost from None
        if at < offset + size:
            raise FileLost
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _digest(self, file: FileId, size: int) -> str:
        digest = hashlib.sha256()
        for at in range(0, size, _PIECE):
            digest.update(self._read(file, at, min(_PIECE, size - at)))
        return digest.hexdigest()

    def _delete(self, files: Collection[FileId]) -> None:
        for file in files:
            with suppress(OSError):
                delete(self._path(file))

    def _shards(self) -> Collection[str]:
        if self.path is None:
            return ()
        with suppress(FileNotFoundError):
            return _SHARDS.intersection(os.listdir(self.path))
        return ()

    def _delete_unknown(self, shard: str, known: Collection[FileId]) -> set[FileId]:
        found = set[FileId]()
        if self.path is None:
            return found
        with suppress(FileNotFoundError), os.scandir(self.path / shard) as entries:
            for entry in entries:
                if entry.name in known:
                    found.add(FileId(entry.name))
                elif is_file_id(entry.name):
                    delete(Path(entry.path))
        return found

    # --- on the loop

    async def _run(self, work: Callable[..., T], *arguments: Any) -> T:
        """On a thread. Who is cancelled waits until it is done: nobody else may write meanwhile."""
        if self._threads is None:
            raise StoreUnavailable
        running = asyncio.get_running_loop().run_in_executor(self._threads, self._translated, work, *arguments)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await _ended(running)
            raise

    def _translated(self, work: Callable[..., T], *arguments: Any) -> T:
        try:
            return work(*arguments)
        except FileNotFoundError as error:
            raise FileNotFound from error
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise NoRoomForFile(self._reserve) from error
            raise StoreUnavailable from error


class TemporaryFolder:
    """It is made when it is first needed. A lock tells whether its process is there: one of a process that was killed goes when
    the next is made.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        self._held: int | None = None
        self._lock = threading.Lock()

    def path(self) -> Path:
        with self._lock:
            if self._path is None:
                for old in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
                    with suppress(OSError):
                        _delete_if_left(old)
                self._path = Path(tempfile.mkdtemp(prefix=_PREFIX))
                self._held = lock_file(self._path / _LOCK)
            return self._path

    def close(self) -> None:
        if self._path is not None and self._held is not None:
            _delete_folder(self._path, self._held)
        self._path = self._held = None


def _delete_if_left(folder: Path) -> None:
    """OSError: somebody has it, or it is another user's."""
    if time.time() - folder.stat().st_mtime > _NEW_FOR:
        _delete_folder(folder, lock_file(folder / _LOCK))


def _delete_folder(folder: Path, lock: int) -> None:
    """The lock is given up first: Windows deletes no open file. Nobody wants it any more."""
    unlock(lock)
    shutil.rmtree(folder, ignore_errors=True)


async def _ended(running: asyncio.Future[Any]) -> None:
    while not running.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([running])
