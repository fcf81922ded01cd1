"""Workers that cannot be listened to: the relay asks for their task, again and again."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest

from rolecall.errors import WorkerBroke, WorkerFault
from rolecall.model.worker import Health
from tests.flow.conftest import House
from tests.flow.relayed import CUT, REFUSED, end, gaps, texts, words
from tests.helpers.scripted import chunk, status, task
from tests.helpers.watched_engine import Hold

WORKING = task("working")


def minute(house: House) -> None:
    """Workers may be silent for a minute, and are watched."""
    house.with_bounds(silence=timedelta(seconds=60))
    house.watch()


async def test_a_worker_that_cannot_replay_is_asked_and_the_gap_is_marked(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), chunk("ha", append=False), CUT)
    parts = [{"kind": "text", "text": "ha"}] * 3
    working = task("working", artifacts=[{"artifactId": "a", "parts": parts[:2]}])
    house.forwarder.plan_fetch("echo:a", working, task("completed", artifacts=[{"artifactId": "a", "parts": parts}]))
    got = await house.stream()
    assert texts(await house.get(got[1]["taskId"])) == ["ha"] * 3
    assert gaps(got) == [3, 4]
    assert house.forwarder.asked("attach") == []


async def test_a_stream_that_ends_too_early_is_followed_to_its_end(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task())
    house.forwarder.plan_fetch("echo:a", WORKING, task("completed"))
    got = await house.stream()
    assert end(got[-1]) == ("completed", "")
    assert gaps(got) == []


async def test_a_worker_that_cannot_stream_is_followed_for_a_streaming_caller(house: House) -> None:
    await house.enrol("echo:a", streaming=False)
    house.forwarder.plan("echo:a", task("submitted"))
    done = task("completed", artifacts=[{"artifactId": "a", "parts": [{"kind": "text", "text": "x"}]}])
    house.forwarder.plan_fetch("echo:a", WORKING, done)
    got = await house.stream()
    assert [frame["kind"] for frame in got] == ["task", "status-update", "artifact-update", "status-update"]
    assert not any(frame.get("metadata") for frame in got)


async def test_a_worker_is_asked_ever_more_slowly(house: House) -> None:
    minute(house)
    await house.enrol("echo:a", streaming=False)
    house.forwarder.plan("echo:a", task())
    house.forwarder.plan_fetch("echo:a", *[WORKING] * 11, task("completed"))
    assert end(await house.send()) == ("completed", "")
    times = house.forwarder.times("fetch")
    pauses = [round(later - earlier, 1) for earlier, later in pairwise(times)]
    assert pauses == [0.1, 0.1, 0.2, 0.3, 0.5, 0.8, 1.1, 1.7, 2.0, 2.0, 2.0]


async def test_a_worker_whose_line_was_cut_while_it_was_asked_is_asked_again(house: House) -> None:
    minute(house)
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), CUT)
    house.forwarder.plan_fetch("echo:a", CUT, CUT, CUT, task("completed"))
    assert end(await house.send()) == ("completed", "")
    assert house.forwarder.times("fetch") == [0.0, 0.25, 0.5, 0.75]


async def test_a_worker_that_refuses_twice_as_it_is_asked_is_gone(house: House) -> None:
    minute(house)
    lease = await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), CUT)
    house.forwarder.plan_fetch("echo:a", REFUSED, REFUSED, task("completed"))
    assert end(await house.send()) == ("failed", "WORKER_LOST")
    assert lease.health is Health.SUSPECT


async def test_a_question_found_by_asking_ends_the_call(house: House) -> None:
    await house.enrol("echo:a", streaming=False)
    house.forwarder.plan("echo:a", task())
    house.forwarder.plan_fetch("echo:a", WORKING, task("input-required", "which?"))
    assert end(await house.send()) == ("input-required", "")
    assert len(house.forwarder.asked("fetch")) == 2
    await asyncio.sleep(1)
    assert len(house.hub.relays) == 0


async def test_a_worker_that_was_asked_gives_its_place_back_at_the_end(house: House) -> None:
    lease = await house.enrol("echo:a", streaming=False)
    hold = Hold()
    house.forwarder.plan("echo:a", task())
    house.forwarder.plan_fetch("echo:a", hold, task("completed"))
    sending = asyncio.create_task(house.send())
    await hold.reached.wait()
    assert lease.in_flight == 1
    hold.release()
    await sending
    assert lease.in_flight == 0


# --- for how long it is believed


@pytest.mark.parametrize(
    ("streaming", "ends", "believed"),
    [(True, (), 1), (True, (CUT,), 10), (False, (), None)],
    ids=["it hung up", "its line was cut", "it cannot stream"],
)
async def test_a_worker_that_only_says_that_it_works_is_believed_for(
    house: House, streaming: bool, ends: tuple[WorkerBroke, ...], believed: int | None
) -> None:
    """Agents whose handler crashed leave their task at work: their stream ends, and the task never changes again."""
    minute(house)
    await house.enrol("echo:a", streaming=streaming)
    house.forwarder.plan("echo:a", task(), *ends)
    house.forwarder.plan_fetch("echo:a", *[WORKING] * 600, task("completed"))
    began = house.clock.monotonic()
    answer = await house.send()
    if believed is None:
        assert end(answer) == ("completed", "")
        assert house.clock.monotonic() - began > 15 * 60
    else:
        assert end(answer) == ("failed", "WORKER_SILENT")
        # The last sign that was believed, the silence after it, and the look that finds it.
        least = {1: 60.0, 10: 600 + 60 - 2.0}[believed]
        assert least <= house.clock.monotonic() - began <= least + 3.1


async def test_what_changes_is_a_sign_of_life(house: House) -> None:
    minute(house)
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task())
    for number in range(5):
        house.forwarder.plan_fetch("echo:a", 25.0, task("working", f"still at {number}"))
    house.forwarder.plan_fetch("echo:a", task("completed"))
    began = house.clock.monotonic()
    assert end(await house.send()) == ("completed", "")
    assert house.clock.monotonic() - began > 2 * 60


async def test_a_silent_worker_is_asked_after_half_of_the_silence(house: House) -> None:
    minute(house)
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), 3600.0)
    answer = Hold()
    house.forwarder.plan_fetch("echo:a", answer, WORKING, WORKING, WORKING)
    sending = asyncio.create_task(house.send())
    await answer.reached.wait()
    assert house.forwarder.times("fetch") == [pytest.approx(30, abs=0.01)]
    await asyncio.sleep(20)
    assert len(house.forwarder.asked("fetch")) == 1
    answer.release()
    await asyncio.sleep(0.1)
    # It was heard at 50 s; next it is asked when it has been silent for half a minute again.
    await asyncio.sleep(31)
    assert house.forwarder.times("fetch") == [pytest.approx(at, abs=0.2) for at in (30, 80)]
    await asyncio.sleep(600)
    assert end(await sending) == ("failed", "WORKER_SILENT")


async def test_a_silent_worker_that_says_that_it_works_is_believed_for_ten_silences(house: House) -> None:
    minute(house)
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), 3600.0)
    house.forwarder.plan_fetch("echo:a", *[WORKING] * 30)
    began = house.clock.monotonic()
    assert end(await house.send()) == ("failed", "WORKER_SILENT")
    assert 600 < house.clock.monotonic() - began < 665


@pytest.mark.parametrize("probe", [CUT, WorkerFault(-32603, "no")])
async def test_a_silent_worker_that_cannot_say_how_its_task_is_stays_silent(house: House, probe: Exception) -> None:
    minute(house)
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), 3600.0)
    house.forwarder.plan_fetch("echo:a", *[probe] * 99)
    began = house.clock.monotonic()
    assert end(await house.send()) == ("failed", "WORKER_SILENT")
    assert house.clock.monotonic() - began == pytest.approx(60.5, abs=0.6)


async def test_a_silent_worker_whose_address_refuses_is_suspect(house: House) -> None:
    minute(house)
    lease = await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), 40.0, status("completed"))
    house.forwarder.plan_fetch("echo:a", *[REFUSED] * 99)
    assert end(await house.send()) == ("completed", "")
    assert (lease.health, lease.reason) == (Health.SUSPECT, "connection refused")


async def test_a_task_that_has_ended_on_a_dead_line_ends(house: House) -> None:
    minute(house)
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task(), 3600.0)
    house.forwarder.plan_fetch("echo:a", task("completed", "done"))
    got = await house.stream()
    assert end(got[-1])[0] == "completed"
    assert gaps(got) == [2]
    await asyncio.sleep(0.1)
    assert house.forwarder.left == ["echo:a"]
    assert len(house.hub.relays) == 0


async def test_a_worker_that_has_not_named_its_task_is_not_asked_for_it(house: House) -> None:
    house.watch()
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", 3600.0)
    assert end(await house.send()) == ("failed", "WORKER_SILENT")
    assert house.forwarder.asked("fetch") == []


async def test_words_and_a_state_that_were_found_by_asking_are_logged_once(house: House) -> None:
    await house.enrol("echo:a", streaming=False)
    house.forwarder.plan("echo:a", task())
    house.forwarder.plan_fetch("echo:a", *[task("working", "half way")] * 3, task("completed", "done"))
    got = await house.stream()
    assert [words(frame) for frame in got[1:]] == ["half way", "done"]
