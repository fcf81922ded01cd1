"""Names and ids: roles, workers, tasks, files, cursors."""

from __future__ import annotations

import os
import re
import secrets
import time
from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple, NewType

TaskId = NewType("TaskId", str)
FileId = NewType("FileId", str)
Cursor = NewType("Cursor", int)
START = Cursor(0)

ROLE = "[a-z0-9][a-z0-9._-]{0,62}"
INSTANCE = "[A-Za-z0-9][A-Za-z0-9._:-]{0,126}"
_ROLE = re.compile(ROLE)
_INSTANCE = re.compile(INSTANCE)
_FILE = re.compile("[0-9a-f]{32}")

# First segments of the hub's own paths: a role of such a name would be ambiguous.
RESERVED_ROLES = frozenset({"agents", "a2a", "v1", "registry", "mcp", "dashboard", "tasks", "subscribe"})


DOCTOR_ROLE = "rolecall-doctor"
"""The role that `rolecall doctor` enrols under and calls. Its calls leave no task, and no series in the metrics."""


class WorkerId(NamedTuple):
    """One process that serves a role."""

    role: str
    instance: str

    def __str__(self) -> str:
        return f"{self.role}:{self.instance}"

    @classmethod
    def of(cls, name: str) -> WorkerId:
        """The worker with that name, which is known to be one."""
        role, instance = split_name(name)
        return cls(role, instance or "")


class Caller(NamedTuple):
    """The holder of a token, and its workspace."""

    workspace: str
    name: str


def is_role(text: str) -> bool:
    return _ROLE.fullmatch(text) is not None and text not in RESERVED_ROLES


def is_workspace(text: str) -> bool:
    """For new ones: older names were free text, and stay valid."""
    return _ROLE.fullmatch(text) is not None


def is_instance(text: str) -> bool:
    return _INSTANCE.fullmatch(text) is not None


def split_name(name: str) -> tuple[str, str | None]:
    """`role:instance` splits at its first colon; a bare role has no instance."""
    role, colon, instance = name.partition(":")
    return role, instance if colon else None


def is_loopback(host: str) -> bool:
    """Only this machine can reach that host."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def new_task_id() -> TaskId:
    return TaskId(_uuid7())


def new_file_id() -> FileId:
    """128 random bits: whoever knows it was told it."""
    return FileId(secrets.token_hex(16))


def is_file_id(text: str) -> bool:
    return _FILE.fullmatch(text) is not None


def new_context_id() -> str:
    return _uuid7()


def _uuid7() -> str:
    """The time prefix keeps inserts at the right edge of an index; the 74 random bits make the id unguessable."""
    if not _random:
        _random.extend(_PARTS.findall(os.urandom(_FETCH_SIZE).hex()))
    first, variant, second, last = _random.pop()
    return f"{_time_prefix(time.time_ns() // 1_000_000)}{first}-{_VARIANT[variant]}{second}-{last}"


@lru_cache(maxsize=1)
def _time_prefix(millis: int) -> str:
    """Many ids are made within a millisecond."""
    digits = f"{millis:012x}"
    return f"{digits[:8]}-{digits[8:]}-7"


_FETCH_SIZE = 10 * 256
"""Bytes: ten for each id. They are fetched for many ids at a time, because each system call costs the same."""
_PARTS = re.compile("(...)(.)(...).(.{12})")
_VARIANT = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}
"""The standard sets two bits of that digit; two are random."""
_random: list[tuple[str, str, str, str]] = []
"""The random parts of the next ids."""
