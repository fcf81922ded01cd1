"""`rolecall ping`, `config` and `version`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hub.cli.connect import problem, reaches_hub
from hub.cli.output import duration, say, say_facts, say_json, say_table, talk

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


@click.group(short_help="The hub's settings, and where they come from.")
def config() -> None:
    """The hub's settings: what they are, where they come from, whether they are right."""


_file = click.option(
    "--config", "file", type=click.Path(path_type=Path), metavar="FILE", help="Read this, not ./rolecall.toml."
)


@config.command("show")
@_file
@click.option("--origin", is_flag=True, help="Also where each value comes from.")
@click.option("--json", "as_json", is_flag=True)
def show_config(file: Path | None, origin: bool, as_json: bool) -> None:
    """Show every setting as `rolecall serve` would take it, started here and now."""
    from hub.config import load

    rows = load(file=file).rows()
    if as_json:
        say_json({key: {"value": value, "origin": source} for key, value, source in rows})
    elif origin:
        say_table(("SETTING", "VALUE", "FROM"), rows)
    else:
        say_facts([(key, value) for key, value, _ in rows])


@config.command("validate")
@_file
def validate_config(file: Path | None) -> None:
    """Check file and environment. Every problem is listed with its place; exit code 2 if there is one."""
    from hub.config import load

    loaded = load(file=file)
    talk(f"ok · {loaded.file or 'no file'} · {len(loaded.origins)} of {len(loaded.rows())} settings are not at their default")


@click.command()
@click.option("--json", "as_json", is_flag=True)
def version(as_json: bool) -> None:
    """Print the version of Rolecall, and of what it runs on."""
    import platform
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as version_of

    from hub import __version__

    facts = {"rolecall": __version__, "python": platform.python_version(), "platform": platform.platform(terse=True)}
    for name in ("quart", "hypercorn", "httpx"):
        try:
            facts[name] = version_of(name)
        except PackageNotFoundError:
            facts[name] = "not installed"
    if as_json:
        say_json(facts)
    else:
        say(f"rolecall {__version__}")
        say_facts([(name, value) for name, value in facts.items() if name != "rolecall"])
