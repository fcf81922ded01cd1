"""A seeded run of calls and faults against real processes. The seed fixes the plan; the timing depends on the machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import httpx

from tests.acceptance.faults.caller import Caller
from tests.acceptance.faults.history import History, Record
from tests.helpers.client import get_task
from tests.helpers.processes import HubProcess, Process, free_port, is_live, start_hub, start_worker, wait_for
from tests.helpers.tcp_relay import TcpRelay

WORKERS = "tests.acceptance.workers"
SETTINGS = {"lease_ttl": 4, "heartbeat": 0.5, "worker_silence": 4, "keep_alive": 1}
PATIENCE = 45.0
_AT_ONCE = 8

StartHub = Callable[[Path, int], HubProcess]


def plain_hub(folder: Path, port: int) -> HubProcess:
    return start_hub(folder, port=port, **SETTINGS)


class Storm:
    def __init__(
        self,
        folder: Path,
        seed: int,
        *,
        seconds: float,
        faults: Sequence[str] | None = None,
        start: StartHub = plain_hub,
        patience: float = PATIENCE,
    ) -> None:
        self._folder = folder
        self._seconds = seconds
        self._start_hub = start
        self._patience = patience
        self._rng = Random(seed)
        self._port = free_port()
        self._hub: HubProcess | None = None
        self._workers: dict[str, Process] = {}
        self.history = History(seed)
        self._kinds = list(faults if faults is not None else FAULTS)

    def run(self) -> History:
        self._hub = self._start_hub(self._folder / "hub", self._port)
        try:
            for name in ("counter:a", "counter:b", "same:a", "same:b"):
                self._start_worker(name)
            for name in self._workers:
                wait_for(lambda name=name: is_live(f"http://127.0.0.1:{self._port}", name))
            with TcpRelay(("127.0.0.1", self._port)) as proxy:
                self._run_calls(proxy)
            self._fetch_every_task()
        finally:
            for process in (*self._workers.values(), self._hub):
                process.end()
        self.history.run_counts = self._count_runs()
        return self.history

    def _run_calls(self, proxy: TcpRelay) -> None:
        stop = threading.Event()
        plan = [self._plan_call(n) for n in range(int(self._seconds * 4))]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            calls = [pool.submit(self._call, proxy, record, stop) for record in plan]
            deadline = time.monotonic() + self._seconds
            while time.monotonic() < deadline:
                time.sleep(self._rng.uniform(0.2, 1.0))
                if self._kinds:
                    kind = self._rng.choice(self._kinds)
                    self.history.faults.append(kind)
                    FAULTS[kind](self, proxy)
            stop.set()
            for call in calls:
                call.result()
        self.history.records = [record for record in plan if record.message_id]

    def _plan_call(self, n: int) -> Record:
        role = self._rng.choice(("counter", "same"))
        return Record(f"m-{self.history.seed}-{n}", role, self._rng.randint(1, 60), self._rng.random() < 0.7)

    def _call(self, proxy: TcpRelay, record: Record, stop: threading.Event) -> None:
        if stop.is_set():
            record.message_id = ""
            return
        Caller(proxy.url, record, interval=0.02, patience=self._patience).run()

    def _fetch_every_task(self) -> None:
        assert self._hub is not None
        for record in self.history.records:
            if record.task:
                try:
                    record.answer = get_task(self._hub.url, record.task)
                except (KeyError, httpx.HTTPError):
                    record.answer = {}

    def _count_runs(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        runs = self._folder / "runs"
        for line in runs.read_text().splitlines() if runs.exists() else ():
            message = line.split()[0]
            counts[message] = counts.get(message, 0) + 1
        return counts

    # --- processes

    def _start_worker(self, name: str) -> None:
        assert self._hub is not None
        log = self._folder / f"{name.replace(':', '-')}.log"
        source, env = f"{WORKERS}:{name.partition(':')[0]}", {"RUNS": str(self._folder / "runs")}
        self._workers[name] = start_worker(source, name, self._hub.url, log=log, env=env, enrolled=False)

    def _some_worker(self) -> str:
        return self._rng.choice(sorted(self._workers))

    def kill_worker(self, proxy: TcpRelay) -> None:
        name = self._some_worker()
        self._workers[name].kill9()
        self._start_worker(name)

    def stop_worker(self, proxy: TcpRelay) -> None:
        name = self._some_worker()
        self._workers[name].end()
        self._start_worker(name)

    def pause_worker(self, proxy: TcpRelay) -> None:
        worker = self._workers[self._some_worker()]
        worker.pause()
        time.sleep(self._rng.uniform(0.2, 1.5))
        worker.resume()

    def kill_hub(self, proxy: TcpRelay) -> None:
        assert self._hub is not None
        self._hub.kill9()
        time.sleep(self._rng.uniform(0, 0.5))
        self._hub = self._start_hub(self._folder / "hub", self._port)

    def stop_hub(self, proxy: TcpRelay) -> None:
        assert self._hub is not None
        self._hub.stop(15)
        self._hub = self._start_hub(self._folder / "hub", self._port)

    def pause_hub(self, proxy: TcpRelay) -> None:
        assert self._hub is not None
        self._hub.pause()
        time.sleep(self._rng.uniform(0.2, 2))
        self._hub.resume()

    def cut_connection(self, proxy: TcpRelay) -> None:
        proxy.cut()

    def half_close_connection(self, proxy: TcpRelay) -> None:
        proxy.half_close()

    def stop_traffic(self, proxy: TcpRelay) -> None:
        proxy.stall()
        time.sleep(self._rng.uniform(0.2, 1.5))
        proxy.flow()

    def slow_connection(self, proxy: TcpRelay) -> None:
        proxy.delay(0.01)
        time.sleep(self._rng.uniform(0.2, 1))
        proxy.delay(0)


FAULTS: dict[str, Callable[[Storm, TcpRelay], None]] = {
    "kill worker": Storm.kill_worker,
    "stop worker": Storm.stop_worker,
    "pause worker": Storm.pause_worker,
    "kill hub": Storm.kill_hub,
    "stop hub": Storm.stop_hub,
    "pause hub": Storm.pause_hub,
    "cut connection": Storm.cut_connection,
    "half-close connection": Storm.half_close_connection,
    "stop traffic": Storm.stop_traffic,
    "slow connection": Storm.slow_connection,
}
