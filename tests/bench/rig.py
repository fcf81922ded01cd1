"""The worker, the proxies in front of it, and the load."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from hub.storage import FILE_NAME
from tests.bench import machine
from tests.bench.asking import ask
from tests.bench.figures import Case
from tests.bench.floor import CURSOR_BITS
from tests.bench.machine import Cores, RestRoute
from tests.bench.proxies import FLOOR, FLOOR_FILE, Proxy, StartFunction, compile_c, missing_tools

_C_FILES = ("worker", "load", "beats")
_PAGE = 100


class Missing(Exception):
    """A tool that the benchmark needs is missing."""


@dataclass
class Bench:
    """The worker runs inside the block, and proxies can be started in front of it. Nothing is left running after it."""

    folder: Path
    cores: Cores
    start_functions: Mapping[str, StartFunction]
    worker_port: int = 0
    closing: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Bench:
        missing = missing_tools(self.start_functions)
        if missing:
            raise Missing(f"Missing: {', '.join(missing)}. Run scripts/install-bench-tools.")
        with ExitStack() as closing:
            for program in _C_FILES:
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
            yield [self.start_functions[name](place, self.worker_port) for name in names]

    def plan(self, events: int, interval_us: int) -> None:
        ask(self.worker_port, f"/plan?events={events}&interval_us={interval_us}")

    def served(self) -> tuple[int, int]:
        count = ask(self.worker_port, "/count")
        return count["calls"], count["events"]

    def begin_load(self, place: RestRoute, proxy: Proxy, case: Case) -> subprocess.Popen[str]:
        words = [proxy.port, proxy.path(case.role), case.method, case.connections, int(case.seconds * 1000), case.events]
        words.append(case.events * case.interval_us // 1000)  # paced streams begin at a random time within the previous one
        argv: list[str | Path] = [self.folder / "load", *(str(word) for word in (*words, proxy.calls_with))]
        return place.start(argv, log="load", measured=False, stdin=subprocess.PIPE)

    def load(self, proxy: Proxy, case: Case) -> dict[str, Any]:
        """Run the load and return its result. `cpu` is the proxy's CPU time during the measurement."""
        with self.place() as place:
            process = self.begin_load(place, proxy, case)
            machine.expect(process, "warm")
            cpu = machine.cpu_seconds(proxy.pid)
            machine.send_line(process)
            machine.expect(process, "over")
            cpu = machine.cpu_seconds(proxy.pid) - cpu
            machine.send_line(process)
            answer: dict[str, Any] = json.loads(machine.first_line(process))
        return {**answer, "cpu": cpu}


class StoredTasks(Protocol):
    """What a proxy has stored."""

    def total(self) -> int: ...

    def newest(self, count: int) -> list[dict[str, Any]]:
        """The id, the state and the number of events of up to so many tasks."""

    def fetch(self, task: str, role: str) -> dict[str, Any]:
        """The whole task, or an error."""


def stored_by(proxy: Proxy) -> StoredTasks | None:
    if proxy.name == FLOOR:
        return FloorTasks(proxy.data / FLOOR_FILE)
    return HubTasks(proxy) if proxy.is_hub else None


class HubTasks:
    """What the hub has stored, read over its HTTP API; its lists are not counted to the end."""

    def __init__(self, hub: Proxy) -> None:
        self._hub = hub

    def total(self) -> int:
        ((total,),) = _read_rows(self._hub.data / FILE_NAME, "select coalesce(sum(tasks), 0) from tally")
        return int(total)

    def newest(self, count: int) -> list[dict[str, Any]]:
        page: list[dict[str, Any]] = self._get(f"/registry/tasks?limit={min(count, _PAGE)}")["tasks"]
        return page

    def fetch(self, task: str, role: str) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": task}}
        answer = ask(self._hub.port, self._hub.path(role), "POST", body, token=self._hub.calls_with)
        found: dict[str, Any] = answer.get("result") or {"error": answer.get("error")}
        return found

    def _get(self, path: str) -> Any:
        return ask(self._hub.port, path, token=self._hub.calls_with)


class FloorTasks:
    """What the floor has stored, read from its database: it answers no questions."""

    def __init__(self, database: Path) -> None:
        self._database = database

    def total(self) -> int:
        ((total,),) = self._rows("select count(*) from task")
        return int(total)

    def newest(self, count: int) -> list[dict[str, Any]]:
        """Every event is counted: the row of a task only repeats what the floor itself has counted."""
        counts = "select place >> ? as key, count(*) as events from event where place > ? group by place >> ?"
        first = self.total() - count
        sql = f"select id, state, coalesce(events, 0) from task left join ({counts}) using (key) where key > ?"
        rows = self._rows(sql, CURSOR_BITS, (first + 1) << CURSOR_BITS, CURSOR_BITS, first)
        return [{"id": task, "state": state, "events": events} for task, state, events in rows]

    def fetch(self, task: str, role: str) -> dict[str, Any]:
        sql = "select body from event where place >> ? = (select key from task where id = ?) order by place"
        events = [json.loads(body) for (body,) in self._rows(sql, CURSOR_BITS, task)]
        if not events or {event["id" if event["kind"] == "task" else "taskId"] for event in events} != {task}:
            return {"error": f"{len(events)} events, not all of them of {task}"}
        parts = [part for event in events for one in _artifacts(event) for part in one["parts"]]
        return {"id": task, "status": events[-1]["status"], "artifacts": [{"parts": parts}]}

    def _rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return _read_rows(self._database, sql, *values)


def _read_rows(database: Path, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=10)) as db:
        return db.execute(sql, values).fetchall()


def _artifacts(event: dict[str, Any]) -> list[dict[str, Any]]:
    return [event["artifact"]] if "artifact" in event else event.get("artifacts", [])
