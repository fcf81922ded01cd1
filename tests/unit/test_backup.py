"""Copies of a data folder: consistent while a hub writes, complete, private, and never over another one."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from hub.backup import back_up
from hub.identity.tokens import FILE_NAME as TOKENS
from hub.identity.tokens import MARK_NAME, new, read
from hub.identity.vault import KEY_FILE, kept_key
from hub.ports.clock import Clock
from hub.settings.model import Settings
from hub.storage.sqlite.engine import SqliteEngine
from rolecall.errors import StoreError
from rolecall.model.ids import START, TaskId
from rolecall.model.principal import Kind, Principal
from rolecall.model.task import StoredFile
from rolecall.schema import newest
from tests.contract.test_files import content_of, uploaded
from tests.contract.words import ANNA, admitted, append, text
from tests.helpers.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Of a hub that has a key, a token and the mark."""
    data = tmp_path / "data"
    new(data / TOKENS, Principal("me", Kind.ADMIN), lasts=None, now=0.0)
    kept_key(data)
    (data / MARK_NAME).touch(0o600)
    return Settings.of(data_dir=data)


def engine_in(folder: Path, clock: Clock) -> SqliteEngine:
    return SqliteEngine(folder / "rolecall.db", clock)


async def test_a_copy_is_of_one_moment_while_the_hub_writes(settings: Settings, clock: ManualClock, tmp_path: Path) -> None:
    written = 0

    async def write(task: TaskId) -> None:
        nonlocal written
        while True:
            await append(engine, task, text(f"{written}"), after=written)
            written += 1

    async with engine_in(settings.data_dir, clock) as engine:
        task = await admitted(engine)
        file = await uploaded(engine, b"a file")
        writing = asyncio.create_task(write(task))
        for number in range(3):
            at_least = written
            made = await asyncio.to_thread(back_up, settings, tmp_path / f"copy-{number}")
            assert (made.state.schema, made.state.files, made.state.file_bytes) == (newest(), 1, 6)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
    async with engine_in(tmp_path / "copy-2", clock) as copied:
        log = await copied.events.read(task)
        row = await copied.tasks.get(ANNA, task)
        assert [logged.event.body.decode() for logged in log] == [str(number) for number in range(len(log))]
        assert row.at == len(log) >= at_least > START
        assert await content_of(copied, file.id) == b"a file"


async def test_the_key_the_tokens_and_all_modes_are_kept(settings: Settings, clock: ManualClock, tmp_path: Path) -> None:
    (settings.data_dir / TOKENS).chmod(0o640)
    async with engine_in(settings.data_dir, clock) as engine:
        await uploaded(engine, b"a file")
        made = await asyncio.to_thread(back_up, settings, tmp_path / "deep" / "copy")
    copy = tmp_path / "deep" / "copy"
    assert set(made.others) == {KEY_FILE, TOKENS, MARK_NAME}
    assert kept_key(copy) == kept_key(settings.data_dir)
    assert read(copy / TOKENS) == read(settings.data_dir / TOKENS)
    for path in copy.rglob("*"):
        original = settings.data_dir / path.relative_to(copy)
        assert path.stat().st_mode == original.stat().st_mode, path
    assert copy.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in copy.parent.iterdir()] == ["copy"]


async def test_a_stopped_and_a_killed_hub_are_copied_too(settings: Settings, clock: ManualClock, tmp_path: Path) -> None:
    data, killed = settings.data_dir, tmp_path / "killed"
    async with engine_in(data, clock) as engine:
        task = await admitted(engine)
        killed.mkdir()
        for file in data.glob("rolecall.db*"):  # what a kill would leave: the log is not in the database yet
            if file.is_file():
                shutil.copy(file, killed)
    for number, folder in enumerate((data, killed)):
        before = {path.name for path in folder.iterdir()}
        back_up(Settings.of(data_dir=folder), tmp_path / f"copy-{number}")
        assert {path.name for path in folder.iterdir()} <= before
        async with engine_in(tmp_path / f"copy-{number}", clock) as copied:
            assert (await copied.tasks.get(ANNA, task)).id == task


async def test_files_that_come_and_go_meanwhile_are_there_where_the_database_names_them(
    settings: Settings, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with engine_in(settings.data_dir, clock) as engine:
        gone, stays = await uploaded(engine, b"gone"), await uploaded(engine, b"stays")
        loop, connect = asyncio.get_running_loop(), sqlite3.connect
        came: list[StoredFile] = []

        async def change() -> None:
            came.append(await uploaded(engine, b"came"))

        def connected(*arguments: Any, **more: Any) -> sqlite3.Connection:
            """Before the snapshot one comes. The bytes of another go, as they do behind its row, which the snapshot has."""
            if more.get("uri"):
                asyncio.run_coroutine_threadsafe(change(), loop).result(5)
                (settings.data_dir / "rolecall.db-files" / gone.id[:2] / gone.id).unlink()
            return connect(*arguments, **more)

        monkeypatch.setattr("hub.storage.backup.sqlite3.connect", connected)
        await asyncio.to_thread(back_up, settings, tmp_path / "copy")
        monkeypatch.undo()
    async with engine_in(tmp_path / "copy", clock) as copied:
        for file, content in ((gone, b"gone"), (stays, b"stays"), (came[0], b"came")):
            assert await content_of(copied, file.id) == content


def test_what_cannot_be_copied_is_refused_and_leaves_nothing(settings: Settings, tmp_path: Path) -> None:
    (copy := tmp_path / "copy").mkdir()
    with pytest.raises(StoreError, match="There is no database"):
        back_up(settings, copy)
    (settings.data_dir / "rolecall.db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(StoreError, match="cannot be copied: file is not a database"):
        back_up(settings, copy)
    assert list(copy.iterdir()) == []
    (copy / "older").touch()
    with pytest.raises(StoreError, match="is not empty"):
        back_up(settings, copy)
    with pytest.raises(StoreError, match="keeps nothing"):
        back_up(Settings.of(store="memory:"), copy)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "data"]
