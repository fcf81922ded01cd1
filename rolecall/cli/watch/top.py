"""`rolecall top`: the roles, their load and their tasks, in place."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from rolecall.cli.connect import reaches_hub
from rolecall.cli.output import counted, is_terminal, print_notice, shows_in_place, strip_control
from rolecall.cli.tasks.lists import tasks
from rolecall.model.a2a import PAUSED, TERMINAL, JsonObject

if TYPE_CHECKING:
    from worker_sdk import AgentInfo, HubClient
    from worker_sdk.calling.feed import HubFeed

_OPEN = "submitted,working,input-required,auth-required"
_WINDOW = 10.0
"""Seconds that the rates are taken over."""
_OF_A_WHILE = 3
"""The last columns count what has happened since the command began."""
_COLUMNS = ("ROLE", "READY", "WORKERS", "LOAD", "RUNNING", "WAITING", "FAILED", "CALLS/S", "EVENTS/S")


class TaskCounts:
    """What the tasks of each role do, from the changes of the feed."""

    def __init__(self) -> None:
        self._states: dict[str, tuple[str, str, int]] = {}
        """Role, state and number of events of each task that has not ended."""
        self._calls: deque[tuple[float, str, int]] = deque()
        self._events: deque[tuple[float, str, int]] = deque()
        self.failed: Counter[str] = Counter()

    def begin_with(self, task: JsonObject) -> None:
        self._states.setdefault(task["id"], (task["role"], task["state"], task["events"]))

    def take(self, change: JsonObject, now: float) -> None:
        task = change["task"]
        name, role, state, events = task["id"], task["role"], task["state"], task["events"]
        before = self._states.pop(name, (role, "", 0))
        if change["event"] == "admitted":
            self._calls.append((now, role, 1))
        self._events.append((now, role, max(0, events - before[2])))
        if change["event"] == "ended" and state == "failed":
            self.failed[role] += 1
        if state not in TERMINAL and change["event"] != "gone":
            self._states[name] = (role, state, events)

    def count(self, role: str, *, paused: bool) -> int:
        return sum(1 for of, state, _ in self._states.values() if of == role and (state in PAUSED) == paused)

    def rates(self, role: str, now: float) -> tuple[float, float]:
        """Calls and events a second. Events are counted when their task changes its state."""
        return self._rate(self._calls, role, now), self._rate(self._events, role, now)

    def roles(self) -> set[str]:
        return {role for role, _, _ in self._states.values()}

    @staticmethod
    def _rate(seen: deque[tuple[float, str, int]], role: str, now: float) -> float:
        while seen and seen[0][0] < now - _WINDOW:
            seen.popleft()
        return sum(count for _, of, count in seen if of == role) / _WINDOW


@click.command()
@click.option("--interval", type=click.FloatRange(0.2, 60), default=1.0, show_default=True, metavar="SECONDS")
@click.option("--once", is_flag=True, help="Print the table once, without what is counted over a while, and end.")
@reaches_hub
async def top(hub: HubClient, interval: float, once: bool) -> None:
    """Roles with their workers, load, tasks, calls and events a second, in place, until Ctrl-C. Tasks are the token's own.

    Waits for a hub that restarts. On a narrow terminal the last columns are left out.
    """
    from worker_sdk.errors import HubBusy, HubUnreachable, RolecallError

    counts, in_place, answers = TaskCounts(), shows_in_place(sys.stdout) and not once, True
    watch = asyncio.create_task(_count(hub.task_changes(), counts), name="changes of tasks")
    try:
        async for task in tasks(hub, state=_OPEN):
            counts.begin_with(task)
        agents = await hub.discover_agents()
        while True:
            last = f"{counted(len(agents), 'worker')} · hub {hub.url}" if answers else f"waiting for the hub at {hub.url}"
            if answers or in_place:
                rows = table_of(agents, counts, time.monotonic())
                _print_table([row[:-_OF_A_WHILE] for row in rows] if once else rows, last, in_place=in_place)
            if once:
                return
            done, _ = await asyncio.wait([watch], timeout=interval)
            for ended in done:
                ended.result()
            try:
                agents, answers = await hub.discover_agents(), True
            except (HubBusy, HubUnreachable):
                if answers and not in_place:
                    print_notice(f"waiting for the hub at {hub.url}", "dim")
                answers = False
    except RolecallError:
        if in_place:
            click.echo()  # it is told below the table
        raise
    finally:
        watch.cancel()
        if in_place:
            click.echo("\x1b[?25h", nl=False)


async def _count(feed: HubFeed, counts: TaskCounts) -> None:
    async for change in feed:
        counts.take(change, time.monotonic())


def table_of(agents: Sequence[AgentInfo], counts: TaskCounts, now: float) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [_COLUMNS]
    for role in sorted({agent.role for agent in agents} | counts.roles()):
        mine = [agent for agent in agents if agent.role == role]
        ready = sum(agent.state == "ready" for agent in mine)
        room = sum(agent.capacity or 0 for agent in mine) if all(agent.capacity for agent in mine) and mine else None
        load = f"{sum(agent.in_flight for agent in mine)}" + (f"/{room}" if room else "")
        calls, events = counts.rates(role, now)
        running, waiting = counts.count(role, paused=False), counts.count(role, paused=True)
        figures = (ready, len(mine), load, running, waiting, counts.failed[role], f"{calls:.1f}", f"{events:.1f}")
        rows.append((role, *(str(figure) for figure in figures)))
    return rows


def _print_table(rows: Sequence[tuple[str, ...]], last: str, *, in_place: bool) -> None:
    """A terminal gets the columns that it has room for. In place the table is cut at its height."""
    size = shutil.get_terminal_size()
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    while is_terminal(sys.stdout) and len(widths) > 1 and sum(widths) + 2 * (len(widths) - 1) > size.columns:
        widths.pop()
    cells = [[strip_control(cell).ljust(width) for cell, width in zip(row, widths, strict=False)] for row in rows]
    lines = ["  ".join(row).rstrip() for row in cells]
    if in_place:
        room = max(1, size.lines - 2)
        lines = lines[:room] + ([f"… and {len(lines) - room} more roles"] if len(lines) > room else [])
        cut = "\n".join(f"{line[: size.columns]}\x1b[K" for line in [*lines, last])
        click.echo(f"\x1b[?25l\x1b[H{cut}\x1b[J", nl=False)
    else:
        click.echo("\n".join([*lines, last]))
    sys.stdout.flush()
