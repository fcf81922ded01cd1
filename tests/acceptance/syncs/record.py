"""What a process did, in order: its writes and syncs of database files, and what it sent over sockets. Linux only."""

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
    """`begun` and `ended` count the beginnings and ends of all calls of the process. One that was cut off never ended."""

    kind: Kind
    begun: int
    place: int
    file: bytes
    """The file's path, or the address of a socket's other end."""
    data: bytes
    ended: int = NEVER
    result: int = 0

    @property
    def effect(self) -> bytes:
        """What it wrote or sent. Of a call that was cut off that may be all."""
        return self.data if self.ended == NEVER else self.data[: max(0, self.result)]


def recording(command: Iterable[str], library: Path, data_dir: Path, into: Path) -> tuple[str, ...]:
    """The command line that runs a hub and has its calls written to `into`."""
    settings = (f"LD_PRELOAD={library}", f"SYNCS_LOG={into}", f"SYNCS_DATABASE={data_dir / FILE_NAME}")
    return ("/usr/bin/env", *settings, *command)


def compiled(folder: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if sys.platform != "linux" or compiler is None:
        missing("system calls are recorded on Linux, by a library that needs a C compiler")
    library = folder / "syncs.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(_SOURCE)], check=True)
    return library


def read_calls(log: Path, pid: int) -> list[Call]:
    """In the order in which they began. Behind a record that a kill cut off nothing is read."""
    text, at = log.read_bytes(), 0
    calls: dict[int, Call] = {}
    ends: dict[int, tuple[int, int]] = {}
    while at + _HEAD.size <= len(text):
        number, begun, place, result, process, size, path, kind, when, mark = _HEAD.unpack_from(text, at)
        data = at + _HEAD.size + path
        if mark != _MARK or data + size > len(text):
            break
        if process == pid and when == _AFTER:
            ends[begun] = (number, result)
        elif process == pid:
            calls[begun] = Call(Kind(kind), begun, place, text[data - path : data], text[data : data + size])
        at = data + size
    for begun, (number, result) in ends.items():
        calls[begun].ended, calls[begun].result = number, result
    return [calls[begun] for begun in sorted(calls)]
