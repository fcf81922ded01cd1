"""Locks between processes."""

from __future__ import annotations

import os
import stat
import threading
import time
from pathlib import Path

import pytest

from rolecall.system.locks import lock_file, unlock


def test_a_lock_is_one_holders_until_it_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = lock_file(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = len(os.listdir("/proc/self/fd"))
    for within in (0.0, 0.1):
        began = time.monotonic()
        with pytest.raises(BlockingIOError, match="another process"):
            lock_file(path, within=within)
        assert within <= time.monotonic() - began < within + 5
    assert len(os.listdir("/proc/self/fd")) == before
    unlock(held)
    unlock(lock_file(path))


def test_who_waits_gets_it_when_it_is_given_up(tmp_path: Path) -> None:
    held = lock_file(tmp_path / "lock")
    ending = threading.Timer(0.1, unlock, [held])
    ending.start()
    unlock(lock_file(tmp_path / "lock", within=20.0))
    ending.join()


def test_a_file_that_cannot_be_opened_is_no_lock_of_another(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        lock_file(tmp_path / "gone" / "lock", within=60.0)
