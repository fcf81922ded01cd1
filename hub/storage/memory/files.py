"""The rows of files of the memory engine; their bytes are in a temporary folder."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta

from hub.ports.clock import Clock
from hub.ports.shares import Share
from hub.storage.common.cached_task import CachedTask
from hub.storage.common.file_bytes import FileBytes
from hub.storage.common.upload import FileUpload
from rolecall.errors import FileNotFound, TaskNotFound
from rolecall.model.ids import Caller, FileId, TaskId
from rolecall.model.task import Holder, StoredFile
from rolecall.model.value import replace

SWEEP_FILES = 50
_TASKS_OF_FILE = 1_000


class MemoryFiles:
    def __init__(self, tasks: dict[TaskId, CachedTask], clock: Clock, disk: Share) -> None:
        self._tasks = tasks
        self._clock = clock
        self._disk = disk
        self._files: dict[FileId, StoredFile] = {}
        self._by_task: dict[TaskId, list[FileId]] = {}
        self._by_file: dict[FileId, dict[TaskId, None]] = {}
        self.folder = FileBytes(None)

    async def create(self, file: StoredFile, *, task: TaskId | None = None) -> None:
        self._disk.take(file.owner.workspace, file.counted)
        if task is not None and task not in self._tasks:
            self._disk.give_back(file.owner.workspace, file.counted)
            raise TaskNotFound
        self._files[file.id] = file
        if task is not None:
            self.bind(task, [file.id], complete=False)

    async def get(self, file: FileId) -> StoredFile:
        return replace(self._known(file), bound=bool(self._by_file.get(file)))

    def open(self, file: StoredFile) -> FileUpload:
        return FileUpload(file, self.folder, self._disk, self._clock, self._store)

    async def read(self, file: FileId, offset: int, size: int) -> bytes:
        return await self.folder.read(file, offset, size)

    async def workers(self, file: FileId) -> Sequence[Holder]:
        rows = [self._tasks[task].row for task in list(self._by_file.get(file, ()))[-_TASKS_OF_FILE:]]
        found = [Holder(row.caller.workspace, row.worker, row.epoch) for row in rows if row.worker is not None]
        return list(dict.fromkeys(found))

    async def files_of(self, task: TaskId, *, limit: int) -> Sequence[StoredFile]:
        order = list(self._files)
        return [await self.get(file) for file in sorted(self._by_task.get(task, ()), key=order.index)[:limit]]

    async def has(self, task: TaskId, file: FileId) -> bool:
        return file in self._by_task.get(task, ())

    async def delete(self, file: FileId) -> bool:
        known = self._files.get(file)
        if known is None or (known.complete and self._by_file.get(file)):
            return False
        await self._delete(file)
        return True

    async def sweep(self, *, unused_for: timedelta, keep: Collection[FileId] = ()) -> int:
        before = self._clock.wall() - unused_for.total_seconds()
        old = [
            file.id
            for file in self._files.values()
            if ((file.changed <= before and file.id not in keep) or not file.changed)
            and not (file.complete and self._by_file.get(file.id))
        ][:SWEEP_FILES]
        for file in old:
            await self._delete(file)
        return len(old)

    async def erase_of(self, owner: Caller, *, keep: Collection[FileId] = ()) -> int:
        own = [file.id for file in self._files.values() if file.owner == owner and not self._by_file.get(file.id)]
        piece = [file for file in own if file not in keep][:SWEEP_FILES]
        for file in piece:
            await self._delete(file)
        return len(piece)

    # --- for tasks

    def bind(self, task: TaskId, files: Sequence[FileId], *, complete: bool = True) -> None:
        """The task has these from now on: those that are its caller's, and complete if that is asked for."""
        for file in files:
            if self._may_have(self._tasks[task].row.caller, file, complete=complete):
                self._by_file.setdefault(file, {})[task] = None
                own = self._by_task.setdefault(task, [])
                if file not in own:
                    own.append(file)

    def check(self, caller: Caller, files: Sequence[FileId]) -> None:
        """FileNotFound: a task of this caller would not get one of them."""
        if not all(self._may_have(caller, file) for file in files):
            raise FileNotFound

    def unbind(self, task: TaskId, changed: float) -> None:
        """The task goes. `changed`: from when on a file that it was the last to have counts as unused."""
        for file in self._by_task.pop(task, ()):
            tasks = self._by_file[file]
            del tasks[task]
            if not tasks:
                del self._by_file[file]
                self._files[file] = replace(self._files[file], changed=changed)

    # --- details

    def _known(self, file: FileId) -> StoredFile:
        known = self._files.get(file)
        if known is None:
            raise FileNotFound
        return known

    def _may_have(self, caller: Caller, file: FileId, *, complete: bool = True) -> bool:
        known = self._files.get(file)
        if known is None or not known.changed or (complete and not known.complete):
            return False
        return caller == known.owner

    async def _store(self, file: StoredFile) -> None:
        known = self._files.get(file.id)
        if known is None or not known.changed:
            await self.folder.delete(file.id)
            raise FileNotFound
        self._disk.fill(file.owner.workspace, file.counted - known.counted)
        self._files[file.id] = file

    async def _delete(self, file: FileId) -> None:
        known = self._files.pop(file)
        for task in self._by_file.pop(file, ()):
            self._by_task[task].remove(file)
        self._disk.give_back(known.owner.workspace, known.counted)
        await self.folder.delete(file)
