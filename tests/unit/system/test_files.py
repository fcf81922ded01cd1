"""Files where a system refuses what others allow, or has no call for it."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from rolecall.system import files

On = Callable[[str], list[str]]


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> On:
    """The module takes this system for that one. Returns what is done to the disk from then on."""

    def set_platform(platform: str) -> list[str]:
        done = list[str]()

        def flush(number: int, command: int) -> None:
            done.append("full sync")
            if platform == "darwin without it":
                raise OSError(45, "Operation not supported")

        fsync = os.fsync
        monkeypatch.setattr(os, "fsync", lambda number: (done.append("sync"), fsync(number)))
        monkeypatch.setattr(files, "sys", SimpleNamespace(platform=platform.split()[0]))
        monkeypatch.setattr(files, "fcntl", SimpleNamespace(F_FULLFSYNC=51, fcntl=flush), raising=False)
        return done

    return set_platform


@pytest.mark.parametrize("work", ["replace", "unlink"])
@pytest.mark.parametrize(("refusals", "patience", "works"), [(2, 60.0, True), (1, 0.0, False), (1000, 0.1, False)])
def test_a_file_that_somebody_has_open_for_a_moment_is_waited_for(
    work: str, refusals: int, patience: float, works: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real, left = getattr(os, work), iter(range(refusals))

    def refused(*paths: Path) -> None:
        if next(left, None) is not None:
            raise PermissionError(13, "used by another process")
        real(*paths)

    monkeypatch.setattr(os, work, refused)
    monkeypatch.setattr(files, "_PATIENCE", patience)
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("old")
    new.write_text("new")
    try:
        _ = files.replace(new, old) if work == "replace" else files.delete(old)
    except PermissionError:
        assert not works and old.read_text() == "old"
    else:
        assert works and [path.read_text() for path in tmp_path.iterdir()] == ["new"]


def test_another_error_is_told_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert (files._PATIENCE > 0) == (sys.platform == "win32")
    monkeypatch.setattr(files, "_PATIENCE", 60.0)
    files.delete(tmp_path / "gone")
    with pytest.raises(FileNotFoundError):
        files.replace(tmp_path / "gone", tmp_path / "new")


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_allocated_bytes_take_up_room(platform: str, on: On, tmp_path: Path) -> None:
    on(platform)
    size = 3 * 1024 * 1024 + 7
    with files.opened(tmp_path / "room", os.O_RDWR | os.O_CREAT) as number:
        files.allocate(number, size)
    found = (tmp_path / "room").stat()
    assert found.st_size == size and found.st_blocks * 512 >= size
    assert stat.S_IMODE(found.st_mode) == 0o600


@pytest.mark.parametrize(
    ("platform", "of_file", "of_folder"),
    [
        ("linux", ["sync"], ["sync"]),
        ("darwin", ["full sync"], ["full sync"]),
        ("darwin without it", ["full sync", "sync"], ["full sync", "sync"]),
        ("win32", ["sync"], []),
    ],
)
def test_what_is_synced_is_on_the_disk_where_the_system_can_say_it(
    platform: str, of_file: list[str], of_folder: list[str], on: On, tmp_path: Path
) -> None:
    done = on(platform)
    with files.opened(tmp_path / "file", os.O_WRONLY | os.O_CREAT) as number:
        files.sync(number)
    assert done == of_file
    done.clear()
    files.sync_folder(tmp_path)
    assert done == of_folder


@pytest.mark.parametrize(
    ("name", "on_windows"),
    [
        ("notes.txt", "notes.txt"),
        ("10:30 <a|b>?.txt", "10_30 _a_b__.txt"),
        ('"*"', "___"),
        ("NUL", "_NUL"),
        ("com1.log", "_com1.log"),
        ("lpt¹ .txt", "_lpt¹ .txt"),
        ("CONIN$", "_CONIN$"),
        ("console.txt", "console.txt"),
        ("com.txt", "com.txt"),
    ],
)
def test_a_name_from_elsewhere_is_one_that_the_system_can_give(name: str, on_windows: str, on: On) -> None:
    assert files.possible_name(name) == name
    on("win32")
    assert files.possible_name(name) == on_windows
