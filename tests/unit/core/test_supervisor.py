"""The supervisor restarts failed loops, and ends every background task when it closes."""

from __future__ import annotations

import asyncio

import pytest

from hub.core.supervisor import Supervisor


async def test_a_failed_loop_is_restarted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    supervisor, runs, running = Supervisor(), 0, asyncio.Event()

    async def loop() -> None:
        nonlocal runs
        runs += 1
        if runs < 3:
            raise RuntimeError("boom")
        running.set()
        await asyncio.sleep(10)

    supervisor.keep_running("shaky", loop)
    await asyncio.wait_for(running.wait(), 3)
    await supervisor.close()
    assert runs == 3
    assert len([record for record in caplog.records if "background loop failed" in record.message]) == 2


async def test_a_failed_job_is_logged_and_does_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    supervisor = Supervisor()

    async def job() -> None:
        raise RuntimeError("boom")

    await asyncio.wait([supervisor.run_once("job", job())])
    assert "background task failed" in caplog.text
    await supervisor.close()


async def test_closing_waits_until_every_task_has_ended() -> None:
    supervisor, let_go = Supervisor(), False

    async def slow_to_end() -> None:
        nonlocal let_go
        try:
            await asyncio.sleep(10)
        finally:
            await asyncio.sleep(0.05)
            let_go = True

    task = supervisor.run_once("slow_to_end", slow_to_end())
    await asyncio.sleep(0)
    await supervisor.close()
    assert let_go
    assert task.cancelled()
