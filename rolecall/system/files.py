"""Files that only their owner may read, that are on the disk when they have to be, and that are replaced while others read."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform == "darwin":
    import fcntl

_BINARY: int = getattr(os, "O_BINARY", 0)
"""Without it, Windows changes the ends of lines."""
APPEND: int = os.O_WRONLY | os.O_APPEND | getattr(os, "O_NONBLOCK", 0)
"""Flags of `private`. A pipe whose reader takes nothing refuses, and does not make its writer wait."""
_PATIENCE = 1.0 if sys.platform == "win32" else 0.0
"""Seconds. Windows neither replaces nor deletes a file that somebody has open, be it a virus scanner for a moment."""
_POLL = 0.02
_DEVICE = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³]) *(\..*)?", re.IGNORECASE)
_PIECE = 1024 * 1024


def private(path: str | os.PathLike[str], flags: int) -> int:
    """Opens a file; as an opener for `open`, too. A new one may be read by its owner alone; on Windows it gets the rights of
    its folder. Programs that are started do not get the descriptor.
    """
    return os.open(path, flags | _BINARY, 0o600)


@contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    number = private(path, flags)
    try:
        yield number
    finally:
        os.close(number)


def sync(number: int) -> None:
    """Returns when what was written is on the disk. The descriptor must be one for writing: Windows refuses others."""
    if sys.platform == "darwin":
        try:
            fcntl.fcntl(number, fcntl.F_FULLFSYNC)  # fsync leaves the bytes in the memory of the disk
            return
        except OSError:
            pass  # not every file system has it
    os.fsync(number)


def sync_folder(folder: Path) -> None:
    """Returns when the names in it are on the disk. On Windows nobody can wait for that: the file system sees to it."""
    if sys.platform != "win32":
        with opened(folder, os.O_RDONLY | os.O_DIRECTORY) as number:
            sync(number)


def replace(source: Path, target: Path) -> None:
    _with_patience(lambda: os.replace(source, target))


def delete(path: Path) -> None:
    """One that is missing is no error."""
    _with_patience(lambda: path.unlink(missing_ok=True))


def allocate(number: int, size: int) -> None:
    """Make the file take up that many bytes of the disk."""
    if sys.platform == "linux":
        os.posix_fallocate(number, 0, size)
        return
    while size > 0:
        size -= os.write(number, bytes(min(_PIECE, size)))
    sync(number)


def possible_name(name: str) -> str:
    """The name of a file, as this system can give it to one. On Windows a colon begins another stream of the file, other
    characters are refused, and some names are devices.
    """
    if sys.platform == "win32":
        name = re.sub('[<>:"|?*]', "_", name)
        return f"_{name}" if _DEVICE.fullmatch(name) else name
    return name


def _with_patience(work: Callable[[], None]) -> None:
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return work()
        except PermissionError:
            if time.monotonic() >= until:
                raise
            time.sleep(_POLL)
