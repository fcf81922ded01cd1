"""The file of the audit log. What it cannot take changes no answer: it is counted, and named in the file afterwards.

By hand, because a handler of the standard library opens its file again outside of what it catches, and prints a traceback for
each entry that a full disk refuses.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rolecall.errors import ConfigError
from rolecall.log import AUDIT, JsonFormatter
from rolecall.system.files import APPEND, private

log = logging.getLogger(__name__)


class AuditFile(logging.Handler):
    """Appends one JSON object per line, behind what the file holds. When the file is renamed, a new one is created, readable
    only by its owner; the permissions of one that exists stay. ConfigError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self.lost = 0
        """Entries that could not be written."""
        self.failure = ""
        """Why the last one could not be; empty: it was."""
        self._missing = 0
        """Lost entries that the file does not name yet."""
        self._path = path
        self._file = -1
        self._place = (0, 0)
        self._incomplete = False
        """The file ends with a part of an entry."""
        try:
            self._follow()
        except OSError as error:
            raise ConfigError([_refusal(path, error)]) from error

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        try:
            self._follow()
            self._name_lost()
            self._write(line)
        except OSError as error:
            self.lost += 1
            self._missing += 1
            self._fail(_why(error))
        else:
            self._recover()

    def retry(self) -> None:
        """Whether it can be written again is found out by naming what was lost."""
        if not self.failure:
            return
        self.acquire()
        try:
            self._follow()
            self._name_lost()
        except OSError as error:
            self._fail(_why(error))
        else:
            self._recover()
        finally:
            self.release()

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        super().close()

    def _follow(self) -> None:
        """Be at the file that has the path now."""
        try:
            found = os.stat(self._path)
            if self._file >= 0 and self._place == (found.st_dev, found.st_ino):
                return
        except FileNotFoundError:
            pass
        file = private(self._path, APPEND | os.O_CREAT)
        if self._file >= 0:
            os.close(self._file)
        found = os.fstat(file)
        self._file, self._place, self._incomplete = file, (found.st_dev, found.st_ino), False

    def _name_lost(self) -> None:
        if self._missing:
            entry = {"name": AUDIT, "levelname": "INFO", "msg": "entries lost"}
            self._write(self.format(logging.makeLogRecord({**entry, "count": self._missing, "why": self.failure})))
            self._missing = 0

    def _write(self, line: str) -> None:
        data = f"{chr(10) if self._incomplete else ''}{line}\n".encode("utf-8", "replace")
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
        finally:
            self._incomplete = written < len(data) and (self._incomplete or written > 0)

    def _fail(self, why: str) -> None:
        """Once per outage."""
        if not self.failure:
            facts = {"event": "audit_failed", "path": str(self._path), "why": why}
            log.error("the audit log cannot be written", extra=facts)
        self.failure = why

    def _recover(self) -> None:
        if self.failure:
            facts = {"event": "audit_written", "path": str(self._path), "lost": self.lost}
            log.info("the audit log can be written again", extra=facts)
            self.failure = ""


@contextmanager
def open_audit_file(path: Path | None) -> Iterator[AuditFile | None]:
    """Within the block the audit log is written to that file. None: there is none. ConfigError."""
    audit, audit_file = logging.getLogger(AUDIT), AuditFile(path) if path is not None else None
    audit.propagate = False
    if audit_file is not None:
        audit.addHandler(audit_file)
    _set_level(audit)
    try:
        yield audit_file
    finally:
        if audit_file is not None:
            audit.removeHandler(audit_file)
            audit_file.close()
        _set_level(audit)


def _set_level(audit: logging.Logger) -> None:
    """Where there is no file, entries are not even made."""
    written = any(isinstance(handler, AuditFile) for handler in audit.handlers)
    audit.setLevel(logging.INFO if written else logging.CRITICAL + 1)


def check(path: Path) -> None:
    """ConfigError: a hub of this user could not open it. Nothing is created."""
    try:
        try:
            os.close(private(path, APPEND))
        except FileNotFoundError:
            if not path.parent.is_dir():
                raise
            if not os.access(path.parent, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from None
    except OSError as error:
        raise ConfigError([_refusal(path, error)]) from error


def _refusal(path: Path, error: OSError) -> str:
    return f"audit_log: {path} cannot be opened for writing: {_why(error)}."


def _why(error: OSError) -> str:
    return error.strerror or type(error).__name__
