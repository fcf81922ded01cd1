"""The files port: bytes that come in pieces, go on after a cut, and are kept as long as a task that has them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Protocol

from rolecall.model.ids import Caller, FileId, TaskId
from rolecall.model.task import Holder, StoredFile


class Upload(Protocol):
    """A file that is open for its only writer."""

    @property
    def offset(self) -> int:
        """How many bytes it has, written ones included. They are not all durable."""

    async def write(self, data: bytes) -> None:
        """Add bytes. Now and then what has been written becomes durable. They are counted, unless the file's length is known:
        then they are counted already, and the caller writes no more than that. FileNotFound: it was deleted meanwhile;
        Overloaded, NoRoomForFile, StoreUnavailable: nothing of `data` was added. A call that is cancelled ends only when its
        thread has; after that only `close` or `drop` is of use.
        """

    def drop(self) -> None:
        """Instead of `close`: what is not durable is of no use any more."""

    async def close(self, *, complete: bool = False) -> StoredFile:
        """What was written is durable. `complete`: there will be no more of it, and its digest is known. FileNotFound,
        StoreUnavailable: what is not durable is dropped.
        """


class Files(Protocol):
    """A row for each file, in the store, and its bytes, on a disk. Bytes are written and read on threads, one piece at a time,
    so a piece must be small. A file belongs to its owner. It is bound to tasks of the owner, which have it until they are
    deleted, by `TaskStore.admit`, `TaskStore.add_turn`, `OpenLog.append` or `create`.

    Every file counts for the disk of its workspace: FILE_SIZE, and its bytes, or its length where that is known before them.

    After the hub was killed an open upload has at least the bytes that were durable, and a file that is complete has all. Bytes
    of no row are deleted when the engine opens. A file whose bytes are missing then is marked `lost`.
    """

    async def create(self, file: StoredFile, *, task: TaskId | None = None) -> None:
        """A file without bytes, bound to `task` if one is given; durable on return. Overloaded, NoRoomForFile: there is no room
        for its length; TaskNotFound; StoreUnavailable.
        """

    async def get(self, file: FileId) -> StoredFile:
        """As it is stored, whoever asks. FileNotFound."""

    def open(self, file: StoredFile) -> Upload:
        """Go on behind `file.offset`. `file` comes from `get` or `create`, is not complete, and nobody else has it open."""

    async def read(self, file: FileId, offset: int, size: int) -> bytes:
        """A piece of what is durable. FileLost: it has less, or there is none."""

    async def workers(self, file: FileId) -> Sequence[Holder]:
        """Those of the tasks that have it, of the newest thousand of these, each once."""

    async def files_of(self, task: TaskId, *, limit: int) -> Sequence[StoredFile]:
        """Those that a task has, in the order in which they were created."""

    async def has(self, task: TaskId, file: FileId) -> bool:
        """Whether the task has it."""

    async def delete(self, file: FileId) -> bool:
        """Delete a file that no task has, or that is not complete; from then on it is not found. False: a task has it, or it is
        unknown.
        """

    async def sweep(self, *, unused_for: timedelta, keep: Collection[FileId] = ()) -> int:
        """Delete files that no task has, or that are not complete, and to which nothing was added for that long; and at once
        those whose last task was erased or forgotten. Of the former not those in `keep`. Deletes a bounded number per call;
        returns how many.
        """

    async def erase_of(self, owner: Caller, *, keep: Collection[FileId] = ()) -> int:
        """Delete files of the owner that no task has, but not those in `keep`. As `sweep` else."""
