"""Background tasks have an owner: a loop that dies comes back, and closing leaves nothing behind."""

from __future__ import annotations

import asyncio

import pytest

from hub.core.supervisor import Supervisor


async def test_a_loop_that_fails_is_started_again_and_said(caplog: pytest.LogCaptureFixture) -> None:
    supervisor, runs, steady = Supervisor(), 0, asyncio.Event()

    async def loop() -> None:
        nonlocal runs
        runs += 1
        if runs < 3:
            raise RuntimeError("boom")
        steady.set()
        await asyncio.sleep(10)

    supervisor.keep_running("shaky", loop)
    await asyncio.wait_for(steady.wait(), 3)
    await supervisor.close()
    assert runs == 3
    assert len([record for record in caplog.records if "background loop failed" in record.message]) == 2


async def test_a_job_that_fails_is_said_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    supervisor = Supervisor()

    async def job() -> None:
        raise RuntimeError("boom")

    await asyncio.wait([supervisor.run_once("job", job())])
    assert "background task failed" in caplog.text
    await supervisor.close()


async def test_closing_waits_until_everything_has_let_go() -> None:
    supervisor, let_go = Supervisor(), False

    async def stubborn() -> None:
        nonlocal let_go
        try:
            await asyncio.sleep(10)
        finally:
            await asyncio.sleep(0.05)
            let_go = True

    task = supervisor.run_once("stubborn", stubborn())
    await asyncio.sleep(0)
    await supervisor.close()
    assert let_go
    assert task.cancelled()
