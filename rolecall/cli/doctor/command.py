"""`rolecall doctor`: find problems, in the order of their dependencies, and print what to do about each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rolecall.cli.connect import chosen_address, hub_options, open_hub
from rolecall.cli.doctor.check import failed, print_check
from rolecall.cli.output import print_json

if TYPE_CHECKING:
    from rolecall.cli.doctor.check import Check


@click.command()
@click.option("--role", metavar="ROLE", help="Check this role's workers only, and require at least one.")
@click.option("--config", "file", type=click.Path(path_type=Path), metavar="FILE", help="Read this, not ./rolecall.toml.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@hub_options
def doctor(role: str | None, file: Path | None, as_json: bool, hub: str | None, token: str | None) -> None:
    """Check the settings, the hub, the token, each live worker, and a call and a stream through the hub.

    For the last two it enrols a temporary worker of its own, so it needs a token that can enrol and call: an admin token. It
    leaves no worker and no task behind.
    Below each failed check is what to do. Exit code 0: all checks passed; else that of the first failure.
    """
    done = asyncio.run(_run_checks(role, file, hub, token, as_json=as_json))
    if as_json:
        checks = [{"check": c.name, "state": c.state, "about": c.about, "fix": c.fix or None} for c in done]
        print_json({"ok": all(c.state != "fail" for c in done), "checks": checks})
    click.get_current_context().exit(next((c.code for c in done if c.state == "fail"), 0))


async def _run_checks(role: str | None, file: Path | None, hub: str | None, token: str | None, *, as_json: bool) -> list[Check]:
    done: list[Check] = []
    # Closed at once if nobody reads any more: what a check has begun must end on a loop that runs.
    async with aclosing(_checks(role, file, hub, token)) as checks:
        async for check in checks:
            done.append(check)
            if not as_json:
                print_check(check)
    return done


async def _checks(role: str | None, file: Path | None, hub: str | None, token: str | None) -> AsyncGenerator[Check, None]:
    from rolecall.cli.doctor import checks
    from worker_sdk.errors import ConfigError

    yield checks.of_settings(file)
    try:
        address = chosen_address(hub, token)
    except ConfigError as error:
        yield failed("connection", str(error), "see --hub and --token", 2)
        return
    async with open_hub(address) as api:
        token = str(address.token) if address.token is not None else None
        async with aclosing(checks.of_hub(api, token, role)) as of_hub:
            async for check in of_hub:
                yield check
