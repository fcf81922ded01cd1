"""Changes as lines, and the figures of `rolecall top`."""

from __future__ import annotations

from typing import Any

import pytest

from rolecall.cli import run
from rolecall.cli.watch.changes import of_task, of_worker
from rolecall.cli.watch.top import TaskCounts, table_of
from tests.helpers.processes import ROLECALL
from tests.helpers.terminal import Terminal
from tests.unit.cli.scripted_hub import Response, ScriptedHub
from worker_sdk import AgentInfo

TASK = "01a1f72c-7c8e-738c-94c5-d138cf90f0d7"


def change(event: str, state: str, task: str = TASK, events: int = 1, **members: Any) -> dict[str, Any]:
    usual = {"role": "echo", "worker": "echo:a", "context_id": "c", "created": "2026-01-31T12:00:00.000Z"}
    row = {"id": task, "state": state, "events": events, "updated": "2026-01-31T12:00:00.250Z", **usual}
    row |= {key: members.pop(key) for key in ("question", "role", "worker") if key in members}
    return {"revision": 1, "event": event, "task": row, "parent": None, "holder": "anna", **members}


@pytest.mark.parametrize(
    ("given", "line", "colour"),
    [
        (change("admitted", "submitted", worker=None), "echo f0d7 is called", None),
        (change("admitted", "submitted", parent="…-1234"), "echo:a f0d7 is called by task 1234", None),
        (change("changed", "input-required", question="Which\none?"), "echo:a f0d7 asks: Which one?", "yellow"),
        (change("ended", "completed"), "echo:a f0d7 ✓ 250 ms", "green"),
        (change("ended", "failed", reason="WORKER_LOST", detail="gone"), "echo:a f0d7 ✗ failed: WORKER_LOST", "red"),
        (change("ended", "rejected", detail="not today"), "echo:a f0d7 ✗ rejected: not today", "red"),
        (change("ended", "canceled"), "echo:a f0d7 ✗ canceled", "red"),
        (change("gone", "completed"), "echo:a f0d7 answered with a message, or took no call", None),
        (change("ended", "failed", detail="x" * 300), f"echo:a f0d7 ✗ failed: {'x' * 190}…", "red"),
    ],
)
def test_a_change_of_a_task_is_one_line(given: dict[str, Any], line: str, colour: str | None) -> None:
    shown = of_task(given)
    assert shown is not None
    assert (shown[0].partition("  ")[2], shown[1]) == (line, colour)


def test_a_task_that_goes_on_is_no_line() -> None:
    assert of_task(change("changed", "working")) is None
    assert of_task(change("changed", "submitted")) is None


@pytest.mark.parametrize(
    ("event", "line", "colour"),
    [
        ("enrolled", "echo:a is ready", "green"),
        ("changed", "echo:a is suspect: slow", None),
        ("expired", "echo:a has missed its heartbeats: slow", "yellow"),
        ("of a later hub", "echo:a of a later hub: slow", None),
    ],
)
def test_a_change_of_a_worker_is_one_line(event: str, line: str, colour: str | None) -> None:
    reason = "" if event == "enrolled" else "slow"
    at = "2026-01-31T12:00:00.000Z"
    text, shown = of_worker({"event": event, "name": "echo:a", "state": "suspect", "reason": reason, "at": at})
    assert (text.partition("  ")[2], shown) == (line, colour)


def test_top_waits_for_a_hub_that_goes_and_ends_with_an_error_that_lasts(hub: ScriptedHub) -> None:
    agent = {"name": "echo:a", "role": "echo", "instance_id": "a", "state": "ready", "load": {"in_flight": 0, "capacity": 4}}
    live = Response({"agents": [agent], "next_cursor": None})
    refused = Response({"title": "no", "reason": "UNAUTHENTICATED", "detail": "No."}, 401)
    away = Response({"title": "draining", "reason": "HUB_DRAINING", "detail": "The hub stops."}, 503)
    hub.on("GET /registry/tasks", Response({"tasks": [], "total": 0, "next_cursor": None}))
    hub.on("GET /registry/tasks/events", Response(frames=[], hold=True))
    hub.on("GET /registry/agents", live, away, away, live, live, refused)
    with Terminal([*ROLECALL, "top", "--interval", "0.2"], env={"ROLECALL_HUB": hub.url}, columns=80) as terminal:
        assert terminal.wait() == 4
    *tables, end = terminal.output.split("\x1b[H")
    shown = [table.split("\r\n")[2].partition("\x1b")[0] for table in [*tables[1:], end]]
    live_line, away_line = f"1 worker · hub {hub.url}", f"waiting for the hub at {hub.url}"
    assert shown == [live_line, away_line, away_line, live_line, live_line]
    assert f"{live_line}\x1b[K\x1b[J\r\n\x1b[?25h\x1b[31merror:\x1b[0m No. [UNAUTHENTICATED]\r\n" in end


def test_top_once_leaves_out_what_is_counted_over_a_while(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    agent = {"name": "echo:a", "role": "echo", "instance_id": "a", "state": "ready", "load": {"in_flight": 1, "capacity": 4}}
    works = {"id": TASK, "role": "echo", "state": "working", "events": 1}
    hub.on("GET /registry/tasks", Response({"tasks": [works], "total": 1, "next_cursor": None}))
    hub.on("GET /registry/tasks/events", Response(frames=[], hold=True))
    hub.on("GET /registry/agents", Response({"agents": [agent], "next_cursor": None}))
    assert run(["top", "--once"]) == 0
    head, row, last = capsys.readouterr().out.splitlines()
    assert head.split() == ["ROLE", "READY", "WORKERS", "LOAD", "RUNNING", "WAITING"]
    assert (row.split(), last) == (["echo", "1", "1", "1/4", "1", "0"], f"1 worker · hub {hub.url}")


def test_top_counts_what_runs_waits_and_fails_and_the_rates_of_ten_seconds() -> None:
    counts = TaskCounts()
    counts.begin_with(change("admitted", "working", task="old", events=4)["task"])
    for at, (event, state, task, events) in enumerate(
        [
            ("admitted", "submitted", "one", 0),
            ("changed", "working", "one", 1),
            ("admitted", "submitted", "two", 0),
            ("changed", "input-required", "two", 3),
            ("ended", "failed", "one", 6),
            ("ended", "completed", "old", 14),
            ("admitted", "submitted", "three", 0),
            ("gone", "completed", "three", 1),
        ]
    ):
        counts.take(change(event, state, task=task, events=events), now=100.0 + at)
    agents = [AgentInfo("echo:a", "echo", "a", state="ready", in_flight=1, capacity=4), AgentInfo("idle:a", "idle", "a")]
    header, echo, idle = table_of(agents, counts, now=108.0)
    assert header[0] == "ROLE"
    assert echo == ("echo", "1", "1", "1/4", "0", "1", "1", "0.3", "2.0")
    assert idle == ("idle", "0", "1", "0", "0", "0", "0", "0.0", "0.0")
    assert table_of(agents, counts, now=120.0)[1][7:] == ("0.0", "0.0")
