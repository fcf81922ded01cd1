"""A line that is cut: where the worker replays, its stream goes on exactly where it was."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rolecall.errors import InvalidAnswer, WorkerFault
from rolecall.model.principal import LOCAL
from rolecall.model.worker import Health
from tests.flow.conftest import House, proof
from tests.flow.relayed import CUT, REFUSED, end, gaps, reaches, texts, words
from tests.helpers.scripted import chunk, status, task


def minute(house: House) -> None:
    """Workers may be silent for a minute, and are watched."""
    house.with_bounds(silence=timedelta(seconds=60))
    house.watch()


async def test_a_cut_stream_is_continued_at_the_workers_own_position(house: House) -> None:
    await house.enrol("echo:a", replays=True)
    house.forwarder.plan("echo:a", task(position="b.1"), chunk("ha", append=False, position="b.2"), CUT)
    house.forwarder.plan(
        "echo:a", chunk("ha", position="b.3"), chunk("ha", position="b.4"), status("completed", position="b.5")
    )
    got = await house.stream()
    assert [frame["kind"] for frame in got].count("artifact-update") == 3
    assert [kind for kind, _, _ in house.forwarder.calls] == ["deliver", "attach"]
    assert house.forwarder.calls[1][2].position == "b.2"
    assert gaps(got) == []


async def test_a_stream_that_ended_too_early_is_continued_without_a_gap(house: House) -> None:
    await house.enrol("echo:a", replays=True)
    parts = [{"kind": "text", "text": "x"}]
    house.forwarder.plan("echo:a", task(position="b.1"))
    house.forwarder.plan("echo:a", task("completed", position="b.2", artifacts=[{"artifactId": "a", "parts": parts}]))
    got = await house.stream()
    assert [frame["kind"] for frame in got] == ["task", "artifact-update", "status-update"]
    assert gaps(got) == []


async def test_a_repeated_task_behind_a_cut_may_have_left_something_out(house: House) -> None:
    """Its news are found by comparison: what came and went in between is in no task."""
    await house.enrol("echo:a", replays=True)
    parts = [{"kind": "text", "text": "x"}]
    house.forwarder.plan("echo:a", task(position="b.1"), CUT)
    house.forwarder.plan("echo:a", task("completed", position="b.2", artifacts=[{"artifactId": "a", "parts": parts}]))
    assert gaps(await house.stream()) == [2]


async def test_a_worker_that_recognises_the_message_gets_it_again(house: House) -> None:
    await house.enrol("echo:a", replays=True)
    house.forwarder.plan("echo:a", CUT)
    house.forwarder.plan("echo:a", task(), status("completed"))
    assert end(await house.send()) == ("completed", "")
    first, second = (call[2].send.message_id for call in house.forwarder.calls)
    assert first == second
    assert house.forwarder.asked("deliver") == ["echo:a"] * 2


async def test_a_message_that_did_not_begin_at_a_worker_that_recognises_it_is_repeated_until_it_does(house: House) -> None:
    await house.enrol("echo:a", replays=True)
    for _ in range(2):
        house.forwarder.plan("echo:a", CUT)
    house.forwarder.plan("echo:a", task("completed"))
    assert end(await house.send()) == ("completed", "")
    assert house.forwarder.times("deliver") == [0.0, 0.0, 0.25]


async def test_events_before_a_repeated_task_keep_their_own_position(house: House) -> None:
    """They are stored first, to compare the Task with; a replay from an older position would double them."""
    await house.enrol("echo:a", replays=True)
    again = task("working", position="b.3", artifacts=[{"artifactId": "a", "parts": [{"kind": "text", "text": "x"}]}])
    house.forwarder.plan_together("echo:a", task(position="b.1"), chunk("x", append=False, position="b.2"), again)
    house.forwarder.plan("echo:a", status("completed", position="b.4"))
    assert end(await house.send()) == ("completed", "")
    assert next(args[1].position for args, _ in house.engine.arguments("events.append")) == "b.2"


async def test_a_cut_line_is_tried_every_quarter_of_a_second(house: House) -> None:
    minute(house)
    await house.enrol("echo:a", replays=True)
    house.forwarder.plan("echo:a", task(position="b.1"), CUT)
    for _ in range(3):
        house.forwarder.plan("echo:a", CUT)
    house.forwarder.plan("echo:a", status("completed", position="b.2"))
    assert end(await house.send()) == ("completed", "")
    assert house.forwarder.times("attach") == [0.0, 0.25, 0.5, 0.75]


async def test_a_line_that_stays_cut_is_given_up_after_the_silence(house: House) -> None:
    house.with_bounds(silence=timedelta(seconds=10))
    await house.enrol("echo:a", replays=True)
    house.forwarder.plan("echo:a", task(position="b.1"), CUT)
    for _ in range(50):
        house.forwarder.plan("echo:a", CUT)
    assert end(await house.send()) == ("failed", "WORKER_SILENT")
    assert house.forwarder.times("attach")[-1] == pytest.approx(10.25, abs=0.3)


# --- whose line it is


@pytest.mark.parametrize("replays", [True, False])
async def test_another_process_of_the_workers_name_is_not_asked_for_the_task(house: House, replays: bool) -> None:
    """It does not have it: what the first process had not yet sent is gone."""
    await house.enrol("echo:a", replays=replays)
    sending, hold = await reaches(house, task(position="b.1"), then=(CUT,))
    second = await house.enrol("echo:a", boot="another", replays=replays)
    house.forwarder.plan("echo:a", status("completed", position="b.2"))
    house.forwarder.plan_fetch("echo:a", task("completed"))
    hold.release()
    answer = await sending
    assert end(answer) == ("failed", "WORKER_LOST")
    assert words(answer) == "echo:a has gone, and with it what it had not yet sent."
    assert [kind for kind, _, _ in house.forwarder.calls] == ["deliver"]
    assert second.in_flight == 0


async def test_the_message_is_not_repeated_to_another_process_of_the_workers_name(house: House) -> None:
    await house.enrol("echo:a", replays=True)
    sending, hold = await reaches(house, then=(CUT,))
    await house.enrol("echo:a", boot="another", replays=True)
    house.forwarder.plan("echo:a", task("completed"))
    hold.release()
    assert end(await sending) == ("failed", "WORKER_LOST")
    assert [kind for kind, _, _ in house.forwarder.calls] == ["deliver"]


@pytest.mark.parametrize("replays", [True, False])
async def test_a_worker_that_has_withdrawn_is_not_asked(house: House, replays: bool) -> None:
    lease = await house.enrol("echo:a", replays=replays)
    sending, hold = await reaches(house, task(position="b.1"), then=(CUT,))
    await house.directory.withdraw(LOCAL, lease.worker, proof(lease))
    house.forwarder.plan("echo:a", status("completed", position="b.2"))
    house.forwarder.plan_fetch("echo:a", task("completed"))
    hold.release()
    assert end(await sending) == ("failed", "WORKER_LOST")
    assert [kind for kind, _, _ in house.forwarder.calls] == ["deliver"]


async def test_the_same_process_is_asked_at_its_newest_address(house: House) -> None:
    await house.enrol("echo:a", replays=True)
    sending, hold = await reaches(house, task(position="b.1"), then=(CUT,))
    house.forwarder.plan("echo:a", status("completed", position="b.2"))
    await house.enrol("echo:a", url="http://moved/", replays=True)
    hold.release()
    assert end(await sending) == ("completed", "")
    assert house.forwarder.asked("attach") == ["echo:a"]


# --- what a worker may answer there


async def test_a_worker_that_refuses_twice_within_a_second_is_gone(house: House) -> None:
    minute(house)
    lease = await house.enrol("echo:a", replays=True)
    house.forwarder.plan("echo:a", task(position="b.1"), CUT)
    house.forwarder.plan("echo:a", REFUSED)
    house.forwarder.plan("echo:a", REFUSED)
    got = await house.stream()
    assert end(got[-1]) == ("failed", "WORKER_LOST")
    assert words(got[-1]) == "echo:a is gone: its address refuses connections. What it had not yet sent is gone."
    assert house.forwarder.times("attach") == [0.0, 0.25]
    assert (lease.health, lease.reason) == (Health.SUSPECT, "connection refused")


@pytest.mark.parametrize(("cuts", "outcome"), [(2, ("failed", "WORKER_LOST")), (4, ("completed", ""))])
async def test_two_refusals_more_than_a_second_apart_are_two_bad_moments(
    house: House, cuts: int, outcome: tuple[str, str]
) -> None:
    minute(house)
    await house.enrol("echo:a", replays=True)
    house.forwarder.plan("echo:a", task(position="b.1"), CUT)
    house.forwarder.plan("echo:a", REFUSED)
    for _ in range(cuts):
        house.forwarder.plan("echo:a", CUT)
    house.forwarder.plan("echo:a", REFUSED)
    house.forwarder.plan("echo:a", status("completed", position="b.2"))
    assert end(await house.send()) == outcome


async def test_one_refusal_behind_a_long_silence_is_the_end(house: House) -> None:
    house.with_bounds(silence=timedelta(seconds=10))
    await house.enrol("echo:a", replays=True)
    marking = house.engine.hold("registry.mark")
    house.forwarder.plan("echo:a", task(position="b.1"), CUT)
    house.forwarder.plan("echo:a", REFUSED)
    sending = asyncio.create_task(house.send())
    await marking.reached.wait()
    await asyncio.sleep(11)
    marking.release()
    answer = await sending
    assert end(answer) == ("failed", "WORKER_SILENT")
    assert words(answer) == "echo:a gave no sign of life for 11 s."


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (-32001, "echo:a no longer knows the task. What it had not yet sent is gone."),
        (-32603, "echo:a cannot be asked for the task. What it had not yet sent is gone."),
    ],
)
@pytest.mark.parametrize("replays", [True, False])
async def test_a_worker_that_answers_with_an_error_has_lost_the_task(house: House, code: int, why: str, replays: bool) -> None:
    await house.enrol("echo:a", replays=replays)
    house.forwarder.plan("echo:a", task(position="b.1"), CUT)
    house.forwarder.plan("echo:a", WorkerFault(code, "no"))
    house.forwarder.plan_fetch("echo:a", WorkerFault(code, "no"))
    answer = await house.send()
    assert end(answer) == ("failed", "WORKER_LOST")
    assert words(answer) == why
    assert len(house.forwarder.calls) == 2


async def test_a_worker_whose_streams_end_without_a_word_is_asked_calmly_and_given_up_as_silent(house: House) -> None:
    house.with_bounds(silence=timedelta(seconds=10))
    await house.enrol("echo:a", replays=True)
    house.forwarder.plan("echo:a", task(position="b.1"))
    for _ in range(60):
        house.forwarder.plan("echo:a")
    assert end(await house.send()) == ("failed", "WORKER_SILENT")
    assert house.forwarder.times("attach")[:4] == [0.0, 0.25, 0.5, 0.75]
    assert house.forwarder.times("attach")[-1] == pytest.approx(10.25, abs=0.3)


async def test_streams_that_end_after_less_than_a_second_without_a_word_are_no_sign_of_life(house: House) -> None:
    house.with_bounds(silence=timedelta(seconds=10))
    await house.enrol("echo:a", replays=True)
    house.forwarder.plan("echo:a", task(position="b.1"))
    for _ in range(60):
        house.forwarder.plan("echo:a", 0.9)
    assert end(await house.send()) == ("failed", "WORKER_SILENT")
    assert house.forwarder.times("attach")[-1] == pytest.approx(10.0, abs=1.2)


async def test_streams_that_last_longer_than_a_second_are_a_sign_of_life(house: House) -> None:
    house.with_bounds(silence=timedelta(seconds=10))
    house.watch()
    await house.enrol("echo:a", replays=True)
    house.forwarder.plan("echo:a", task(position="b.1"))
    for _ in range(30):
        house.forwarder.plan("echo:a", 1.1)
    house.forwarder.plan("echo:a", status("completed", position="b.2"))
    assert end(await house.send()) == ("completed", "")
    assert house.forwarder.times("attach")[:3] == [0.0, 1.35, 2.7]


async def test_a_stream_that_opens_is_a_sign_of_life(house: House) -> None:
    house.with_bounds(silence=timedelta(seconds=10))
    house.watch()
    await house.enrol("echo:a", replays=True)
    house.forwarder.plan("echo:a", task(position="b.1"), 8.0, CUT)
    house.forwarder.plan("echo:a", 8.0, status("completed", position="b.2"))
    assert end(await house.send()) == ("completed", "")


async def test_a_stream_that_brings_a_position_alone_has_brought_something(house: House) -> None:
    await house.enrol("echo:a", replays=True)
    house.forwarder.plan("echo:a", task(position="b.1"))
    for number in range(2, 5):
        house.forwarder.plan("echo:a", task(position=f"b.{number}"))
    house.forwarder.plan("echo:a", status("completed", position="b.5"))
    assert end(await house.send()) == ("completed", "")
    assert house.forwarder.times("attach") == [0.0] * 4
    assert [call.position for kind, _, call in house.forwarder.calls if kind == "attach"] == ["b.1", "b.2", "b.3", "b.4"]


async def test_a_stream_that_brings_something_each_time_is_alive(house: House) -> None:
    house.with_bounds(silence=timedelta(seconds=10))
    await house.enrol("echo:a", replays=True)
    house.forwarder.plan("echo:a", task(position="b.1"))
    for number in range(40):
        house.forwarder.plan("echo:a", 0.9, chunk("x", append=number > 0, position=f"c.{number}"))
    house.forwarder.plan("echo:a", status("completed", position="d"))
    answer = await house.send()
    assert end(answer) == ("completed", "")
    assert len(texts(answer)) == 40


async def test_nonsense_on_a_stream_that_is_opened_again_counts(house: House) -> None:
    await house.enrol("echo:a", replays=True)
    house.forwarder.plan("echo:a", task(position="b.1"), CUT)
    for _ in range(3):
        house.forwarder.plan("echo:a", InvalidAnswer("echo:a", "HTML"))
    assert end(await house.send()) == ("failed", "INVALID_AGENT_RESPONSE")
    assert len(house.forwarder.asked("attach")) == 3


async def test_a_question_found_on_a_stream_that_is_opened_again_ends_the_call(house: House) -> None:
    await house.enrol("echo:a", replays=True)
    house.forwarder.plan("echo:a", task(position="b.1"), CUT)
    house.forwarder.plan("echo:a", status("input-required", "which?", position="b.2"))
    assert end(await house.send()) == ("input-required", "")
    await asyncio.sleep(0.1)
    assert len(house.forwarder.calls) == 2
    assert len(house.hub.relays) == 0
