"""Ways in which a hub's disk stops taking writes, and takes them again."""

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
_MOUNTED = 'mount -t tmpfs -o size=8m tmpfs "$ROLECALL_DATA_DIR" && exec "$@"'
_TTL, _HEARTBEAT = 4, 0.5
_PIECE = bytes(4096)


def check_mounts(folder: Path) -> None:
    """Not every system lets its users mount things that only they see. That is no tool that could be installed."""
    trial = [*OWN_MOUNTS, "mount", "-t", "tmpfs", "tmpfs", str(folder)]
    if shutil.which("unshare") is None or subprocess.run(trial, capture_output=True).returncode:
        pytest.skip("this user may not mount a file system of its own")


class Room(ABC):
    """The place of one hub's database."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def start(self, *, silence: float = 5) -> HubProcess: ...

    @abstractmethod
    def take(self, hub: HubProcess) -> None:
        """From now on what the hub wants to write fails."""

    @abstractmethod
    def give_back(self, hub: HubProcess) -> None: ...

    def stored(self, hub: HubProcess) -> Stored:
        """What there is while the hub lives. It stands still meanwhile, so that the copy is of one moment."""
        hub.pause()
        try:
            return read_still(self.seen_from_outside(hub), self.folder / f"copy-{word()}")
        finally:
            hub.resume()

    def seen_from_outside(self, hub: HubProcess) -> Path:
        return hub.data_dir


class SmallDisk(Room):
    """A file system of its own, seen by the hub alone, that is filled to the last byte: ENOSPC."""

    def start(self, *, silence: float = 5) -> HubProcess:
        data = self.folder / "small"
        data.mkdir()
        check_mounts(data)
        argv = (*OWN_MOUNTS, "sh", "-c", _MOUNTED, "sh", *ROLECALL, "serve")
        return start_hub(
            data, log=self.folder / "hub.log", argv=argv, lease_ttl=_TTL, heartbeat=_HEARTBEAT, worker_silence=silence
        )

    def take(self, hub: HubProcess) -> None:
        try:
            with (self.seen_from_outside(hub) / "ballast").open("wb", buffering=0) as ballast:
                while True:
                    ballast.write(_PIECE)
        except OSError as error:
            assert error.errno == errno.ENOSPC

    def give_back(self, hub: HubProcess) -> None:
        (self.seen_from_outside(hub) / "ballast").unlink()

    def seen_from_outside(self, hub: HubProcess) -> Path:
        return Path(f"/proc/{hub.pid}/root{hub.data_dir}")


class Unwritable(Room):
    """Every write to a file fails, also to the hub's own log: EFBIG, which SQLite takes as it takes a disk that has become
    read-only under an open file.
    """

    def start(self, *, silence: float = 5) -> HubProcess:
        return start_hub(self.folder / "hub", lease_ttl=_TTL, heartbeat=_HEARTBEAT, worker_silence=silence)

    def take(self, hub: HubProcess) -> None:
        _limit(hub, 0)

    def give_back(self, hub: HubProcess) -> None:
        _limit(hub, resource.RLIM_INFINITY)


def _limit(hub: HubProcess, size: int) -> None:
    """How large a file it may write; it is raised again, so the hard limit stays."""
    hard = resource.prlimit(hub.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(hub.pid, resource.RLIMIT_FSIZE, (size, hard))


ROOMS: dict[str, Callable[[Path], Room]] = {"a full disk": SmallDisk, "a disk that takes no writes": Unwritable}
