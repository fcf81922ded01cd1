"""What happens at the hub, among the lines of the programs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from rolecall.cli.console import hub_changes
from rolecall.cli.console.console import Console, Printer
from rolecall.cli.console.hub_changes import HubChanges
from rolecall.cli.console.hub_choice import ChosenHub
from rolecall.cli.console.programs import Program
from rolecall.cli.server.own_hub import OwnHub
from tests.unit.cli.scripted_hub import Response, ScriptedHub
from worker_sdk import AgentInfo
from worker_sdk.config import HubAddress

AT = "2026-01-31T12:00:00.000Z"
WORKERS, CALLS, HOLDER = "GET /registry/events", "GET /registry/tasks/events", "GET /registry/me"
RIGHTS = {"name": "anna", "kind": "admin", "workspace": "default", "rights": ["read", "call", "enrol"]}
OF_WORKER = RIGHTS | {"name": "farm", "kind": "worker", "rights": ["read", "enrol"]}
PROGRAMS = [Program("shouter", (), Path(), {}, instance="one"), Program("announce coder", (), Path(), {}, role="coder")]
DRAINING = Response({"title": "draining", "reason": "HUB_DRAINING", "detail": "The hub stops."}, 503)
QUIET = Response(frames=[], hold=True)


def worker(name: str, event: str = "enrolled", epoch: int = 1) -> dict[str, Any]:
    role, _, instance = name.partition(":")
    members = {"name": name, "role": role, "instance_id": instance, "epoch": epoch, "state": "ready", "reason": "", "at": AT}
    return {"revision": 1, "event": event, **members}


def call(event: str, state: str, task: str = "f0d7") -> dict[str, Any]:
    row = {"id": f"01a1f72c-{task}", "role": "echo", "worker": "echo:a", "state": state, "created": AT, "updated": AT}
    return {"revision": 1, "event": event, "parent": None, "task": row}


class Shown:
    """The lines of a console, without times."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.takes = threading.Event()
        self.takes.set()
        self.printer = Printer(self._write)
        self.console = Console(self.printer, own="up", colour=False)

    def _write(self, text: str) -> None:
        self.takes.wait(10)
        name, _, line = text.rstrip("\n").partition("| ")
        self.lines.append(f"{name.strip()}| {line.partition('  ')[2] or line}")

    async def until(self, *lines: str) -> None:
        async with asyncio.timeout(10):
            while len(self.lines) < len(lines):  # noqa: ASYNC110 - a thread writes them
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert sorted(self.lines) == sorted(lines)


@asynccontextmanager
async def shown_at(hub: ScriptedHub, *ready: str, token: str | None = None, own: bool = False) -> AsyncIterator[Shown]:
    """`ready`: the workers of which the welcome has told. `token`: that of callers at a hub of its own."""
    shown = Shown()
    started = cast(OwnHub, object()) if own else None
    changes = HubChanges(
        ChosenHub(HubAddress(hub.url, "workers"), started, caller_token=token or None), PROGRAMS, shown.console
    )
    changes.after_welcome(AgentInfo(name, *name.split(":"), raw={"epoch": 1}) for name in ready)
    before = asyncio.all_tasks()
    task = asyncio.create_task(changes.show(), name="changes at the hub")
    try:
        yield shown
    finally:
        shown.takes.set()
        task.cancel()
        await asyncio.wait([task])
        assert asyncio.all_tasks() <= before
        assert shown.printer.close(5)


@pytest.fixture(autouse=True)
def quiet(hub: ScriptedHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_changes, "_PAUSE", 0.01)
    hub.on(WORKERS, QUIET)
    hub.on(CALLS, QUIET)
    hub.on(HOLDER, Response(RIGHTS))


async def test_a_call_is_a_line_at_its_begin_and_at_its_end(hub: ScriptedHub) -> None:
    frames = [(1, call("admitted", "submitted")), (2, call("changed", "working")), (3, call("ended", "completed"))]
    hub.on(CALLS, Response(frames=frames, hold=True))
    async with shown_at(hub) as shown:
        await shown.until("logs| echo:a f0d7 is called", "logs| echo:a f0d7 ✓ 0 ms")


async def test_at_a_hub_that_others_share_workers_of_these_roles_are_shown(hub: ScriptedHub) -> None:
    changes = [worker("shouter:other"), worker("shouter:one"), worker("shouter:two"), worker("coder:x"), worker("shop:a")]
    hub.on(WORKERS, Response(frames=list(enumerate(changes, 1)), hold=True))
    async with shown_at(hub) as shown:
        await shown.until("logs| shouter:one is ready", "logs| shouter:two is ready", "logs| coder:x is ready")


async def test_at_a_hub_of_its_own_all_workers_are_shown(hub: ScriptedHub) -> None:
    hub.on(WORKERS, Response(frames=[(1, worker("shop:a")), (2, worker("shop:a", "expired"))], hold=True))
    async with shown_at(hub, own=True) as shown:
        await shown.until("logs| shop:a is ready", "logs| shop:a has missed its heartbeats")


async def test_what_the_welcome_has_said_is_not_repeated(hub: ScriptedHub) -> None:
    changes = [worker("shouter:one"), worker("shouter:one", "draining"), worker("shouter:one", epoch=2)]
    hub.on(WORKERS, Response(frames=list(enumerate(changes, 1)), hold=True))
    async with shown_at(hub, "shouter:one") as shown:
        await shown.until("logs| shouter:one is draining", "logs| shouter:one is ready")


@pytest.mark.parametrize("away", [[], [DRAINING]])
async def test_a_hub_that_goes_and_comes_back_repeats_and_loses_nothing(hub: ScriptedHub, away: list[Response]) -> None:
    """`away`: also at the first try."""
    first = Response(frames=[(1, call("admitted", "submitted", "aaaa")), (2, call("ended", "completed", "aaaa"))], cut=True)
    again = Response(frames=[(3, call("admitted", "submitted", "bbbb"))], hold=True)
    hub.on(HOLDER, *away, Response(RIGHTS))
    hub.on(CALLS, *away, first, DRAINING, again)
    async with shown_at(hub) as shown:
        lines = ("aaaa is called", "aaaa ✓ 0 ms", "bbbb is called")
        await shown.until(*(f"logs| echo:a {line}" for line in lines))
    cursors = [request.headers.get("last-event-id") for request in hub.requests if request.key == CALLS]
    assert cursors[len(away) :] == [None, "2", "2"]


@pytest.mark.parametrize(
    ("own", "holder", "why"),
    [
        (False, Response(OF_WORKER), "a token sees its own calls, and that of farm may make none"),
        (True, Response(OF_WORKER), "a token sees its own calls, and that of farm may make none; set ROLECALL_TOKEN to yours"),
        (True, Response({"title": "no", "reason": "UNAUTHENTICATED", "detail": "Unknown token."}, 401), "Unknown token."),
    ],
)
async def test_without_a_token_that_sees_calls_it_says_so_once(hub: ScriptedHub, own: bool, holder: Response, why: str) -> None:
    hub.on(HOLDER, holder)
    hub.on(WORKERS, Response(frames=[(1, worker("coder:x"))], cut=True), Response(frames=[(2, worker("coder:y"))], hold=True))
    async with shown_at(hub, own=own) as shown:
        await shown.until(f"up| calls are not shown: {why}", "logs| coder:x is ready", "logs| coder:y is ready")
    assert CALLS not in hub.calls()


async def test_at_a_hub_of_its_own_calls_are_read_with_the_token_of_callers(hub: ScriptedHub) -> None:
    hub.on(WORKERS, Response(frames=[(1, worker("coder:x"))], hold=True))
    hub.on(CALLS, Response(frames=[(1, call("admitted", "submitted"))], hold=True))
    async with shown_at(hub, own=True, token="anna") as shown:
        await shown.until("logs| echo:a f0d7 is called", "logs| coder:x is ready")
    sent = {request.key: request.headers["authorization"] for request in hub.requests}
    assert sent == {WORKERS: "Bearer workers", HOLDER: "Bearer anna", CALLS: "Bearer anna"}


@pytest.mark.parametrize("both", [True, False])
async def test_a_hub_that_refuses_a_feed_is_left_with_one_sentence(hub: ScriptedHub, both: bool) -> None:
    revoked = Response({"title": "no", "reason": "UNAUTHENTICATED", "detail": "The token was revoked."}, 401)
    hub.on(WORKERS, Response(frames=[(1, worker("coder:x"))], cut=both, hold=not both), revoked)
    hub.on(CALLS, Response(frames=[(1, call("admitted", "submitted"))], cut=True), revoked)
    async with shown_at(hub) as shown:
        sentence = "up| workers and calls are no longer shown: The token was revoked."
        await shown.until("logs| coder:x is ready", "logs| echo:a f0d7 is called", sentence)
        await _until(lambda: "changes at the hub" not in {task.get_name() for task in asyncio.all_tasks()})


async def test_a_slow_terminal_holds_up_the_feed_and_loses_no_line(hub: ScriptedHub) -> None:
    names = [f"{number:04}" for number in range(1_200)]
    hub.on(CALLS, Response(frames=[(at, call("admitted", "submitted", name)) for at, name in enumerate(names, 1)], hold=True))
    async with shown_at(hub) as shown:
        shown.takes.clear()
        await _until(lambda: CALLS in hub.calls())
        await asyncio.sleep(0.3)  # more than fit have come
        shown.takes.set()
        await shown.until(*(f"logs| echo:a {name} is called" for name in names))


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - the hub is a thread
            await asyncio.sleep(0.01)
