"""Disks that stop accepting writes, and accept them again."""

from __future__ import annotations

import errno
import resource
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.syncs.stored import Stored, read_still
from tests.acceptance.syncs.words import word
from tests.helpers.processes import ROLECALL, HubProcess, start_hub

OWN_MOUNTS = ("unshare", "--map-root-user", "--mount")
_MOUNT_AND_RUN = 'mount -t tmpfs -o size=8m tmpfs "$ROLECALL_DATA_DIR" && exec "$@"'
_TTL, _HEARTBEAT = 4, 0.5
_PIECE = bytes(4096)


def check_mounts(folder: Path) -> None:
    """Skip if the system does not allow private mounts. This is a permission, not a tool that could be installed."""
    command = [*OWN_MOUNTS, "mount", "-t", "tmpfs", "tmpfs", str(folder)]
    if shutil.which("unshare") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("this user may not mount a file system of its own")


class Room(ABC):
    """The disk of one hub's database."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    full = False
    """Small writes pass: the hub has kept room for them."""

    @abstractmethod
    def start(self, *, silence: float = 5) -> HubProcess: ...

    @abstractmethod
    def take(self, hub: HubProcess) -> None:
        """Make the hub's writes fail from now on."""

    @abstractmethod
    def give_back(self, hub: HubProcess) -> None: ...

    def stored(self, hub: HubProcess) -> Stored:
        """The database while the hub runs. The hub is paused during the copy, so that the copy is consistent."""
        hub.pause()
        try:
            return read_still(self.seen_from_outside(hub), self.folder / f"copy-{word()}")
        finally:
            hub.resume()

    def seen_from_outside(self, hub: HubProcess) -> Path:
        return hub.data_dir


class SmallDisk(Room):
    """A private file system that only the hub sees, filled completely: ENOSPC."""

    full = True

    def start(self, *, silence: float = 5) -> HubProcess:
        data = self.folder / "small"
        data.mkdir()
        check_mounts(data)
        argv = (*OWN_MOUNTS, "sh", "-c", _MOUNT_AND_RUN, "sh", *ROLECALL, "serve")
        return start_hub(
            data,
            log=self.folder / "hub.log",
            argv=argv,
            lease_ttl=_TTL,
            heartbeat=_HEARTBEAT,
            worker_silence=silence,
            disk_reserve="2MiB",
        )

    def take(self, hub: HubProcess) -> None:
        try:
            with (self.seen_from_outside(hub) / "fill").open("wb", buffering=0) as fill_file:
                while True:
                    fill_file.write(_PIECE)
        except OSError as error:
            assert error.errno == errno.ENOSPC

    def give_back(self, hub: HubProcess) -> None:
        (self.seen_from_outside(hub) / "fill").unlink()

    def seen_from_outside(self, hub: HubProcess) -> Path:
        return Path(f"/proc/{hub.pid}/root{hub.data_dir}")


class ReadOnlyDisk(Room):
    """Every write to a file fails, also to the hub's log: EFBIG, which SQLite handles like a disk that has become read-only."""

    def start(self, *, silence: float = 5) -> HubProcess:
        return start_hub(self.folder / "hub", lease_ttl=_TTL, heartbeat=_HEARTBEAT, worker_silence=silence)

    def take(self, hub: HubProcess) -> None:
        _limit(hub, 0)

    def give_back(self, hub: HubProcess) -> None:
        _limit(hub, resource.RLIM_INFINITY)


def _limit(hub: HubProcess, size: int) -> None:
    """Set the largest file size that the hub may write. The hard limit stays, so that it can be raised again."""
    maximum = resource.prlimit(hub.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(hub.pid, resource.RLIMIT_FSIZE, (size, maximum))


ROOMS: dict[str, Callable[[Path], Room]] = {"a full disk": SmallDisk, "a disk that takes no writes": ReadOnlyDisk}
