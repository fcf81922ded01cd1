"""`rolecall ping`: is the hub well?"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from rolecall.cli.connect import problem, reaches_hub
from rolecall.cli.output import duration, say, say_json

if TYPE_CHECKING:
    from worker_sdk import HubClient


@click.command()
@click.option("--json", "as_json", is_flag=True, help="What the hub says of its health.")
@reaches_hub
async def ping(hub: HubClient, as_json: bool) -> None:
    """Ask the hub whether it is well. Exit code 0: yes, 3: no. Good as a container's health check."""
    started = time.monotonic()
    health = await hub.health()
    took = time.monotonic() - started
    if as_json:
        say_json(health)
    if health.get("status") != "ok":
        missing = [name for name, fine in (health.get("checks") or {}).items() if not fine]
        raise problem(f"the hub at {hub.url} is not well: {', '.join(missing) or 'no reason given'}", "NOT_WELL")
    if not as_json:
        say(f"ok · {hub.url} · {health.get('workers')} workers, {health.get('roles')} roles · {duration(took)}")
