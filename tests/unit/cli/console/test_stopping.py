"""What people read at the first Ctrl-C."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rolecall.cli.console import stopping
from rolecall.cli.console.hub_choice import ChosenHub
from rolecall.cli.console.programs import Program
from rolecall.cli.console.stopping import Unfinished, stopping_line, unfinished
from tests.unit.cli.scripted_hub import Response, ScriptedHub
from worker_sdk.config import HubAddress

PROGRAMS = [
    Program("shouter:1", (), Path(), {}, instance="shouter:1", enrols=True),
    Program("coder:announced", (), Path(), {}, role="coder", instance="coder:announced"),
]
TASKS = [
    ("shouter:1", "working"),
    ("shouter:1", "submitted"),
    ("shouter:1", "input-required"),
    ("shouter:2", "working"),
    ("coder:announced", "working"),
    ("coder:announced", "input-required"),
    (None, "submitted"),
]


async def test_tasks_of_these_programs_are_counted_and_what_an_announced_server_asks_is_not_lost(hub: ScriptedHub) -> None:
    rows = [{"id": str(number), "worker": worker, "state": state} for number, (worker, state) in enumerate(TASKS)]
    first, rest = ({"tasks": rows[:4], "next_cursor": "n"}, {"tasks": rows[4:], "next_cursor": None})
    hub.on("GET /registry/tasks", Response(first), Response(rest))
    chosen = ChosenHub(HubAddress(hub.url, "workers"), caller_token="mine")
    assert await unfinished(chosen, PROGRAMS) == Unfinished(running=3, waiting=1)
    assert "state=submitted%2Cworking%2Cauth-required%2Cinput-required" in hub.requests[0].query
    assert {request.headers["authorization"] for request in hub.requests} == {"Bearer mine"}


async def test_a_hub_that_does_not_tell_in_time_holds_up_nobody(hub: ScriptedHub, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = ChosenHub(HubAddress(hub.url, None))
    hub.on("GET /registry/tasks", Response({"title": "no", "reason": "FORBIDDEN", "detail": "No."}, 403))
    assert await unfinished(chosen, PROGRAMS) == Unfinished()
    monkeypatch.setattr(stopping, "_PATIENCE", 0.1)
    hub.on("GET /registry/tasks", Response(frames=[], hold=True))
    async with asyncio.timeout(5):
        assert await unfinished(chosen, PROGRAMS) == Unfinished()


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (Unfinished(), "the workers finish what they do"),
        (Unfinished(1, 0), "1 task still runs, and may finish"),
        (Unfinished(2, 1), "2 tasks still run, and may finish; 1 task waits for a person, and will end"),
        (Unfinished(0, 2), "2 tasks wait for a person, and will end"),
    ],
)
def test_it_is_said_what_finishes_and_what_is_lost(found: Unfinished, text: str) -> None:
    assert stopping_line(found, own_hub=False) == f"stopping: {text} (Ctrl-C again: at once)"
    assert stopping_line(found, own_hub=True) == f"stopping: {text}; then the hub ends (Ctrl-C again: at once)"
    assert stopping_line(found, own_hub=False, whose=" of yours").count(" of yours") == text.count("task")
