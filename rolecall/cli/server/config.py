"""`rolecall config`: the hub's settings."""

from __future__ import annotations

from pathlib import Path

import click

from hub.settings.model import load
from rolecall.cli.output import say_facts, say_json, say_table, talk


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
    loaded = load(file=file)
    talk(f"ok · {loaded.file or 'no file'} · {len(loaded.origins)} of {len(loaded.rows())} settings are not at their default")
