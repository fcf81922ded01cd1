"""The room that is kept on a disk for small writes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from hub.storage.common.reserve import Reserve
from hub.storage.sqlite.connections.writer import Writer
from rolecall.errors import DiskLow
from rolecall.model.a2a import TaskState
from tests.contract.words import DONE, status, text

MIB = 1024 * 1024


class Volume:
    """A disk of which tests say how much others use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.size = 1_000 * MIB
        self.others = 0

    def free(self, folder: Path) -> int:
        assert folder == self.folder
        return max(0, self.size - self.others - sum(path.stat().st_size for path in folder.iterdir()))


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    return Volume(tmp_path)


@pytest.fixture
def reserve(volume: Volume) -> Iterator[Reserve]:
    reserve = Reserve(volume.folder / "hub.db", 100 * MIB, free=volume.free)
    reserve.open()
    yield reserve
    reserve.close()
    assert not list(volume.folder.iterdir())


def held(volume: Volume) -> int:
    return sum(path.stat().st_size for path in volume.folder.iterdir())


def test_a_part_of_it_is_allocated_ahead(volume: Volume, reserve: Reserve) -> None:
    assert held(volume) == 8 * MIB
    reserve.check()


def test_new_work_is_refused_with_the_setting_while_there_is_less_and_small_writes_pass(
    volume: Volume, reserve: Reserve
) -> None:
    volume.others = volume.size - 100 * MIB
    reserve.look()
    reserve.check()
    volume.others += 1
    reserve.look()
    with pytest.raises(DiskLow) as refused:
        reserve.check()
    assert "ROLECALL_DISK_RESERVE" in refused.value.message and str(100 * MIB) in refused.value.message
    assert reserve.takes([DONE]) and reserve.takes([status(TaskState.INPUT_REQUIRED), text()])
    assert not reserve.takes([text()]) and not reserve.takes([]) and not reserve.takes([DONE, text("x" * 17_000)])
    volume.others -= 1
    reserve.look()
    reserve.check()
    assert reserve.takes([text("x" * 17_000)])


def test_it_is_given_up_in_pieces_and_taken_again_when_there_is_room(volume: Volume, reserve: Reserve) -> None:
    volume.others = volume.size
    pieces = 0
    while reserve.make_room():
        pieces += 1
        assert held(volume) == 8 * MIB - pieces * MIB // 2
        assert reserve.low
    assert pieces == 16
    volume.others = volume.size - 99 * MIB
    reserve.look()
    assert (held(volume), reserve.low) == (0, True)
    volume.others = 0
    reserve.look()
    assert (held(volume), reserve.low) == (8 * MIB, False)


def test_what_is_large_leaves_it_untouched(volume: Volume, reserve: Reserve) -> None:
    """Also between two looks."""
    volume.others = 400 * MIB
    assert reserve.has_room(500 * MIB) and not reserve.has_room(500 * MIB + 1)
    volume.others = volume.size
    assert not reserve.has_room(1) and not reserve.low
    assert Reserve(volume.folder / "hub.db", 0, free=volume.free).has_room(10**15)


def test_without_a_size_nothing_is_kept(volume: Volume) -> None:
    reserve = Reserve(volume.folder / "hub.db", 0, free=volume.free)
    reserve.open()
    volume.others = volume.size
    reserve.look()
    assert not reserve.low and not reserve.make_room() and not held(volume)
    reserve.close()


async def test_a_batch_that_finds_the_disk_full_is_written_when_room_was_made(tmp_path: Path) -> None:
    rooms = [True, True, False]
    made = []

    def connect() -> sqlite3.Connection:
        db = sqlite3.connect(tmp_path / "x.db", isolation_level=None, check_same_thread=False)
        db.execute("create table if not exists t (x blob)")
        db.execute("pragma max_page_count = 20")
        return db

    def make_room(db: sqlite3.Connection) -> bool:
        made.append(1)
        db.execute(f"pragma max_page_count = {20 + 10 * len(made)}")
        return rooms.pop(0)

    writer = Writer(connect, make_room=make_room)
    await writer.start()
    for short in (True, False):
        await writer.submit(lambda db: db.execute("insert into t values (zeroblob(70000))").rowcount, short=short)
    assert len(made) == 2
    with pytest.raises(Exception, match="cannot write"):
        await writer.submit(lambda db: db.execute("insert into t values (zeroblob(900000))").rowcount)
    await writer.close()
