"""Records the calls of a process in order: writes and syncs of database files, and sends on sockets. Linux only."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from hub.storage import FILE_NAME
from tests.helpers.tools import missing

_SOURCE = Path(__file__).with_name("syncs.c")
_HEAD = struct.Struct("<QQqqIIHBBI")
_MARK = 0x434E5953
_AFTER = 1
NEVER = 1 << 62


class Kind(IntEnum):
    WRITE = 1
    SYNC = 2
    TRUNCATE = 3
    SEND = 4


@dataclass
class Call:
    """`begun` and `ended` number the starts and ends of all calls of the process. A call that a kill cut off never ended."""

    kind: Kind
    begun: int
    place: int
    file: bytes
    """The file's path, or the peer address of a socket."""
    data: bytes
    ended: int = NEVER
    result: int = 0

    @property
    def effect(self) -> bytes:
        """The bytes written or sent. For a call that was cut off: all that it may have written."""
        return self.data if self.ended == NEVER else self.data[: max(0, self.result)]


def record_command(command: Iterable[str], library: Path, data_dir: Path, log: Path) -> tuple[str, ...]:
    """The command line that runs a hub and records its calls in the file `log`."""
    settings = (f"LD_PRELOAD={library}", f"SYNCS_LOG={log}", f"SYNCS_DATABASE={data_dir / FILE_NAME}")
    return ("/usr/bin/env", *settings, *command)


def build_library(folder: Path) -> Path:
    compile_command = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if sys.platform != "linux" or compile_command is None:
        missing("system calls are recorded on Linux, by a library that needs a C compiler")
    library = folder / "syncs.so"
    subprocess.run([compile_command, "-shared", "-fPIC", "-O2", "-o", str(library), str(_SOURCE)], check=True)
    return library


def read_calls(log: Path, pid: int) -> list[Call]:
    """Calls in the order of their start. Reading stops at a record that a kill cut off."""
    text, at = log.read_bytes(), 0
    calls: dict[int, Call] = {}
    end_records: dict[int, tuple[int, int]] = {}
    while at + _HEAD.size <= len(text):
        number, begun, place, result, process, size, path, kind, when, mark = _HEAD.unpack_from(text, at)
        data = at + _HEAD.size + path
        if mark != _MARK or data + size > len(text):
            break
        if process == pid and when == _AFTER:
            end_records[begun] = (number, result)
        elif process == pid:
            calls[begun] = Call(Kind(kind), begun, place, text[data - path : data], text[data : data + size])
        at = data + size
    for begun, (number, result) in end_records.items():
        calls[begun].ended, calls[begun].result = number, result
    return [calls[begun] for begun in sorted(calls)]
