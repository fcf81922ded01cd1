"""How long a hub does not answer other requests while it handles a hostile one."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.helpers.processes import HubProcess

MAX_SECONDS = 0.2
_RATIO = 2.0
_PAUSE = 0.02
_REQUEST = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
_TICKS = os.sysconf("SC_CLK_TCK")


class LatencyProbe:
    """Polls the hub's liveness. A stall counts only as far as the hub used the CPU during it: time that the machine gave to
    other processes is not the hub's fault.
    """

    def __init__(self, hub: HubProcess) -> None:
        self._hub = hub
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.worst = 0.0
        self.failure = ""

    def reset(self) -> None:
        self.worst = 0.0

    def check(self) -> None:
        assert not self.failure, self.failure
        print(f"longest stall of the hub: {1000 * self.worst:.0f} ms")
        assert self.worst < MAX_SECONDS * _RATIO

    def _run(self) -> None:
        try:
            while not self._stop.wait(_PAUSE):
                self._poll()
        except OSError as failure:
            self.failure = f"the hub did not answer: {failure}"

    def _poll(self) -> None:
        with socket.create_connection(("127.0.0.1", self._hub.port), timeout=20) as connection:
            while not self._stop.wait(_PAUSE):
                began, cpu_before = time.monotonic(), cpu_seconds(self._hub.pid)
                connection.sendall(_REQUEST)
                if not connection.recv(4096).startswith(b"HTTP/1.1 200"):
                    return
                stalled = min(time.monotonic() - began, cpu_seconds(self._hub.pid) - cpu_before)
                self.worst = max(self.worst, stalled)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(30)


def cpu_seconds(pid: int) -> float:
    """The CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_of(pid: int) -> float:
    """The resident memory of a process, in megabytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")
