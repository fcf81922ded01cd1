"""A role of ten real workers, one of which fails at once."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.helpers.client import text_message
from tests.helpers.processes import HubProcess, start_hub, start_worker

CALLS, MINUTE = 2_000, 60.0
WORKER = "tests.acceptance.workers:broken"


class EvenLoad:
    """Calls to the role at a steady rate, however long each takes."""

    def __init__(self, hub: HubProcess, http: httpx.AsyncClient) -> None:
        self._hub = hub
        self._http = http
        self.calls: list[asyncio.Task[str]] = []

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self.calls.append(asyncio.create_task(self._call()))
            await asyncio.sleep(MINUTE / CALLS)

    async def _call(self) -> str:
        """The end of its task."""
        body = {"jsonrpc": "2.0", "id": "1", "method": "message/send", "params": text_message("hi")}
        answer: dict[str, Any] = (await self._http.post(f"{self._hub.url}/agents/broken/", json=body)).json()
        return str(answer["result"]["status"]["state"])

    async def state(self) -> str:
        return str((await self._http.get(f"{self._hub.url}/registry/agents/broken:bad")).json()["state"])


@pytest.mark.soak
@pytest.mark.timeout(300)
async def test_few_calls_reach_a_worker_that_fails_at_once_and_it_is_back_a_minute_after_it_is_mended(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    mark.touch()
    runs = {name: tmp_path / f"{name}.runs" for name in (*(f"w{n}" for n in range(9)), "bad")}

    def reached(name: str) -> int:
        return len(runs[name].read_text().splitlines()) if runs[name].exists() else 0

    with ExitStack() as started:
        hub = started.enter_context(start_hub(tmp_path / "hub"))
        for name, its_runs in runs.items():
            env = {"RUNS": str(its_runs), **({"BROKEN": str(mark)} if name == "bad" else {})}
            started.enter_context(start_worker(WORKER, f"broken:{name}", hub.url, log=tmp_path / f"{name}.log", env=env))
        pool = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(trust_env=False, timeout=30, limits=pool) as http:
            load = EvenLoad(hub, http)
            state = StateWatch(load)
            began = time.monotonic()
            await load.until(lambda: state.now == "failing")
            found_out, earlier, before = time.monotonic(), len(load.calls), reached("bad")
            await load.until(lambda: len(load.calls) >= earlier + CALLS)
            reached_it, took = reached("bad") - before, time.monotonic() - found_out
            mark.unlink()
            mended = time.monotonic()
            await load.until(lambda: state.now == "ready")
            back = time.monotonic() - mended
            outcomes = Counter(await asyncio.gather(*load.calls))
            state.stop()
    print(
        f"found out after {found_out - began:.1f} s and {before} calls of {earlier}; then {reached_it} of {CALLS} calls "
        f"in {took:.0f} s reached it; back {back:.1f} s after it was mended; outcomes: {dict(outcomes)}"
    )
    assert reached_it <= 0.02 * CALLS
    assert back <= 65
    assert set(outcomes) == {"completed", "failed"}
    assert outcomes["failed"] <= before + 0.02 * CALLS + 10


class StateWatch:
    """The state of the bad worker, asked for again and again."""

    def __init__(self, load: EvenLoad) -> None:
        self.now = ""
        self._load = load
        self._task = asyncio.create_task(self._poll())

    def stop(self) -> None:
        self._task.cancel()

    async def _poll(self) -> None:
        while True:
            self.now = await self._load.state()
            await asyncio.sleep(0.05)
