"""Locks between processes. The system gives a lock up when its process ends, however it ends."""

from __future__ import annotations

import errno
import os
import sys
import time
from pathlib import Path

from rolecall.system.files import private

if sys.platform == "win32":
    import msvcrt

    def _take(number: int) -> None:
        msvcrt.locking(number, msvcrt.LK_NBLCK, 1)

    def _give_up(number: int) -> None:
        # Without this, Windows gives the lock up some time after the file is closed.
        msvcrt.locking(number, msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def _take(number: int) -> None:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _give_up(number: int) -> None:
        """It ends with its descriptor."""


_POLL = 0.02
_NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)


def lock_file(path: Path, *, within: float = 0.0) -> int:
    """Lock that file, which is made if it is missing. Returns what `unlock` takes. BlockingIOError: another process has it,
    also after `within` seconds. OSError: the file cannot be opened, or is a link, which could lead anywhere.
    """
    number = private(path, os.O_RDWR | os.O_CREAT | _NO_LINK)
    until = time.monotonic() + within
    while True:
        try:
            _take(number)
        except OSError as error:
            if time.monotonic() >= until:
                os.close(number)
                raise BlockingIOError(errno.EAGAIN, "it is in use by another process", str(path)) from error
            time.sleep(_POLL)
        else:
            return number


def unlock(number: int) -> None:
    _give_up(number)
    os.close(number)
