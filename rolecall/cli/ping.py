"""`rolecall ping`: check the hub's health."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from rolecall.cli.connect import problem, reaches_hub
from rolecall.cli.output import counted, duration, print_data, print_json

if TYPE_CHECKING:
    from worker_sdk import HubClient


@click.command()
@click.option("--json", "as_json", is_flag=True, help="The hub's health report as JSON.")
@reaches_hub
async def ping(hub: HubClient, as_json: bool) -> None:
    """Check the hub's health. Exit code 0: healthy, 3: not. Usable as a container's health check."""
    started = time.monotonic()
    health = await hub.health()
    took = time.monotonic() - started
    if as_json:
        print_json(health)
    if health.get("status") != "ok":
        missing = [name for name, passed in (health.get("checks") or {}).items() if not passed]
        raise problem(f"the hub at {hub.url} is not healthy: {', '.join(missing) or 'no reason given'}", "NOT_WELL")
    if not as_json:
        workers, roles = (counted(int(health.get(f"{what}s") or 0), what) for what in ("worker", "role"))
        print_data(f"ok · {hub.url} · {workers}, {roles} · {duration(took)}")
