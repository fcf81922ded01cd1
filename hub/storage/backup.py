"""Copies what an engine keeps on disk, also while a hub uses it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from hub.storage import FILE_NAME
from rolecall.errors import StoreError
from rolecall.system.files import private, sync

_FILES = f"{FILE_NAME}-files"


class CopiedState(NamedTuple):
    """`size`: bytes of the database. `schema`: its version. `files`: how many files, `file_bytes` in all."""

    size: int
    schema: int
    files: int
    file_bytes: int


def copy_state(data_dir: Path, folder: Path) -> CopiedState:
    """Into that folder, which has nothing of it yet. What the database names is among the files: those that are deleted
    meanwhile were copied before, and those that are new are copied after it. StoreError, OSError.
    """
    database = data_dir / FILE_NAME
    if not database.is_file():
        raise StoreError(f"There is no database {database}. Name the hub's data folder (--data-dir, ROLECALL_DATA_DIR).")
    files: dict[Path, tuple[int, int]] = {}
    _copy_files(data_dir / _FILES, folder / _FILES, files)
    schema = _copy_database(database, folder / FILE_NAME)
    _copy_files(data_dir / _FILES, folder / _FILES, files)
    size = (folder / FILE_NAME).stat().st_size
    return CopiedState(size, schema, len(files), sum(size for size, _ in files.values()))


def copy_file(source: Path, target: Path) -> None:
    """With its mode, and its owner where this user may. Durable on return."""
    with source.open("rb") as original, open(target, "xb", opener=private) as copied:
        shutil.copyfileobj(original, copied, 1024 * 1024)
        copied.flush()
        sync(copied.fileno())
    copy_access(source, target)


def copy_access(source: Path, target: Path) -> None:
    """The mode; for root, which may, also the owner."""
    shutil.copymode(source, target)
    if sys.platform != "win32" and os.geteuid() == 0:
        status = source.stat()
        os.chown(target, status.st_uid, status.st_gid)


def _copy_database(database: Path, target: Path) -> int:
    """One snapshot, without a pause for the hub. Returns the version of its schema."""
    target.touch(0o600)
    try:
        # Open for writing: a hub that was killed has left a log, which belongs to the database and is folded into it.
        with (
            closing(sqlite3.connect(f"file:{quote(str(database))}?mode=rw", uri=True, timeout=30)) as source,
            closing(sqlite3.connect(target)) as copied,
        ):
            source.backup(copied)
            problem = str(copied.execute("pragma quick_check(1)").fetchone()[0])
            schema = int(copied.execute("pragma user_version").fetchone()[0])
    except sqlite3.Error as error:
        raise StoreError(f"The database {database} cannot be copied: {error}.") from error
    if problem != "ok":
        raise StoreError(f"The database {database} is damaged ({problem}). Nothing was kept of the copy.")
    copy_access(database, target)
    return schema


def _copy_files(source: Path, target: Path, known: dict[Path, tuple[int, int]]) -> None:
    """Those that are not `known` as they are, which they are from then on."""
    if not source.is_dir():
        return
    for shard in [source, *sorted(path for path in source.iterdir() if path.is_dir())]:
        copied = target / shard.relative_to(source)
        copied.mkdir(mode=0o700, exist_ok=True)
        copy_access(shard, copied)
        for file in sorted(path for path in shard.iterdir() if path.is_file()):
            try:
                status = file.stat()
                if known.get(file) == (status.st_size, status.st_mtime_ns):
                    continue
                (copied / file.name).unlink(missing_ok=True)
                copy_file(file, copied / file.name)
            except FileNotFoundError:
                continue  # deleted meanwhile, like what names it
            known[file] = status.st_size, status.st_mtime_ns
