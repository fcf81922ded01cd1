"""How long a hub answers nobody else while it chews on something."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.helpers.processes import HubProcess

MOST = 0.2
_SLACK = 2.0
_PAUSE = 0.02
_ASK = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
_TICKS = os.sysconf("SC_CLK_TCK")


class Pulse:
    """Asks again and again whether the hub lives. A stall counts as far as the hub was working during it: what the machine
    gave to others in that time is not the hub's fault.
    """

    def __init__(self, hub: HubProcess) -> None:
        self._hub = hub
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.worst = 0.0
        self.failure = ""

    def forget(self) -> None:
        self.worst = 0.0

    def check(self) -> None:
        assert not self.failure, self.failure
        print(f"longest stall of the hub: {1000 * self.worst:.0f} ms")
        assert self.worst < MOST * _SLACK

    def _run(self) -> None:
        try:
            while not self._stop.wait(_PAUSE):
                self._feel()
        except OSError as failure:
            self.failure = f"the hub did not answer: {failure}"

    def _feel(self) -> None:
        with socket.create_connection(("127.0.0.1", self._hub.port), timeout=20) as line:
            while not self._stop.wait(_PAUSE):
                began, worked = time.monotonic(), cpu_seconds(self._hub.pid)
                line.sendall(_ASK)
                if not line.recv(4096).startswith(b"HTTP/1.1 200"):
                    return
                stalled = min(time.monotonic() - began, cpu_seconds(self._hub.pid) - worked)
                self.worst = max(self.worst, stalled)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(30)


def cpu_seconds(pid: int) -> float:
    """What a process has computed so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident(pid: int) -> float:
    """Its memory in megabytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")
