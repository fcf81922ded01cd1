"""The database file: its lock, its location and its schema version."""

from __future__ import annotations

import logging
import sqlite3
import time
from pathlib import Path, PurePath

from rolecall.errors import StoreError
from rolecall.model.call import digest
from rolecall.schema import MIGRATIONS, newest
from rolecall.system.files import private
from rolecall.system.locks import lock_file, unlock

log = logging.getLogger(__name__)

MOUNTS = Path("/proc/self/mountinfo")
# File systems without shared locks and memory between machines: a write-ahead log would be corrupted there.
REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "afs"})


class FileLock:
    """Lets one process use a database."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + ".lock")
        self._lock: int | None = None

    def acquire(self) -> None:
        try:
            self._lock = lock_file(self._path)
        except BlockingIOError as error:
            raise StoreError(
                f"{self._path.with_suffix('')} is in use by another process. One SQLite file serves one hub: stop the "
                "other one, give this one a data directory of its own, or have the server run one process (-w 1)."
            ) from error

    def release(self) -> None:
        if self._lock is not None:
            unlock(self._lock)
            self._lock = None


def prepare(database: Path) -> None:
    """Create the database file and its folder, readable only by their owner. Network file systems are refused."""
    try:
        database.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        kind = file_system(database.parent.resolve(), MOUNTS.read_text("utf-8") if MOUNTS.exists() else "")
        if kind in REMOTE:
            raise StoreError(f"{database} is on a {kind} file system, where SQLite can lose data. Use a local disk.")
        open(database, "ab", opener=private).close()
    except OSError as error:
        raise StoreError(f"The database {database} cannot be opened: {error.strerror}.") from error


def file_system(directory: PurePath, mounts: str) -> str:
    """The type of the file system that a directory is on; empty if unknown. `mounts` is Linux's list; Windows writes a folder
    of another machine with two backslashes.
    """
    if directory.drive.startswith("\\\\") and directory.drive[2:3] not in ("?", "."):
        return "smb3"
    best, kind = -1, ""
    for line in mounts.splitlines():
        left, dash, right = line.partition(" - ")
        fields = left.split()
        if not dash or len(fields) < 5:
            continue
        mount_point = Path(fields[4].encode().decode("unicode_escape"))
        # Of two mounts on one mount point, the later one is visible.
        if directory.is_relative_to(mount_point) and len(mount_point.parts) >= best:
            best, kind = len(mount_point.parts), right.split()[0]
    return kind


def migrate(db: sqlite3.Connection, folder: Path = MIGRATIONS) -> None:
    """Migrate a database to this version, one transaction per step. A newer one is refused: this hub would damage it."""
    steps = sorted(folder.glob("[0-9]*.sql"))
    version, known = int(db.execute("pragma user_version").fetchone()[0]), newest(folder)
    db.create_function("digest", -1, digest, deterministic=True)
    if version > known:
        raise StoreError(
            f"The database has version {version}, this hub knows {known}. Start a hub as new as the one that last used it, or "
            "restore the backup from before the upgrade."
        )
    began = time.monotonic()
    for step in steps:
        number = int(step.name[:4])
        if number > version:
            _run(db, step.read_text("utf-8"), number)
    if version < known:
        facts = {"event": "migrated", "from": version, "to": known, "seconds": round(time.monotonic() - began, 3)}
        log.info("database migrated" if version else "database created", extra=facts)


def _run(db: sqlite3.Connection, script: str, number: int) -> None:
    try:
        db.executescript(f"begin immediate;\n{script}\npragma user_version = {number};\ncommit;")
    except sqlite3.Error:
        if db.in_transaction:
            db.rollback()
        raise
