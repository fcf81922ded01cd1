"""`rolecall config`: the hub's settings."""

from __future__ import annotations

from pathlib import Path

import click

from hub.settings.model import load
from rolecall.cli.output import print_facts, print_json, print_notice, print_table


@click.group()
def config() -> None:
    """The hub's settings: show their values and origins, or validate them."""


_file = click.option(
    "--config", "file", type=click.Path(path_type=Path), metavar="FILE", help="Read this, not ./rolecall.toml."
)


@config.command("show")
@_file
@click.option("--origin", is_flag=True, help="Also the origin of each value.")
@click.option("--json", "as_json", is_flag=True)
def show_config(file: Path | None, origin: bool, as_json: bool) -> None:
    """Show every setting with the value that `rolecall serve` would use here."""
    rows = load(file=file).rows()
    if as_json:
        print_json({key: {"value": value, "origin": source} for key, value, source in rows})
    elif origin:
        print_table(("SETTING", "VALUE", "FROM"), rows)
    else:
        print_facts([(key, value) for key, value, _ in rows])


@config.command("validate")
@_file
def validate_config(file: Path | None) -> None:
    """Check file and environment, and list every problem with its place. Exit code 2 if there is one."""
    loaded = load(file=file)
    print_notice(
        f"ok · {loaded.file or 'no file'} · {len(loaded.origins)} of {len(loaded.rows())} settings are not at their default"
    )
