"""The SQLite library of this process, which Python's module cannot configure."""

from __future__ import annotations

import _sqlite3
import ctypes
import logging

log = logging.getLogger(__name__)

_OK = 0
_COUNT_MEMORY = 9
"""SQLITE_CONFIG_COUNT_MEMORY, from sqlite3.h."""


def count_no_memory() -> None:
    """Have SQLite allocate without counting: nobody reads the counts, and their lock is taken 300 times for a call. To be
    called once, before any connection is open. Where the library cannot be reached it stays as it is.
    """
    try:
        library = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
        library.sqlite3_config.argtypes = [ctypes.c_int]  # what follows is passed as to a function with any number of arguments
        done = library.sqlite3_shutdown() == _OK and library.sqlite3_config(_COUNT_MEMORY, ctypes.c_int(0)) == _OK
        library.sqlite3_initialize()
    except (OSError, AttributeError, TypeError):
        done = False
    if not done:
        log.debug("SQLite counts its memory", extra={"event": "sqlite_counts"})
