"""Whose a file is, for a process that writes it anew. On Windows nobody is asked: a new file has the rights of its folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

if sys.platform != "win32":
    import pwd


class Owner(NamedTuple):
    """`mode`: what the owner and others may do with the file."""

    user: int
    group: int
    mode: int


def owner_of(path: Path) -> Owner | None:
    """Of a missing file: whoever makes it, or if that is root, the owner of its folder, who alone may read it. None: it is not
    asked.
    """
    if sys.platform == "win32":
        return None
    try:
        found = path.stat()
    except FileNotFoundError:
        folder = path.parent.stat()
        return Owner(folder.st_uid, folder.st_gid, 0o600) if os.geteuid() == 0 else Owner(os.geteuid(), os.getegid(), 0o600)
    return Owner(found.st_uid, found.st_gid, found.st_mode & 0o666)


def give(number: int, owner: Owner | None) -> None:
    """The open file is theirs from now on. PermissionError: this user cannot give it away, and whom it is to belong to could
    not read it.
    """
    if sys.platform == "win32" or owner is None:
        return
    found = os.fstat(number)
    try:
        if (found.st_uid, found.st_gid) != (owner.user, owner.group):
            os.fchown(number, owner.user, owner.group)
    except PermissionError:
        if found.st_uid != owner.user or owner.mode & 0o060:
            raise
    os.fchmod(number, owner.mode)


def give_lock(number: int, owner: Owner | None) -> None:
    """The same for the file of a lock, if this is root, and it is possible. An empty file with one name is no other one."""
    if sys.platform == "win32" or owner is None or os.geteuid() != 0:
        return
    found = os.fstat(number)
    if found.st_size == 0 and found.st_nlink == 1:
        with suppress(OSError):
            os.fchown(number, owner.user, owner.group)


def name_of(user: int) -> str:
    """Their login name."""
    if sys.platform != "win32":
        try:
            return pwd.getpwuid(user).pw_name
        except KeyError:
            pass
    return f"user {user}"


def in_words(path: Path) -> str:
    """A sentence for a user who may not read the file; empty: there is nothing to say."""
    if sys.platform == "win32":
        return ""
    try:
        owner = path.stat().st_uid
    except OSError:
        return ""
    return f" It belongs to {name_of(owner)}, and this process runs as {name_of(os.geteuid())}."


def kept_from(path: Path, theirs: Sequence[Path]) -> str | None:
    """The login name of a user who cannot read the file; None: they can. The user is known by a file of theirs: the first of
    these that there is.
    """
    if sys.platform == "win32":
        return None
    for file in theirs:
        try:
            user = file.stat().st_uid
        except OSError:
            continue
        return None if user == 0 or _may_read(user, path.absolute()) else name_of(user)
    return None


def _may_read(user: int, path: Path) -> bool:
    groups = _groups_of(user)

    def has(at: Path, bit: int) -> bool:
        found = at.stat()
        shift = 6 if found.st_uid == user else 3 if found.st_gid in groups else 0
        return bool(found.st_mode >> shift & bit)

    return has(path, 4) and all(has(folder, 1) for folder in path.parents)


def _groups_of(user: int) -> Sequence[int]:
    """None for a user without a login name."""
    if sys.platform != "win32":
        try:
            known = pwd.getpwuid(user)
            return os.getgrouplist(known.pw_name, known.pw_gid)
        except KeyError:
            pass
    return ()
