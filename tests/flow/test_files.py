"""Files: uploads that go on, whom they belong to, who may read them, and when they go."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from hub.core.files.files import FileLimits, NewFile
from rolecall.errors import (
    BodyTooSlow,
    ClientDisconnected,
    FileBound,
    FileLost,
    FileNotFound,
    FileTooLarge,
    HubDraining,
    HubError,
    NoFiles,
    NoRoomForFile,
    Overloaded,
    TaskNotFound,
    TooManyBytes,
    UploadElsewhere,
    UploadTakenOver,
)
from rolecall.model.ids import Caller, FileId, TaskId, WorkerId, new_file_id
from rolecall.model.principal import LOCAL, Kind, Principal
from rolecall.model.task import StoredFile
from rolecall.model.worker import Offer
from tests.contract.words import a_row, a_turn
from tests.flow.callers import OTHER
from tests.flow.conftest import CALLER, System, hub_limits, proof, shares
from tests.flow.test_erasure import erase, finished
from tests.helpers.watched_engine import Hold

Step = bytes | BaseException | Hold
PIECE = 256 * 1024


class Sent:
    """What a client sends: bytes, waits, or an error at last."""

    def __init__(self, *steps: Step) -> None:
        self._steps = list(steps)
        self._stopped: asyncio.Future[HubError] = asyncio.get_running_loop().create_future()

    async def read(self) -> bytes:
        if self._stopped.done():
            raise self._stopped.result()
        if not self._steps:
            return b""
        step = self._steps.pop(0)
        if isinstance(step, BaseException):
            raise step
        if isinstance(step, bytes):
            return step
        waiting = asyncio.ensure_future(step.reach())
        await asyncio.wait([waiting, self._stopped], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        return await self.read()

    def stop(self, why: HubError) -> None:
        if not self._stopped.done():
            self._stopped.set_result(why)


def new(owner: Caller = CALLER, **members: Any) -> NewFile:
    return NewFile(owner, members.pop("name", "a.txt"), "text/plain", **members)


async def begun(system: System, *steps: Step, **members: Any) -> StoredFile:
    """An upload that can go on."""
    return await system.hub.files.create(new(**members), Sent(*steps), whole=False)


async def stored(system: System, content: bytes = b"content", **members: Any) -> StoredFile:
    return await system.hub.files.create(new(**members), Sent(content), whole=True)


async def add(system: System, file: FileId, *steps: Step, offset: int, whole: bool = True) -> StoredFile:
    return await system.hub.files.add(CALLER, file, Sent(*steps), offset=offset, whole=whole)


async def content(system: System, file: StoredFile, start: int = 0, stop: int | None = None) -> bytes:
    return b"".join([piece async for piece in system.hub.files.content(file, start, stop)])


async def given(system: System, *files: FileId, caller: Caller = CALLER, **members: Any) -> TaskId:
    """A task that has them."""
    row = a_row(caller, **members)
    assert await system.engine.tasks.admit(row, a_turn(), files=files)
    return row.id


async def is_there(system: System, file: FileId) -> bool:
    try:
        await system.engine.files.get(file)
    except FileNotFound:
        return False
    return True


# --- uploads


async def test_a_file_comes_out_as_it_went_in(stored_system: System) -> None:
    system = stored_system
    pieces = [bytes([at]) * (100_000 + at) for at in range(7)]
    file = await system.hub.files.create(new(), Sent(*pieces), whole=True)
    whole = b"".join(pieces)
    assert (file.sha256, file.length, file.owner) == (sha256(whole).hexdigest(), len(whole), CALLER)
    assert await content(system, file) == whole
    assert await content(system, file, 99_999, 300_000) == whole[99_999:300_000]
    assert await content(system, file, 5, 10**9) == whole[5:]


@pytest.mark.parametrize("cut", [ClientDisconnected(), BodyTooSlow()])
async def test_what_came_before_a_cut_is_kept_and_the_upload_goes_on_there(stored_system: System, cut: Exception) -> None:
    system = stored_system
    file = await begun(system, length=10)
    with pytest.raises(type(cut)):
        await add(system, file.id, b"0123", b"45", cut, offset=0)
    now = await system.hub.files.of_caller(CALLER, file.id)
    assert (now.offset, now.complete, system.hub.files.offset_of(now)) == (6, False, 6)
    done = await add(system, file.id, b"6789", offset=6)
    assert done.sha256 == sha256(b"0123456789").hexdigest()
    assert await content(system, done) == b"0123456789"


async def test_a_cut_first_request_leaves_nothing_because_nobody_knows_its_id(system: System) -> None:
    for failure in (ClientDisconnected(), BodyTooSlow(), asyncio.CancelledError()):
        with pytest.raises(type(failure)):
            await begun(system, b"x" * PIECE, failure)
    assert not system.engine.files._part._files  # type: ignore[attr-defined]
    assert system.deps.shares.transfers.use.used == 0


async def test_the_end_of_the_body_ends_a_file_unless_more_is_announced(system: System) -> None:
    assert (await begun(system, b"x")).length is None
    assert (await stored(system, b"x")).complete
    assert not (await stored(system, b"x", length=2)).complete
    assert (await begun(system, b"xx", length=2)).complete
    file = await begun(system)
    file = await add(system, file.id, b"a", offset=0, whole=False)
    file = await add(system, file.id, b"b", offset=1, whole=True)
    assert (file.complete, file.length) == (True, 2)


async def test_bytes_are_added_only_where_the_file_ends(system: System) -> None:
    file = await begun(system, b"abc", length=6)
    for wrong in (0, 2, 4, 10**15):
        with pytest.raises(UploadElsewhere) as refused:
            await add(system, file.id, b"def", offset=wrong)
        assert (refused.value.offset, refused.value.complete) == (3, False)
    done = await add(system, file.id, b"def", offset=3)
    with pytest.raises(UploadElsewhere) as refused:
        await add(system, file.id, b"g", offset=6)
    assert refused.value.complete and await content(system, done) == b"abcdef"


async def test_more_bytes_than_announced_are_refused_and_the_file_stays_as_it_was(system: System) -> None:
    file = await begun(system, b"ab", length=4)
    with pytest.raises(TooManyBytes, match="More bytes came than the 4"):
        await add(system, file.id, b"c" * 3, offset=2)
    assert (await add(system, file.id, b"cd", offset=2)).complete


async def test_the_newest_request_goes_on_with_an_upload_and_the_older_one_ends(stored_system: System) -> None:
    system, hold = stored_system, Hold()
    file = await begun(system)
    first = asyncio.create_task(add(system, file.id, b"ab", hold, offset=0))
    await hold.reached.wait()
    with pytest.raises(UploadElsewhere) as refused:
        await add(system, file.id, b"x", offset=0)
    assert refused.value.offset == 2
    with pytest.raises(UploadTakenOver):
        await first
    assert (await add(system, file.id, b"c", offset=2)).offset == 3


async def test_a_stopping_hub_ends_uploads_and_keeps_what_came(stored_system: System) -> None:
    system, hold = stored_system, Hold()
    file = await begun(system)
    running = asyncio.create_task(add(system, file.id, b"ab", hold, offset=0))
    await hold.reached.wait()
    system.hub.drain()
    with pytest.raises(HubDraining):
        await running
    for late in (begun(system), add(system, file.id, b"c", offset=2)):
        with pytest.raises(HubDraining):
            await late
    await system.restart()
    assert (await add(system, file.id, b"c", offset=2)).sha256 == sha256(b"abc").hexdigest()


async def test_an_upload_whose_request_is_cancelled_keeps_what_came(stored_system: System) -> None:
    system, hold = stored_system, Hold()
    file = await begun(system)
    running = asyncio.create_task(add(system, file.id, b"x" * PIECE, b"y", hold, offset=0))
    await hold.reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await add(system, file.id, b"z", offset=PIECE)).length == PIECE + 1


# --- bounds


async def test_a_file_above_the_bound_is_refused_and_nothing_of_it_is_kept(system: System) -> None:
    system.with_bounds(limits=hub_limits(files=FileLimits(size=10)))
    with pytest.raises(FileTooLarge, match="ROLECALL_MAX_FILE"):
        await begun(system, length=11)
    with pytest.raises(FileTooLarge):
        await stored(system, b"x" * 11)
    file = await begun(system, b"x" * 5)
    with pytest.raises(FileTooLarge):
        await add(system, file.id, b"x" * 6, offset=5)
    assert not await is_there(system, file.id)
    assert (await stored(system, b"x" * 10)).complete
    system.with_bounds(limits=hub_limits(files=FileLimits(size=0)))
    with pytest.raises(NoFiles, match="ROLECALL_MAX_FILE is 0"):
        await begun(system)


@pytest.mark.parametrize("refusal", [NoRoomForFile(1), Overloaded("bytes on disk", 1, "max_disk_per_workspace")])
async def test_a_file_for_which_there_is_no_room_leaves_nothing(system: System, refusal: HubError) -> None:
    file = await begun(system, b"x" * 100)
    system.engine.fail("upload.write", refusal)
    with pytest.raises(type(refusal)) as refused:
        await add(system, file.id, b"y", offset=100)
    assert f"ROLECALL_{refused.value.setting.upper()}" in refused.value.message
    assert not await is_there(system, file.id)
    system.engine.fail("upload.write", refusal)
    with pytest.raises(type(refusal)):
        await stored(system)
    assert not system.engine.files._part._files  # type: ignore[attr-defined]


async def test_a_workspace_has_so_many_transfers_and_no_more(system: System) -> None:
    system.with_bounds(shares=shares(transfers=2, transfers_per_workspace=1))
    hold = Hold()
    running = asyncio.create_task(begun(system, hold))
    await hold.reached.wait()
    with pytest.raises(Overloaded, match="ROLECALL_MAX_TRANSFERS_PER_WORKSPACE"):
        await begun(system)
    with pytest.raises(Overloaded), system.hub.files.transfer(CALLER):
        pass
    await begun(system, owner=Caller("elsewhere", "anna"))
    hold.release()
    await running
    assert system.deps.shares.transfers.use.used == 0


async def test_a_workspace_on_a_slow_disk_leaves_the_others_their_threads(system: System) -> None:
    hold = system.engine.hold("upload.write"), system.engine.hold("upload.write")
    slow = [asyncio.create_task(stored(system, b"x")) for _ in range(8)]
    for one in hold:
        await one.reached.wait()
    other = Caller("elsewhere", "anna")
    assert (await stored(system, b"y", owner=other)).complete
    assert not any(task.done() for task in slow)
    for one in hold:
        one.release()
    assert all(file.complete for file in await asyncio.gather(*slow))


# --- who may read


WORKER = Principal("farm", Kind.WORKER, roles=("*",))


async def readable(system: System, holder: Principal, file: FileId) -> bool:
    try:
        await system.hub.files.readable(holder, file)
    except FileNotFound as error:
        assert error.message == FileNotFound().message
        return False
    return True


async def test_who_may_read_a_file(stored_system: System) -> None:
    system = stored_system
    anna, bert = Principal("anna", Kind.CLIENT), Principal("bert", Kind.CLIENT)
    file = await stored(system, owner=anna.caller)
    lease = (await system.directory.enrol(WORKER, _offer("echo:a"), boot="1")).registration
    await system.directory.enrol(Principal("rival", Kind.WORKER, roles=("*",)), _offer("echo:b"), boot="1")
    everyone = [anna, bert, WORKER, Principal("rival", Kind.WORKER), Principal("anna", Kind.CLIENT, "elsewhere")]

    async def readers() -> list[bool]:
        return [await readable(system, holder, file.id) for holder in everyone]

    assert await readers() == [True, False, False, False, False]
    await given(system, file.id, caller=anna.caller, worker=lease.worker, epoch=lease.epoch - 1)
    assert await readers() == [True, False, False, False, False]
    await given(system, file.id, caller=anna.caller, worker=lease.worker, epoch=lease.epoch)
    assert await readers() == [True, False, True, False, False]
    assert not await readable(system, anna, new_file_id())
    await system.directory.withdraw(WORKER, lease.worker, proof(lease))
    assert await readers() == [True, False, False, False, False]


async def test_on_an_open_hub_everybody_is_the_owner(system: System) -> None:
    file = await stored(system, owner=LOCAL.caller)
    assert await readable(system, LOCAL, file.id)


async def test_only_its_owner_goes_on_with_a_file_or_deletes_it(system: System) -> None:
    file = await begun(system, b"x")
    for attempt in (
        system.hub.files.add(OTHER, file.id, Sent(b"y"), offset=1, whole=True),
        system.hub.files.delete(OTHER, file.id),
        system.hub.files.of_caller(OTHER, file.id),
        system.hub.files.delete(CALLER, new_file_id()),
    ):
        with pytest.raises(FileNotFound):
            await attempt
    await system.hub.files.delete(CALLER, file.id)
    assert not await is_there(system, file.id)


async def test_a_file_that_a_task_has_is_not_deleted_alone(stored_system: System) -> None:
    system = stored_system
    file = await stored(system)
    await given(system, file.id)
    with pytest.raises(FileBound):
        await system.hub.files.delete(CALLER, file.id)
    assert await is_there(system, file.id)


async def test_deleting_a_file_ends_its_upload(system: System) -> None:
    hold = Hold()
    file = await begun(system)
    running = asyncio.create_task(add(system, file.id, b"ab", hold, offset=0))
    await hold.reached.wait()
    await system.hub.files.delete(CALLER, file.id)
    with pytest.raises(FileNotFound):
        await running
    assert not await is_there(system, file.id)


async def test_a_worker_sends_files_of_its_own_task_alone(system: System) -> None:
    task = await given(system)
    file = await begun(system, task=task)
    assert file.bound and await system.engine.files.has(task, file.id)
    with pytest.raises(TaskNotFound):
        await begun(system, task=TaskId("never-was"))
    other = await given(system)
    with pytest.raises(FileNotFound):
        await system.hub.files.add(CALLER, file.id, Sent(b"x"), offset=0, whole=True, task=other)
    assert (await system.hub.files.add(CALLER, file.id, Sent(b"x"), offset=0, whole=True, task=task)).complete


# --- how long


async def test_a_file_without_a_task_goes_after_a_while_and_is_unknown_from_then_on(stored_system: System) -> None:
    system = stored_system
    file, kept = await stored(system), await stored(system)
    await given(system, kept.id)
    assert system.hub.files.expires_in(file) == timedelta(hours=1)
    assert system.hub.files.expires_in(await system.hub.files.of_caller(CALLER, kept.id)) is None
    system.clock.advance(3600)
    with pytest.raises(FileNotFound):
        await system.hub.files.of_caller(CALLER, file.id)
    await system.hub.forget()
    assert not await is_there(system, file.id)
    assert await system.hub.files.of_caller(CALLER, kept.id)


async def test_an_upload_that_is_under_way_is_not_swept(system: System) -> None:
    hold = Hold()
    file = await begun(system)
    running = asyncio.create_task(add(system, file.id, hold, b"x", offset=0))
    await hold.reached.wait()
    system.clock.advance(10_000)
    await system.hub.forget()
    hold.release()
    assert (await running).complete


async def test_erasing_the_last_task_of_a_file_deletes_it(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a")
    one, two = await finished(system, 2)
    shared, own = await stored(system), await stored(system)
    for task, files in ((one, [shared.id, own.id]), (two, [shared.id])):
        assert await system.engine.tasks.add_turn(TaskId(task), a_turn("more", after=3), files=files)
    await erase(system, one)
    assert [await is_there(system, file.id) for file in (shared, own)] == [True, False]
    await erase(system, two)
    assert not await is_there(system, shared.id)


async def test_erasing_all_of_a_holder_deletes_their_files_too(stored_system: System) -> None:
    system, hold = stored_system, Hold()
    await system.enrol("echo:a")
    await finished(system)
    file, other = await stored(system), await stored(system, owner=OTHER)
    running = asyncio.create_task(add(system, (await begun(system)).id, hold, b"x", offset=0))
    await hold.reached.wait()
    await system.hub.erasure.all_of(CALLER, "no such context")
    assert await is_there(system, file.id)
    await system.hub.erasure.all_of(CALLER)
    assert [await is_there(system, one.id) for one in (file, other)] == [False, True]
    hold.release()
    assert (await running).complete  # what is on its way stays


async def test_a_task_that_is_erased_during_an_upload_for_it_leaves_nothing(stored_system: System) -> None:
    system, hold = stored_system, Hold()
    await system.enrol("echo:a")
    (task,) = await finished(system)
    file = await begun(system, task=TaskId(task))
    running = asyncio.create_task(
        system.hub.files.add(CALLER, file.id, Sent(b"ab", hold), offset=0, whole=True, task=TaskId(task))
    )
    await hold.reached.wait()
    await erase(system, task)
    assert not await is_there(system, file.id)
    hold.release()
    with pytest.raises(FileNotFound):
        await running
    assert not await is_there(system, file.id)


async def test_a_file_whose_bytes_are_missing_is_told_apart_and_can_be_deleted(stored_system: System, tmp_path: Path) -> None:
    system = stored_system
    file, partial = await stored(system), await begun(system, b"x")
    if not os.listdir(tmp_path):
        pytest.skip("keeps nothing")
    for one in (file, partial):
        (tmp_path / "data" / "hub.db-files" / one.id[:2] / one.id).unlink()
    await system.restart()
    with pytest.raises(FileLost):
        await system.hub.files.of_caller(CALLER, file.id)
    with pytest.raises(FileLost):
        await add(system, partial.id, b"y", offset=1)
    await system.hub.files.delete(CALLER, file.id)
    assert not await is_there(system, file.id)


# --- addresses


async def test_a_url_names_a_file_of_this_hub_or_none(system: System) -> None:
    system.with_bounds(limits=hub_limits(files=FileLimits(address="https://hub.example/registry/files/")))
    files, file = system.hub.files, new_file_id()
    assert files.id_in(files.url_of(file)) == file
    for other in (
        f"https://elsewhere.example/registry/files/{file}",
        f"http://hub.example/registry/files/{file}",
        f"https://hub.example/registry/files/{file}/",
        f"https://hub.example/registry/files/{file}?x",
        "https://hub.example/registry/files/",
        "https://hub.example/registry/files/../../etc/passwd",
        file,
    ):
        assert files.id_in(other) is None


def _offer(name: str) -> Offer:
    role, _, instance = name.partition(":")
    return Offer(WorkerId(role, instance), f"http://w/{name}")
