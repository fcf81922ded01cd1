"""After a cut connection, the stream of a worker that replays continues exactly where it was."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from rolecall.errors import InvalidAnswer, WorkerFault
from rolecall.model.card import REPLAY_EXTENSION
from rolecall.model.principal import LOCAL
from rolecall.model.worker import Health
from tests.flow.conftest import System, proof
from tests.flow.relayed import CUT, REFUSED, end, gap_cursors, reaches, texts, words
from tests.helpers.scripted import chunk, status, task


def minute(system: System) -> None:
    """Watch for workers that are silent for a minute."""
    system.with_bounds(silence=timedelta(seconds=60))
    system.watch()


async def test_a_cut_stream_is_continued_at_the_workers_own_position(system: System) -> None:
    await system.enrol("echo:a", replays=True)
    system.forwarder.plan("echo:a", task(position="b.1"), chunk("ha", append=False, position="b.2"), CUT)
    system.forwarder.plan(
        "echo:a", chunk("ha", position="b.3"), chunk("ha", position="b.4"), status("completed", position="b.5")
    )
    got = await system.stream()
    assert [frame["kind"] for frame in got].count("artifact-update") == 3
    assert [kind for kind, _, _ in system.forwarder.calls] == ["deliver", "attach"]
    assert system.forwarder.calls[1][2].position == "b.2"
    assert gap_cursors(got) == []


async def test_a_stream_that_ended_too_early_is_continued_without_a_gap(system: System) -> None:
    await system.enrol("echo:a", replays=True)
    parts = [{"kind": "text", "text": "x"}]
    system.forwarder.plan("echo:a", task(position="b.1"))
    system.forwarder.plan("echo:a", task("completed", position="b.2", artifacts=[{"artifactId": "a", "parts": parts}]))
    got = await system.stream()
    assert [frame["kind"] for frame in got] == ["task", "artifact-update", "status-update"]
    assert gap_cursors(got) == []


async def test_a_repeated_task_after_a_cut_is_marked_with_a_gap(system: System) -> None:
    """New content is found by comparison; statuses in between may be lost."""
    await system.enrol("echo:a", replays=True)
    parts = [{"kind": "text", "text": "x"}]
    system.forwarder.plan("echo:a", task(position="b.1"), CUT)
    system.forwarder.plan("echo:a", task("completed", position="b.2", artifacts=[{"artifactId": "a", "parts": parts}]))
    assert gap_cursors(await system.stream()) == [2]


async def test_a_worker_that_recognises_the_message_gets_it_again(system: System) -> None:
    await system.enrol("echo:a", replays=True)
    system.forwarder.plan("echo:a", CUT)
    system.forwarder.plan("echo:a", task(), status("completed"))
    assert end(await system.send()) == ("completed", "")
    first, second = (call[2].send.message_id for call in system.forwarder.calls)
    assert first == second
    assert system.forwarder.asked("deliver") == ["echo:a"] * 2


async def test_a_message_that_did_not_begin_at_a_worker_that_recognises_it_is_repeated_until_it_does(system: System) -> None:
    await system.enrol("echo:a", replays=True)
    for _ in range(2):
        system.forwarder.plan("echo:a", CUT)
    system.forwarder.plan("echo:a", task("completed"))
    assert end(await system.send()) == ("completed", "")
    assert system.forwarder.times("deliver") == [0.0, 0.0, 0.25]


async def test_events_before_a_repeated_task_keep_their_own_position(system: System) -> None:
    """They are stored first, to compare the Task with them; a replay from an older position would duplicate them."""
    await system.enrol("echo:a", replays=True)
    again = task("working", position="b.3", artifacts=[{"artifactId": "a", "parts": [{"kind": "text", "text": "x"}]}])
    system.forwarder.plan_together("echo:a", task(position="b.1"), chunk("x", append=False, position="b.2"), again)
    system.forwarder.plan("echo:a", status("completed", position="b.4"))
    assert end(await system.send()) == ("completed", "")
    assert next(args[1].position for args, _ in system.engine.arguments("events.append")) == "b.2"


async def test_a_cut_connection_is_retried_every_quarter_of_a_second(system: System) -> None:
    minute(system)
    await system.enrol("echo:a", replays=True)
    system.forwarder.plan("echo:a", task(position="b.1"), CUT)
    for _ in range(3):
        system.forwarder.plan("echo:a", CUT)
    system.forwarder.plan("echo:a", status("completed", position="b.2"))
    assert end(await system.send()) == ("completed", "")
    assert system.forwarder.times("attach") == [0.0, 0.25, 0.5, 0.75]


async def test_a_connection_that_stays_cut_is_given_up_after_the_silence(system: System) -> None:
    system.with_bounds(silence=timedelta(seconds=10))
    await system.enrol("echo:a", replays=True)
    system.forwarder.plan("echo:a", task(position="b.1"), CUT)
    for _ in range(50):
        system.forwarder.plan("echo:a", CUT)
    assert end(await system.send()) == ("failed", "WORKER_SILENT")
    assert system.forwarder.times("attach")[-1] == pytest.approx(10.25, abs=0.3)


# --- which process


@pytest.mark.parametrize("replays", [True, False])
async def test_another_process_of_the_workers_name_is_not_called_for_the_task(system: System, replays: bool) -> None:
    """It does not have the task; what the first process had not sent is lost."""
    await system.enrol("echo:a", replays=replays)
    pending, hold = await reaches(system, task(position="b.1"), then=(CUT,))
    second = await system.enrol("echo:a", boot="another", replays=replays)
    system.forwarder.plan("echo:a", status("completed", position="b.2"))
    system.forwarder.plan_fetch("echo:a", task("completed"))
    hold.release()
    answer = await pending
    assert end(answer) == ("failed", "WORKER_LOST")
    assert words(answer) == "echo:a is gone. What it had not sent is lost."
    assert [kind for kind, _, _ in system.forwarder.calls] == ["deliver"]
    assert second.in_flight == 0


async def test_the_message_is_not_repeated_to_another_process_of_the_workers_name(system: System) -> None:
    await system.enrol("echo:a", replays=True)
    pending, hold = await reaches(system, then=(CUT,))
    await system.enrol("echo:a", boot="another", replays=True)
    system.forwarder.plan("echo:a", task("completed"))
    hold.release()
    assert end(await pending) == ("failed", "WORKER_LOST")
    assert [kind for kind, _, _ in system.forwarder.calls] == ["deliver"]


@pytest.mark.parametrize("replays", [True, False])
async def test_a_withdrawn_worker_is_not_called(system: System, replays: bool) -> None:
    lease = await system.enrol("echo:a", replays=replays)
    pending, hold = await reaches(system, task(position="b.1"), then=(CUT,))
    await system.directory.withdraw(LOCAL, lease.worker, proof(lease))
    system.forwarder.plan("echo:a", status("completed", position="b.2"))
    system.forwarder.plan_fetch("echo:a", task("completed"))
    hold.release()
    assert end(await pending) == ("failed", "WORKER_LOST")
    assert [kind for kind, _, _ in system.forwarder.calls] == ["deliver"]


async def test_the_same_process_is_called_at_its_newest_url(system: System) -> None:
    await system.enrol("echo:a", replays=True)
    pending, hold = await reaches(system, task(position="b.1"), then=(CUT,))
    system.forwarder.plan("echo:a", status("completed", position="b.2"))
    await system.enrol("echo:a", url="http://moved/", replays=True)
    hold.release()
    assert end(await pending) == ("completed", "")
    assert system.forwarder.asked("attach") == ["echo:a"]


# --- answers of the worker


async def test_a_worker_that_refuses_twice_within_a_second_is_gone(system: System) -> None:
    minute(system)
    lease = await system.enrol("echo:a", replays=True)
    system.forwarder.plan("echo:a", task(position="b.1"), CUT)
    system.forwarder.plan("echo:a", REFUSED)
    system.forwarder.plan("echo:a", REFUSED)
    got = await system.stream()
    assert end(got[-1]) == ("failed", "WORKER_LOST")
    assert words(got[-1]) == "echo:a is gone: its address refuses connections. What it had not sent is lost."
    assert system.forwarder.times("attach") == [0.0, 0.25]
    assert (lease.health, lease.reason) == (Health.SUSPECT, "connection refused")


@pytest.mark.parametrize(("cut_connections", "outcome"), [(2, ("failed", "WORKER_LOST")), (4, ("completed", ""))])
async def test_two_refusals_more_than_a_second_apart_do_not_end_the_task(
    system: System, cut_connections: int, outcome: tuple[str, str]
) -> None:
    minute(system)
    await system.enrol("echo:a", replays=True)
    system.forwarder.plan("echo:a", task(position="b.1"), CUT)
    system.forwarder.plan("echo:a", REFUSED)
    for _ in range(cut_connections):
        system.forwarder.plan("echo:a", CUT)
    system.forwarder.plan("echo:a", REFUSED)
    system.forwarder.plan("echo:a", status("completed", position="b.2"))
    assert end(await system.send()) == outcome


async def test_one_refusal_after_a_long_silence_ends_the_task(system: System) -> None:
    system.with_bounds(silence=timedelta(seconds=10))
    await system.enrol("echo:a", replays=True)
    system.forwarder.plan("echo:a", task(position="b.1"), CUT)
    system.forwarder.plan("echo:a", 11.0, REFUSED)
    answer = await system.send()
    assert end(answer) == ("failed", "WORKER_SILENT")
    assert words(answer) == "echo:a gave no sign of life for 11 s."


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (-32001, "echo:a no longer knows the task. What it had not sent is lost."),
        (-32603, "echo:a cannot be asked for the task. What it had not sent is lost."),
    ],
)
@pytest.mark.parametrize("replays", [True, False])
async def test_a_worker_that_answers_with_an_error_has_lost_the_task(
    system: System, code: int, why: str, replays: bool
) -> None:
    await system.enrol("echo:a", replays=replays)
    system.forwarder.plan("echo:a", task(position="b.1"), CUT)
    system.forwarder.plan("echo:a", WorkerFault(code, "no"))
    system.forwarder.plan_fetch("echo:a", WorkerFault(code, "no"))
    answer = await system.send()
    assert end(answer) == ("failed", "WORKER_LOST")
    assert words(answer) == why
    assert len(system.forwarder.calls) == 2


async def test_a_worker_whose_streams_end_without_an_event_is_retried_slowly_and_given_up_as_silent(system: System) -> None:
    system.with_bounds(silence=timedelta(seconds=10))
    await system.enrol("echo:a", replays=True)
    system.forwarder.plan("echo:a", task(position="b.1"))
    for _ in range(60):
        system.forwarder.plan("echo:a")
    assert end(await system.send()) == ("failed", "WORKER_SILENT")
    assert system.forwarder.times("attach")[:4] == [0.0, 0.25, 0.5, 0.75]
    assert system.forwarder.times("attach")[-1] == pytest.approx(10.25, abs=0.3)


async def test_streams_shorter_than_a_second_without_an_event_are_no_sign_of_life(system: System) -> None:
    system.with_bounds(silence=timedelta(seconds=10))
    await system.enrol("echo:a", replays=True)
    system.forwarder.plan("echo:a", task(position="b.1"))
    for _ in range(60):
        system.forwarder.plan("echo:a", 0.9)
    assert end(await system.send()) == ("failed", "WORKER_SILENT")
    assert system.forwarder.times("attach")[-1] == pytest.approx(10.0, abs=1.2)


async def test_streams_that_last_longer_than_a_second_are_a_sign_of_life(system: System) -> None:
    system.with_bounds(silence=timedelta(seconds=10))
    system.watch()
    await system.enrol("echo:a", replays=True)
    system.forwarder.plan("echo:a", task(position="b.1"))
    for _ in range(30):
        system.forwarder.plan("echo:a", 1.1)
    system.forwarder.plan("echo:a", status("completed", position="b.2"))
    assert end(await system.send()) == ("completed", "")
    assert system.forwarder.times("attach")[:3] == [0.0, 1.35, 2.7]


async def test_a_stream_that_opens_is_a_sign_of_life(system: System) -> None:
    system.with_bounds(silence=timedelta(seconds=10))
    system.watch()
    await system.enrol("echo:a", replays=True)
    system.forwarder.plan("echo:a", task(position="b.1"), 8.0, CUT)
    system.forwarder.plan("echo:a", 8.0, status("completed", position="b.2"))
    assert end(await system.send()) == ("completed", "")


async def test_a_stream_that_brings_only_a_position_is_a_sign_of_life(system: System) -> None:
    await system.enrol("echo:a", replays=True)
    system.forwarder.plan("echo:a", task(position="b.1"))
    for number in range(2, 5):
        system.forwarder.plan("echo:a", task(position=f"b.{number}"))
    system.forwarder.plan("echo:a", status("completed", position="b.5"))
    assert end(await system.send()) == ("completed", "")
    assert system.forwarder.times("attach") == [0.0] * 4
    assert [call.position for kind, _, call in system.forwarder.calls if kind == "attach"] == ["b.1", "b.2", "b.3", "b.4"]


async def test_streams_that_each_bring_an_event_are_a_sign_of_life(system: System) -> None:
    system.with_bounds(silence=timedelta(seconds=10))
    await system.enrol("echo:a", replays=True)
    system.forwarder.plan("echo:a", task(position="b.1"))
    for number in range(40):
        system.forwarder.plan("echo:a", 0.9, chunk("x", append=number > 0, position=f"c.{number}"))
    system.forwarder.plan("echo:a", status("completed", position="d"))
    answer = await system.send()
    assert end(answer) == ("completed", "")
    assert len(texts(answer)) == 40


async def test_invalid_answers_on_reopened_streams_are_counted(system: System) -> None:
    await system.enrol("echo:a", replays=True)
    system.forwarder.plan("echo:a", task(position="b.1"), CUT)
    for _ in range(3):
        system.forwarder.plan("echo:a", InvalidAnswer("echo:a", "HTML"))
    assert end(await system.send()) == ("failed", "INVALID_AGENT_RESPONSE")
    assert len(system.forwarder.asked("attach")) == 3


async def test_a_pause_on_a_reopened_stream_ends_the_call(system: System) -> None:
    await system.enrol("echo:a", replays=True)
    system.forwarder.plan("echo:a", task(position="b.1"), CUT)
    system.forwarder.plan("echo:a", status("input-required", "which?", position="b.2"))
    assert end(await system.send()) == ("input-required", "")
    await asyncio.sleep(0.1)
    assert len(system.forwarder.calls) == 2
    assert len(system.hub.relays) == 0


# --- a worker whose tasks outlive its process, such as another hub


DURABLE: dict[str, Any] = {
    "replays": True,
    "card": {"capabilities": {"extensions": [{"uri": REPLAY_EXTENSION, "params": {"durable": True}}]}},
}


@pytest.mark.parametrize("durable", [True, False])
async def test_a_worker_that_is_started_again_may_refuse_connections_for_a_while(system: System, durable: bool) -> None:
    minute(system)
    await system.enrol("echo:a", **(DURABLE if durable else {"replays": True}))
    system.forwarder.plan("echo:a", task(position="1"), CUT)
    for _ in range(10):
        system.forwarder.plan("echo:a", REFUSED)
    system.forwarder.plan("echo:a", status("completed", position="2"))
    assert end((await system.stream())[-1]) == (("completed", "") if durable else ("failed", "WORKER_LOST"))


async def test_a_worker_that_never_comes_back_is_given_up_after_the_allowed_silence(system: System) -> None:
    minute(system)
    await system.enrol("echo:a", **DURABLE)
    system.forwarder.plan("echo:a", task(position="1"), CUT)
    for _ in range(1_000):
        system.forwarder.plan("echo:a", REFUSED)
    began = system.clock.monotonic()
    assert end((await system.stream())[-1]) == ("failed", "WORKER_SILENT")
    assert 55 < system.clock.monotonic() - began < 70


@pytest.mark.parametrize("durable", [True, False])
async def test_a_new_lease_of_it_has_the_same_tasks(system: System, durable: bool) -> None:
    offer = DURABLE if durable else {"replays": True}
    await system.enrol("echo:a", boot="first", **offer)
    system.forwarder.plan("echo:a", task(position="1"), 1.0, CUT)
    system.forwarder.plan("echo:a", status("completed", position="2"))
    stream = asyncio.create_task(system.stream())
    await asyncio.sleep(0.5)
    await system.enrol("echo:a", boot="second", **offer)
    assert end((await stream)[-1]) == (("completed", "") if durable else ("failed", "WORKER_LOST"))
