"""The worker, what stands in front of it, and the load."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench import machine
from tests.bench.asking import ask
from tests.bench.figures import Case
from tests.bench.machine import Cores, Place
from tests.bench.proxies import STARTERS, Proxy, compile_c, missing_tools

_PAGE = 100


class Missing(Exception):
    """A tool that the benchmark needs is not there."""


@dataclass
class Rig:
    """Everything in place. Use as a context manager; nothing of it is left running."""

    folder: Path
    cores: Cores
    names: Sequence[str]
    worker_port: int = 0
    proxies: list[Proxy] = field(default_factory=list)
    closing: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Rig:
        missing = missing_tools()
        if missing:
            raise Missing(f"Not there: {', '.join(missing)}. Run scripts/install-bench-tools.")
        with ExitStack() as closing:
            place = Place(self.folder, self.cores, closing)
            for program in ("worker", "load"):
                compile_c(program, self.folder)
            process = place.start([self.folder / "worker"], log="worker", measured=False, stdin=subprocess.PIPE)
            self.worker_port = int(machine.first_line(process))
            self.proxies = [STARTERS[name](place, self.worker_port) for name in self.names]
            self.closing = closing.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.close()

    def plan(self, events: int, interval_us: int) -> None:
        ask(self.worker_port, f"/plan?events={events}&interval_us={interval_us}")

    def served(self) -> tuple[int, int]:
        count = ask(self.worker_port, "/count")
        return count["calls"], count["events"]

    def load(self, proxy: Proxy, case: Case) -> dict[str, Any]:
        """Call, and say what came of it. `cpu` is what the proxy used while the load measured."""
        call = [proxy.port, proxy.path, case.method, case.connections, int(case.seconds * 1000), case.events, proxy.calls_with]
        with ExitStack() as closing:
            place = Place(self.folder, self.cores, closing)
            process = place.start([self.folder / "load", *(str(part) for part in call)], log="load", measured=False)
            machine.expect(process, "warm")
            cpu = machine.cpu_seconds(proxy.pid)
            machine.expect(process, "over")
            cpu = machine.cpu_seconds(proxy.pid) - cpu
            answer: dict[str, Any] = json.loads(machine.first_line(process))
        return {**answer, "cpu": cpu}


class StoredTasks:
    """The hub's own word on what it has stored, asked over HTTP as anybody would."""

    def __init__(self, hub: Proxy) -> None:
        self._hub = hub

    def total(self) -> int:
        total: int = self._get("/registry/tasks?limit=1")["total"]
        return total

    def newest(self) -> list[dict[str, Any]]:
        page: list[dict[str, Any]] = self._get(f"/registry/tasks?limit={_PAGE}")["tasks"]
        return page

    def fetch(self, task: str) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": task}}
        answer = ask(self._hub.port, self._hub.path, "POST", body, token=self._hub.calls_with)
        found: dict[str, Any] = answer.get("result") or {"error": answer.get("error")}
        return found

    def _get(self, path: str) -> Any:
        return ask(self._hub.port, path, token=self._hub.calls_with)
