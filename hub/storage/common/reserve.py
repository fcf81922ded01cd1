"""Room on the database's volume that is kept for small writes, so that a full disk stops no end of a task and no withdrawal."""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from hub.ports.state.engine import DiskRoom
from rolecall.errors import DiskLow
from rolecall.model.a2a import Event
from rolecall.system.files import allocate, delete, opened

log = logging.getLogger(__name__)

_ALLOCATED = 8 * 1024 * 1024
"""Bytes of the file that takes up room, so that other programs cannot."""
_PIECE = 512 * 1024
"""Bytes by which it is shortened when a write finds the disk full."""
_SMALL = 16 * 1024


class Reserve:
    """`size`: bytes that are to be free on the volume; 0: nothing is reserved. Some of them are in a file, at most half: other
    programs can use the free ones, and the hub the file's. `free`: how many are free.

    The writer's thread makes room, the thread of checkpoints looks, and the loop reads `low`.
    """

    def __init__(self, database: Path, size: int, *, free: Callable[[Path], int] | None = None) -> None:
        self._path = database.with_name(database.name + "-reserve")
        self._size = size
        self._free = free or free_bytes
        self._held = 0
        self._lock = threading.Lock()
        self.low = False
        """Less than `size` is left."""
        self._last_free = 0
        """Of the last look."""

    @property
    def room(self) -> DiskRoom:
        return DiskRoom(self._last_free, self._size, self.low)

    def open(self) -> None:
        if self._size:
            with self._lock:
                delete(self._path)  # of a hub that was killed
        self.look()

    def close(self) -> None:
        if self._size:
            delete(self._path)

    def check(self) -> None:
        """DiskLow."""
        if self.low:
            raise DiskLow(self._size)

    def takes(self, events: Sequence[Event]) -> bool:
        """Whether these events may be written: if there is room, or if they are small and change the task's state."""
        if not self.low:
            return True
        return any(event.state is not None for event in events) and sum(len(event.body) for event in events) <= _SMALL

    def has_room(self, size: int) -> bool:
        """Whether so many more bytes leave the reserve untouched. For what is large: it looks at the disk."""
        return not self._size or self._free(self._path.parent) + self._held - size >= self._size

    def look(self) -> None:
        free = self._last_free = self._free(self._path.parent)
        if not self._size:
            return
        with self._lock:
            wanted = min(self._size // 2, _ALLOCATED)
            low = free + self._held < self._size
            if not low and self._held < wanted and free >= self._size:
                self._allocate(wanted)
            if low != self.low:
                self.low = low
                fields = {"event": "disk_low" if low else "disk_has_room", "free": free, "reserve": self._size}
                log.log(logging.WARNING if low else logging.INFO, "disk space is low" if low else "disk has room", extra=fields)

    def make_room(self) -> bool:
        """A write found the disk full. False: nothing is left to give."""
        with self._lock:
            if not self._held:
                return False
            self.low = True
            self._held = max(0, self._held - _PIECE)
            try:
                os.truncate(self._path, self._held)
            except OSError:
                self._held = 0
                return False
            return True

    def _allocate(self, size: int) -> None:
        try:
            with opened(self._path, os.O_RDWR | os.O_CREAT) as number:
                allocate(number, size)
            self._held = size
        except OSError as error:
            log.warning("room cannot be reserved", extra={"event": "reserve_failed", "why": error.strerror})
            delete(self._path)


def free_bytes(folder: Path) -> int:
    """Those that this user may write."""
    return shutil.disk_usage(folder).free
