"""`rolecall logs`: workers and tasks, as they come and go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from rolecall.cli.connect import reaches_hub
from rolecall.cli.output import print_line, print_notice
from rolecall.cli.watch.changes import ShownLine, of_task, of_worker
from rolecall.model.a2a import JsonObject

if TYPE_CHECKING:
    from worker_sdk import HubClient
    from worker_sdk.calling.feed import HubFeed


@click.command()
@click.option("--role", metavar="ROLE", help="Only this role.")
@click.option("--json", "as_json", is_flag=True, help="Each change as a JSON line, as the feeds of the HTTP API have it.")
@reaches_hub
async def logs(hub: HubClient, role: str | None, as_json: bool) -> None:
    """Print which workers come and go, and which tasks begin, ask and end, until Ctrl-C. Waits for a hub that restarts.

    A task is named by the last four characters of its id, which `rolecall tasks show` takes too.
    """
    print_notice(f"watching {hub.url}, Ctrl-C ends", "dim")
    workers = _show(hub.agent_changes(), of_worker, as_json, role)
    of_role = _show(hub.task_changes(role=role), of_task, as_json)
    await asyncio.gather(
        asyncio.create_task(workers, name="changes of workers"), asyncio.create_task(of_role, name="changes of tasks")
    )


async def _show(
    feed: HubFeed, line_of: Callable[[JsonObject], ShownLine | None], as_json: bool, role: str | None = None
) -> None:
    async for change in feed:
        if role not in (None, change.get("role")):
            continue
        if as_json:
            click.echo(json.dumps(change, ensure_ascii=False))
        elif (line := line_of(change)) is not None:
            print_line(*line)
