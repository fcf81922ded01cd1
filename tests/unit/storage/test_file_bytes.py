"""The bytes of files on a disk: whose they are, when they are durable, and what a disk does that writes only a part."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hub.core.shares.share import WorkspaceShare
from hub.storage import open_engine
from hub.storage.common import file_bytes
from hub.storage.common.file_bytes import FileBytes, TemporaryFolder
from hub.storage.common.upload import SYNC_BYTES, FileUpload
from rolecall.errors import FileNotFound, NoRoomForFile, StoreUnavailable
from rolecall.model.ids import FileId, new_file_id
from rolecall.model.task import StoredFile
from tests.contract.test_files import a_file
from tests.helpers.clock import ManualClock
from tests.helpers.processes import ROOT


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[FileBytes]:
    folder = FileBytes(tmp_path / "data" / "files")
    folder.start()
    yield folder
    await folder.close()


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that have been made durable, in order."""
    found, fsync = list[str](), os.fsync

    def recorded(number: int) -> None:
        found.append(os.readlink(f"/proc/self/fd/{number}"))
        fsync(number)

    monkeypatch.setattr(os, "fsync", recorded)
    return found


async def test_only_their_owner_may_read_them(folder: FileBytes) -> None:
    await folder.write(file := new_file_id(), 0, b"secret")
    assert folder.path is not None
    for path, mode in ((folder.path / file[:2], 0o700), (folder.path / file[:2] / file, 0o600)):
        assert path.stat().st_mode & 0o777 == mode, path


async def test_only_folders_that_are_there_are_compared_with_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at each of the 256 is most of what the start of a hub costs."""
    compared = list[str]()

    async def delete_unknown(folder: FileBytes, shard: str, known: object) -> set[FileId]:
        compared.append(shard)
        return set()

    monkeypatch.setattr(FileBytes, "delete_unknown", delete_unknown)
    for name in ("fe", "00", "not a shard"):
        (tmp_path / "hub.db-files" / name).mkdir(parents=True)
    async with open_engine(f"sqlite://{tmp_path}/hub.db", clock=ManualClock()):
        assert compared == ["00", "fe"]


async def test_a_disk_that_takes_a_part_is_given_the_rest(folder: FileBytes, monkeypatch: pytest.MonkeyPatch) -> None:
    write, read = os.write, os.read
    monkeypatch.setattr(os, "write", lambda number, data: write(number, bytes(data[:3])))
    monkeypatch.setattr(os, "read", lambda number, size: read(number, min(size, 4)))
    await folder.write(file := new_file_id(), 0, b"0123456789")
    await folder.write(file, 10, b"abcdefghij")
    assert await folder.read(file, 0, 20) == b"0123456789abcdefghij"
    assert await folder.read(file, 5, 9) == b"56789abcd"


async def test_a_new_file_is_durable_with_its_name(folder: FileBytes, synced: list[str], tmp_path: Path) -> None:
    await folder.write(file := new_file_id(), 0, b"x")
    assert not synced
    await folder.sync(file, first=True)
    shard = tmp_path / "data" / "files" / file[:2]
    assert synced == [str(path) for path in (shard / file, shard, shard.parent, shard.parent.parent)]
    synced.clear()
    await folder.sync(file, first=False)
    assert synced == [str(shard / file)]


async def test_a_row_counts_no_byte_that_is_not_durable(folder: FileBytes, synced: list[str]) -> None:
    rows = list[tuple[int, bool, int]]()

    async def store(file: StoredFile) -> None:
        rows.append((file.offset, file.complete, len(synced)))

    upload = FileUpload(a_file(), folder, WorkspaceShare("bytes", "max_disk", 10**9, 10**9), ManualClock(), store)
    await upload.write(b"x" * (SYNC_BYTES - 1))
    assert (rows, synced) == ([], [])
    await upload.write(b"x")
    await upload.write(b"y")
    await upload.close(complete=True)
    assert rows == [(SYNC_BYTES, False, 4), (SYNC_BYTES + 1, True, 5)]  # the first has a name too


async def test_an_id_that_is_none_reaches_no_disk(folder: FileBytes, tmp_path: Path) -> None:
    for name in ("../escaped", "/etc/passwd", "", "A" * 32):
        with pytest.raises(FileNotFound):
            await folder.write(FileId(name), 0, b"x")
    assert not os.listdir(tmp_path)


async def test_a_disk_that_fails_is_told_apart_from_one_that_is_full(
    folder: FileBytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    await folder.write(file := new_file_id(), 0, b"x")

    def failing(number: int) -> Any:
        def fail(*_: Any) -> int:
            raise OSError(number, "")

        return fail

    for error, number in ((NoRoomForFile, 28), (NoRoomForFile, 122), (StoreUnavailable, 5)):
        monkeypatch.setattr(os, "write", failing(number))
        with pytest.raises(error) as raised:
            await folder.write(file, 1, b"y")
        assert type(raised.value) is error


async def test_what_is_under_way_is_done_when_it_is_closed(folder: FileBytes, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, write = threading.Event(), os.write

    def slow(number: int, data: Any) -> int:
        begun.set()
        time.sleep(0.1)
        return write(number, data)

    monkeypatch.setattr(os, "write", slow)
    writing = asyncio.create_task(folder.write(file := new_file_id(), 0, b"x"))
    await asyncio.to_thread(begun.wait)
    await folder.close()
    assert folder.path is not None and (folder.path / file[:2] / file).stat().st_size == 1
    await writing


async def test_a_temporary_folder_of_a_killed_process_goes_with_the_next_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(file_bytes, "_NEW_FOR", -1)
    running = TemporaryFolder()
    script = (
        "import os, tempfile; from hub.storage.common.file_bytes import TemporaryFolder; tempfile.tempdir = {!r}; "
        "path = TemporaryFolder().path(); (path / 'left').touch(); os._exit(9)"
    )
    kept = running.path()
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", script.format(str(tmp_path)), cwd=ROOT)
    assert await killed.wait() == 9
    assert len(os.listdir(tmp_path)) == 2
    own = TemporaryFolder()
    wanted = {kept.name, own.path().name}
    assert set(os.listdir(tmp_path)) == wanted
    for folder in (own, running):
        folder.close()
    assert not os.listdir(tmp_path)


async def test_a_temporary_folder_goes_when_it_is_closed() -> None:
    folder = FileBytes(None)
    folder.start()
    await folder.write(file := new_file_id(), 0, b"x")
    path = folder.path
    assert path is not None and (path / file[:2] / file).exists()
    await folder.close()
    assert not path.exists()
    with pytest.raises(StoreUnavailable):
        await folder.read(file, 0, 1)
