"""A file is made of bytes or a path, saved where it may be, and read in plain functions too."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.unit.worker_sdk.file_hub import FileHub
from tests.unit.worker_sdk.test_hub_files import CONTENT, by_reference, files_at
from worker_sdk import File


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize(("name", "saved"), [("../../x", "x"), ("a\\..\\b.txt", "b.txt"), ("..", "file"), ("a\0b\n", "ab")])
async def test_a_file_is_saved_in_the_folder_and_nowhere_else(name: str, saved: str, tmp_path: Path) -> None:
    folder = tmp_path / "in" / "here"
    folder.mkdir(parents=True)
    assert await File(name, raw=b"x").save(folder) == folder / saved
    assert files_below(tmp_path) == [folder / saved]


def read_blocking(file: File) -> bytes:
    with file.open() as opened:
        return opened.read(10) + opened.read()


async def test_a_plain_function_reads_a_file_in_its_thread(tmp_path: Path) -> None:
    hub, path = FileHub(1_000_000), tmp_path / "f"
    path.write_bytes(CONTENT)
    url = hub.keep(CONTENT)
    async with files_at(hub) as files:
        file = files.find(by_reference(url, size=len(CONTENT)))
        assert file is not None
        with pytest.raises(RuntimeError, match="async function"):
            file.open()
        assert await asyncio.to_thread(read_blocking, file) == CONTENT
    for file in (File(path=path), File(raw=CONTENT)):
        assert read_blocking(file) == CONTENT


def test_a_file_has_bytes_or_a_path(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"abc")
    with pytest.raises(ValueError, match="not both"):
        File(raw=b"x", path="x")
    file = File(path=path)
    assert (file.name, file.media_type, file.size, file.raw) == ("a.png", "image/png", 3, b"abc")
    assert File(path=path, name="b", media_type="x/y").name == "b"
    assert (File("a").size, File("a").raw) == (0, b"")
    assert File("a", "t", b"x") == File("a", "t", b"x") != File("a", "t", b"y")
    assert len({File("a"), File("a")}) == 1
    assert repr(file) == "File('a.png', 'image/png', 3 bytes)"
