"""What blocks the loop is named with its stack; a machine that slept is not."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import time

import pytest

from rolecall.log import ConsoleFormatter, JsonFormatter
from worker_sdk import watchdog
from worker_sdk.watchdog import LoopWatchdog


def waits_for_a_database(seconds: float) -> None:
    time.sleep(seconds)


async def handle(seconds: float) -> None:
    waits_for_a_database(seconds)


async def run(seconds: float, **limits: float) -> None:
    with LoopWatchdog("echo:a", **limits):
        await asyncio.create_task(handle(seconds), name="handler of task t1")
        await asyncio.sleep(0.1)


async def test_a_handler_that_blocks_is_named_once_with_its_stack(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "worker_sdk")
    await run(0.6, limit=0.2, tick=0.02)
    blocked, again = caplog.records
    assert blocked.levelno == logging.ERROR
    assert "echo:a: handler of task t1 has blocked the loop" in blocked.getMessage()
    assert "waits_for_a_database" in (blocked.stack_info or "")
    assert "runs again" in again.getMessage()
    for formatter in (ConsoleFormatter(colour=False), JsonFormatter()):
        assert "waits_for_a_database" in formatter.format(blocked)
    assert "waits_for_a_database" in json.loads(JsonFormatter().format(blocked))["exception"]
    assert io.StringIO(ConsoleFormatter(colour=False).format(blocked)).readline().endswith("asyncio.to_thread.\n")


async def test_a_handler_that_is_only_slow_is_not(caplog: pytest.LogCaptureFixture) -> None:
    await run(0.15, limit=0.4, tick=0.02)
    with LoopWatchdog("echo:a", limit=0.1, tick=0.02):
        await asyncio.sleep(0.4)
    assert caplog.records == []


async def test_a_machine_that_slept_has_blocked_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock jumps, as after a suspend: for the thread as for the loop."""

    class Clock:
        ahead = 0.0

        def monotonic(self) -> float:
            return time.monotonic() + self.ahead

    clock = Clock()
    monkeypatch.setattr(watchdog, "time", clock)
    with LoopWatchdog("echo:a", limit=0.2, tick=0.02):
        await asyncio.sleep(0.06)
        time.sleep(0.08)  # noqa: ASYNC251  the loop stands still, and the machine with it
        clock.ahead = 3600.0
        time.sleep(0.05)  # noqa: ASYNC251
        await asyncio.sleep(0.06)
    assert caplog.records == []
