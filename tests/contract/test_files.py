"""Files: their bytes come in pieces and go on after a cut, and they are kept as long as a task has them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import pytest

from hub.ports.state.engine import Engine
from hub.ports.state.files import Upload
from hub.storage.common.upload import SYNC_BYTES
from rolecall.errors import FileLost, FileNotFound, NoRoomForFile, Overloaded, TaskNotFound
from rolecall.model.ids import Caller, FileId, TaskId, WorkerId, new_file_id
from rolecall.model.task import FILE_SIZE, Holder, StoredFile
from rolecall.model.value import replace
from tests.contract.conftest import Store
from tests.contract.words import ANNA, BERT, DONE, NAME, OTHER_ANNA, WORKER, a_row, a_turn, admitted, append_with, text
from tests.helpers.clock import ManualClock

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def a_file(owner: Caller = ANNA, clock: ManualClock | None = None, **members: Any) -> StoredFile:
    changed = (clock or ManualClock()).wall()
    usual = {"name": "a.txt", "media_type": "text/plain", "length": None, "offset": 0, "sha256": "", "changed": changed}
    return StoredFile(new_file_id(), owner, **{**usual, **members})


async def created(engine: Engine, file: StoredFile | None = None, *, task: TaskId | None = None) -> StoredFile:
    file = file or a_file()
    await engine.files.create(file, task=task)
    return file


async def uploaded(engine: Engine, content: bytes = b"content", *, task: TaskId | None = None, **members: Any) -> StoredFile:
    upload = engine.files.open(await created(engine, a_file(**members), task=task))
    await upload.write(content)
    return await upload.close(complete=True)


async def content_of(engine: Engine, file: FileId) -> bytes:
    stored = await engine.files.get(file)
    return await engine.files.read(file, 0, stored.offset)


async def forgotten(engine: Engine, clock: ManualClock) -> None:
    clock.advance(DAY.total_seconds() + 1)
    while await engine.tasks.forget(ended_for=DAY, paused_for=DAY):
        pass


# --- bytes


async def test_a_file_is_stored_as_it_was_sent(store: Store, engine: Engine) -> None:
    pieces = [Random(at).randbytes(1 + 70_000 * at) for at in range(5)]
    upload = engine.files.open(file := await created(engine))
    for piece in pieces:
        await upload.write(piece)
    stored = await upload.close(complete=True)
    whole = b"".join(pieces)
    assert (stored.offset, stored.length, stored.sha256) == (len(whole), len(whole), sha256(whole).hexdigest())
    engine = await store.open_again(engine)
    assert await engine.files.get(file.id) == stored
    assert await content_of(engine, file.id) == whole
    assert await engine.files.read(file.id, 7, 100) == whole[7:107]


async def test_an_empty_file_is_a_file(store: Store, engine: Engine) -> None:
    stored = await uploaded(engine, b"")
    assert stored.complete and stored.offset == 0
    engine = await store.open_again(engine)
    assert await content_of(engine, stored.id) == b""


async def test_an_upload_that_was_cut_goes_on_behind_what_was_written(store: Store, engine: Engine) -> None:
    upload = engine.files.open(file := await created(engine))
    await upload.write(b"first, ")
    stored = await upload.close()
    assert (stored.offset, stored.complete) == (7, False)
    engine = await store.open_again(engine)
    upload = engine.files.open(await engine.files.get(file.id))
    await upload.write(b"second")
    stored = await upload.close(complete=True)
    assert stored.sha256 == sha256(b"first, second").hexdigest()
    assert await content_of(engine, file.id) == b"first, second"


async def test_what_a_dead_writer_has_left_behind_the_offset_is_written_over(store: Store, engine: Engine) -> None:
    upload = engine.files.open(file := await created(engine))
    await upload.write(b"kept")
    await upload.close()
    await engine.files.open(await engine.files.get(file.id)).write(b"never made durable, and long")
    engine = await store.open_again(engine)
    stored = await engine.files.get(file.id)
    assert stored.offset == 4
    upload = engine.files.open(stored)
    await upload.write(b"!")
    assert (await upload.close(complete=True)).offset == 5
    assert await content_of(engine, file.id) == b"kept!"
    with pytest.raises(FileLost):
        await engine.files.read(file.id, 0, 6)


async def test_a_long_upload_is_durable_now_and_then(engine: Engine) -> None:
    upload = engine.files.open(file := await created(engine))
    piece = bytes(SYNC_BYTES // 4)
    offsets = []
    for _ in range(9):
        await upload.write(piece)
        offsets.append((await engine.files.get(file.id)).offset // len(piece))
    assert offsets == [0, 0, 0, 4, 4, 4, 4, 8, 8]
    assert upload.offset == 9 * len(piece)


async def test_a_write_that_is_cancelled_is_over_when_its_writer_is(engine: Engine) -> None:
    upload = engine.files.open(file := await created(engine))
    await upload.write(b"x")
    writing = asyncio.create_task(upload.write(bytes(32 * 1024 * 1024)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert (await upload.close()).offset == 1
    upload = engine.files.open(await engine.files.get(file.id))
    await upload.write(b"y")
    await upload.close(complete=True)
    assert await content_of(engine, file.id) == b"xy"


async def test_a_file_that_is_deleted_during_its_upload_leaves_nothing(store: Store, engine: Engine) -> None:
    upload = engine.files.open(file := await created(engine))
    await upload.write(b"x" * 100)
    assert await engine.files.delete(file.id)
    with pytest.raises(FileNotFound):
        await upload.write(b"y")
    with pytest.raises(FileNotFound):
        await upload.close()
    upload = engine.files.open(file := await created(engine))
    assert await engine.files.delete(file.id)
    await upload.write(b"x" * 100)
    with pytest.raises(FileNotFound):
        await upload.close(complete=True)
    assert store.disk.held(ANNA.workspace) == 0
    assert store.bytes_on_disk(engine) == []


async def test_an_unknown_file_is_not_found(engine: Engine) -> None:
    for wanted in (new_file_id(), FileId("../../etc/passwd"), FileId("")):
        with pytest.raises(FileNotFound):
            await engine.files.get(wanted)
        assert not await engine.files.delete(wanted)
        assert not await engine.files.workers(wanted)
        with pytest.raises((FileNotFound, FileLost)):
            await engine.files.read(wanted, 0, 1)


# --- tasks


async def test_a_task_has_the_files_of_its_messages_and_events(store: Store, engine: Engine) -> None:
    files = [(await uploaded(engine)).id for _ in range(4)]
    row = a_row()
    assert await engine.tasks.admit(row, a_turn(), files=files[:2])
    await append_with(engine, row.id, [text()], files=[files[2], new_file_id()])
    await append_with(engine, row.id, [text()], files=[files[2]], after=1)
    assert await engine.tasks.add_turn(row.id, a_turn("2", after=2), files=[files[3], files[0]])
    for again in (False, True):
        one = await store.open_again(engine) if again else engine
        assert [file.id for file in await one.files.files_of(row.id, limit=10)] == files
        assert all(file.bound for file in await one.files.files_of(row.id, limit=10))
        assert [file.id for file in await one.files.files_of(row.id, limit=1)] == files[:1]
        assert await one.files.workers(files[0]) == [Holder("default", WORKER, 1)]
        assert not await one.files.delete(files[0])


async def test_a_file_that_is_gone_foreign_or_not_complete_is_bound_to_no_task(engine: Engine) -> None:
    there, foreign = await uploaded(engine), await uploaded(engine, owner=OTHER_ANNA)
    for gone in (new_file_id(), foreign.id, (await uploaded(engine, owner=BERT)).id, (await created(engine)).id):
        row = a_row()
        with pytest.raises(FileNotFound):
            await engine.tasks.admit(row, a_turn(), names=[NAME], files=[there.id, gone])
        with pytest.raises(TaskNotFound):
            await engine.tasks.get(ANNA, row.id)
        assert await engine.tasks.find_call(NAME.digest, remembered=DAY) is None
    task = await admitted(engine)
    with pytest.raises(FileNotFound):
        await engine.tasks.add_turn(task, a_turn("2"), names=[NAME], files=[there.id, new_file_id()])
    assert len(await engine.tasks.turns(task)) == 1
    assert await engine.tasks.find_call(NAME.digest, remembered=DAY) is None
    await append_with(engine, task, [text()], files=[foreign.id])
    assert not (await engine.files.get(there.id)).bound and not (await engine.files.get(foreign.id)).bound


async def test_a_repeated_call_binds_no_file(engine: Engine) -> None:
    file = await uploaded(engine)
    assert await engine.tasks.admit(a_row(), a_turn(), names=[NAME])
    assert not await engine.tasks.admit(a_row(), a_turn(), names=[NAME], files=[file.id])
    task = await admitted(engine)
    assert not await engine.tasks.add_turn(task, a_turn("2"), names=[NAME], files=[file.id])
    assert not (await engine.files.get(file.id)).bound


async def test_a_file_is_created_for_a_task(engine: Engine) -> None:
    task = await admitted(engine)
    file = await created(engine, task=task)
    assert [one.id for one in await engine.files.files_of(task, limit=10)] == [file.id]
    with pytest.raises(TaskNotFound):
        await created(engine, lost := a_file(), task=TaskId("never-was"))
    with pytest.raises(FileNotFound):
        await engine.files.get(lost.id)


async def test_the_workers_of_a_file_are_each_told_once(engine: Engine) -> None:
    file, other = await uploaded(engine), WorkerId("echo", "two")
    for members in ({}, {}, {"worker": other, "epoch": 5}, {"worker": None, "epoch": 0}):
        assert await engine.tasks.admit(a_row(**members), a_turn(), files=[file.id])
    assert sorted(await engine.files.workers(file.id)) == [Holder("default", WORKER, 1), Holder("default", other, 5)]


# --- how long


async def test_a_file_that_no_task_has_goes_after_a_while_without_bytes(
    store: Store, engine: Engine, clock: ManualClock
) -> None:
    whole = await uploaded(engine, clock=clock)
    upload = engine.files.open(begun := await created(engine, a_file(clock=clock)))
    clock.advance(HOUR.total_seconds() - 1)
    assert await engine.files.sweep(unused_for=HOUR) == 0
    await upload.write(b"more")
    await upload.close()
    clock.advance(1)
    assert await engine.files.sweep(unused_for=HOUR, keep=[whole.id]) == 0
    assert await engine.files.sweep(unused_for=HOUR) == 1
    with pytest.raises(FileNotFound):
        await engine.files.get(whole.id)
    assert (await engine.files.get(begun.id)).offset == 4
    clock.advance(HOUR.total_seconds())
    assert await engine.files.sweep(unused_for=HOUR) == 1
    assert (store.disk.held(ANNA.workspace), store.bytes_on_disk(engine)) == (0, [])


async def test_an_upload_without_bytes_keeps_nothing_longer(engine: Engine, clock: ManualClock) -> None:
    file = await created(engine, a_file(clock=clock))
    clock.advance(10)
    await engine.files.open(file).close()
    assert await engine.files.get(file.id) == file


async def test_many_unused_files_go_in_pieces(engine: Engine, clock: ManualClock) -> None:
    for _ in range(60):
        await created(engine, a_file(clock=clock))
    clock.advance(HOUR.total_seconds())
    gone = []
    while count := await engine.files.sweep(unused_for=HOUR):
        gone.append(count)
    assert sum(gone) == 60 and len(gone) == 2


@pytest.mark.parametrize("end", ["erased", "forgotten"])
async def test_a_file_goes_with_the_last_of_its_tasks(store: Store, engine: Engine, clock: ManualClock, end: str) -> None:
    file, tasks = await uploaded(engine, b"x" * 100, clock=clock), [a_row() for _ in range(2)]
    for row in tasks:
        assert await engine.tasks.admit(row, a_turn(), files=[file.id])
    clock.advance(10 * DAY.total_seconds())
    assert await engine.files.sweep(unused_for=HOUR) == 0
    for row in tasks:
        assert await content_of(engine, file.id) == b"x" * 100
        await append_with(engine, row.id, [DONE])
        if end == "erased":
            while await engine.tasks.erase(row.id):
                pass
        else:
            await forgotten(engine, clock)
        left = await engine.files.sweep(unused_for=10 * HOUR)
    assert left == 1
    with pytest.raises(FileNotFound):
        await engine.files.get(file.id)
    assert (store.disk.held(ANNA.workspace), store.bytes_on_disk(engine)) == (0, [])


async def test_a_file_of_a_task_that_was_taken_back_can_be_sent_again(engine: Engine, clock: ManualClock) -> None:
    file, row = await uploaded(engine, clock=clock), a_row()
    clock.advance(10 * HOUR.total_seconds())
    assert await engine.tasks.admit(row, a_turn(), files=[file.id])
    await engine.tasks.discard(row.id)
    assert await engine.files.sweep(unused_for=HOUR) == 0
    assert await engine.tasks.admit(a_row(), a_turn(), files=[file.id])


async def test_an_upload_that_its_worker_left_goes_although_the_task_stays(engine: Engine, clock: ManualClock) -> None:
    task = await admitted(engine)
    file = await created(engine, a_file(clock=clock), task=task)
    clock.advance(HOUR.total_seconds())
    assert await engine.files.sweep(unused_for=HOUR) == 1
    assert not await engine.files.files_of(task, limit=10)
    with pytest.raises(FileNotFound):
        await engine.files.get(file.id)
    other = await created(engine)  # a store may give it the place of the one that is gone
    assert not (await engine.files.get(other.id)).bound and not await engine.files.has(task, other.id)


async def test_what_an_owner_has_without_a_task_is_erased(store: Store, engine: Engine) -> None:
    for _ in range(60):
        await created(engine)
    bound, kept, foreign = await uploaded(engine), await uploaded(engine), await uploaded(engine, owner=OTHER_ANNA)
    assert await engine.tasks.admit(a_row(), a_turn(), files=[bound.id])
    gone = 0
    while count := await engine.files.erase_of(ANNA, keep=[kept.id]):
        assert count <= 50
        gone += count
    assert gone == 60
    for file in (bound, kept, foreign):
        assert await engine.files.get(file.id)
    assert await engine.files.erase_of(ANNA) == 1
    assert store.bytes_on_disk(engine) == sorted([bound.id, foreign.id])


# --- what it counts


async def test_a_file_counts_with_its_bytes_and_from_the_beginning_with_a_length_that_is_known(
    store: Store, engine: Engine
) -> None:
    unknown = engine.files.open(one := await created(engine))
    assert store.disk.held(ANNA.workspace) == FILE_SIZE
    await unknown.write(b"x" * 100)
    assert store.disk.held(ANNA.workspace) == FILE_SIZE + 100
    await unknown.close()
    assert store.disk.held(ANNA.workspace) == FILE_SIZE + 100
    known = engine.files.open(other := await created(engine, a_file(length=1_000)))
    await known.write(b"x" * 10)
    await known.close()
    counted = 2 * FILE_SIZE + 100 + 1_000
    assert store.disk.held(ANNA.workspace) == counted
    engine = await store.open_again(engine)
    assert store.disk.held(ANNA.workspace) == counted
    upload = engine.files.open(await engine.files.get(other.id))
    await upload.write(b"x" * 990)
    await upload.close(complete=True)
    assert store.disk.held(ANNA.workspace) == counted
    for file in (one, other):
        await engine.files.delete(file.id)
    assert store.disk.held(ANNA.workspace) == 0


async def test_a_workspace_at_its_cap_stores_no_more_bytes(store: Store) -> None:
    store.limits = (10**9, 3 * FILE_SIZE)
    engine = await store.open()
    with pytest.raises(Overloaded, match="ROLECALL_MAX_DISK_PER_WORKSPACE"):
        await created(engine, a_file(length=2 * FILE_SIZE + 1))
    assert store.disk.held(ANNA.workspace) == 0
    upload: Upload = engine.files.open(file := await created(engine))
    await upload.write(b"x" * FILE_SIZE)
    with pytest.raises(Overloaded, match="ROLECALL_MAX_DISK_PER_WORKSPACE"):
        await upload.write(b"x" * (FILE_SIZE + 1))
    await upload.write(b"x" * FILE_SIZE)
    assert (await upload.close(complete=True)).offset == 2 * FILE_SIZE
    assert await created(engine, a_file(owner=OTHER_ANNA))
    await engine.files.delete(file.id)
    assert store.disk.held(ANNA.workspace) == 0


# --- what is found after a crash


async def test_bytes_without_a_row_go_and_rows_without_bytes_are_marked(store: Store, engine: Engine) -> None:
    if not store.on_disk:
        pytest.skip("keeps nothing")
    kept, lost = await uploaded(engine), await uploaded(engine)
    empty = await uploaded(engine, b"")
    folder = store.folder
    unknown = new_file_id()
    (folder / unknown[:2]).mkdir(exist_ok=True)
    (folder / unknown[:2] / unknown).write_bytes(b"nobody's")
    (folder / lost.id[:2] / lost.id).unlink()
    with suppress(OSError):  # another is in it
        (folder / lost.id[:2]).rmdir()
    engine = await store.open_again(engine)
    assert store.bytes_on_disk(engine) == [kept.id]
    assert not (await engine.files.get(kept.id)).lost and not (await engine.files.get(empty.id)).lost
    found = await engine.files.get(lost.id)
    assert found == replace(lost, lost=True, offset=0, length=0)
    with pytest.raises(FileLost):
        await engine.files.read(lost.id, 0, 1)
    assert store.disk.held(ANNA.workspace) == 3 * FILE_SIZE + len(b"content")


async def test_a_disk_without_room_takes_no_bytes(store: Store, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    upload = engine.files.open(await created(engine))
    await upload.write(b"x")

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.write", full)
        with pytest.raises(NoRoomForFile):
            await upload.write(b"yyy")
    await upload.write(b"z")
    stored = await upload.close(complete=True)
    assert (stored.offset, stored.sha256) == (2, sha256(b"xz").hexdigest())
    assert store.disk.held(ANNA.workspace) == FILE_SIZE + 2
    assert isinstance(store.folder, Path)
