"""The worker, what stands in front of it, and the load."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench import machine
from tests.bench.asking import ask
from tests.bench.figures import Case
from tests.bench.machine import Cores, RestRoute
from tests.bench.proxies import Proxy, Starter, compile_c, missing_tools

_PROGRAMS = ("worker", "load", "beats")
_PAGE = 100


class Missing(Exception):
    """A tool that the benchmark needs is not there."""


@dataclass
class Rig:
    """The worker runs, and what is to be measured can be put in front of it. Nothing of it is left running."""

    folder: Path
    cores: Cores
    starters: Mapping[str, Starter]
    worker_port: int = 0
    closing: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Rig:
        missing = missing_tools(self.starters)
        if missing:
            raise Missing(f"Not there: {', '.join(missing)}. Run scripts/install-bench-tools.")
        with ExitStack() as closing:
            for program in _PROGRAMS:
                compile_c(program, self.folder)
            place = RestRoute(self.folder, self.cores, closing)
            process = place.start([self.folder / "worker"], log="worker", measured=False, stdin=subprocess.PIPE)
            self.worker_port = int(machine.first_line(process))
            self.closing = closing.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.close()

    @contextmanager
    def place(self) -> Iterator[RestRoute]:
        """For processes that end with the block."""
        with ExitStack() as closing:
            yield RestRoute(self.folder, self.cores, closing)

    @contextmanager
    def started(self, names: Sequence[str]) -> Iterator[list[Proxy]]:
        with self.place() as place:
            yield [self.starters[name](place, self.worker_port) for name in names]

    def plan(self, events: int, interval_us: int) -> None:
        ask(self.worker_port, f"/plan?events={events}&interval_us={interval_us}")

    def served(self) -> tuple[int, int]:
        count = ask(self.worker_port, "/count")
        return count["calls"], count["events"]

    def begin_load(self, place: RestRoute, proxy: Proxy, case: Case) -> subprocess.Popen[str]:
        words = [proxy.port, proxy.path(case.role), case.method, case.connections, int(case.seconds * 1000), case.events]
        words.append(case.events * case.interval_us // 1000)  # paced streams begin at any moment of the one before
        argv: list[str | Path] = [self.folder / "load", *(str(word) for word in (*words, proxy.calls_with))]
        return place.start(argv, log="load", measured=False, stdin=subprocess.PIPE)

    def load(self, proxy: Proxy, case: Case) -> dict[str, Any]:
        """Call, and say what came of it. `cpu` is what the proxy used while the load measured."""
        with self.place() as place:
            process = self.begin_load(place, proxy, case)
            machine.expect(process, "warm")
            cpu = machine.cpu_seconds(proxy.pid)
            machine.tell(process)
            machine.expect(process, "over")
            cpu = machine.cpu_seconds(proxy.pid) - cpu
            machine.tell(process)
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

    def fetch(self, task: str, role: str) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": task}}
        answer = ask(self._hub.port, self._hub.path(role), "POST", body, token=self._hub.calls_with)
        found: dict[str, Any] = answer.get("result") or {"error": answer.get("error")}
        return found

    def _get(self, path: str) -> Any:
        return ask(self._hub.port, path, token=self._hub.calls_with)
