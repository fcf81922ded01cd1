"""Workers that do not replay: the relay polls their task."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest

from rolecall.errors import WorkerBroke, WorkerFault
from rolecall.model.worker import Health
from tests.flow.conftest import System
from tests.flow.relayed import CUT, REFUSED, end, gap_cursors, texts, words
from tests.helpers.scripted import chunk, status, task
from tests.helpers.watched_engine import Hold

WORKING = task("working")


def minute(system: System) -> None:
    """Watch for workers that are silent for a minute."""
    system.with_bounds(silence=timedelta(seconds=60))
    system.watch()


async def test_a_worker_that_cannot_replay_is_polled_and_the_gap_is_marked(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), chunk("ha", append=False), CUT)
    parts = [{"kind": "text", "text": "ha"}] * 3
    working = task("working", artifacts=[{"artifactId": "a", "parts": parts[:2]}])
    system.forwarder.plan_fetch("echo:a", working, task("completed", artifacts=[{"artifactId": "a", "parts": parts}]))
    got = await system.stream()
    assert texts(await system.get(got[1]["taskId"])) == ["ha"] * 3
    assert gap_cursors(got) == [3, 4]
    assert system.forwarder.asked("attach") == []


async def test_a_stream_that_ends_too_early_is_followed_to_its_end(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task())
    system.forwarder.plan_fetch("echo:a", WORKING, task("completed"))
    got = await system.stream()
    assert end(got[-1]) == ("completed", "")
    assert gap_cursors(got) == []


async def test_a_worker_that_cannot_stream_is_followed_for_a_streaming_caller(system: System) -> None:
    await system.enrol("echo:a", streaming=False)
    system.forwarder.plan("echo:a", task("submitted"))
    done = task("completed", artifacts=[{"artifactId": "a", "parts": [{"kind": "text", "text": "x"}]}])
    system.forwarder.plan_fetch("echo:a", WORKING, done)
    got = await system.stream()
    assert [frame["kind"] for frame in got] == ["task", "status-update", "artifact-update", "status-update"]
    assert not any(frame.get("metadata") for frame in got)


async def test_a_worker_is_polled_with_growing_intervals(system: System) -> None:
    minute(system)
    await system.enrol("echo:a", streaming=False)
    system.forwarder.plan("echo:a", task())
    system.forwarder.plan_fetch("echo:a", *[WORKING] * 11, task("completed"))
    assert end(await system.send()) == ("completed", "")
    times = system.forwarder.times("fetch")
    pauses = [round(later - earlier, 1) for earlier, later in pairwise(times)]
    assert pauses == [0.1, 0.1, 0.2, 0.3, 0.5, 0.8, 1.1, 1.7, 2.0, 2.0, 2.0]


async def test_a_poll_that_was_cut_is_repeated(system: System) -> None:
    minute(system)
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), CUT)
    system.forwarder.plan_fetch("echo:a", CUT, CUT, CUT, task("completed"))
    assert end(await system.send()) == ("completed", "")
    assert system.forwarder.times("fetch") == [0.0, 0.25, 0.5, 0.75]


async def test_a_worker_that_refuses_two_polls_is_gone(system: System) -> None:
    minute(system)
    lease = await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), CUT)
    system.forwarder.plan_fetch("echo:a", REFUSED, REFUSED, task("completed"))
    assert end(await system.send()) == ("failed", "WORKER_LOST")
    assert lease.health is Health.SUSPECT


async def test_a_pause_found_by_polling_ends_the_call(system: System) -> None:
    await system.enrol("echo:a", streaming=False)
    system.forwarder.plan("echo:a", task())
    system.forwarder.plan_fetch("echo:a", WORKING, task("input-required", "which?"))
    assert end(await system.send()) == ("input-required", "")
    assert len(system.forwarder.asked("fetch")) == 2
    await asyncio.sleep(1)
    assert len(system.hub.relays) == 0


async def test_a_polled_task_frees_its_workers_capacity_at_the_end(system: System) -> None:
    lease = await system.enrol("echo:a", streaming=False)
    hold = Hold()
    system.forwarder.plan("echo:a", task())
    system.forwarder.plan_fetch("echo:a", hold, task("completed"))
    pending = asyncio.create_task(system.send())
    await hold.reached.wait()
    assert lease.in_flight == 1
    hold.release()
    await pending
    assert lease.in_flight == 0


# --- signs of life


@pytest.mark.parametrize(
    ("streaming", "failures", "believed"),
    [(True, (), 1), (True, (CUT,), 10), (False, (), None)],
    ids=["it hung up", "its line was cut", "it cannot stream"],
)
async def test_an_unchanged_working_task_is_a_sign_of_life_for(
    system: System, streaming: bool, failures: tuple[WorkerBroke, ...], believed: int | None
) -> None:
    """Agents whose handler crashed leave their task working: their stream ends, and the task never changes again."""
    minute(system)
    await system.enrol("echo:a", streaming=streaming)
    system.forwarder.plan("echo:a", task(), *failures)
    system.forwarder.plan_fetch("echo:a", *[WORKING] * 600, task("completed"))
    began = system.clock.monotonic()
    answer = await system.send()
    if believed is None:
        assert end(answer) == ("completed", "")
        assert system.clock.monotonic() - began > 15 * 60
    else:
        assert end(answer) == ("failed", "WORKER_SILENT")
        # The last accepted sign of life, the silence after it, and the look that finds it.
        least = {1: 60.0, 10: 600 + 60 - 2.0}[believed]
        assert least <= system.clock.monotonic() - began <= least + 3.1


async def test_a_changed_task_is_a_sign_of_life(system: System) -> None:
    minute(system)
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task())
    for number in range(5):
        system.forwarder.plan_fetch("echo:a", 25.0, task("working", f"still at {number}"))
    system.forwarder.plan_fetch("echo:a", task("completed"))
    began = system.clock.monotonic()
    assert end(await system.send()) == ("completed", "")
    assert system.clock.monotonic() - began > 2 * 60


async def test_a_silent_worker_is_polled_after_half_of_the_silence(system: System) -> None:
    minute(system)
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), 3600.0)
    answer = Hold()
    system.forwarder.plan_fetch("echo:a", answer, WORKING, WORKING, WORKING)
    pending = asyncio.create_task(system.send())
    await answer.reached.wait()
    assert system.forwarder.times("fetch") == [pytest.approx(30, abs=0.01)]
    await asyncio.sleep(20)
    assert len(system.forwarder.asked("fetch")) == 1
    answer.release()
    await asyncio.sleep(0.1)
    # Its last sign of life was at 50 s; the next poll is after half a minute of silence.
    await asyncio.sleep(31)
    assert system.forwarder.times("fetch") == [pytest.approx(at, abs=0.2) for at in (30, 80)]
    await asyncio.sleep(600)
    assert end(await pending) == ("failed", "WORKER_SILENT")


async def test_a_silent_worker_whose_task_is_working_is_trusted_for_ten_silences(system: System) -> None:
    minute(system)
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), 3600.0)
    system.forwarder.plan_fetch("echo:a", *[WORKING] * 30)
    began = system.clock.monotonic()
    assert end(await system.send()) == ("failed", "WORKER_SILENT")
    assert 600 < system.clock.monotonic() - began < 665


@pytest.mark.parametrize("probe", [CUT, WorkerFault(-32603, "no")])
async def test_a_silent_worker_whose_poll_fails_stays_silent(system: System, probe: Exception) -> None:
    minute(system)
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), 3600.0)
    system.forwarder.plan_fetch("echo:a", *[probe] * 99)
    began = system.clock.monotonic()
    assert end(await system.send()) == ("failed", "WORKER_SILENT")
    assert system.clock.monotonic() - began == pytest.approx(60.5, abs=0.6)


async def test_a_silent_worker_whose_address_refuses_is_suspect(system: System) -> None:
    minute(system)
    lease = await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), 40.0, status("completed"))
    system.forwarder.plan_fetch("echo:a", *[REFUSED] * 99)
    assert end(await system.send()) == ("completed", "")
    assert (lease.health, lease.reason) == (Health.SUSPECT, "connection refused")


async def test_a_task_that_ended_on_a_dead_connection_ends(system: System) -> None:
    minute(system)
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), 3600.0)
    system.forwarder.plan_fetch("echo:a", task("completed", "done"))
    got = await system.stream()
    assert end(got[-1])[0] == "completed"
    assert gap_cursors(got) == [2]
    await asyncio.sleep(0.1)
    assert system.forwarder.left == ["echo:a"]
    assert len(system.hub.relays) == 0


async def test_a_task_without_a_workers_id_is_not_polled(system: System) -> None:
    system.watch()
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", 3600.0)
    assert end(await system.send()) == ("failed", "WORKER_SILENT")
    assert system.forwarder.asked("fetch") == []


async def test_text_and_state_that_were_found_by_polling_are_logged_once(system: System) -> None:
    await system.enrol("echo:a", streaming=False)
    system.forwarder.plan("echo:a", task())
    system.forwarder.plan_fetch("echo:a", *[task("working", "half way")] * 3, task("completed", "done"))
    got = await system.stream()
    assert [words(frame) for frame in got[1:]] == ["half way", "done"]
